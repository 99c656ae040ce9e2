"""Kernels in JAX, for a GPU: the same equations as the oracle, vectorised over rows."""
