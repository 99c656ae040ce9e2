"""The row pass of variational inference under a prior with modules (math.md, 3.17).

A row at a time, its modules side by side: they are the lanes here. As in vi_rows, y = A E[l] is kept for every module
and changed by what each update changes, so that no quadratic form is taken twice.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..contract import Array
from .compiled import INLINE, OPTIONS, njit
from .lanes import LARGEST_EXPONENT, exp_lane, log_lane
from .packed import packed_offset, packed_size, unpack
from .products import beside, times, weigh
from .shares import GRAM_ROWS, row_grams
from .tiles import copy_matrix

FACTORS_PER_LOG = 64  # of so many numbers between 1 and 2 the product is far from overflowing
LINEAR, CHANGE, PRODUCT, PART, RSS = range(5)  # the rows of a scratch's `work`
FEWEST = 1e-290  # a probability below is as good as zero, and a quotient of two such means nothing


class ModuleMessage(NamedTuple):
    """`Message` as this pass reads it."""

    F: Array  # (N, K), of Y's type
    gram: Array  # (K, K)
    share: Array  # (N*, T) packed, of Y's type
    packed_gram: Array  # (1, T)
    alpha: Array  # (K,)
    log_alpha: Array  # (K,)
    scale: Array  # (K,)
    logit: Array  # (K, M)
    log_out: Array  # (M,) the sum over factors of E[log(1 - pi)], and E[log w]


class ModuleRows(NamedTuple):
    """`VIRows`, all with the rows along the first axis."""

    mu: Array
    s2: Array
    eta: Array
    tau: Array
    member: Array
    within: Array


class ModuleTiles(NamedTuple):
    """What each tile adds to TileSums."""

    members: Array  # (tiles, M)
    active_in: Array  # (tiles, K, M)


class ModuleScratch(NamedTuple):
    """A thread's own working space; R rows per tile."""

    b: Array  # (R * K,) the tile's Y F, of Y's type
    weighted: Array  # (K * R,) w E[l], of Y's type
    LY: Array  # (K, N) of Y's type
    A: Array  # (K, K)
    packed: Array  # (T,) w E[l l']
    LL: Array  # (T,) the tile's sum
    grams: Array  # (GRAM_ROWS, T) packed A_i of several rows, of Y's type
    position: NDArray[np.int64]  # (GRAM_ROWS,)
    slab: Array  # (K,)
    l: Array  # (K, M) E[l] given the module
    y: Array  # (K, M) A E[l]
    entropy: Array  # (K, M) of z, less its logarithm; later w E[c] E[l]
    work: Array  # (5, M)


def module_scratch(Y: NDArray[np.floating], tile: int, K: int, M: int) -> ModuleScratch:
    T = packed_size(K)
    l, y, entropy = np.empty((3, K, M))
    return ModuleScratch(
        b=np.empty(tile * K, Y.dtype),
        weighted=np.empty(K * tile, Y.dtype),
        LY=np.empty((K, Y.shape[1]), Y.dtype),
        A=np.empty((K, K)),
        packed=np.zeros(T),
        LL=np.empty(T),
        grams=np.zeros((GRAM_ROWS, T), Y.dtype),
        position=np.zeros(GRAM_ROWS, np.int64),
        slab=np.empty(K),
        l=l,
        y=y,
        entropy=entropy,
        work=np.empty((5, M)),
    )


@njit(**INLINE)
def residuals(y_square, A, b, at, mu, s2, within, i, l, y, rss):
    """rss (M,): the expected residual sum of squares of row i given each module (3.4)."""
    K, M = l.shape
    for m in range(M):
        rss[m] = y_square
    for k in range(K):
        a, square, twice = A[k, k], mu[i, k] * mu[i, k] + s2[i, k], 2.0 * b[at + k]
        for m in range(M):
            rss[m] += l[k, m] * (y[k, m] - a * l[k, m] - twice) + a * within[i, k, m] * square


