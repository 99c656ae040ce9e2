"""The row pass of variational inference: q(tau_i), then q(l_ik, z_ik) for k = 1..K (docs/math.md, 3.1 to 3.4).

Rows are independent, so LANES of them take each step together. Two identities save work. With y = A E[l], changing
E[l_k] by d changes y by d A_k and the expected residual by A_kk d^2 - 2 d (b_k - y_k), so no quadratic form is ever
taken twice. And entropy and prior of (l, z) cancel to log(1 + odds) - eta mu^2 / (2 s2) + (eta - alpha E[l^2]) / 2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from ..contract import Array
from .lanes import LANES, OPTIONS, exp_lane, log_lane
from .tiles import packed_offset, packed_size, unpack

# Where each quantity lies in the array of lanes.
FIELDS = 20
(TAU, RATE, RSS, A_KK, B_K, Y_K, OLD, OLD_VAR, PRIOR, LOG_TOP, LOG_BOTTOM, LOADINGS) = range(0, 12 * LANES, LANES)
(MU, S2, ETA, NEW, L2, VAR, WEIGHTED, DELTA) = range(12 * LANES, FIELDS * LANES, LANES)
FACTORS_PER_LOG = 4  # as many factors share one logarithm of a product; each keeps within 1e-75 and 1e75


class VIMessage(NamedTuple):
    """`Message` as this pass reads it."""

    F: Array  # (N, K), of Y's type
    gram: Array  # (K, K)
    share: Array  # (N*, T) packed
    packed_gram: Array  # (1, T)
    alpha: Array  # (K,)
    prior: Array  # (K, 1 or G) logit(pi) + (E[log alpha] - log E[alpha]) / 2
    scale: Array  # (K,)


class FactorMajor(NamedTuple):
    """`VIRows` with the rows along the last axis, where lanes are neighbours."""

    mu: Array  # (K, G)
    s2: Array
    eta: Array
    tau: Array  # (G,)


class VIScratch(NamedTuple):
    """A thread's own working space; R rows per tile."""

    lanes: Array  # (FIELDS * LANES,)
    b: Array  # (R * K,) of Y's type
    l_mean: Array  # (K * R,) E[l], first of the old state, then of the new
    l_var: Array  # (K * R,)
    y: Array  # (K * R,) A E[l]
    weighted: Array  # (K * R,) w E[l]
    narrow: Array  # (K * R,) the same in Y's type, and the same array where that is float64
    LY: Array  # (K, N) of Y's type
    grams: Array  # (LANES, T) packed A_i; (0, T) for complete data
    row_y: Array  # (LANES, K) A_i E[l]; (0, K) for complete data
    row_l: Array  # (K,)
    outer: Array  # (T,) w E[l l']
    LL: Array  # (T,)


def vi_scratch(Y: Array, tile: int, K: int, masked: bool) -> VIScratch:
    N, T, lanes = Y.shape[1], packed_size(K), LANES if masked else 0
    weighted = np.empty(K * tile)
    return VIScratch(
        lanes=np.ones(FIELDS * LANES),
        b=np.empty(tile * K, Y.dtype),
        l_mean=np.empty(K * tile),
        l_var=np.empty(K * tile),
        y=np.empty(K * tile),
        weighted=weighted,
        narrow=weighted.astype(Y.dtype, copy=False),
        LY=np.empty((K, N), Y.dtype),
        grams=np.empty((lanes, T)),
        row_y=np.empty((lanes, K)),
        row_l=np.empty(K),
        outer=np.empty(T),
        LL=np.empty(T),
    )


