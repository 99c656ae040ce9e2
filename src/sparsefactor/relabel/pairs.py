"""Factors in pairs: the cheapest assignment, and that of the factors most alike. All matching goes by these."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


def assignment(cost: Array) -> tuple[Indices, Indices]:
    """The rows and columns of the cheapest assignment."""
    # Imported here, since it takes longer to import than all of this package.
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(cost)


def alike(A: Array, B: Array) -> tuple[Array, Indices, Indices]:
    """Columns of A (n, K) and B (n, J): the cosines of all pairs up to sign, (K, J), and which a goes with which b."""
    cosine = np.abs(unit(A).T @ unit(B))
    return cosine, *assignment(-cosine)


def unit(matrix: NDArray[np.floating]) -> Array:
    """(..., rows, K) with columns of unit norm; a column of zeros stays one."""
    norm = np.linalg.norm(matrix, axis=-2, keepdims=True)
    return np.asarray(matrix / np.where(norm > 0, norm, 1.0))
