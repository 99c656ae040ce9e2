"""Masked data: a row's Gram matrix from the samples' shares, a sample's from the rows', in blocks that stay in cache.

Every listed entry (i, j) adds a packed matrix of K (K + 1) / 2 numbers twice: share j to row i's (4.4), and w E[l l']
of row i to sample j's (4.5). One after another, each addition would come from beyond the cache. So rows take the
shares of a few samples at a time; and samples, a few at a time, take LANES rows at a time, whose entries are sorted by
sample beforehand. The order of additions depends on the mask and the problem's shape alone. What is added many times
has Y's type: the time goes into reading it from the second level of the cache.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .compiled import EXACT, INLINE, OPTIONS, njit
from .lanes import LANES
from .packed import packed_offset, unpack

U = np.uint64
GRAM_ROWS = 256  # whose matrices are built together
SHARE_BYTES = 2**18  # of the shares that are added to them at a time
SAMPLE_BYTES = 2**19  # of the samples' matrices that are built together


@njit(**EXACT)
def sort_by_sample(start, columns, by_sample, listed):
    """The entries of each LANES rows by sample: `listed` has their rows, by_sample (groups, N + 1) where one begins."""
    G, N = start.shape[0] - 1, by_sample.shape[1] - 1
    place = np.empty(N, np.int32)
    for group in range(by_sample.shape[0]):
        first, last = group * LANES, min((group + 1) * LANES, G)
        base = start[first]
        where = by_sample[group]
        where[:] = 0
        for position in range(base, start[last]):
            where[columns[position] + 1] += 1
        for j in range(N):
            where[j + 1] += where[j]
            place[j] = where[j]
        for i in range(first, last):
            for position in range(start[i], start[i + 1]):
                j = columns[position]
                listed[base + place[j]] = i - first
                place[j] += 1


def entries_by_sample(
    start: NDArray[np.int64], columns: NDArray[np.int32], N: int
) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """What `sort_by_sample` fills; empty for complete data."""
    G = len(start) - 1
    by_sample = np.zeros((-(-G // LANES), N + 1 if G else 0), np.int32)
    listed = np.zeros(len(columns), np.uint8)
    if G:
        sort_by_sample(start, columns, by_sample, listed)
    return by_sample, listed


@njit(**INLINE)
def add_lines(at, stop, listed, lines, total, row):
    """Add the lines (., T) that are listed from `at` to `stop` to a row of total (., T), four at a time."""
    T = total.shape[1]
    while at + 4 <= stop:
        a, b, c, d = U(listed[at]), U(listed[at + 1]), U(listed[at + 2]), U(listed[at + 3])
        for t in range(T):
            total[row, t] += (lines[a, t] + lines[b, t]) + (lines[c, t] + lines[d, t])
        at += 4
    while at < stop:
        a = U(listed[at])
        for t in range(T):
            total[row, t] += lines[a, t]
        at += 1


@njit(**OPTIONS)
def row_grams(first, n, start, columns, lists_missing, share, whole, position, grams):
    """A_i (4.4) of n rows, packed (n, T), from the shorter of the missing and observed columns."""
    N, T = share.shape
    step = max(16, SHARE_BYTES // (share.itemsize * T))
    for r in range(n):
        position[r] = start[first + r]
        for t in range(T):
            grams[r, t] = 0.0
    for begin in range(0, N, step):
        end = begin + step
        for r in range(n):
            at, last = position[r], start[first + r + 1]
            stop = at
            while stop < last and columns[stop] < end:
                stop += 1
            position[r] = stop
            add_lines(at, stop, columns, share, grams, r)
    for r in range(n):
        if lists_missing[first + r]:
            for t in range(T):
                grams[r, t] = whole[0, t] - grams[r, t]


@njit(**INLINE)
def add_listed(group, base, first_sample, last_sample, by_sample, listed, outer, total):
    """Add what the group's rows have listed: outer (LANES, T) to total (samples, T)."""
    for j in range(first_sample, last_sample):
        at, stop = base + by_sample[group, j], base + by_sample[group, j + 1]
        add_lines(at, stop, listed, outer, total, U(j - first_sample))


