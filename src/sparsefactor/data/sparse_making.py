"""From a sparse matrix as a user has it to `SparseRows`: the checks of its values, centring and scaling.

Samples by features in columns (CSC) is features by samples in rows (CSR): the arrays are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .sparse import SparseRows


def is_complete(matrix: Any) -> bool:
    """Whether no entry of a SciPy matrix is missing."""
    return not np.isnan(matrix.data).any()


def sparse_rows(matrix: Any, dtype: Any) -> SparseRows:
    """A SciPy matrix (n_samples, n_features) in columns, as it is, transposed; its arrays are never written to."""
    if not matrix.has_canonical_format:  # entries given twice are to be added
        matrix = matrix.copy()
        matrix.sum_duplicates()
    n_samples, n_features = matrix.shape
    with np.errstate(over="ignore"):  # whoever asked looks for infinities
        values = matrix.data.astype(dtype, copy=False)
    return SparseRows(
        values=values,
        columns=matrix.indices.astype(np.int32, copy=False),
        start=matrix.indptr.astype(np.int64),
        A=np.zeros((n_features, 0)),
        C=np.zeros((0, n_samples)),
    )


def extremes(Y: SparseRows) -> tuple[float, float]:
    """The smallest and the largest entry, of a matrix from which nothing is taken off."""
    some_zero = len(Y.values) < len(Y) * Y.shape[1]
    bounds = [float(fold(Y.values, initial=0.0)) if some_zero else float(fold(Y.values)) for fold in (np.min, np.max)]
    return bounds[0], bounds[1]


def first_infinite(Y: SparseRows) -> tuple[int, tuple[int, int]]:
    """How many entries are infinite, and the sample and feature of the first of them."""
    places = np.flatnonzero(np.isinf(Y.values))
    if not len(places):
        return 0, (0, 0)
    feature = int(np.searchsorted(Y.start, places[0], side="right")) - 1
    return len(places), (int(Y.columns[places[0]]), feature)


def less_means(Y: SparseRows) -> tuple[SparseRows, NDArray[np.float64]]:
    """Y less each row's mean, and the means.

    A row without a zero is centred where it stands, in two steps as a dense one: its mean may be large beside what is
    left. Beside a zero it cannot be, by more than the root of their number.
    """
    G, N = Y.shape
    mean, A = np.empty(G), np.zeros((G, 1))
    values = Y.values.astype(np.float64) if (np.diff(Y.start) == N).any() else Y.values
    for i in range(G):
        own = slice(Y.start[i], Y.start[i + 1])
        mean[i] = np.sum(Y.values[own], dtype=np.float64) / N
        if own.stop - own.start == N:
            rest = Y.values[own] - mean[i]
            second = rest.mean()
            values[own], mean[i] = rest - second, mean[i] + second
        else:
            A[i, 0] = mean[i]
    return SparseRows(values.astype(Y.dtype), Y.columns, Y.start, A, np.ones((1, N))), mean


def over_spreads(Y: SparseRows, offset: NDArray[np.float64]) -> tuple[SparseRows, NDArray[np.float64]]:
    """Y with each row divided by its root mean square, and what it was divided by; a row that does not vary stays."""
    varies = Y.largest() > 1e-12 * np.abs(offset)
    square = np.empty(len(Y))
    for part in Y.parts():
        square[part] = np.einsum("ij,ij->i", Y[part], Y[part], dtype=np.float64)
    spread = np.where(varies, np.sqrt(np.where(varies, square, 1.0) / Y.shape[1]), 1.0)
    return Y / spread[:, None], spread
