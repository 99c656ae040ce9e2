"""A whole iteration of VI in two compiled calls, for problems so small that Python between the steps would show.

For complete data with noise by feature. The same equations as in kernels/columns.py, which is the text to read and
which a test holds this to: column step and rescaling (3.2, 3.5, 3.6, 3.6b, 3.12), then message, row pass and ELBO
(4.2, 3.7). Where activations are joint, `spread` is the covariance (K, K) that all samples share; else it is their
variances (K, N).
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..contract import Array
from .columns import independent_shared, joint_shared
from .compiled import EXACT, ZERO, njit
from .correlation import correlation_terms, prior_precision, update_correlation
from .lanes import LANES
from .tiles import TileSums, add_tiles
from .vi_lanes import FIELDS
from .vi_rows import VIMessage, VIScratch, vi_tiles

LARGE = 10.0  # from here on the asymptotic series of digamma is exact to the last bits


class Constants(NamedTuple):
    """What never changes during a fit."""

    loading_shape: float
    loading_rate: float
    a: float  # of the Beta prior on inclusion; 0 where it is given
    b: float
    log_out: float  # sum of log(1 - pi) where inclusion is given
    logit: Array  # (K,) where inclusion is given, else (0,)
    row_terms: Array  # (3,) constants of the rows' ELBO terms
    correlation_df: float  # of the prior on the factors' correlations; 0 where they are uncorrelated
    n: float  # samples, of which F may have fewer columns, where the others are zero (3.20)
    ones: Array  # (N,)
    no_share: Array  # (0, 0)
    no_rows: NDArray[np.int64]  # (0,)


class Space(NamedTuple):
    """Working space in two pieces: each array handed to compiled code costs about 0.2 microseconds."""

    doubles: Array
    own: NDArray[np.floating]  # of Y's type


def small_space(Y: NDArray[np.floating], tile: int, K: int) -> Space:
    G, N = Y.shape
    tiles = -(-G // tile)
    lanes = (FIELDS + 6 * K) * LANES
    doubles = lanes + 2 * K * tile + K * K + 2 * K + tiles * (K * N + K * K + 2 * K + 3)
    return Space(np.empty(doubles), np.empty(2 * K * tile + 2 * K * N, Y.dtype))


@njit(**EXACT)
def carve(space, constants, tile, n_tiles, K, N, scale):
    """The message, the tiles' sums and the scratch of a row pass, as parts of a working space."""
    doubles, own = space
    lanes = doubles[: (FIELDS + 6 * K) * LANES]
    lanes[FIELDS * LANES :] = 0.0
    rest = doubles[lanes.size :]
    by_factor = lanes[FIELDS * LANES :].reshape(6, K, LANES)
    l_mean, rest = rest[: K * tile], rest[K * tile :]
    weighted, rest = rest[: K * tile], rest[K * tile :]
    gram, rest = rest[: K * K].reshape(K, K), rest[K * K :]
    alpha, rest = rest[:K].reshape(K, 1), rest[K:]
    prior, rest = rest[:K].reshape(K, 1), rest[K:]
    LY, rest = rest[: n_tiles * K * N].reshape(n_tiles, K, N), rest[n_tiles * K * N :]
    LL, rest = rest[: n_tiles * K * K].reshape(n_tiles, K, K), rest[n_tiles * K * K :]
    included, rest = rest[: n_tiles * K].reshape(n_tiles, K, 1), rest[n_tiles * K :]
    l2, rest = rest[: n_tiles * K].reshape(n_tiles, K, 1), rest[n_tiles * K :]
    terms = rest[: n_tiles * 3].reshape(n_tiles, 3)
    b, own = own[: tile * K], own[tile * K :]
    narrow, own = own[: tile * K], own[tile * K :]
    own_LY, own = own[: K * N].reshape(K, N), own[K * N :]
    F = own[: N * K].reshape(N, K)
    none, none_own = constants.no_share, own[:0].reshape(0, K)
    message = VIMessage(F, gram, none_own, none, alpha, prior, constants.no_rows, scale)
    tiles = TileSums(LY, LL, included, l2, terms)
    scratch = VIScratch(
        lanes[: FIELDS * LANES],
        b,
        l_mean,
        weighted,
        narrow,
        own_LY,
        by_factor[0],
        by_factor[1],
        by_factor[2],
        by_factor[3],
        by_factor[4],
        by_factor[5],
        none_own,
        none,
        constants.no_rows,
    )
    return message, tiles, scratch


