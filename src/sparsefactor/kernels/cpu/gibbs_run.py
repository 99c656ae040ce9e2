"""Many sweeps of Gibbs sampling of small, complete data in one compiled call, of which only the last draw counts.

The sweeps are those of gibbs_small.py. What they draw, and in which order, is what gibbs/sweep.py and gibbs/moves.py
draw from the same generator, to the bit: these are the texts to read, and a test holds this to them.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from ..contract import TRIES, CorrelationNoise, RotationNoise, RowStream, ShearNoise
from .columns import draw_shared
from .compiled import STRICT, njit
from .correlation import invert_correlation
from .gibbs_small import LEAST, draw_correlation_small, largest_of, load_small, pass_small, turn_small

LEAST_RATE, MOST_RATE = 1e-300, 1.0 - 2.0**-53


@njit(**STRICT)
def draw_stream(rng):
    a, b, c = rng.integers(0, 4294967296), rng.integers(0, 4294967296), rng.integers(0, 4294967296)
    return RowStream(np.uint64(a), np.uint64(b), np.uint64(c))


@njit(**STRICT)
def draw_scales(rng, rule, F, alpha, scale):
    """(2.9)"""
    K, N = F.shape
    c = np.empty(K)
    for k in range(K):
        c[k] = rng.standard_gamma(0.5 * rule.n_samples + rule.loading_shape)
    for k in range(K):
        square = 0.0
        for j in range(N):
            square += F[k, j] * F[k, j]
        c[k] = math.sqrt(max(c[k] / (0.5 * square + rule.loading_rate * alpha[k]), LEAST))
        for j in range(N):
            F[k, j] *= c[k]
        alpha[k] *= c[k] * c[k]
        scale[k] /= c[k]


@njit(**STRICT)
def draw_gammas(rng, rule, out):
    """Of the factors' scales in the expanded model (2.19a), where factors are correlated."""
    if rule.correlation_df > 0.0:
        for k in range(len(out)):
            out[k] = rng.standard_gamma(0.5 * rule.correlation_df)


@njit(**STRICT)
def draw_correlation_noise(rng, rule, scales):
    """The noise of `correlation_noise` (2.19)."""
    K = scales.shape[1]
    normal, gamma = np.empty((K, K)), np.empty(K)
    draw_gammas(rng, rule, scales[0])
    draw_normals(rng, normal)
    for k in range(K):
        gamma[k] = rng.standard_gamma(0.5 * (rule.correlation_df + rule.n_samples + 2.0 * rule.loading_shape - k))
    return CorrelationNoise(scales, normal, gamma, math.log(rng.random()))


@njit(**STRICT)
def draw_rotation(rng, rule, K):
    """The noise of RotationMove (2.10)."""
    P = rule.n_pairs
    pairs = np.empty((P, 2), np.int64)
    order = rng.permutation(K)
    for p in range(P):
        pairs[p, 0], pairs[p, 1] = order[2 * p], order[2 * p + 1]
    exchange, height, bracket, angle = np.empty(P), np.empty(P), np.empty(P), np.empty((P, TRIES))
    for p in range(P):
        u = rng.random()
        exchange[p] = u if rule.kinds[pairs[p, 0]] != rule.kinds[pairs[p, 1]] else 1.0
    for p in range(P):
        height[p] = math.log(rng.random())
    for p in range(P):
        bracket[p] = rng.random()
    for p in range(P):
        for t in range(TRIES):
            angle[p, t] = rng.random()
    return RotationNoise(pairs, exchange, height, bracket, angle, draw_stream(rng))


@njit(**STRICT)
def draw_shear(rng, rule, rate):
    """The noise of ShearMove (2.11)."""
    D, K, P = rule.directions, len(rate), len(rule.shears)
    step, log_uniform, order = np.empty((D, K, P)), np.empty((D, K, P)), np.empty(D, np.int64)
    for d in range(D):
        for k in range(K):
            for p in range(P):
                step[d, k, p] = rng.standard_normal() * rule.shears[p]
    total = 0.0
    for k in range(K):
        total += rate[k]
    bounds = np.empty(K)
    upper = 0.0
    for k in range(K):
        upper += rate[k] / total
        bounds[k] = upper
    for d in range(D):
        u = rng.random()
        order[d] = 0
        while order[d] < K - 1 and bounds[order[d]] / upper <= u:
            order[d] += 1
    for d in range(D):
        for k in range(K):
            for p in range(P):
                log_uniform[d, k, p] = math.log(rng.random())
    return ShearNoise(order, step, log_uniform, draw_stream(rng))


@njit(**STRICT)
def draw_normals(rng, normal):
    """Of the activations."""
    K, N = normal.shape
    for k in range(K):
        for j in range(N):
            normal[k, j] = rng.standard_normal()


@njit(**STRICT)
def draw_slabs(rng, rule, G, active, l2, alpha, rate, logit):
    """alpha, and inclusion rates where they are learnt (2.7, 2.8)."""
    K = len(alpha)
    for k in range(K):
        alpha[k] = rng.standard_gamma(rule.loading_shape + 0.5 * active[k])
    for k in range(K):
        alpha[k] = max(alpha[k] / (rule.loading_rate + 0.5 * l2[k]), LEAST)
    if rule.learnt:
        for k in range(K):
            rate[k] = min(max(rng.beta(rule.a + active[k], rule.b + G - active[k]), LEAST_RATE), MOST_RATE)
        for k in range(K):
            logit[0, k] = math.log(rate[k]) - math.log1p(-rate[k])


@njit(**STRICT)
def small_run(problem, space, rule, rows, F, alpha, rate, logit, scale, phi, key0, key1, rng):
    """Sweeps from rows (Z, L, tau), F, alpha, rates, their log odds, the loadings' scale and phi, all of them in place.

    Returns the largest of the last activations, infinite or beyond the rule's where the run ended early.
    """
    (K, N), G = F.shape, rows[1].shape[0]
    weight, normal, largest = np.ones(N), np.empty((K, N)), 0.0
    LY, LL, small = np.empty((K, N)), np.empty((K, K)), np.empty(2 * K + 3)
    correlated, scales, hyper = rule.correlation_df > 0.0, np.empty((3, K)), np.empty((1, 2))
    hyper[0, 0], hyper[0, 1] = rule.loading_shape, rule.loading_rate
    for sweep in range(rule.sweeps):
        due = sweep > 0 and sweep % rule.every == 0
        if due and not correlated:
            draw_scales(rng, rule, F, alpha, scale)
        load_small(space, rows, (F, alpha, logit, weight, scale))
        space.columns.phi[:] = phi
        if correlated:
            draw_correlation_small(space, hyper, draw_correlation_noise(rng, rule, scales))
        if due and K > 1:
            rotation = draw_rotation(rng, rule, K)
            draw_gammas(rng, rule, scales[1])
            shear = draw_shear(rng, rule, rate)
            draw_gammas(rng, rule, scales[2])
            turn_small(problem, space, hyper, rotation, shear, scales)
        if correlated:
            phi[:] = space.columns.phi
            invert_correlation(phi, space.prior)
        draw_normals(rng, normal)
        stream = RowStream(key0, key1, np.uint64(sweep))
        pass_small(problem, space, weight, 1.0, stream, rows, LY, LL, small)
        draw_shared(LY, LL, space.weight, space.prior, normal, F)
        largest = largest_of(F)
        if not largest < rule.largest:
            break
        scale[:] = 1.0
        draw_slabs(rng, rule, G, small[:K], small[K : 2 * K], alpha, rate, logit)
    return largest
