"""LANES rows at a time: the steps of the row pass of variational inference, each one loop that LLVM vectorises.

The lanes' array W holds FIELDS quantities of each row; arrays (K, LANES) hold a quantity of all factors.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np

from .compiled import INLINE, OPTIONS, njit
from .lanes import LANES, exp_lane, log_lane

# Where each quantity lies in the array of lanes.
FIELDS = 21
(TAU, RATE, RSS, A_KK, B_K, Y_K, OLD, OLD_VAR, PRIOR, LOG_TOP, LOG_BOTTOM, LOADINGS) = range(0, 12 * LANES, LANES)
(MU, S2, ETA, NEW, L2, VAR, WEIGHTED, DELTA, ALPHA) = range(12 * LANES, FIELDS * LANES, LANES)
FACTORS_PER_LOG = 4  # as many factors share one logarithm of a product; each keeps within 1e-75 and 1e75
U = np.uint64  # sums of indices are unsigned: Numba would check signed ones for being negative


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
def load(W, field, source, k):
    for r in range(source.shape[1]):
        W[U(field) + U(r)] = source[k, r]


@njit(**INLINE)
def store(W, field, target, k, row, n):
    """n lanes to target[k, row : row + n]."""
    for r in range(n):
        target[k, row + U(r)] = W[U(field) + U(r)]


@njit(**OPTIONS)
def multiply(gram, mean, y):
    """y = gram mean, for few factors: a call to BLAS would take longer than the product."""
    for k in range(y.shape[0]):
        for r in range(LANES):
            y[k, r] = 0.0
        for m in range(y.shape[0]):
            a = gram[k, m]
            for r in range(LANES):
                y[k, r] += a * mean[m, r]


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
        W[RATE + r] = 0.5 * max(W[RSS + r], 0.0)
    for r in range(n):
        W[U(RATE) + U(r)] += noise_rate[row + U(r)]
    for r in range(n, LANES):
        W[RATE + r] = 1.0
    for r in range(n):
        W[U(TAU) + U(r)] = shape[row + U(r)] / W[U(RATE) + U(r)]
    for r in range(LANES):
        W[RATE + r] = log_lane(W[RATE + r])
    logs, weighted_logs, taus = 0.0, 0.0, 0.0
    for r in range(n):
        logs += W[U(RATE) + U(r)]
        weighted_logs += half_count[row + U(r)] * W[U(RATE) + U(r)]
        taus += noise_rate[row + U(r)] * W[U(TAU) + U(r)]
    terms[0] -= weighted_logs
    terms[2] -= noise_shape * logs + taus


@njit(**INLINE)
def add_product(gram, k, delta, y):
    """y_k += sum over m < k of A_km d_m, four at a time to spare loads and stores of y."""
    whole = k // 4 * 4
    for m in range(0, whole, 4):
        a0, a1, a2, a3 = gram[k, m], gram[k, m + 1], gram[k, m + 2], gram[k, m + 3]
        for r in range(y.shape[1]):
            y[k, r] += (a0 * delta[m, r] + a1 * delta[m + 1, r]) + (a2 * delta[m + 2, r] + a3 * delta[m + 3, r])
    for m in range(whole, k):
        a = gram[k, m]
        for r in range(y.shape[1]):
            y[k, r] += a * delta[m, r]


@njit(**INLINE)
def update_lane(W, r, alpha):
    """q(l_ik, z_ik) of one row and its effect on its residual and ELBO terms (3.1)."""
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
def update_factor(W, alpha):
    """`update_lane` of LANES rows with one slab precision."""
    for r in range(LANES):
        update_lane(W, r, alpha)


@njit(**OPTIONS)
def update_grouped_factor(W):
    """`update_lane` of LANES rows, each with the slab precision of its group."""
    for r in range(LANES):
        update_lane(W, r, W[ALPHA + r])


@njit(**OPTIONS)
def flush_logs(W):
    """Move the products of which the loadings term needs the logarithm into it."""
    for r in range(LANES):
        W[LOADINGS + r] += log_lane(W[LOG_TOP + r] / W[LOG_BOTTOM + r])
        W[LOG_TOP + r] = 1.0
        W[LOG_BOTTOM + r] = 1.0


@njit(**INLINE)
def add_totals(W, k, n, count, l2, weighted_var):
    total_eta, total_l2, total_var = 0.0, 0.0, 0.0
    for r in range(n):
        total_eta += W[U(ETA) + U(r)]
        total_l2 += W[U(L2) + U(r)]
        total_var += W[U(TAU) + U(r)] * W[U(VAR) + U(r)]
    count[k, 0] += total_eta
    l2[k, 0] += total_l2
    weighted_var[k] += total_var


@njit(**INLINE)
def add_group_totals(W, k, n, group, row, count, l2, weighted_var):
    """As add_totals, each row's in its group's."""
    total_var = 0.0
    for r in range(n):
        own = group[row + U(r)]
        count[k, own] += W[U(ETA) + U(r)]
        l2[k, own] += W[U(L2) + U(r)]
        total_var += W[U(TAU) + U(r)] * W[U(VAR) + U(r)]
    weighted_var[k] += total_var
