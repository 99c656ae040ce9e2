"""The row pass of variational inference where entries are missing: every row has its own Gram matrix."""

# mypy: allow-untyped-defs

from __future__ import annotations

from .compiled import INLINE, OPTIONS, njit
from .packed import packed_offset
from .vi_lanes import U


@njit(**OPTIONS)
def by_lane(grams, first, n, A):
    """Rows first .. first + n of grams as A (T, LANES)."""
    for r in range(n):
        for t in range(A.shape[0]):
            A[t, r] = grams[first + r, t]


@njit(**OPTIONS)
def multiply_rows(A, mean, a_kk, y):
    """y = A_i E[l_i], and the diagonals of A_i."""
    K = mean.shape[0]
    for k in range(K):
        diagonal = packed_offset(k, K) + U(k)
        for r in range(y.shape[1]):
            a_kk[k, r] = A[diagonal, r]
        for r in range(y.shape[1]):
            y[k, r] = A[diagonal, r] * mean[k, r]
    for k in range(K):
        offset = packed_offset(k, K)
        for m in range(k + 1, K):
            t = offset + U(m)
            for r in range(y.shape[1]):
                y[k, r] += A[t, r] * mean[m, r]
            for r in range(y.shape[1]):
                y[m, r] += A[t, r] * mean[k, r]


@njit(**INLINE)
def add_row_products(A, k, delta, y):
    """y_k += sum over m < k of A_mk d_m, A being each row's own."""
    K = delta.shape[0]
    for m in range(k):
        t = packed_offset(m, K) + U(k)
        for r in range(y.shape[1]):
            y[k, r] += A[t, r] * delta[m, r]
