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
from .lanes import INLINE, LANES, OPTIONS, exp_lane, log_lane
from .tiles import packed_offset, packed_size, unpack

# Where each quantity lies in the array of lanes.
FIELDS = 20
(TAU, RATE, RSS, A_KK, B_K, Y_K, OLD, OLD_VAR, PRIOR, LOG_TOP, LOG_BOTTOM, LOADINGS) = range(0, 12 * LANES, LANES)
(MU, S2, ETA, NEW, L2, VAR, WEIGHTED, DELTA) = range(12 * LANES, FIELDS * LANES, LANES)
FACTORS_PER_LOG = 4  # as many factors share one logarithm of a product; each keeps within 1e-75 and 1e75
U = np.uint64  # sums of indices are unsigned: Numba would check signed ones for being negative


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
    b: Array  # (R * K,) the tile's Y F, of Y's type
    l_mean: Array  # (K * R,) the tile's E[l]
    weighted: Array  # (K * R,) w E[l]
    narrow: Array  # (K * R,) the same in Y's type, and the same array where that is float64
    LY: Array  # (K, N) of Y's type
    b_k: Array  # (K, LANES) b of the rows being updated
    a_kk: Array  # (K, LANES) the diagonal of A
    mean: Array  # (K, LANES) E[l], first of the old state, then of the new
    var: Array  # (K, LANES)
    y_k: Array  # (K, LANES) A E[l]
    delta: Array  # (K, LANES) the change of E[l]
    grams: Array  # (LANES, T) packed A_i; (0, T) for complete data
    A: Array  # (T, LANES) the same; (0, LANES) for complete data
    row: Array  # (K,)
    outer: Array  # (T,) w E[l l']
    LL: Array  # (T,)


def vi_scratch(Y: Array, tile: int, K: int, masked: bool) -> VIScratch:
    T, lanes = packed_size(K), LANES if masked else 0
    weighted = np.empty(K * tile)
    b_k, a_kk, mean, var, y_k, delta = np.zeros((6, K, LANES))
    return VIScratch(
        lanes=np.ones(FIELDS * LANES),
        b=np.empty(tile * K, Y.dtype),
        l_mean=np.empty(K * tile),
        weighted=weighted,
        narrow=weighted.astype(Y.dtype, copy=False),
        LY=np.empty((K, Y.shape[1]), Y.dtype),
        b_k=b_k,
        a_kk=a_kk,
        mean=mean,
        var=var,
        y_k=y_k,
        delta=delta,
        grams=np.zeros((lanes, T)),
        A=np.zeros((T if masked else 0, LANES)),
        row=np.empty(K),
        outer=np.zeros(T),
        LL=np.empty(T),
    )


# ---- LANES rows of one factor ----------------------------------------------------------------------------------


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
        var = l2 - new * new
        delta = new - old
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
    """Move the products of which the loadings term needs the logarithm into it."""
    for r in range(LANES):
        W[LOADINGS + r] += log_lane(W[LOG_TOP + r] / W[LOG_BOTTOM + r])
        W[LOG_TOP + r] = 1.0
        W[LOG_BOTTOM + r] = 1.0


@njit(**INLINE)
def load(W, field, source, k):
    for r in range(source.shape[1]):
        W[U(field) + U(r)] = source[k, r]


@njit(**INLINE)
def store(W, field, target, k, row, n):
    """n lanes to target[k, row : row + n]."""
    for r in range(n):
        target[k, row + U(r)] = W[U(field) + U(r)]


@njit(**OPTIONS)
def load_rows(mu, s2, eta, scale, row, n, mean, var):
    """E[l] and Var[l] of rows row .. row + n as they were, at the message's scale."""
    for k in range(scale.shape[0]):
        c = scale[k]
        for r in range(n):
            mean[k, r] = c * eta[k, row + U(r)] * mu[k, row + U(r)]
        for r in range(n):
            var[k, r] = c * c * eta[k, row + U(r)] * (mu[k, row + U(r)] * mu[k, row + U(r)] + s2[k, row + U(r)])
        for r in range(var.shape[1]):
            var[k, r] -= mean[k, r] * mean[k, r]


@njit(**OPTIONS)
def transpose(source, first, n, target):
    """Rows first .. first + n of source, (rows, K) laid out flat, as target (K, LANES)."""
    K = target.shape[0]
    for r in range(n):
        base = U(first + r) * U(K)
        for k in range(K):
            target[k, r] = source[base + U(k)]


@njit(**INLINE)
def add_product(gram, k, stop, source, y):
    """y_k += sum over m < stop of A_km source_m, four at a time to spare loads and stores of y."""
    whole = stop // 4 * 4
    for m in range(0, whole, 4):
        a0, a1, a2, a3 = gram[k, m], gram[k, m + 1], gram[k, m + 2], gram[k, m + 3]
        for r in range(y.shape[1]):
            y[k, r] += (a0 * source[m, r] + a1 * source[m + 1, r]) + (a2 * source[m + 2, r] + a3 * source[m + 3, r])
    for m in range(whole, stop):
        a = gram[k, m]
        for r in range(y.shape[1]):
            y[k, r] += a * source[m, r]


