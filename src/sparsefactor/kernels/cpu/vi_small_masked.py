"""What vi_small.py does, for data with missing entries: an iteration of VI in a few compiled calls.

For noise by feature and joint activations, with or without directions whose activations are given (1.11), none of which
has a slab. The row pass is that of all data, so that it is compiled once. The equations are those of kernels/columns.py
and engine/pinned.py, to which a test holds this. There are K factors, and D with the d directions behind them; `spread`
has each sample's covariance (N, K, K).
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from ..contract import CERTAIN
from .compiled import EXACT, OPTIONS, njit
from .correlation import correlation_terms, prior_precision
from .packed import packed_offset
from .sample_lanes import log_determinants
from .tiles import add_tiles
from .vi_lanes import U
from .vi_small import beta_kl, digamma, gamma_kl, scale_and_correlation, slab_and_rate


@njit(**EXACT)
def solve(A, x):
    """x <- A^-1 x for a positive definite A, which is written over."""
    n = len(x)
    for a in range(n):
        for e in range(a + 1, n):
            factor = A[e, a] / A[a, a]
            for m in range(a + 1, n):
                A[e, m] -= factor * A[a, m]
            x[e] -= factor * x[a]
    for a in range(n - 1, -1, -1):
        for m in range(a + 1, n):
            x[a] -= A[a, m] * x[m]
        x[a] /= A[a, a]


@njit(**EXACT)
def loading_spread(mu, s2, eta, tau, observed):
    """(K, N) sums over a sample's rows of w Var[l], rows by factor; observed: (G, N) ones and zeros."""
    K, G = mu.shape
    own = np.empty((K, G))
    for k in range(K):
        for i in range(G):
            mean = eta[k, i] * mu[k, i]
            own[k, i] = tau[i] * (eta[k, i] * (mu[k, i] * mu[k, i] + s2[k, i]) - mean * mean)
    return np.dot(own, observed)


@njit(**OPTIONS)
def slide_along(basis, spread, prior, f_mean, slide):
    """f_k -> f_k - e'C at the best e, which is left in slide (K, d), for one factor after another (3.19).

    prior: (K, K) Phi^-1.
    """
    d, N = basis.shape
    K = f_mean.shape[0]
    gram = np.empty((d, d))
    for k in range(K):
        gram[:] = 0.0
        slide[k] = 0.0
        for j in range(N):
            h, pull = prior[k, k] + spread[k, j], spread[k, j] * f_mean[k, j]
            for m in range(K):
                pull += prior[k, m] * f_mean[m, j]
            for p in range(d):
                slide[k, p] += pull * basis[p, j]
                for q in range(d):
                    gram[p, q] += h * basis[p, j] * basis[q, j]
        solve(gram, slide[k])
        for p in range(d):
            for j in range(N):
                f_mean[k, j] -= slide[k, p] * basis[p, j]


@njit(**EXACT)
def slid_rows(rows, base, base_var, slide, whole):
    """Rows of the factors, and the directions behind them with E[l] times slide besides, into (3, D, G)."""
    (K, G), d = rows.mu.shape, base.shape[1]
    for k in range(K):
        for i in range(G):
            whole[0, k, i], whole[1, k, i], whole[2, k, i] = rows.mu[k, i], rows.s2[k, i], rows.eta[k, i]
    for p in range(d):
        for i in range(G):
            total = base[i, p]
            for k in range(slide.shape[0]):
                total += rows.eta[k, i] * rows.mu[k, i] * slide[k, p]
            whole[0, K + p, i], whole[1, K + p, i], whole[2, K + p, i] = total, base_var[i, p], 1.0


@njit(**OPTIONS)
def masked_columns(rows, observed, active, l2, constants, basis, rescale, phi_in, f_mean, spread, slide, small, phi):
    """The column step but for the activations, which come in; and each factor at its best place and scale, with the
    factors' correlations, if asked for.

    small: (5, K) alpha_shape, alpha_rate, pi_a, pi_b and 1 / c.
    """
    K, N = f_mean.shape
    G = observed.shape[0]
    if rescale and len(basis):
        prior = np.empty((K, K))
        prior_precision(phi_in, constants.correlation_df, prior)
        slide_along(basis, loading_spread(rows.mu, rows.s2, rows.eta, rows.tau, observed), prior, f_mean, slide)
    for k in range(K):
        slab_and_rate(k, active, l2, G, constants, small)
    if not rescale:
        return
    c, moments = np.empty(K), np.dot(f_mean, f_mean.T)
    for j in range(N):
        for k in range(K):
            for m in range(K):
                moments[U(k), U(m)] += spread[U(j), U(k), U(m)]
    scale_and_correlation(phi_in, moments, constants, small, phi, c)
    for k in range(K):
        for j in range(N):
            f_mean[k, j] *= c[k]
    for j in range(N):
        for k in range(K):
            c_k = c[k]
            for m in range(K):
                spread[U(j), U(k), U(m)] *= c_k * c[U(m)]


