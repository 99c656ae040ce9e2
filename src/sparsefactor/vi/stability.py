"""How often each factor of the best restart recurs among the other restarts that ended near it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..kernels.contract import Array
from ..relabel import alike

SAME = 0.95  # two factors are the same when their activations' cosine is at least this, up to sign


def agreement(winner: Array, others: Sequence[Array]) -> Array:
    """(len(others), K) the cosine of each of the winner's factors with its match in each of the others. F's: (K, N)."""
    found = np.zeros((len(others), len(winner)))
    for row, other in zip(found, others, strict=True):
        cosine, own, theirs = alike(winner.T, other.T)
        row[own] = cosine[own, theirs]
    return found


def recurrence(cosines: Array, empty: NDArray[np.bool_]) -> Array:
    """(K,) share of the others that have each of the winner's factors.

    NaN where there are no others, and for a factor that is empty.
    """
    share = np.mean(cosines >= SAME, axis=0) if len(cosines) else np.full(len(empty), np.nan)
    return np.where(empty, np.nan, share)