@njit(**OPTIONS)
def update_factor(W, alpha):
    """q(l_ik, z_ik) of LANES rows and its effect on their residuals and ELBO terms (3.1)."""
    for r in range(LANES):
        tau, a, old = W[TAU + r], W[A_KK + r], W[OLD + r]
        gradient = W[B_K + r] - W[Y_K + r]
        linear = tau * (gradient + a * old)
        s2 = 1.0 / (tau * a + alpha)
        mu = s2 * linear
        exponent = 0.5 * mu * linear
        root = np.sqrt(alpha * s2)
        odds = exp_lane(W[PRIOR + r] + exponent) * root
        out = 1.0 / (1.0 + odds)
        eta = odds * out
        new = eta * mu
        l2 = eta * (mu * mu + s2)
        delta = new - old
        var = l2 - new * new
        W[RSS + r] += a * (delta * delta + var - W[OLD_VAR + r]) - 2.0 * delta * gradient
        likely = odds > 1.0
        W[LOG_TOP + r] *= root if likely else 1.0 + odds
        W[LOG_BOTTOM + r] *= eta if likely else 1.0
        W[LOADINGS + r] += W[PRIOR + r] + exponent * out if likely else -eta * exponent
        W[MU + r] = mu
        W[S2 + r] = s2
        W[ETA + r] = eta
        W[NEW + r] = new
        W[L2 + r] = l2
        W[VAR + r] = var
        W[WEIGHTED + r] = tau * new
        W[DELTA + r] = delta


@njit(**OPTIONS)
def flush_logs(W):
    for r in range(LANES):
        W[LOADINGS + r] += log_lane(W[LOG_TOP + r] / W[LOG_BOTTOM + r])
        W[LOG_TOP + r] = 1.0
        W[LOG_BOTTOM + r] = 1.0


@njit(**OPTIONS)
def field(W, name, n):
    """A view of n lanes; plain indices into views, unlike sums of indices, need no check for negative ones."""
    return W[name : name + n]


@njit(**OPTIONS)
def copy(source, target):
    for r in range(target.shape[0]):
        target[r] = source[r]


@njit(**OPTIONS)
def load_factor(W, k, first, n, R, message, masked, scratch):
    """b_k, y_k, A_kk and the old moments of rows first .. first + n of the tile."""
    K = message.gram.shape[0]
    base = k * R + first
    b, y_k, a_kk = field(W, B_K, n), field(W, Y_K, n), field(W, A_KK, n)
    b_from = scratch.b[first * K : (first + n) * K].reshape(n, K)[:, k]
    for r in range(n):
        b[r] = b_from[r]
    copy(scratch.l_mean[base : base + n], field(W, OLD, n))
    copy(scratch.l_var[base : base + n], field(W, OLD_VAR, n))
    if masked:
        diagonal = packed_offset(k, K) + k
        for r in range(n):
            y_k[r] = scratch.row_y[r, k]
            a_kk[r] = scratch.grams[r, diagonal]
    else:
        a = message.gram[k, k]
        copy(scratch.y[base : base + n], y_k)
        for r in range(n):
            a_kk[r] = a


@njit(**OPTIONS)
def spread_change(W, k, first, n, R, message, masked, scratch):
    """y += d A_k for the factors still to come."""
    K = message.gram.shape[0]
    delta = field(W, DELTA, n)
    if masked:
        offset = packed_offset(k, K)
        for r in range(n):
            d, y, a = delta[r], scratch.row_y[r, k + 1 :], scratch.grams[r, offset + k + 1 : offset + K]
            for m in range(y.shape[0]):
                y[m] += d * a[m]
    else:
        for m in range(k + 1, K):
            a, base = message.gram[k, m], m * R + first
            y = scratch.y[base : base + n]
            for r in range(n):
                y[r] += a * delta[r]


@njit(**OPTIONS)
def row_grams(row, first, n, R, problem, message, scratch):
    """A_i (4.4) and A_i E[l_i] of n rows of masked data, from the shorter of the missing and observed columns."""
    K = message.gram.shape[0]
    T = message.share.shape[1]
    row_l = scratch.row_l
    for r in range(n):
        i = row + r
        gram, row_y = scratch.grams[r], scratch.row_y[r]
        sign = 0.0
        if problem.lists_missing[i]:
            sign = 1.0
        for t in range(T):
            gram[t] = sign * message.packed_gram[0, t]
        sign = 1.0 - 2.0 * sign
        for position in range(problem.start[i], problem.start[i + 1]):
            share = message.share[problem.columns[position]]
            for t in range(T):
                gram[t] += sign * share[t]
        for k in range(K):
            row_l[k] = scratch.l_mean[k * R + first + r]
            row_y[k] = 0.0
        for k in range(K):
            offset, l = packed_offset(k, K) + k, row_l[k]
            a, tail_l, tail_y = gram[offset + 1 : offset + K - k], row_l[k + 1 :], row_y[k + 1 :]
            total = gram[offset] * l
            for m in range(a.shape[0]):
                total += a[m] * tail_l[m]
                tail_y[m] += a[m] * l
            row_y[k] += total


