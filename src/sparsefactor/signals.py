"""Sums of signals F'L' over draws, without a second matrix of the size of the data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
ENTRIES = 1_000_000  # of a product that is made at once


def add_signal(total: Array, F: Array, L: Array) -> None:
    """Add F L' to `total`, (n_samples, n_features), a part of the features at a time.

    F: (n_samples, n_factors); L: (n_features, n_factors).
    """
    step = max(1, ENTRIES // max(len(F), 1))
    for first in range(0, len(L), step):
        part = slice(first, min(first + step, len(L)))
        total[:, part] += F @ L[part].T
