"""The row pass of Gibbs sampling: tau_i, then z_ik for k = 1..K with l_i integrated out, then l_i (2.1 to 2.4).

A row keeps P, the inverse of its active block Q = tau A_SS + diag(alpha_S), and the mean P tau b_S. For an active k
the Schur complement of the others is 1 / P_kk, so nothing is computed unless k leaves; an inactive k costs one
product with P. Entering and leaving are updates of rank one: O(m^2) with m the active count, far below K for sparse
loadings. Every Schur complement is at least alpha_k, since A is positive semidefinite, whatever rounding says.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ..contract import Array
from ..noise import STREAM_L, STREAM_Z
from .lanes import LARGEST_EXPONENT, OPTIONS
from .philox import normal, standard_gamma, unit_pair
from .tiles import packed_offset

STREAM_OF_Z, STREAM_OF_L = np.uint64(STREAM_Z), np.uint64(STREAM_L)
FLIPS_PER_INVERSE = 16  # P is built afresh after as many rank-one updates, so that rounding cannot pile up


class RowStream(NamedTuple):
    """The randomness of one sweep's row pass, drawn where it is needed."""

    key0: np.uint64
    key1: np.uint64
    sweep: np.uint64


class GibbsMessage(NamedTuple):
    """`Message` as this pass reads it."""

    F: Array  # (N, K), of Y's type
    gram: Array  # (K, K)
    share: Array  # (N*, K, K)
    alpha: Array  # (K,)
    logit: Array  # (1 or G, K)
    scale: Array  # (K,)


class GibbsScratch(NamedTuple):
    """A thread's own working space; R rows per tile."""

    b: Array  # (R * K,) of Y's type
    weighted: Array  # (R * K,) w l
    narrow: Array  # (R * K,) the same in Y's type, and the same array where that is float64
    LY: Array  # (K, N) of Y's type
    gram: Array  # (K, K) A_i of masked data
    P: Array  # (K, K) its first m rows and columns, in the order of `active`
    C: Array  # (K, K) a Cholesky factor
    active: NDArray[np.int64]  # (K,) the active factors; m of them, in no order
    place: NDArray[np.int64]  # (K,) where in `active` a factor stands, or -1
    vectors: Array  # (6, K)


def gibbs_scratch(Y: Array, tile: int, K: int) -> GibbsScratch:
    weighted = np.empty(tile * K)
    return GibbsScratch(
        b=np.empty(tile * K, Y.dtype),
        weighted=weighted,
        narrow=weighted.astype(Y.dtype, copy=False),
        LY=np.empty((K, Y.shape[1]), Y.dtype),
        gram=np.empty((K, K)),
        P=np.empty((K, K)),
        C=np.empty((K, K)),
        active=np.empty(K, np.int64),
        place=np.empty(K, np.int64),
        vectors=np.empty((6, K)),
    )


@njit(**OPTIONS)
def couple(k, m, A, tau, alpha, linear, P, mean, active, v, u):
    """Of adding k to the m active factors: u = P v, the Schur complement c and its linear term r."""
    c, r = tau * A[k, k] + alpha[k], linear[k]
    for a in range(m):
        v[a] = tau * A[k, active[a]]
    for a in range(m):
        total = 0.0
        for e in range(m):
            total += P[a, e] * v[e]
        u[a] = total
        c -= v[a] * total
        r -= v[a] * mean[a]
    return max(c, alpha[k]), r


@njit(**OPTIONS)
def enter(k, m, c, r, P, mean, active, place, u):
    """Make k the last active factor."""
    value = r / c
    for a in range(m):
        scaled = u[a] / c
        for e in range(m):
            P[a, e] += scaled * u[e]
        P[a, m] = -scaled
        P[m, a] = -scaled
        mean[a] -= u[a] * value
    P[m, m] = 1.0 / c
    mean[m] = value
    active[m] = k
    place[k] = m
    return m + 1