@njit(**OPTIONS)
def row_outers(row, n, lists_missing, mu, s2, eta, tau, l, outer):
    """w E[l l'] of n rows of VI, packed (n, T), negative where a row lists what is missing; rows by factor."""
    K = mu.shape[0]
    for r in range(n):
        i = row + r
        w = -tau[i] if lists_missing[i] else tau[i]
        for k in range(K):
            l[k] = eta[k, i] * mu[k, i]
        for k in range(K):
            offset, weighted = packed_offset(k, K), w * l[k]
            for m in range(k, K):
                outer[U(r), offset + U(m)] = weighted * l[U(m)]
            outer[U(r), offset + U(k)] = w * (eta[k, i] * (mu[k, i] * mu[k, i] + s2[k, i]))


@njit(**OPTIONS)
def vi_shares(first_sample, last_sample, first_group, last_group, problem, rows, T, fresh, LL_share):
    """LL_share of some samples (4.5), packed (N, T), from some groups of LANES rows.

    fresh: begin with it, or add to what is there.
    """
    mu, s2, eta, tau = rows
    K, G = mu.shape
    start, lists_missing, by_sample, listed = problem.start, problem.lists_missing, problem.by_sample, problem.listed
    outer, l = np.zeros((LANES, T), LL_share.dtype), np.empty(K)
    step = max(16, SAMPLE_BYTES // (LL_share.itemsize * T))
    for begin in range(first_sample, last_sample, step):
        end = min(begin + step, last_sample)
        total = LL_share[begin:end]
        if fresh:
            for s in range(end - begin):
                for t in range(T):
                    total[s, t] = 0.0
        for group in range(first_group, last_group):
            row = group * LANES
            row_outers(row, min(LANES, G - row), lists_missing, mu, s2, eta, tau, l, outer)
            add_listed(group, start[row], begin, end, by_sample, listed, outer, total)


@njit(**OPTIONS)
def outer_shares(first_sample, last_sample, first_group, last_group, problem, outer, fresh, LL_share):
    """As vi_shares, for rows whose w E[l l'] are at hand: outer (G, T), negative where a row lists what is missing."""
    G, T = outer.shape
    start, by_sample, listed = problem.start, problem.by_sample, problem.listed
    step = max(16, SAMPLE_BYTES // (LL_share.itemsize * T))
    for begin in range(first_sample, last_sample, step):
        end = min(begin + step, last_sample)
        total = LL_share[begin:end]
        if fresh:
            for s in range(end - begin):
                for t in range(T):
                    total[s, t] = 0.0
        for group in range(first_group, last_group):
            row = group * LANES
            part = outer[row : min(row + LANES, G)]
            add_listed(group, start[row], begin, end, by_sample, listed, part, total)


@njit(**EXACT)
def gibbs_shares(first_sample, last_sample, first_group, last_group, problem, L, tau, fresh, LL_share):
    """As vi_shares, for draws, most of whose loadings are zero."""
    (G, K), T = L.shape, LL_share.shape[1]
    start, lists_missing, by_sample, listed = problem.start, problem.lists_missing, problem.by_sample, problem.listed
    count, active = np.empty(LANES, np.int64), np.empty((LANES, K), np.int64)
    value, weighted = np.empty((LANES, K)), np.empty((LANES, K))
    step = max(16, SAMPLE_BYTES // (LL_share.itemsize * T))
    for begin in range(first_sample, last_sample, step):
        end = min(begin + step, last_sample)
        if fresh:
            for j in range(begin, end):
                for t in range(T):
                    LL_share[j, t] = 0.0
        for group in range(first_group, last_group):
            row = group * LANES
            for r in range(min(LANES, G - row)):
                m, w = 0, -tau[row + r] if lists_missing[row + r] else tau[row + r]
                for k in range(K):
                    if L[row + r, k] != 0.0:
                        active[r, m], value[r, m], weighted[r, m] = k, L[row + r, k], w * L[row + r, k]
                        m += 1
                count[r] = m
            base = start[row]
            for j in range(begin, end):
                for at in range(base + by_sample[group, j], base + by_sample[group, j + 1]):
                    r = listed[at]
                    for a in range(count[r]):
                        offset = packed_offset(active[r, a], K)
                        for e in range(a, count[r]):
                            LL_share[j, offset + U(active[r, e])] += weighted[r, a] * value[r, e]


@njit(**OPTIONS)
def add_shares(first_sample, last_sample, part, LL_share):
    """Add what some rows have to what others had."""
    for j in range(first_sample, last_sample):
        for t in range(part.shape[1]):
            LL_share[j, t] += part[j, t]


@njit(**OPTIONS)
def unpack_shares(first_sample, last_sample, packed, square):
    for j in range(first_sample, last_sample):
        unpack(packed[j], square[j])
