"""How often each factor of the winner recurs among the other optima that were found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from ..kernels.contract import Array

EMPTY = 1e-6  # of the longest factor's length
SAME = 0.95  # two factors are the same when their activations' cosine is at least this, up to sign


def recurrence(winner: Array, others: Sequence[Array]) -> Array:
    """(K,) share of `others` that have each of the winner's factors. F's: (K, N).

    NaN where there are no others, and for a factor that is empty.
    """
    if not others:
        return np.full(len(winner), np.nan)
    hits = np.zeros(len(winner))
    for other in others:
        similarity = np.abs(_unit(winner) @ _unit(other).T)
        own, theirs = linear_sum_assignment(similarity, maximize=True)
        hits[own] += similarity[own, theirs] >= SAME
    return np.where(_unit(winner).any(axis=1), hits / len(others), np.nan)


def _unit(F: Array) -> Array:
    """Rows of unit length; zeros where a factor's activations are nothing but rounding."""
    norms = np.linalg.norm(F, axis=1, keepdims=True)
    solid = norms > EMPTY * norms.max(initial=0.0)
    return np.asarray(np.where(solid, F / np.where(solid, norms, 1.0), 0.0))