@njit(**OPTIONS)
def leave(k, m, P, mean, active, place, u):
    """Take k out; the last active factor takes its place."""
    p, last = place[k], m - 1
    for a in range(m):
        u[a] = P[p, a]
    c, value = 1.0 / u[p], mean[p] / u[p]
    for a in range(m):
        scaled = u[a] * c
        for e in range(m):
            P[a, e] -= scaled * u[e]
        mean[a] -= u[a] * value
    for a in range(m):
        P[p, a] = P[last, a]
    for a in range(m):
        P[a, p] = P[a, last]
    mean[p] = mean[last]
    active[p] = active[last]
    place[active[p]] = p
    place[k] = -1
    return last


@njit(**OPTIONS)
def invert(m, A, tau, alpha, linear, P, mean, active, place, v, u):
    """P and the mean of the m active factors, afresh."""
    for a in range(m):
        k = active[a]
        c, r = couple(k, a, A, tau, alpha, linear, P, mean, active, v, u)
        enter(k, a, c, r, P, mean, active, place, u)


@njit(**OPTIONS)
def sample_z(i, z, A, tau, alpha, logit, linear, stream, scratch):
    """z_ik for k = 1..K with l_i integrated out (2.2); the number of active factors."""
    K = z.shape[0]
    P, active, place = scratch.P, scratch.active, scratch.place
    mean, v, u, uniform = scratch.vectors[1], scratch.vectors[2], scratch.vectors[3], scratch.vectors[4]
    row = np.uint64(i)
    for k in range(K):
        uniform[k] = unit_pair(np.uint64(k), row, stream.sweep, STREAM_OF_Z, stream.key0, stream.key1)[0]
    m = 0
    for k in range(K):
        place[k] = -1
        if z[k]:
            active[m] = k
            m += 1
    invert(m, A, tau, alpha, linear, P, mean, active, place, v, u)
    flips = 0
    for k in range(K):
        if z[k]:
            p = place[k]
            c = max(1.0 / P[p, p], alpha[k])
            r = mean[p] / P[p, p]
        else:
            c, r = couple(k, m, A, tau, alpha, linear, P, mean, active, v, u)
        odds = math.exp(min(logit[k] + 0.5 * r * (r / c), LARGEST_EXPONENT)) * math.sqrt(alpha[k] / c)
        chosen = uniform[k] * (1.0 + odds) < odds
        if chosen and not z[k]:
            m = enter(k, m, c, r, P, mean, active, place, u)
        elif z[k] and not chosen:
            m = leave(k, m, P, mean, active, place, u)
        else:
            continue
        z[k] = chosen
        flips += 1
        if flips % FLIPS_PER_INVERSE == 0:
            invert(m, A, tau, alpha, linear, P, mean, active, place, v, u)
    m = 0
    for k in range(K):
        if z[k]:
            active[m] = k
            m += 1
    return m


@njit(**OPTIONS)
def sample_l(i, m, l, A, tau, alpha, linear, stream, scratch):
    """l_i at its active factors, through Q = C C' (2.4)."""
    C, active, x = scratch.C, scratch.active, scratch.vectors[5]
    row = np.uint64(i)
    l[:] = 0.0
    for a in range(m):
        k = active[a]
        for e in range(a):
            total = tau * A[k, active[e]]
            for d in range(e):
                total -= C[a, d] * C[e, d]
            C[a, e] = total / C[e, e]
        total, solved = tau * A[k, k] + alpha[k], linear[k]
        for e in range(a):
            total -= C[a, e] * C[a, e]
            solved -= C[a, e] * x[e]
        C[a, a] = math.sqrt(max(total, alpha[k]))
        x[a] = solved / C[a, a]
    for a in range(m):
        x[a] += normal(np.uint64(active[a]), row, stream.sweep, STREAM_OF_L, stream.key0, stream.key1)
    for a in range(m - 1, -1, -1):
        x[a] /= C[a, a]
        for e in range(a):
            x[e] -= C[a, e] * x[a]
        l[active[a]] = x[a]


@njit(**OPTIONS)
def row_gram(i, problem, message, gram):
    """A_i (4.4) of masked data, from the shorter of the missing and observed columns."""
    K = gram.shape[0]
    flat = gram.reshape(K * K)
    full = message.gram.reshape(K * K)
    sign = 1.0 if problem.lists_missing[i] else 0.0
    for t in range(K * K):
        flat[t] = sign * full[t]
    sign = 1.0 - 2.0 * sign
    for position in range(problem.start[i], problem.start[i + 1]):
        share = message.share[problem.columns[position]].reshape(K * K)
        for t in range(K * K):
            flat[t] += sign * share[t]


