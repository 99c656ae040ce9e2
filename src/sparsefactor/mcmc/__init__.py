"""Collapsed Gibbs sampling."""

from .sample import sample as sample

__all__ = ["sample"]
