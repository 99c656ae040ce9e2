"""q under a prior with modules, and its ELBO twice more: module by module from the plain one, and by Monte Carlo."""

from __future__ import annotations

import numpy as np
from scipy import stats
from scipy.special import digamma, xlogy
from tests.helpers.elbo import Q, direct_elbo
from tests.helpers.problems import random_vi_state

from sparsefactor.data import Data
from sparsefactor.kernels.contract import Array, VIColumns, VIRows
from sparsefactor.model import Prior, log_joint
from sparsefactor.vi.cavi import CAVI, VIState


def random_module_state(cavi: CAVI, plain: VIState, seed: int = 0) -> VIState:
    """A q that no update but one row pass has touched yet."""
    rng = np.random.default_rng([seed, 1])
    G, K, M = cavi.data.n_features, cavi.prior.K, cavi.prior.n_modules
    member, within = rng.dirichlet(np.ones(M), G), rng.uniform(0.05, 0.95, (G, K, M))
    rows = plain.rows._replace(member=member, within=within, eta=np.einsum("ikm,im->ik", within, member))
    # Rates so different that q(z) differs between modules.
    columns = plain.columns._replace(
        pi_a=rng.gamma(2.0, 3.0, (K, M + 1)),
        pi_b=rng.gamma(2.0, 3.0, (K, M + 1)),
        own=rng.uniform(0.6, 0.9, K),
        w_shape=rng.gamma(5.0, 1.0, M),
    )
    return cavi.finish(rows, columns, np.ones(K))


def started(cavi: CAVI, plain_cavi, seed: int = 0) -> VIState:
    return random_module_state(cavi, random_vi_state(plain_cavi, seed), seed)


def direct_module_elbo(data: Data, prior: Prior, q: Q, rows: VIRows, columns: VIColumns) -> float:
    """E_q[log p - log q]: the modules' part from its definition, the rest from the plain ELBO.

    Given the modules of all rows, q is as without modules, and its expectations are sums over rows. So a row's part is
    the mean over its modules of what the plain ELBO has there.
    """
    total = 0.0
    M = len(columns.w_shape)
    both = digamma(columns.pi_a + columns.pi_b)
    each_in, each_out, own = digamma(columns.pi_a) - both, digamma(columns.pi_b) - both, columns.own[:, None]
    log_in, log_out = (own * each[:, :M] + (1 - own) * each[:, M:] for each in (each_in, each_out))
    log_w = digamma(columns.w_shape) - digamma(columns.w_shape.sum())
    fixed = Prior(
        n_factors=prior.K, inclusion=0.5, noise=prior.noise, noise_shape=prior.noise_shape, noise_rate=prior.noise_rate,
        loading_shape=prior.loading_shape, loading_rate=prior.loading_rate,
    )  # fmt: skip
    half = np.log(0.5)
    # All but z, c, pi and w: the plain ELBO less its terms in z, and what changes there when a row changes its module.
    first = rows.within[:, :, 0]
    base = direct_elbo(data, fixed, q._replace(eta=first)) - z_terms(first, half)
    row_mean = 0.0
    for i in range(len(first)):
        for m in range(M):
            changed = first.copy()
            changed[i] = rows.within[i, :, m]
            value = direct_elbo(data, fixed, q._replace(eta=changed)) - z_terms(changed, half)
            row_mean += rows.member[i, m] * (value - base)
            inside = rows.within[i, :, m]
            part = inside @ log_in[:, m] + (1 - inside) @ log_out[:, m] + log_w[m]
            part -= np.sum(xlogy(inside, inside) + xlogy(1 - inside, 1 - inside))
            total += rows.member[i, m] * part - xlogy(rows.member[i, m], rows.member[i, m])
    total += base + row_mean
    a, b = prior.inclusion.a, prior.inclusion.b
    log_norm = stats.beta(a, b).logpdf(0.5) - (a - 1) * half - (b - 1) * half
    used = np.where(np.arange(M + 1) < M, own, 1 - own)  # the probability that a rate is one of the model's
    total += np.sum(used * ((a - 1) * each_in + (b - 1) * each_out + log_norm))
    total += np.sum(used * stats.beta(columns.pi_a, columns.pi_b).entropy())
    total += np.sum(np.log(0.5) - xlogy(own, own) - xlogy(1 - own, 1 - own))
    flat = stats.dirichlet(np.full(M, 1 / M))
    total += (1 / M - 1) * log_w.sum() + flat.logpdf(np.full(M, 1 / M)) - (1 / M - 1) * M * np.log(1 / M)
    total += stats.dirichlet(columns.w_shape).entropy()
    return float(total)


def z_terms(eta: Array, log_prior: float) -> float:
    """What the plain ELBO has of z alone under inclusion 0.5."""
    return float(eta.size * log_prior - np.sum(xlogy(eta, eta) + xlogy(1 - eta, 1 - eta)))


def monte_carlo_module_elbo(
    data: Data, prior: Prior, q: Q, rows: VIRows, columns: VIColumns, n: int
) -> tuple[float, float]:
    """The mean of log p - log q over draws from q, and its standard error."""
    rng = np.random.default_rng(0)
    N, (G, M) = q.f_mean.shape[1], rows.member.shape
    values = np.empty(n)
    for t in range(n):
        member = np.array([rng.choice(M, p=p) for p in rows.member])
        eta = rows.within[np.arange(G), :, member]
        Z = rng.random(eta.shape) < eta
        L = np.where(Z, q.mu + np.sqrt(q.s2) * rng.standard_normal(q.mu.shape), 0.0)
        F = np.stack([rng.multivariate_normal(q.f_mean[:, j], q.f_cov[j]) for j in range(N)], axis=1)
        tau, alpha = rng.gamma(q.tau_shape) / q.tau_rate, rng.gamma(q.alpha_shape) / q.alpha_rate
        pi, w = rng.beta(columns.pi_a, columns.pi_b), rng.dirichlet(columns.w_shape)
        own = rng.random(len(columns.own)) < columns.own
        used = np.where(np.arange(M + 1) < M, own[:, None], ~own[:, None])
        log_q = np.sum(np.log(rows.member[np.arange(G), member])) + np.sum(np.where(Z, np.log(eta), np.log(1 - eta)))
        log_q += np.sum(stats.norm.logpdf(L, q.mu, np.sqrt(q.s2))[Z])
        log_q += sum(stats.multivariate_normal.logpdf(F[:, j], q.f_mean[:, j], q.f_cov[j]) for j in range(N))
        log_q += np.sum(stats.gamma.logpdf(tau, q.tau_shape, scale=1 / q.tau_rate))
        log_q += np.sum(stats.gamma.logpdf(alpha, q.alpha_shape, scale=1 / q.alpha_rate))
        log_q += np.sum(stats.beta.logpdf(pi, columns.pi_a, columns.pi_b)[used])
        log_q += np.sum(np.log(np.where(own, columns.own, 1 - columns.own)))
        log_q += stats.dirichlet.logpdf(w, columns.w_shape)
        log_p = log_joint(data, prior, L=L, F=F, Z=Z, tau=tau, alpha=alpha, pi=pi, member=member, own=own, w=w)
        values[t] = log_p - log_q
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(n))