# ---- masked data: a Gram matrix for each row -------------------------------------------------------------------


@njit(**OPTIONS)
def row_grams(row, n, start, columns, lists_missing, share, whole, grams, A):
    """A_i (4.4) of n rows, packed, as A (T, LANES), from the shorter of the missing and observed columns."""
    T = share.shape[1]
    for r in range(n):
        i = row + r
        sign = 1.0 if lists_missing[i] else 0.0
        for t in range(T):
            grams[r, t] = sign * whole[0, t]
        sign = 1.0 - 2.0 * sign
        for position in range(start[i], start[i + 1]):
            j = columns[position]
            for t in range(T):
                grams[r, t] += sign * share[j, t]
    for r in range(n):
        for t in range(T):
            A[t, r] = grams[r, t]


@njit(**OPTIONS)
def multiply_rows(A, mean, a_kk, y):
    """y = A_i E[l_i], and the diagonals of A_i."""
    K = mean.shape[0]
    for k in range(K):
        diagonal = packed_offset(k, K) + U(k)
        for r in range(y.shape[1]):
            a_kk[k, r] = A[diagonal, r]
        for r in range(y.shape[1]):
            y[k, r] = A[diagonal, r] * mean[k, r]
    for k in range(K):
        offset = packed_offset(k, K)
        for m in range(k + 1, K):
            t = offset + U(m)
            for r in range(y.shape[1]):
                y[k, r] += A[t, r] * mean[m, r]
            for r in range(y.shape[1]):
                y[m, r] += A[t, r] * mean[k, r]


@njit(**INLINE)
def add_row_products(A, k, delta, y):
    """y_k += sum over m < k of A_mk d_m, A being each row's own."""
    K = delta.shape[0]
    for m in range(k):
        t = packed_offset(m, K) + U(k)
        for r in range(y.shape[1]):
            y[k, r] += A[t, r] * delta[m, r]


@njit(**OPTIONS)
def row_outers(row, n, start, columns, lists_missing, tau, mean, var, l, outer, LL, LL_share):
    """Add w E[l l'] of n rows to the tile's LL and LL_share (4.5)."""
    K, T = mean.shape[0], outer.shape[0]
    for r in range(n):
        i = row + r
        for k in range(K):
            l[k] = mean[k, r]
        for k in range(K):
            offset, weighted = packed_offset(k, K), tau[i] * l[k]
            for m in range(k, K):
                outer[offset + U(m)] = weighted * l[U(m)]
            outer[offset + U(k)] += tau[i] * var[k, r]
        sign = 1.0
        if lists_missing[i]:
            sign = -1.0
            for t in range(T):
                LL[t] += outer[t]
        for position in range(start[i], start[i + 1]):
            j = columns[position]
            for t in range(T):
                LL_share[j, t] += sign * outer[t]


# ---- whole rows and tiles ---------------------------------------------------------------------------------------


@njit(**OPTIONS)
def expected_rss(W, mean, var, a_kk, b, y):
    """Add E[|y_i - F'l_i|^2] less y_i'y_i to the lanes' residuals (3.4)."""
    for k in range(mean.shape[0]):
        for r in range(y.shape[1]):
            W[U(RSS) + U(r)] += mean[k, r] * (y[k, r] - 2.0 * b[k, r])
        for r in range(y.shape[1]):
            W[U(RSS) + U(r)] += a_kk[k, r] * var[k, r]


@njit(**OPTIONS)
def update_tau(W, row, n, shape, half_count, noise_shape, noise_rate, terms):
    """q(tau_i) (3.3) from the residuals at the old state, and its ELBO terms less constants (3.9, 3.10)."""
    for r in range(LANES):
        W[RATE + r] = noise_rate + 0.5 * W[RSS + r]
    for r in range(n):
        W[U(TAU) + U(r)] = shape[row + U(r)] / W[U(RATE) + U(r)]
    for r in range(LANES):
        W[RATE + r] = log_lane(W[RATE + r])
    logs, weighted_logs, taus = 0.0, 0.0, 0.0
    for r in range(n):
        logs += W[U(RATE) + U(r)]
        weighted_logs += half_count[row + U(r)] * W[U(RATE) + U(r)]
        taus += W[U(TAU) + U(r)]
    terms[0] -= weighted_logs
    terms[2] -= noise_shape * logs + noise_rate * taus


@njit(**INLINE)
def add_totals(W, k, n, count, l2, weighted_var):
    total_eta, total_l2, total_var = 0.0, 0.0, 0.0
    for r in range(n):
        total_eta += W[U(ETA) + U(r)]
        total_l2 += W[U(L2) + U(r)]
        total_var += W[U(TAU) + U(r)] * W[U(VAR) + U(r)]
    count[k] += total_eta
    l2[k] += total_l2
    weighted_var[k] += total_var


