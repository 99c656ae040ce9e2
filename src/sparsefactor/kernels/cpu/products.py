"""The two products that read the data, Y F and W Y, of a tile of rows: by BLAS, or of rows that are held sparse.

Kernels call `times` and `weigh`; which text is compiled depends on what Y is, so that neither pays for the other.
Sparse rows are S - A C (math.md, 4.6). Work on them goes along the factors, whose numbers lie side by side.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types
from numba.extending import overload
from numpy.typing import NDArray

from ...data import Data
from ..contract import Array
from .compiled import EXACT, njit

U = np.uint64


class Sparse(NamedTuple):
    """`SparseRows` of a block of G rows."""

    values: NDArray[np.floating]
    columns: NDArray[np.int32]
    start: NDArray[np.int64]  # (G + 1,)
    A: Array  # (G, d)
    C: Array  # (d, N)


def block_of(data: Data, rows: slice) -> Any:
    """A block's rows as kernels read them: (G, N), or `Sparse`."""
    if not data.is_sparse:
        return np.ascontiguousarray(data.Y[rows])
    own = data.Y.part(rows)
    return Sparse(own.values, own.columns, own.start, own.A, own.C)


# ---- sparse rows ----------------------------------------------------------------------------------------------------


@njit(**EXACT)
def sparse_times(Y, first, R, F, off, B):
    """B (R, K) = Y F of R rows; F: (N, K), off: (d, K) C F."""
    values, columns, start, A, _ = Y
    K, d = F.shape[1], off.shape[0]
    for r in range(R):
        i, row = first + r, U(r)
        for k in range(K):
            B[row, U(k)] = 0.0
        for p in range(d):
            a = A[i, p]
            for k in range(K):
                B[row, U(k)] -= a * off[U(p), U(k)]
        at, stop = start[i], start[i + 1]
        while at + 4 <= stop:  # so that one sum need not wait for the one before
            j0, j1, j2, j3 = U(columns[at]), U(columns[at + 1]), U(columns[at + 2]), U(columns[at + 3])
            y0, y1, y2, y3 = values[at], values[at + 1], values[at + 2], values[at + 3]
            for k in range(K):
                B[row, U(k)] += (y0 * F[j0, U(k)] + y1 * F[j1, U(k)]) + (y2 * F[j2, U(k)] + y3 * F[j3, U(k)])
            at += 4
        while at < stop:
            j, y = U(columns[at]), values[at]
            for k in range(K):
                B[row, U(k)] += y * F[j, U(k)]
            at += 1


@njit(**EXACT)
def sparse_weigh(weighted, Y, first, LY):
    """LY (K, N) = W Y of R rows; weighted: (R, K) W'."""
    values, columns, start, A, C = Y
    (R, K), N = weighted.shape, LY.shape[1]
    by_sample = np.zeros((N, K), values.dtype)
    for r in range(R):
        row = U(r)
        for at in range(start[first + r], start[first + r + 1]):
            j, y = U(columns[at]), values[at]
            for k in range(K):
                by_sample[j, U(k)] += y * weighted[row, U(k)]
    off = np.zeros((K, C.shape[0]))
    for r in range(R):
        for k in range(K):
            for p in range(C.shape[0]):
                off[k, p] += weighted[r, k] * A[first + r, p]
    for k in range(K):
        for s in range(N):
            LY[k, s] = by_sample[s, k]
        for p in range(C.shape[0]):
            for s in range(N):
                LY[k, s] -= off[k, p] * C[p, s]


@njit(**EXACT)
def sparse_row(Y, i):
    """(N,) a row of its own."""
    values, columns, start, A, C = Y
    y = np.zeros(C.shape[1], values.dtype)
    for p in range(C.shape[0]):
        for j in range(C.shape[1]):
            y[j] -= A[i, p] * C[p, j]
    for at in range(start[i], start[i + 1]):
        y[columns[at]] += values[at]
    return y


# ---- of either kind -------------------------------------------------------------------------------------------------


def beside(Y, F):
    """What `times` wants to know of F (N, K) besides: for sparse rows (d, K) C F."""
    return np.dot(Y.C, F) if isinstance(Y, Sparse) else F


def times(Y, first, R, F, off, B):
    """B (R, K) = Y F of R rows from `first` on; F: (N, K), off: what `beside` says of it."""
    if isinstance(Y, Sparse):
        sparse_times(Y, first, R, F, off, B)
    else:
        np.dot(Y[first : first + R], F, B)


def weigh(W, Y, first, R, LY):
    """LY (K, N) = W Y of R rows from `first` on; W: (K, R) of Y's type."""
    if isinstance(Y, Sparse):
        sparse_weigh(np.ascontiguousarray(W.T), Y, first, LY)
    else:
        np.dot(W, Y[first : first + R], LY)


def row_of(Y, i):
    """(N,) row i."""
    return sparse_row(Y, i) if isinstance(Y, Sparse) else Y[i]


def as_entries(values, Y):
    """Values in Y's type, in an array of their own."""
    return values.astype((Y.values if isinstance(Y, Sparse) else Y).dtype)


@overload(beside)
def _beside(Y, F):
    if isinstance(Y, types.Array):
        return lambda Y, F: F
    return lambda Y, F: np.dot(Y.C, F.astype(np.float64))


@overload(times)
def _times(Y, first, R, F, off, B):
    if isinstance(Y, types.Array):

        def dense(Y, first, R, F, off, B):
            np.dot(Y[first : first + R], F, B)

        return dense
    return lambda Y, first, R, F, off, B: sparse_times(Y, first, R, F, off, B)


@overload(weigh)
def _weigh(W, Y, first, R, LY):
    if isinstance(Y, types.Array):

        def dense(W, Y, first, R, LY):
            np.dot(W, Y[first : first + R], LY)

        return dense
    return lambda W, Y, first, R, LY: sparse_weigh(np.ascontiguousarray(W.T), Y, first, LY)


@overload(row_of)
def _row_of(Y, i):
    if isinstance(Y, types.Array):
        return lambda Y, i: Y[i]
    return lambda Y, i: sparse_row(Y, i)


@overload(as_entries)
def _as_entries(values, Y):
    if isinstance(Y, types.Array):
        return lambda values, Y: values.astype(Y.dtype)
    return lambda values, Y: values.astype(Y.values.dtype)