@njit(**EXACT)
def digamma(x):
    """psi(x) for x > 0."""
    shift = 0.0
    while x < LARGE:
        shift -= 1.0 / x
        x += 1.0
    z = 1.0 / (x * x)
    p = 1.0 / 12.0 - z * (
        1.0 / 120.0 - z * (1.0 / 252.0 - z * (1.0 / 240.0 - z * (1.0 / 132.0 - z * (691.0 / 32760.0 - z / 12.0))))
    )
    return math.log(x) - 0.5 / x - z * p + shift


@njit(**EXACT)
def gamma_kl(shape, rate, prior_shape, prior_rate):
    """KL(Gamma(shape, rate) || Gamma(prior_shape, prior_rate)) (3.9)."""
    return (
        (shape - prior_shape) * digamma(shape)
        - math.lgamma(shape)
        + math.lgamma(prior_shape)
        + prior_shape * (math.log(rate) - math.log(prior_rate))
        + shape * (prior_rate / rate - 1.0)
    )


@njit(**EXACT)
def beta_kl(A, B, a, b):
    """KL(Beta(A, B) || Beta(a, b)) (3.9b)."""
    both = digamma(A + B)
    new = math.lgamma(A) + math.lgamma(B) - math.lgamma(A + B)
    old = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    return old - new + (A - a) * (digamma(A) - both) + (B - b) * (digamma(B) - both)


@njit(**EXACT)
def slab_and_rate(k, active, l2, G, constants, small):
    """Into column k of small (5, K): q(alpha_k), q(pi_k), and a scale of one (3.2, 3.6b)."""
    small[0, k] = constants.loading_shape + 0.5 * active[k]
    small[1, k] = constants.loading_rate + 0.5 * l2[k]
    small[2, k] = constants.a + active[k]
    small[3, k] = constants.b + (G - active[k])
    small[4, k] = 1.0


@njit(**EXACT)
def scale_and_correlation(phi_in, moments, constants, small, phi, c):
    """The factors' best scales c (K,), and their new correlations where these are learnt (3.12, 3.22).

    moments: (K, K) E[F F']; small: (5, K), of which the slab precisions and 1 / c are brought to the new scale.
    """
    K = moments.shape[0]
    penalty, power = np.empty(K), 2.0 * constants.loading_shape
    for k in range(K):
        penalty[k] = 2.0 * constants.loading_rate * small[0, k] / small[1, k]
        c[k] = math.sqrt((constants.n + power) / (moments[k, k] + penalty[k]))
    if constants.correlation_df > 0.0:
        update_correlation(phi_in, moments, penalty, constants.n, power, constants.correlation_df, phi, c)
    for k in range(K):
        small[1, k] /= c[k] * c[k]
        small[4, k] = 1.0 / c[k]


@njit(**EXACT)
def small_columns(f_in, phi_in, LY, LL, active, l2, G, constants, joint, rescale, f_mean, spread, small, phi):
    """The column step, and each factor at its best scale, with the factors' correlations, if asked for.

    small: (5, K) alpha_shape, alpha_rate, pi_a, pi_b and 1 / c.
    """
    K, N = f_mean.shape
    moments, c = np.empty((K, K)), np.empty(K)
    prior_precision(phi_in, constants.correlation_df, moments)
    if joint:
        joint_shared(LY, LL, constants.ones, moments, f_mean, spread.reshape(1, K, K))
    else:
        independent_shared(f_in, LY, LL, constants.ones, moments, f_mean, spread)
    for k in range(K):
        slab_and_rate(k, active, l2, G, constants, small)
    if not rescale:
        return
    np.dot(f_mean, f_mean.T, moments)
    for k in range(K):
        if joint:
            for m in range(K):
                moments[k, m] += constants.n * spread[k, m]
        else:
            for j in range(N):
                moments[k, k] += spread[k, j]
    scale_and_correlation(phi_in, moments, constants, small, phi, c)
    for k in range(K):
        for j in range(N):
            f_mean[k, j] *= c[k]
        if joint:
            for m in range(K):
                spread[k, m] *= c[k] * c[m]
        else:
            for j in range(N):
                spread[k, j] *= c[k] * c[k]