@njit(**OPTIONS)
def row_outers(row, first, n, R, problem, scratch, tau, packed_LL, LL_share):
    """Add w E[l l'] of n rows of masked data to the tile's LL and LL_share (4.5)."""
    K = scratch.row_l.shape[0]
    T = LL_share.shape[1]
    row_l, outer = scratch.row_l, scratch.outer
    for r in range(n):
        i = row + r
        for k in range(K):
            row_l[k] = scratch.l_mean[k * R + first + r]
        for k in range(K):
            offset, weighted = packed_offset(k, K) + k, tau[i] * row_l[k]
            target, tail_l = outer[offset : offset + K - k], row_l[k:]
            for m in range(target.shape[0]):
                target[m] = weighted * tail_l[m]
            outer[offset] += tau[i] * scratch.l_var[k * R + first + r]
        sign = 1.0
        if problem.lists_missing[i]:
            sign = -1.0
            for t in range(T):
                packed_LL[t] += outer[t]
        for position in range(problem.start[i], problem.start[i + 1]):
            share = LL_share[problem.columns[position]]
            for t in range(T):
                share[t] += sign * outer[t]


@njit(**OPTIONS)
def update_lanes(row, first, n, R, problem, message, rows_out, scratch, count, l2_sum, diagonal, terms):
    """All updates of rows row .. row + n, which are rows first .. first + n of their tile."""
    K = message.gram.shape[0]
    W = scratch.lanes
    masked = problem.lists_missing.shape[0] > 0
    if masked:
        row_grams(row, first, n, R, problem, message, scratch)
    for r in range(LANES):
        W[RSS + r] = 0.0
        W[TAU + r] = 1.0
        W[LOADINGS + r] = 0.0
    last = row + n
    if problem.feature_noise:
        copy(problem.row_ss[row:last], field(W, RSS, n))
    for k in range(K):
        load_factor(W, k, first, n, R, message, masked, scratch)
        for r in range(LANES):
            W[RSS + r] += W[OLD + r] * (W[Y_K + r] - 2.0 * W[B_K + r]) + W[A_KK + r] * W[OLD_VAR + r]
    if problem.feature_noise:
        for r in range(LANES):
            W[RATE + r] = problem.noise_rate + 0.5 * W[RSS + r]
        tau, rate, shape, half = (
            field(W, TAU, n), field(W, RATE, n), problem.tau_shape[row:last], problem.half_count[row:last],
        )  # fmt: skip
        for r in range(n):
            tau[r] = shape[r] / rate[r]
        for r in range(LANES):
            W[RATE + r] = log_lane(W[RATE + r])
        total_log, total_half, total_tau = 0.0, 0.0, 0.0
        for r in range(n):
            total_log += rate[r]
            total_half += half[r] * rate[r]
            total_tau += tau[r]
        terms[0] -= total_half
        terms[2] -= problem.noise_shape * total_log + problem.noise_rate * total_tau
    copy(field(W, TAU, n), rows_out.tau[row:last])

    per_row = message.prior.shape[1] > 1
    for k in range(K):
        load_factor(W, k, first, n, R, message, masked, scratch)
        if per_row:
            copy(message.prior[k, row:last], field(W, PRIOR, n))
        else:
            prior = message.prior[k, 0]
            for r in range(LANES):
                W[PRIOR + r] = prior
        update_factor(W, message.alpha[k])
        if k % FACTORS_PER_LOG == FACTORS_PER_LOG - 1:
            flush_logs(W)
        spread_change(W, k, first, n, R, message, masked, scratch)
        base = k * R + first
        copy(field(W, MU, n), rows_out.mu[k, row:last])
        copy(field(W, S2, n), rows_out.s2[k, row:last])
        copy(field(W, ETA, n), rows_out.eta[k, row:last])
        copy(field(W, NEW, n), scratch.l_mean[base : base + n])
        copy(field(W, VAR, n), scratch.l_var[base : base + n])
        copy(field(W, WEIGHTED, n), scratch.weighted[base : base + n])
        tau, eta, l2, var = field(W, TAU, n), field(W, ETA, n), field(W, L2, n), field(W, VAR, n)
        total_eta, total_l2, total_var = 0.0, 0.0, 0.0
        for r in range(n):
            total_eta += eta[r]
            total_l2 += l2[r]
            total_var += tau[r] * var[r]
        count[k] += total_eta
        l2_sum[k] += total_l2
        diagonal[k] += total_var
    flush_logs(W)
    tau, rss, loadings = field(W, TAU, n), field(W, RSS, n), field(W, LOADINGS, n)
    total_rss, total_loadings = 0.0, 0.0
    for r in range(n):
        total_rss += tau[r] * rss[r]
        total_loadings += loadings[r]
    terms[0] -= 0.5 * total_rss
    terms[1] += total_loadings


