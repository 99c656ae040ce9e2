"""The row pass of variational inference where entries are missing: every row has its own Gram matrix."""

# mypy: allow-untyped-defs

from __future__ import annotations

from .compiled import INLINE, OPTIONS, njit
from .tiles import packed_offset
from .vi_lanes import U


@njit(**OPTIONS)
def row_grams(row, n, start, columns, lists_missing, share, whole, grams, A):
    """A_i (4.4) of n rows, packed, as A (T, LANES), from the shorter of the missing and observed columns."""
    T = share.shape[1]
    for r in range(n):
        i = row + r
        sign = 1.0 if lists_missing[i] else 0.0
        for t in range(T):
            grams[r, t] = sign * whole[0, t]
        sign = 1.0 - 2.0 * sign
        for position in range(start[i], start[i + 1]):
            j = columns[position]
            for t in range(T):
                grams[r, t] += sign * share[j, t]
    for r in range(n):
        for t in range(T):
            A[t, r] = grams[r, t]


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


@njit(**OPTIONS)
def row_outers(row, n, start, columns, lists_missing, tau, mean, var, l, outer, LL, LL_share):
    """Add w E[l l'] of n rows to the tile's LL and LL_share (4.5)."""
    K, T = mean.shape[0], outer.shape[0]
    for r in range(n):
        i = row + r
        for k in range(K):
            l[k] = mean[k, r]
        for k in range(K):
            offset, weighted = packed_offset(k, K), tau[i] * l[k]
            for m in range(k, K):
                outer[offset + U(m)] = weighted * l[U(m)]
            outer[offset + U(k)] += tau[i] * var[k, r]
        sign = 1.0
        if lists_missing[i]:
            sign = -1.0
            for t in range(T):
                LL[t] += outer[t]
        for position in range(start[i], start[i + 1]):
            j = columns[position]
            for t in range(T):
                LL_share[j, t] += sign * outer[t]