@njit(**OPTIONS)
def residual(l, A, b):
    """l'A l - 2 l'b, where most of l is zero."""
    K = l.shape[0]
    total = 0.0
    for k in range(K):
        if l[k] != 0.0:
            inner = -2.0 * b[k]
            for m in range(K):
                inner += A[k, m] * l[m]
            total += l[k] * inner
    return total


@njit(**OPTIONS)
def add_outer(i, m, problem, active, l, tau, LL, LL_share):
    """Add w l l' of a row of masked data to the tile's LL and LL_share (4.5)."""
    K = LL.shape[0]
    sign = 1.0
    if problem.lists_missing[i]:
        sign = -1.0
        for a in range(m):
            k = active[a]
            for e in range(m):
                LL[k, active[e]] += tau * l[k] * l[active[e]]
    for position in range(problem.start[i], problem.start[i + 1]):
        share = LL_share[problem.columns[position]]
        for a in range(m):
            k = active[a]
            offset, weighted = packed_offset(k, K), sign * tau * l[k]
            for e in range(a, m):
                share[offset + active[e]] += weighted * l[active[e]]


@njit(**OPTIONS)
def gibbs_tiles(first_tile, last_tile, problem, message, rows_in, rows_out, stream, sums, scratch):
    """The row pass of tiles first_tile .. last_tile, leaving each tile's sums in `sums`."""
    G, _ = problem.Y.shape
    K = message.gram.shape[0]
    masked = problem.lists_missing.shape[0] > 0
    alpha, scaled, linear = message.alpha, scratch.vectors[0], scratch.vectors[0]
    for t in range(first_tile, last_tile):
        start = t * problem.tile
        R = min(problem.tile, G - start)
        Y = problem.Y[start : start + R]
        B = scratch.b[: R * K].reshape(R, K)
        weighted = scratch.weighted[: R * K].reshape(R, K)
        np.dot(Y, message.F, B)
        count, l2, terms = sums.count[t], sums.l2[t], sums.terms[t]
        count[:] = 0.0
        l2[:] = 0.0
        terms[:] = 0.0
        if masked:
            sums.LL[t] = 0.0
            sums.LL_share[t] = 0.0
        for r in range(R):
            i = start + r
            b, z, l = B[r], rows_out.Z[i], rows_out.L[i]
            logit = message.logit[i if message.logit.shape[0] > 1 else 0]
            A = message.gram
            if masked:
                row_gram(i, problem, message, scratch.gram)
                A = scratch.gram
            tau = 1.0
            if problem.feature_noise:
                for k in range(K):
                    scaled[k] = message.scale[k] * rows_in.L[i, k]
                rss = problem.row_ss[i] + residual(scaled, A, b)
                gamma = standard_gamma(problem.tau_shape[i], np.uint64(i), stream.sweep, stream.key0, stream.key1)
                tau = gamma / (problem.noise_rate + 0.5 * rss)
                terms[0] += tau * problem.row_ss[i]
                terms[1] += (problem.half_count[i] + problem.noise_shape - 1.0) * math.log(tau)
                terms[1] -= problem.noise_rate * tau
            for k in range(K):
                z[k] = rows_in.Z[i, k]
                linear[k] = tau * b[k]
            m = sample_z(i, z, A, tau, alpha, logit, linear, stream, scratch)
            sample_l(i, m, l, A, tau, alpha, linear, stream, scratch)
            rows_out.tau[i] = tau
            for k in range(K):
                weighted[r, k] = tau * l[k]
            for a in range(m):
                k = scratch.active[a]
                count[k] += 1.0
                l2[k] += l[k] * l[k]
                terms[2] += logit[k]
            if masked:
                add_outer(i, m, problem, scratch.active, l, tau, sums.LL[t], sums.LL_share[t])
        for s in range(R * K):
            scratch.narrow[s] = scratch.weighted[s]
        np.dot(scratch.narrow[: R * K].reshape(R, K).T, Y, scratch.LY)
        sums.LY[t] = scratch.LY
        if not masked:
            np.dot(weighted.T, rows_out.L[start : start + R], sums.LL[t])