@njit(**OPTIONS)
def vi_tiles(first_tile, last_tile, problem, message, rows_in, rows_out, sums, scratch):
    """The row pass of tiles first_tile .. last_tile, leaving each tile's sums in `sums`."""
    G, _ = problem.Y.shape
    K = message.gram.shape[0]
    masked = problem.lists_missing.shape[0] > 0
    lanes = scratch.lanes
    lanes[:] = 1.0
    diagonal = np.empty(K)
    for t in range(first_tile, last_tile):
        row = t * problem.tile
        R = min(problem.tile, G - row)
        Y = problem.Y[row : row + R]
        np.dot(Y, message.F, scratch.b[: R * K].reshape(R, K))
        for k in range(K):
            c, base = message.scale[k], k * R
            mean, var = scratch.l_mean[base : base + R], scratch.l_var[base : base + R]
            mu, s2, eta = rows_in.mu[k, row:], rows_in.s2[k, row:], rows_in.eta[k, row:]
            for r in range(R):
                mean[r] = c * eta[r] * mu[r]
            for r in range(R):
                var[r] = c * c * eta[r] * (mu[r] * mu[r] + s2[r])
            for r in range(R):
                var[r] -= mean[r] * mean[r]
        l_mean = scratch.l_mean[: K * R].reshape(K, R)
        if not masked:
            np.dot(message.gram, l_mean, scratch.y[: K * R].reshape(K, R))

        LL, LL_share, terms = sums.LL[t], sums.LL_share[t], sums.terms[t]
        sums.count[t] = 0.0
        sums.l2[t] = 0.0
        terms[:] = 0.0
        diagonal[:] = 0.0
        if masked:
            scratch.LL[:] = 0.0
            LL_share[:] = 0.0
        for first in range(0, R, LANES):
            n = min(LANES, R - first)
            update_lanes(
                row + first, first, n, R, problem, message, rows_out, scratch,
                sums.count[t], sums.l2[t], diagonal, terms,
            )  # fmt: skip
            if masked:
                row_outers(row + first, first, n, R, problem, scratch, rows_out.tau, scratch.LL, LL_share)
        for k in range(K):
            terms[1] += 0.5 * (sums.count[t, k] - message.alpha[k] * sums.l2[t, k])

        for s in range(K * R):
            scratch.narrow[s] = scratch.weighted[s]
        np.dot(scratch.narrow[: K * R].reshape(K, R), Y, scratch.LY)
        sums.LY[t] = scratch.LY
        if masked:
            unpack(scratch.LL, LL)
        else:
            np.dot(scratch.weighted[: K * R].reshape(K, R), l_mean.T, LL)
            for k in range(K):
                LL[k, k] += diagonal[k]
