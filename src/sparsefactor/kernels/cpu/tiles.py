"""Rows in fixed tiles: what the compiled row passes read, and how the tiles' sums become `Sums`.

A tile's size depends on the problem's shape alone and tiles are added in their order, so the result is the same to
the bit for any number of threads. Symmetric matrices are kept as their upper triangle, row after row ("packed").
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...data import Data
from ...model import Prior
from ..contract import Array, Message, Sums
from .compiled import OPTIONS, njit
from .lanes import LANES

ROWS_PER_TILE = 448  # fewer would cost more in calls to BLAS and in adding tiles than they spread over threads
MOST_TILES = 32
PACKED_STEP = 32  # LLVM handles four vectors of eight doubles at a time
FEWEST_TILES = 4
SHARE_BYTES = 2**28  # bound on the tiles' sums for masked data, where each holds a (K, K) matrix per sample


class Problem(NamedTuple):
    """All of the data and the prior that a row pass reads. The mask is a list of columns for each row."""

    Y: NDArray[np.floating]  # (G, N)
    row_ss: Array  # (G,)
    half_count: Array  # (G,) half the number of observed entries
    tau_shape: Array  # (G,)
    start: NDArray[np.int64]  # (G + 1,) where each row's list starts in `columns`; (1,) for complete data
    columns: NDArray[np.int32]  # the missing columns of a row, or its observed ones where those are fewer
    lists_missing: NDArray[np.bool_]  # (G,) which of the two; (0,) for complete data
    tile: int  # rows per tile
    feature_noise: bool
    noise_shape: float
    noise_rate: Array  # (G,); ones for column-wise noise
    group: NDArray[np.int64]  # (G,) which of the V groups a row is in; zeros where there is one
    first: int = 0  # the number of the first row among all rows


class TileSums(NamedTuple):
    """The sums of each tile; T = packed_size(K). V: groups, or 1."""

    LY: Array  # (tiles, K, N)
    LL: Array  # (tiles, K, K)
    LL_share: Array  # (tiles, N*, T)
    included: Array  # (tiles, K, V) sums of E[z]
    l2: Array  # (tiles, K, V)
    terms: Array  # (tiles, 3)


def build_problem(data: Data, prior: Prior) -> Problem:
    start, columns, lists_missing = column_lists(data.observed)
    return Problem(
        Y=np.ascontiguousarray(data.Y),
        row_ss=data.row_ss,
        half_count=0.5 * data.row_count,
        tau_shape=prior.noise_shape + 0.5 * data.row_count,
        start=start,
        columns=columns,
        lists_missing=lists_missing,
        tile=tile_rows(data.n_features, data.n_samples, prior.K, not data.is_complete),
        feature_noise=prior.noise == "feature",
        noise_shape=float(prior.noise_shape),
        noise_rate=np.array(np.broadcast_to(prior.noise_rate if prior.noise == "feature" else 1.0, data.n_features)),
        group=prior.group_index if prior.grouped else np.zeros(data.n_features, np.int64),
    )


def column_lists(
    observed: NDArray[np.bool_] | None,
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.bool_]]:
    """The shorter of each row's missing and observed columns, one row after another."""
    if observed is None:
        return np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.bool_)
    lists_missing = 2 * observed.sum(axis=1) >= observed.shape[1]
    rows, columns = np.nonzero(observed != lists_missing[:, None])
    start = np.zeros(len(observed) + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=len(observed)), out=start[1:])
    return start, columns.astype(np.int32), lists_missing


def tile_rows(G: int, N: int, K: int, masked: bool) -> int:
    """Rows per tile, a multiple of LANES."""
    tiles = MOST_TILES
    if masked:
        tiles = max(FEWEST_TILES, min(tiles, SHARE_BYTES // (8 * N * packed_size(K))))
    rows = max(ROWS_PER_TILE, -(-G // tiles))
    return -(-rows // LANES) * LANES


def packed_size(K: int) -> int:
    """K (K + 1) / 2, rounded up so that a loop over it has no remainder; what is beyond stays zero."""
    return -(-(K * (K + 1) // 2) // PACKED_STEP) * PACKED_STEP


def empty_tile_sums(problem: Problem, K: int) -> TileSums:
    V = n_groups(problem)
    G, N = problem.Y.shape
    tiles = -(-G // problem.tile)
    shared = N if len(problem.lists_missing) else 0
    return TileSums(
        LY=np.empty((tiles, K, N)),
        LL=np.empty((tiles, K, K)),
        LL_share=np.empty((tiles, shared, packed_size(K))),
        included=np.empty((tiles, K, V)),
        l2=np.empty((tiles, K, V)),
        terms=np.empty((tiles, 3)),
    )


def n_groups(problem: Problem) -> int:
    """V, at least 1."""
    return int(problem.group.max()) + 1


def packed_message(message: Message, masked: bool) -> tuple[Array, Array]:
    """The message's share (N*, T) and gram (1, T), packed; zeros where complete data do not need them."""
    T = packed_size(len(message.gram))
    share, gram = np.zeros((len(message.share), T)), np.zeros((1, T))
    if masked:
        pack(np.ascontiguousarray(message.share), share)
        pack(np.ascontiguousarray(message.gram)[None], gram)
    return share, gram


def total_sums(tiles: TileSums, constants: Array) -> Sums:
    """The sums over all tiles; constants: (3,) to add to their terms."""
    (_, K, N), V = tiles.LY.shape, tiles.l2.shape[2]
    LY, LL, LL_share, small = (
        np.empty((K, N)),
        np.empty((K, K)),
        np.empty((tiles.LL_share.shape[1], K, K)),
        np.empty(2 * K * V + 3),
    )
    add_tiles(tiles, LY, LL, LL_share, small)
    active, l2 = small[: 2 * K * V].reshape((2, K) if V == 1 else (2, K, V))
    return Sums(LY, LL, LL_share, active, l2, small[2 * K * V :] + constants)


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


@njit(**OPTIONS)
def copy_matrix(source, target):
    """As target[:] = source, for which Numba would compile the text of an error for seconds."""
    for k in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[k, j] = source[k, j]


@njit(**OPTIONS)
def add_tiles(tiles, LY, LL, LL_share, small):
    """The sums over all tiles, in their order. small: (2 K V + 3,) count, l2 and terms."""
    n_tiles, K, N = tiles.LY.shape
    V = tiles.l2.shape[2]
    LY[:] = 0.0
    LL[:] = 0.0
    small[:] = 0.0
    for t in range(n_tiles):
        for k in range(K):
            for j in range(N):
                LY[k, j] += tiles.LY[t, k, j]
            for m in range(K):
                LL[k, m] += tiles.LL[t, k, m]
            for v in range(V):
                small[k * V + v] += tiles.included[t, k, v]
                small[(K + k) * V + v] += tiles.l2[t, k, v]
        for m in range(3):
            small[2 * K * V + m] += tiles.terms[t, m]
    shared, T = tiles.LL_share.shape[1:]
    total = np.empty(T)
    for j in range(shared):
        total[:] = 0.0
        for t in range(n_tiles):
            for m in range(T):
                total[m] += tiles.LL_share[t, j, m]
        unpack(total, LL_share[j])