@njit(**OPTIONS)
def vi_tiles(first_tile, last_tile, problem, message, rows_in, rows_out, sums, scratch):
    """The row pass of tiles first_tile .. last_tile, leaving each tile's sums in `sums`."""
    # Every field is looked up once, here: a look-up counts references, which inner loops must not.
    _, row_ss, half_count, tau_shape, start, columns, lists_missing = problem[:7]
    F, gram, share, packed_gram, alpha, prior, scale = message
    mu_in, s2_in, eta_in, _ = rows_in
    mu_out, s2_out, eta_out, tau_out = rows_out
    W, b_tile, l_tile, weighted, narrow, LY, b, a_kk, mean, var, y, delta, grams, A, l, outer, packed_LL = scratch
    G, K = mu_in.shape[1], gram.shape[0]
    masked, per_row = lists_missing.shape[0] > 0, prior.shape[1] > 1
    W[:] = 1.0
    for k in range(K):
        a_kk[k] = gram[k, k]
    weighted_var = np.empty(K)
    for t in range(first_tile, last_tile):
        tile = t * problem.tile
        R = min(problem.tile, G - tile)
        Y = problem.Y[tile : tile + R]
        np.dot(Y, F, b_tile[: R * K].reshape(R, K))
        LL, LL_share, terms, count, l2 = sums.LL[t], sums.LL_share[t], sums.terms[t], sums.count[t], sums.l2[t]
        count[:] = 0.0
        l2[:] = 0.0
        terms[:] = 0.0
        weighted_var[:] = 0.0
        LL_share[:] = 0.0
        packed_LL[:] = 0.0

        for first in range(0, R, LANES):
            n, row, at = min(LANES, R - first), tile + first, U(tile + first)
            load_rows(mu_in, s2_in, eta_in, scale, at, n, mean, var)
            transpose(b_tile, first, n, b)
            if masked:
                row_grams(row, n, start, columns, lists_missing, share, packed_gram, grams, A)
                multiply_rows(A, mean, a_kk, y)
            else:
                for k in range(K):
                    for r in range(y.shape[1]):
                        y[k, r] = 0.0
                    add_product(gram, k, K, mean, y)
            for r in range(LANES):
                W[RSS + r] = 0.0
                W[TAU + r] = 1.0
                W[LOADINGS + r] = 0.0
            if problem.feature_noise:
                for r in range(n):
                    W[U(RSS) + U(r)] = row_ss[at + U(r)]
            expected_rss(W, mean, var, a_kk, b, y)
            if problem.feature_noise:
                update_tau(W, at, n, tau_shape, half_count, problem.noise_shape, problem.noise_rate, terms)
            for r in range(n):
                tau_out[at + U(r)] = W[U(TAU) + U(r)]

            for k in range(K):
                if masked:
                    add_row_products(A, k, delta, y)
                else:
                    add_product(gram, k, k, delta, y)
                load(W, Y_K, y, k)
                if per_row:
                    for r in range(n):
                        W[U(PRIOR) + U(r)] = prior[k, at + U(r)]
                else:
                    for r in range(LANES):
                        W[PRIOR + r] = prior[k, 0]
                load(W, B_K, b, k)
                load(W, A_KK, a_kk, k)
                load(W, OLD, mean, k)
                load(W, OLD_VAR, var, k)
                update_factor(W, alpha[k])
                if k % FACTORS_PER_LOG == FACTORS_PER_LOG - 1:
                    flush_logs(W)
                store(W, DELTA, delta, k, U(0), n)
                store(W, NEW, mean, k, U(0), n)
                store(W, VAR, var, k, U(0), n)
                store(W, MU, mu_out, k, at, n)
                store(W, S2, s2_out, k, at, n)
                store(W, ETA, eta_out, k, at, n)
                base = U(k * R + first)
                for r in range(n):
                    l_tile[base + U(r)] = W[U(NEW) + U(r)]
                for r in range(n):
                    weighted[base + U(r)] = W[U(WEIGHTED) + U(r)]
                add_totals(W, k, n, count, l2, weighted_var)
            flush_logs(W)
            for r in range(n):
                terms[0] -= 0.5 * W[U(TAU) + U(r)] * W[U(RSS) + U(r)]
                terms[1] += W[U(LOADINGS) + U(r)]
            if masked:
                row_outers(row, n, start, columns, lists_missing, tau_out, mean, var, l, outer, packed_LL, LL_share)

        for k in range(K):
            terms[1] += 0.5 * (count[k] - alpha[k] * l2[k])
        for s in range(K * R):
            narrow[s] = weighted[s]
        np.dot(narrow[: K * R].reshape(K, R), Y, LY)
        sums.LY[t] = LY
        if masked:
            unpack(packed_LL, LL)
        else:
            np.dot(weighted[: K * R].reshape(K, R), l_tile[: K * R].reshape(K, R).T, LL)
            for k in range(K):
                LL[k, k] += weighted_var[k]