@njit(**OPTIONS)
def fill_message(f_mean, spread, basis, F, share, gram, packed_gram):
    """F (N, D), the samples' shares (4.2), packed, and their sum; returns the sum of the log determinants."""
    (K, N), d = f_mean.shape, basis.shape[0]
    D, T = K + d, share.shape[1]
    f, own = np.empty(D), np.zeros(T)
    packed_gram[:] = 0.0
    for j in range(N):
        for k in range(K):
            f[k] = f_mean[k, j]
        for p in range(d):
            f[K + p] = basis[p, j]
        for k in range(D):
            F[j, k] = f[k]
            f_k, offset = f[k], packed_offset(k, D)
            for m in range(k, D):
                own[offset + U(m)] = f_k * f[U(m)]
            for m in range(k, K):
                own[offset + U(m)] += spread[U(j), U(k), U(m)]
        for t in range(T):
            packed_gram[0, t] += own[t]
        for t in range(T):
            share[j, t] = own[t]
    for k in range(D):
        offset = packed_offset(k, D)
        for m in range(k, D):
            gram[k, m] = gram[m, k] = packed_gram[0, offset + U(m)]
    return log_determinants(spread)


@njit(**OPTIONS)
def free_sums(LY, LL, shares, basis, free_LY, free_LL, free_shares, shift):
    """Of the K factors alone, with what the directions explain taken off the data; shares are packed (N, T)."""
    (K, N), d = free_LY.shape, basis.shape[0]
    D = K + d
    for k in range(K):
        for m in range(K):
            free_LL[k, m] = LL[k, m]
    for j in range(N):
        for k in range(K):
            offset = packed_offset(k, D)
            for m in range(k, K):
                free_shares[U(j), U(k), U(m)] = shares[U(j), offset + U(m)]
            for m in range(k + 1, K):
                free_shares[U(j), U(m), U(k)] = shares[U(j), offset + U(m)]
            free_LY[k, j] = LY[k, j]
            for p in range(d):
                free_LY[k, j] -= (LL[k, K + p] + shares[j, offset + U(K + p)]) * basis[p, j]
        if d:
            shift[j] = 0.0
        for p in range(d):
            offset = packed_offset(K + p, D)
            shift[j] -= 2.0 * basis[p, j] * LY[K + p, j]
            for q in range(p, d):
                both = (LL[K + p, K + q] + shares[j, offset + U(K + q)]) * basis[p, j] * basis[q, j]
                shift[j] += both if p == q else 2.0 * both


@njit(**EXACT)
def masked_message(columns, constants, base_precision, basis, G, message, terms):
    """Fill the message to the rows; and the ELBO's terms that do not depend on them.

    columns: f_mean, spread, phi, alpha_shape, alpha_rate, pi_a, pi_b, scale; message: F, gram, the samples' shares and
    the gram, packed, alpha, prior and scale, of all D; terms: (7,), of which the loadings' has the rates' part alone.
    """
    f_mean, spread, phi, a_shape, a_rate, pi_a, pi_b, scale = columns
    F, gram, share, packed_gram, alpha, prior, _, whole_scale = message
    K = f_mean.shape[0]
    terms[1] = constants.log_out
    log_dets = fill_message(f_mean, spread, basis, F, share, gram, packed_gram)
    quadratic, terms[6] = correlation_terms(phi, gram[:K, :K], constants.n, constants.correlation_df)
    terms[2] = 0.5 * (K * constants.n + log_dets - quadratic)
    terms[4] = 0.0
    terms[5] = 0.0
    for k in range(K):
        alpha[k, 0] = a_shape[k] / a_rate[k]
        terms[4] -= gamma_kl(a_shape[k], a_rate[k], constants.loading_shape, constants.loading_rate)
        if constants.logit.shape[0] == 0:
            psi_b = digamma(pi_b[k])
            logit = digamma(pi_a[k]) - psi_b
            terms[1] += G * (psi_b - digamma(pi_a[k] + pi_b[k]))
            terms[5] -= beta_kl(pi_a[k], pi_b[k], constants.a, constants.b)
        else:
            logit = constants.logit[k]
        prior[k, 0] = logit + 0.5 * (digamma(a_shape[k]) - math.log(a_rate[k]) - math.log(alpha[k, 0]))
        whole_scale[k] = scale[k]
    for k in range(K, K + basis.shape[0]):
        alpha[k, 0], prior[k, 0], whole_scale[k] = base_precision, CERTAIN, 1.0


@njit(**EXACT)
def masked_sums(tiles, shares, constants, n_observed, basis, G, space, out):
    """The factors' sums from those of the tiles and samples, and the ELBO, which is returned.

    space: LY and LL of all D, and their sums (2 D + 3,); out: LY, LL, LL_share and shift of the factors, sums
    (2 K + 3,) and terms (7,), which `masked_message` began.
    """
    LY, LL, whole = space
    free_LY, free_LL, free_shares, shift, sums, terms = out
    K, d = free_LL.shape[0], basis.shape[0]
    D = K + d
    add_tiles(tiles, LY, LL, whole)
    free_sums(LY, LL, shares, basis, free_LY, free_LL, free_shares, shift)
    for k in range(K):
        sums[k] = whole[k]
        sums[K + k] = whole[D + k]
    for m in range(3):
        sums[2 * K + m] = whole[2 * D + m] + constants.row_terms[m]
    sums[2 * K + 1] -= CERTAIN * G * d
    terms[0] = sums[2 * K] - 0.5 * n_observed * math.log(2.0 * math.pi)
    terms[1] += sums[2 * K + 1]
    terms[3] = sums[2 * K + 2]
    return terms[0] + terms[1] + terms[2] + terms[3] + terms[4] + terms[5] + terms[6]
