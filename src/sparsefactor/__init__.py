"""Bayesian sparse factor analysis."""

__version__ = "0.1.0"
