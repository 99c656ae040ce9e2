"""Rows in fixed tiles: what the compiled row passes read, and how the tiles' sums become `Sums`.

A tile's size depends on the problem's shape alone and tiles are added in their order, so the result is the same to
the bit for any number of threads.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...data import Data
from ...data.tiles import LANES as TILE_LANES
from ...model import Prior
from ..contract import Array, Message, Sums
from .compiled import OPTIONS, njit
from .lanes import LANES
from .packed import pack, packed_size
from .products import block_of
from .shares import entries_by_sample

assert LANES == TILE_LANES  # rows of a tile come in whole groups


class Problem(NamedTuple):
    """All of the data and the prior that a row pass reads. The mask is a list of columns for each row."""

    Y: Any  # (G, N), or `Sparse`; not to be indexed: see products.py
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
    by_sample: NDArray[np.int32]  # the same entries, of LANES rows at a time, by sample: see shares.py
    listed: NDArray[np.uint8]
    first: int = 0  # the number of the first row among all rows


class TileSums(NamedTuple):
    """The sums of each tile. V: groups, or 1. What samples add to LL has no tiles: see shares.py."""

    LY: Array  # (tiles, K, N)
    LL: Array  # (tiles, K, K)
    included: Array  # (tiles, K, V) sums of E[z]
    l2: Array  # (tiles, K, V)
    terms: Array  # (tiles, 3) likelihood, loadings, noise; or weighted_ss, noise, log_odds: see kernels/contract.py


def build_problem(data: Data, prior: Prior, rows: slice, tile: int) -> Problem:
    """Of the block `rows`; tile: rows per tile, of which the block begins with a whole one."""
    start, columns, lists_missing = column_lists(None if data.observed is None else data.observed[rows])
    by_sample, listed = entries_by_sample(start, columns, data.n_samples)
    count, G = data.row_count[rows], data.n_features
    # Copies of the block's own: a part of an array of all rows would keep all of it, for every block.
    noise_rate = np.array(np.broadcast_to(prior.noise_rate if prior.noise == "feature" else 1.0, G)[rows])
    group = np.array(prior.group_index[rows]) if prior.grouped else np.zeros(len(count), np.int64)
    return Problem(
        Y=block_of(data, rows),
        row_ss=data.row_ss[rows],
        half_count=0.5 * count,
        tau_shape=prior.noise_shape + 0.5 * count,
        start=start,
        columns=columns,
        lists_missing=lists_missing,
        tile=tile,
        feature_noise=prior.noise == "feature",
        noise_shape=float(prior.noise_shape),
        noise_rate=noise_rate,
        group=group,
        by_sample=by_sample,
        listed=listed,
        first=data.first + rows.start,
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


def empty_tile_sums(tiles: int, N: int, K: int, V: int) -> TileSums:
    return TileSums(
        LY=np.empty((tiles, K, N)),
        LL=np.empty((tiles, K, K)),
        included=np.empty((tiles, K, V)),
        l2=np.empty((tiles, K, V)),
        terms=np.empty((tiles, 3)),
    )


def packed_message(message: Message, masked: bool, dtype: Any) -> tuple[Array, Array]:
    """The message's share (N*, T), of Y's type, and gram (1, T), packed; zeros where complete data do not need them."""
    T = packed_size(len(message.gram))
    share, gram = np.zeros((len(message.share), T), dtype), np.zeros((1, T))
    if masked:
        pack(np.ascontiguousarray(message.share), share)
        pack(np.ascontiguousarray(message.gram)[None], gram)
    return share, gram


def sums_of(totals: tuple[Array, ...], LL_share: Array) -> tuple[Sums, Array]:
    """`Sums` from the totals of `TileSums`, and (3,) those of their terms, which each method names."""
    LY, LL, count, l2, terms = totals
    if l2.shape[1] == 1:
        count, l2 = count[:, 0], l2[:, 0]
    return Sums(LY, LL, LL_share, count, l2), terms


@njit(**OPTIONS)
def copy_matrix(source, target):
    """As target[:] = source, for which Numba would compile the text of an error for seconds."""
    for k in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[k, j] = source[k, j]


@njit(**OPTIONS)
def add_tiles(tiles, LY, LL, small):
    """The sums over all tiles, along the tree of data/tiles.py. small: (2 K V + 3,) count, l2 and terms.

    The tiles' own are written over.
    """
    n_tiles, K, N = tiles.LY.shape
    V = tiles.l2.shape[2]
    step = 1
    while step < n_tiles:
        for t in range(0, n_tiles - step, 2 * step):
            for k in range(K):
                for j in range(N):
                    tiles.LY[t, k, j] += tiles.LY[t + step, k, j]
                for m in range(K):
                    tiles.LL[t, k, m] += tiles.LL[t + step, k, m]
                for v in range(V):
                    tiles.included[t, k, v] += tiles.included[t + step, k, v]
                    tiles.l2[t, k, v] += tiles.l2[t + step, k, v]
            for m in range(3):
                tiles.terms[t, m] += tiles.terms[t + step, m]
        step *= 2
    for k in range(K):
        for j in range(N):
            LY[k, j] = tiles.LY[0, k, j]
        for m in range(K):
            LL[k, m] = tiles.LL[0, k, m]
        for v in range(V):
            small[k * V + v] = tiles.included[0, k, v]
            small[(K + k) * V + v] = tiles.l2[0, k, v]
    for m in range(3):
        small[2 * K * V + m] = tiles.terms[0, m]
