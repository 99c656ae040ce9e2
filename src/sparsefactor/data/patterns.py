"""Samples by what is missing: those with the same entries observed have much in common (math.md, 2.17c, 3.20)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .matrix import Data


class Patterns(NamedTuple):
    """Samples in which the same features are observed, side by side."""

    order: NDArray[np.intp]  # (N,) their numbers
    first: NDArray[np.int64]  # (P + 1,) where each pattern's begin
    seen: NDArray[np.bool_]  # (P, G)

    def samples(self) -> list[NDArray[np.intp]]:
        """Of each pattern."""
        return np.split(self.order, self.first[1:-1])


def patterns_of(data: Data) -> Patterns:
    """Of a mask; complete data have one."""
    if data.observed is None:
        seen, of = np.ones((1, data.n_features), bool), np.zeros(data.n_samples, np.intp)
    else:
        seen, of = np.unique(data.observed.T, axis=0, return_inverse=True)
    order = np.argsort(of.ravel(), kind="stable")
    first = np.zeros(len(seen) + 1, np.int64)
    np.cumsum(np.bincount(of.ravel(), minlength=len(seen)), out=first[1:])
    return Patterns(order, first, np.ascontiguousarray(seen))
