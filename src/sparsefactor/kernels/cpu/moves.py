"""What the compiled moves share: rows in tiles, a factor's terms given the others, and how passes over rows are run.

A move needs no residuals. With b_i = y_i (w F)' and A_i the row's Gram matrix (4.4), the linear term of l_ik given
the other loadings is tau (b_ik - sum over m of A_i,km l_im), and what a move does to factors (a turn, a shear) it
does to b and A as well. So a move reads the data once, in one product, whatever it tries.

A driver (rotate_pairs, shear_directions, draw_columns) decides; passes over tiles of rows do the work and leave their
sums by tile, which are added in the order of the tiles. A driver is compiled for the calling thread, or runs as
Python, its passes on several threads, to the same bits: nothing in it may be contracted or reordered.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload
from numpy.typing import NDArray

from ..contract import Array
from ..noise import STREAM_L, STREAM_Z
from .compiled import INLINE_STRICT, STRICT, njit
from .lanes import LANES, exp_lane, log_lane
from .philox import normal, unit_pair
from .products import beside, times

STREAM_OF_Z, STREAM_OF_L = np.uint64(STREAM_Z), np.uint64(STREAM_L)
FIELDS = 10  # of `terms`
BATCH = 4  # points of a slice that one pass tries: all but the first that lies in it are in vain
LEAST = 1e-300  # of a weight, whose logarithm must be one


class MoveRows(NamedTuple):
    """A block's rows during a move."""

    first: int  # the number of its first row
    tile: int
    start: NDArray[np.int64]  # as in Problem
    columns: NDArray[np.int32]
    lists_missing: NDArray[np.bool_]
    Z: NDArray[np.int8]  # (R, K)
    L: Array  # (R, K)
    tau: Array  # (R,)
    B: Array  # (R, K) y_i (w F)'
    group: NDArray[np.int64]  # (R,)
    logit: Array  # (1 or R, K)
    terms: Array  # (FIELDS, R) of the columns that are integrated out
    sums: Array  # (tiles, 2 BATCH) what each tile adds to a reduction


class MoveColumns(NamedTuple):
    """The columns during a move, which changes them in place."""

    F: Array  # (K, N)
    by_sample: Array  # (N, K) the same
    weighted: Array  # (N, K) times the columns' weights
    gram: Array  # (K, K) of the weighted product
    plain: Array  # (K, K) F F'
    phi: Array  # (K, K) their covariance in the expanded model (2.19), and its inverse; (0, 0) where they have none
    inverse: Array


def over_rows(kernel: Any) -> Any:
    """A driver's call of kernel(first tile, last tile, rows, *args) for all tiles, as spread(run, parts, rows, *args).

    From Python `rows` is a list of blocks, `parts` of (block, first, last), and `run` a way to run them together; in
    compiled code there is one block, and its tiles, `parts` in number, follow one another.
    """

    def spread(run, parts, rows, *args):
        if run is None:  # where nothing is compiled
            kernel(0, parts, rows, *args)
        else:
            run(kernel, [(first, last, rows[block], *args) for block, first, last in parts])

    @overload(spread)
    def compiled(run, parts, rows, *args):
        def one_after_another(run, parts, rows, *args):
            kernel(0, parts, rows, *args)

        return one_after_another

    return spread


@njit(**STRICT)
def open_rows(first_tile, last_tile, rows, Y, Z, L, weighted, scale, product):
    """The rows as they are before a move, and b. weighted: (N, K) of Y's type; product: (tile, K) of Y's type."""
    G, K = L.shape
    off = beside(Y, weighted)
    for t in range(first_tile, last_tile):
        tile = t * rows.tile
        R = min(rows.tile, G - tile)
        times(Y, tile, R, weighted, off, product[:R])
        for r in range(R):
            i = tile + r
            for k in range(K):
                rows.B[i, k] = product[r, k]
                rows.Z[i, k] = Z[i, k]
                rows.L[i, k] = L[i, k] * scale[k]


@njit(**STRICT)
def given_others(first, last, rows, columns, factors, linear, grams):
    """Of rows first .. last and some factors: b - A l with their own loadings left out, and A between them.

    linear: (n, R), grams: (n (n + 1) / 2, R), both by row; neither has been multiplied by tau.
    """
    K = rows.L.shape[1]
    n, R = factors.shape[0], last - first
    L, B = rows.L[first:last], rows.B[first:last]
    gram, weighted, by_sample = columns.gram, columns.weighted, columns.by_sample
    lists_missing, start, listed = rows.lists_missing, rows.start, rows.columns
    others = np.empty((K, n))
    for a in range(n):
        for m in range(K):
            others[m, a] = gram[factors[a], m]
    for a in range(n):
        for e in range(n):
            others[factors[e], a] = 0.0
    if lists_missing.shape[0] == 0:
        product = np.dot(L, others)
        for a in range(n):
            k = factors[a]
            for r in range(R):
                linear[a, r] = B[r, k] - product[r, a]
        s = 0
        for a in range(n):
            for e in range(a, n):
                g = gram[factors[a], factors[e]]
                for r in range(R):
                    grams[s, r] = g
                s += 1
        return
    own = np.empty(K)
    for r in range(R):
        i = first + r
        whole = 1.0 if lists_missing[i] else 0.0
        sign = 1.0 - 2.0 * whole
        s = 0
        for a in range(n):
            k = factors[a]
            for m in range(K):
                own[m] = whole * gram[k, m]
            for position in range(start[i], start[i + 1]):
                j = listed[position]
                f = sign * weighted[j, k]
                for m in range(K):
                    own[m] += f * by_sample[j, m]
            for e in range(a, n):
                grams[s, r] = own[factors[e]]
                s += 1
            for e in range(n):
                own[factors[e]] = 0.0
            total = B[r, k]
            for m in range(K):
                total -= own[m] * L[r, m]
            linear[a, r] = total


