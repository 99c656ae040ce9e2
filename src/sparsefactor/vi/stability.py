"""How often each factor of the winner recurs among the other optima that were found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from ..kernels.contract import Array

SAME = 0.95  # two factors are the same when their activations' cosine is at least this, up to sign


def recurrence(winner: Array, others: Sequence[Array], empty: NDArray[np.bool_]) -> Array:
    """(K,) share of `others` that have each of the winner's factors. F's: (K, N); empty: (K,) of the winner's.

    NaN where there are no others, and for a factor that is empty.
    """
    if not others:
        return np.full(len(winner), np.nan)
    hits = np.zeros(len(winner))
    for other in others:
        similarity = np.abs(_unit(winner) @ _unit(other).T) * ~empty[:, None]
        own, theirs = linear_sum_assignment(similarity, maximize=True)
        hits[own] += similarity[own, theirs] >= SAME
    return np.where(empty, np.nan, hits / len(others))


def _unit(F: Array) -> Array:
    """Rows of unit length; zeros stay zeros."""
    norms = np.linalg.norm(F, axis=1, keepdims=True)
    return np.asarray(F / np.where(norms > 0, norms, 1.0))
