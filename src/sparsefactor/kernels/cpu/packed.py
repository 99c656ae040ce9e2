"""Symmetric matrices as their upper triangle, row after row ("packed")."""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np

from .compiled import OPTIONS, njit

PACKED_STEP = 32  # LLVM handles four vectors of eight doubles at a time


def packed_size(K: int) -> int:
    """K (K + 1) / 2, rounded up so that a loop over it has no remainder; what is beyond stays zero."""
    return -(-(K * (K + 1) // 2) // PACKED_STEP) * PACKED_STEP


@njit(**OPTIONS)
def packed_offset(k, K):
    """Where row k of the upper triangle lies, less k: entry (k, m) with m >= k is at packed_offset(k, K) + m."""
    return np.uint64(k * K - k * (k + 1) // 2)


@njit(**OPTIONS)
def pack(square, packed):
    """The upper triangles of square (n, K, K) into packed (n, T)."""
    n, K, _ = square.shape
    for j in range(n):
        for k in range(K):
            offset = packed_offset(k, K)
            for m in range(k, K):
                packed[j, offset + np.uint64(m)] = square[j, k, m]


@njit(**OPTIONS)
def unpack(packed, square):
    """The symmetric matrix whose upper triangle is packed (T,)."""
    K = square.shape[0]
    for k in range(K):
        offset = packed_offset(k, K)
        for m in range(k, K):
            square[k, m] = packed[offset + np.uint64(m)]
            square[m, k] = packed[offset + np.uint64(m)]