@njit(**STRICT)
def column_terms(first_tile, last_tile, rows, columns, alpha, k):
    """Of l_ik given all else: the linear term, the square, the log odds, and the slab's precision, alpha (K, V).

    The first two are those of the data alone.
    """
    G = rows.L.shape[0]
    factors = np.empty(1, np.int64)
    factors[0] = k
    linear, grams = np.empty((1, rows.tile)), np.empty((1, rows.tile))
    logit, per_row = rows.logit, rows.logit.shape[0] > 1
    for t in range(first_tile, last_tile):
        first, last = t * rows.tile, min((t + 1) * rows.tile, G)
        given_others(first, last, rows, columns, factors, linear, grams)
        tau = rows.tau[first:last]
        r, square, odds = rows.terms[0, first:last], rows.terms[1, first:last], rows.terms[2, first:last]
        for i in range(len(tau)):
            r[i] = tau[i] * linear[0, i]
        for i in range(len(tau)):
            square[i] = tau[i] * grams[0, i]
        for i in range(len(tau)):
            odds[i] = logit[first + i if per_row else 0, k]
        load_precision(first, last, rows, alpha, k, 3)


@njit(**STRICT)
def load_precision(first, last, rows, alpha, k, field):
    """A field of rows first .. last: the slab's precision, alpha (K, V), of factor k in their groups."""
    out, group = rows.terms[field, first:last], rows.group[first:last]
    if alpha.shape[1] == 1:
        for i in range(len(out)):
            out[i] = alpha[k, 0]
    else:
        for i in range(len(out)):
            out[i] = alpha[k, group[i]]


@njit(**INLINE_STRICT)
def log_one_and(factor, exponent):
    """log(1 + factor e^exponent); factor <= 1."""
    top = max(exponent, 0.0)
    return top + log_lane(max(exp_lane(-top) + factor * exp_lane(exponent - top), LEAST))


@njit(**STRICT)
def added(values, n):
    """The sum of the first n: four sums that take turns, so that one addition need not wait for another."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    for i in range(0, n - 3, 4):
        s0 += values[i]
        s1 += values[i + 1]
        s2 += values[i + 2]
        s3 += values[i + 3]
    for i in range(n - n % 4, n):
        s0 += values[i]
    return (s0 + s1) + (s2 + s3)


@njit(**STRICT)
def add_sums(sums, out):
    """The sums over all tiles, in their order."""
    for n in range(out.shape[0]):
        total = 0.0
        for t in range(sums.shape[0]):
            total += sums[t, n]
        out[n] = total


@njit(**STRICT)
def draw_loadings(first_tile, last_tile, rows, k, position, stream, r, c, log_odds):
    """z_ik and l_ik of all rows given linear terms, precisions and log odds, which are rows of `terms`."""
    Z, L, terms, G = rows.Z, rows.L, rows.terms, rows.L.shape[0]
    key0, key1, sweep = stream.key0, stream.key1, stream.sweep
    lanes = np.empty(2 * LANES)
    for begin in range(first_tile * rows.tile, min(last_tile * rows.tile, G), LANES):
        n = min(LANES, G - begin)
        odds, row = terms[log_odds, begin : begin + n], np.uint64(rows.first + begin)
        for lane in range(n):
            lanes[lane] = odds[lane]
        for lane in range(LANES):
            lanes[lane] = 1.0 / (1.0 + exp_lane(-lanes[lane]))
        for lane in range(LANES):
            uniform, _ = unit_pair(np.uint64(position), row + np.uint64(lane), sweep, STREAM_OF_Z, key0, key1)
            lanes[LANES + lane] = uniform
        for lane in range(n):
            i = begin + lane
            new = 0.0
            included = lanes[LANES + lane] < lanes[lane]
            if included:
                precision = terms[c, i]
                noise = normal(np.uint64(position), row + np.uint64(lane), sweep, STREAM_OF_L, key0, key1)
                new = terms[r, i] / precision + noise / np.sqrt(precision)
            Z[i, k] = included
            L[i, k] = new