@njit(**EXACT)
def log_determinant(covariance):
    """By Cholesky's factors; minus infinity where there are none."""
    K, total = covariance.shape[0], 0.0
    C = np.empty((K, K))
    for a in range(K):
        for e in range(a + 1):
            rest = covariance[a, e]
            for d in range(e):
                rest -= C[a, d] * C[e, d]
            if a > e:
                C[a, e] = rest / C[e, e]
            elif rest <= 0.0:
                return -np.inf
            else:
                C[a, a] = math.sqrt(rest)
                total += math.log(rest)
    return total


@njit(**EXACT)
def add_spread(spread, joint, gram, n):
    """Add what F's uncertainty adds to gram; n log|S| of all n samples (3.11)."""
    K, entropy = gram.shape[0], 0.0
    if joint:
        for k in range(K):
            for m in range(K):
                gram[k, m] += n * spread[k, m]
        return n * log_determinant(spread)
    for k in range(K):
        total, alike, N = 0.0, True, spread.shape[1]
        for j in range(N):
            total += spread[k, j]
            alike &= spread[k, j] == spread[k, 0]
        if alike:
            entropy += N * math.log(spread[k, 0])
        else:
            for j in range(N):
                entropy += math.log(spread[k, j])
        gram[k, k] += total
    return entropy


@njit(**EXACT)
def small_finish(
    f_mean, spread, phi, joint, a_shape, a_rate, pi_a, pi_b, scale, constants, problem, before, after, space, out
):
    """Message, row pass, its sums and the ELBO, which is returned. out: LY, LL, sums (2 K + 3,) and terms (7,)."""
    LY, LL, sums, terms = out
    K, N = f_mean.shape
    G = problem.Y.shape[0]
    message, tiles, scratch = carve(space, constants, problem.tile, -(-G // problem.tile), K, N, scale)
    F, gram, _, _, alpha, prior, _, _ = message
    learnt = constants.logit.shape[0] == 0
    np.dot(f_mean, f_mean.T, gram)
    activations = K * constants.n + add_spread(spread, joint, gram, constants.n)
    quadratic, terms[6] = correlation_terms(phi, gram, constants.n, constants.correlation_df)
    activations -= quadratic
    log_out = constants.log_out
    terms[4] = 0.0
    terms[5] = 0.0
    for k in range(K):
        for j in range(N):
            F[j, k] = f_mean[k, j]
        alpha[k, 0] = a_shape[k] / a_rate[k]
        terms[4] -= gamma_kl(a_shape[k], a_rate[k], constants.loading_shape, constants.loading_rate)
        if learnt:
            psi_b = digamma(pi_b[k])
            logit = digamma(pi_a[k]) - psi_b
            log_out += G * (psi_b - digamma(pi_a[k] + pi_b[k]))
            terms[5] -= beta_kl(pi_a[k], pi_b[k], constants.a, constants.b)
        else:
            logit = constants.logit[k]
        prior[k, 0] = logit + 0.5 * (digamma(a_shape[k]) - math.log(a_rate[k]) - math.log(alpha[k, 0]))
    vi_tiles(ZERO, tiles.LY.shape[0], problem, message, before, after, tiles, scratch, None, None)
    add_tiles(tiles, LY, LL, sums)
    for m in range(3):
        sums[2 * K + m] += constants.row_terms[m]
    terms[0] = sums[2 * K] - 0.5 * G * constants.n * math.log(2.0 * math.pi)
    terms[1] = sums[2 * K + 1] + log_out
    terms[2] = 0.5 * activations
    terms[3] = sums[2 * K + 2]
    return terms[0] + terms[1] + terms[2] + terms[3] + terms[4] + terms[5] + terms[6]
