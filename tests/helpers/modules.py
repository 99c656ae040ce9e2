"""q under a prior with modules, and its ELBO twice more: module by module from the plain one, and by Monte Carlo."""

from __future__ import annotations

import numpy as np
from scipy import stats
from scipy.special import digamma, xlogy
from tests.helpers.elbo import Q, direct_elbo, draws_of, log_density_of, summed
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
    log_norm = stats.beta.logpdf(0.5, a, b) - (a - 1) * half - (b - 1) * half
    used = np.where(np.arange(M + 1) < M, own, 1 - own)  # the probability that a rate is one of the model's
    total += np.sum(used * ((a - 1) * each_in + (b - 1) * each_out + log_norm))
    total += np.sum(used * stats.beta.entropy(columns.pi_a, columns.pi_b))
    total += np.sum(np.log(0.5) - xlogy(own, own) - xlogy(1 - own, 1 - own))
    flat = np.full(M, 1 / M)
    total += (1 / M - 1) * log_w.sum() + stats.dirichlet.logpdf(flat, flat) - (1 / M - 1) * M * np.log(1 / M)
    total += stats.dirichlet.entropy(columns.w_shape)
    return float(total)


def z_terms(eta: Array, log_prior: float) -> float:
    """What the plain ELBO has of z alone under inclusion 0.5."""
    return float(eta.size * log_prior - np.sum(xlogy(eta, eta) + xlogy(1 - eta, 1 - eta)))


def monte_carlo_module_elbo(
    data: Data, prior: Prior, q: Q, rows: VIRows, columns: VIColumns, n: int
) -> tuple[float, float]:
    """The mean of log p - log q over draws from q, and its standard error."""
    rng = np.random.default_rng(0)
    G, M = rows.member.shape
    member = (rng.random((n, G, 1)) > np.cumsum(rows.member, axis=1)[:, :-1]).sum(axis=2)
    eta = rows.within[np.arange(G), :, member]
    Z = rng.random(eta.shape) < eta
    drawn = draws_of(q, Z, n, rng)
    pi, w = rng.beta(columns.pi_a, columns.pi_b, (n, *columns.pi_a.shape)), rng.dirichlet(columns.w_shape, n)
    own = rng.random((n, len(columns.own))) < columns.own
    used = np.where(np.arange(M + 1) < M, own[:, :, None], ~own[:, :, None])
    log_q = log_density_of(q, Z, drawn) + summed(np.log(rows.member[np.arange(G), member]))
    log_q += summed(np.where(Z, np.log(eta), np.log(1 - eta)))
    log_q += summed(np.where(used, stats.beta.logpdf(pi, columns.pi_a, columns.pi_b), 0.0))
    log_q += summed(np.log(np.where(own, columns.own, 1 - columns.own)))
    log_q += stats.dirichlet.logpdf(w.T, columns.w_shape)
    drawn |= {"Z": Z, "pi": pi, "member": member, "own": own, "w": w}
    log_p = [log_joint(data, prior, **{name: values[t] for name, values in drawn.items()}) for t in range(n)]
    values = np.array(log_p) - log_q
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(n))