@njit(**INLINE)
def mean_over(member, i, values):
    total = 0.0
    for m in range(len(values)):
        total += member[i, m] * values[m]
    return total


@njit(**INLINE)
def update_loadings(
    A, b, at, tau, alpha, log_alpha, logit, log_out, i, mu, s2, member, within, l, y, slab, entropy, work
):
    """q(l_k, z_k | module) for k = 1..K of row i; the ELBO's part in (l, z) given each module is left in work[PART]."""
    K, M = l.shape
    for m in range(M):
        work[PART, m] = log_out[m]
        work[PRODUCT, m] = 1.0
    for k in range(K):
        a = A[k, k]
        precision = tau * a + alpha[k]
        variance = 1.0 / precision
        total, weight, everywhere = 0.0, 0.0, 0.0
        for m in range(M):
            linear = tau * (b[at + k] - y[k, m] + a * l[k, m])
            share = member[i, m] * within[i, k, m]
            work[LINEAR, m] = linear
            total += share * linear
            weight += share
            everywhere += member[i, m] * linear
        mean = variance * (total / weight if weight > FEWEST else everywhere)
        log_variance = log_lane(variance)
        offset = 0.5 * (log_alpha[k] + log_variance - mean * mean * precision)
        for m in range(M):
            odds = logit[k, m] + offset + mean * work[LINEAR, m]
            size = abs(odds)
            small = exp_lane(-size)
            likelier = 1.0 / (1.0 + small)
            inside = likelier if odds > 0.0 else small * likelier
            work[PRODUCT, m] *= 1.0 + small
            entropy[k, m] = size * small * likelier
            within[i, k, m] = inside
            work[CHANGE, m] = mean * inside - l[k, m]
            l[k, m] = mean * inside
        for q in range(K):
            a = A[q, k]
            for m in range(M):
                y[q, m] += a * work[CHANGE, m]
        mu[i, k], s2[i, k] = mean, variance
        slab[k] = 0.5 * (log_alpha[k] + log_variance + 1.0 - alpha[k] * (mean * mean + variance))
        if k % FACTORS_PER_LOG == FACTORS_PER_LOG - 1 or k == K - 1:
            for m in range(M):
                work[PART, m] += log_lane(work[PRODUCT, m])
                work[PRODUCT, m] = 1.0
    for k in range(K):
        for m in range(M):
            work[PART, m] += within[i, k, m] * (logit[k, m] + slab[k]) + entropy[k, m]


@njit(**INLINE)
def update_member(tau, i, member, work):
    """q(c_i) of row i, and its normalising constant: the ELBO's part in (c, l, z) and the residuals together."""
    M = member.shape[1]
    highest = -np.inf
    for m in range(M):
        score = work[PART, m] - 0.5 * tau * work[RSS, m]
        work[LINEAR, m] = score
        highest = max(highest, score)
    total = 0.0
    for m in range(M):
        share = exp_lane(work[LINEAR, m] - highest)
        share = share if work[LINEAR, m] > highest - LARGEST_EXPONENT else 0.0
        member[i, m] = share
        total += share
    for m in range(M):
        member[i, m] /= total
    return highest + np.log(total)


