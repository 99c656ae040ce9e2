"""Collapsed Gibbs sampling: the state, one sweep, and the moves. Chains run it, and the search of VI hops with it."""