@njit(**OPTIONS)
def module_tiles(first_tile, last_tile, problem, message, rows_in, rows_out, sums, modules, outers, scratch, mask):
    """The row pass of tiles first_tile .. last_tile; mask: None for complete data, else anything.

    outers: (G, T) for masked data, what each row adds to its listed samples.
    """
    # Every field is looked up once, here: a look-up counts references, which inner loops must not.
    Y, row_ss, half_count, tau_shape, start, columns, lists_missing = problem[:7]
    F, gram, share, packed_gram, alpha, log_alpha, scale, logit, log_out = message
    mu_in, s2_in, _, _, member_in, within_in = rows_in
    mu, s2, eta, tau_out, member, within = rows_out
    b, weighted, LY, A, packed, packed_LL, grams, position, slab, l, y, entropy, work = scratch
    rss = work[RSS]
    feature_noise, noise_shape, noise_rate = problem.feature_noise, problem.noise_shape, problem.noise_rate
    K, M = l.shape
    G = mu_in.shape[0]
    off = beside(Y, F)
    if mask is None:
        copy_matrix(gram, A)
    for t in range(first_tile, last_tile):
        tile = t * problem.tile
        R = min(problem.tile, G - tile)
        times(Y, tile, R, F, off, b[: R * K].reshape(R, K))
        terms = sums.terms[t]
        count, l2 = sums.included[t, :, 0], sums.l2[t, :, 0]
        members, active_in = modules.members[t], modules.active_in[t]
        count[:] = 0.0
        l2[:] = 0.0
        terms[:] = 0.0
        packed_LL[:] = 0.0
        members[:] = 0.0
        active_in[:] = 0.0
        for r in range(R):
            i, at = tile + r, r * K
            for m in range(M):
                member[i, m] = member_in[i, m]
            for k in range(K):
                mean = mu_in[i, k] * scale[k]
                mu[i, k], s2[i, k] = mean, s2_in[i, k] * scale[k] * scale[k]
                for m in range(M):
                    within[i, k, m] = within_in[i, k, m]
                for m in range(M):
                    l[k, m] = mean * within_in[i, k, m]
            if mask is not None:
                place = r % GRAM_ROWS
                if place == 0:
                    several = min(GRAM_ROWS, R - r)
                    row_grams(i, several, start, columns, lists_missing, share, packed_gram, position, grams)
                unpack(grams[place], A)
            for k in range(K):
                for m in range(M):
                    y[k, m] = 0.0
                for q in range(K):
                    a = A[k, q]
                    for m in range(M):
                        y[k, m] += a * l[q, m]
            y_square, tau = 0.0, 1.0
            if feature_noise:
                y_square = row_ss[i]
                residuals(y_square, A, b, at, mu, s2, within, i, l, y, rss)
                rate = noise_rate[i] + 0.5 * max(mean_over(member, i, rss), 0.0)
                tau, log_rate = tau_shape[i] / rate, np.log(rate)
                terms[0] -= half_count[i] * log_rate
                terms[2] -= noise_shape * log_rate + noise_rate[i] * tau
            tau_out[i] = tau
            update_loadings(
                A, b, at, tau, alpha, log_alpha, logit, log_out, i, mu, s2, member, within, l, y, slab, entropy, work
            )
            residuals(y_square, A, b, at, mu, s2, within, i, l, y, rss)
            evidence = update_member(tau, i, member, work)
            half = 0.5 * tau * mean_over(member, i, rss)
            terms[0] -= half
            terms[1] += evidence + half
            for m in range(M):
                members[m] += member[i, m]
            for k in range(K):
                probability = 0.0
                for m in range(M):
                    both = member[i, m] * within[i, k, m]
                    active_in[k, m] += both
                    entropy[k, m] = tau * member[i, m] * l[k, m]
                    probability += both
                probability = min(probability, 1.0)  # a module's shares add up to one but for rounding
                square = probability * (mu[i, k] * mu[i, k] + s2[i, k])
                eta[i, k] = probability
                count[k] += probability
                l2[k] += square
                weighted[k * R + r] = tau * probability * mu[i, k]
                packed[packed_offset(k, K) + np.uint64(k)] = tau * square
            for k in range(K):
                offset = packed_offset(k, K)
                for q in range(k + 1, K):
                    both = 0.0
                    for m in range(M):
                        both += entropy[k, m] * l[q, m]
                    packed[offset + np.uint64(q)] = both
            if mask is None or lists_missing[i]:
                for s in range(len(packed)):
                    packed_LL[s] += packed[s]
            if mask is not None:
                sign = -1.0 if lists_missing[i] else 1.0
                for s in range(len(packed)):
                    outers[i, s] = sign * packed[s]
        weigh(weighted[: K * R].reshape(K, R), Y, tile, R, LY)
        copy_matrix(LY, sums.LY[t])
        unpack(packed_LL, sums.LL[t])
