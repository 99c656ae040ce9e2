"""The ELBO twice more, on its own: entry by entry from Appendix B's expectations, and by Monte Carlo."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats
from scipy.special import digamma, gammaln, xlogy

from sparsefactor.data import Data
from sparsefactor.kernels.contract import Array, VIColumns, VIRows
from sparsefactor.model import Beta, Prior, log_joint


class Q(NamedTuple):
    """All parameters of q. tau_shape, tau_rate: (G,), (1,) or (N,)."""

    mu: Array
    s2: Array
    eta: Array
    f_mean: Array
    f_cov: Array  # (N, K, K)
    tau_shape: Array
    tau_rate: Array
    alpha_shape: Array
    alpha_rate: Array
    pi_a: Array
    pi_b: Array
    phi: Array  # (K, K) correlations of the factors, the identity where there are none


def q_of(data: Data, prior: Prior, rows: VIRows, columns: VIColumns) -> Q:
    """Collect q; a row's tau is kept by the engines as its mean, and its shape is known."""
    K, N = columns.f_mean.shape
    if columns.f_var.ndim == 3:
        cov = np.broadcast_to(columns.f_var, (N, K, K)).copy()
    else:
        cov = np.stack([np.diag(columns.f_var[:, j]) for j in range(N)])
    if prior.noise == "feature":
        shape = prior.noise_shape + 0.5 * data.row_count
        rate = shape / rows.tau
    else:
        end = 1 if prior.noise == "shared" else N
        shape, rate = columns.tau_shape[:end], columns.tau_rate[:end]
    return Q(
        rows.mu.copy(), rows.s2.copy(), rows.eta.copy(), columns.f_mean.copy(), cov, shape.copy(), rate.copy(),
        columns.alpha_shape.copy(), columns.alpha_rate.copy(), columns.pi_a.copy(), columns.pi_b.copy(),
        columns.phi.copy() if len(columns.phi) else np.eye(K),
    )  # fmt: skip


def direct_elbo(data: Data, prior: Prior, q: Q) -> float:
    """E_q[log p - log q], term by term, with dense expectations for every entry."""
    G, K = q.mu.shape
    N = q.f_mean.shape[1]
    observed = np.ones((G, N), dtype=bool) if data.observed is None else data.observed
    tau, log_tau = q.tau_shape / q.tau_rate, digamma(q.tau_shape) - np.log(q.tau_rate)
    alpha, log_alpha = q.alpha_shape / q.alpha_rate, digamma(q.alpha_shape) - np.log(q.alpha_rate)
    l_mean, l_square = q.eta * q.mu, q.eta * (q.mu**2 + q.s2)
    total = 0.0
    ff = [np.outer(q.f_mean[:, j], q.f_mean[:, j]) + q.f_cov[j] for j in range(N)]
    for i in range(G):
        ll = np.outer(l_mean[i], l_mean[i])
        ll[np.diag_indices(K)] = l_square[i]
        for j in range(N):
            if not observed[i, j]:
                continue
            n = {"feature": i, "shared": 0, "sample": j}[prior.noise]
            square = data.Y[i, j] ** 2 - 2 * data.Y[i, j] * l_mean[i] @ q.f_mean[:, j] + np.sum(ll * ff[j])
            total += 0.5 * (log_tau[n] - np.log(2 * np.pi) - tau[n] * square)
    total += np.sum(q.eta * 0.5 * (prior.by_row(log_alpha) - np.log(2 * np.pi)) - 0.5 * prior.by_row(alpha) * l_square)
    if isinstance(prior.inclusion, Beta):
        both = digamma(q.pi_a + q.pi_b)
        log_in, log_out = digamma(q.pi_a) - both, digamma(q.pi_b) - both
        a, b = prior.inclusion.a, prior.inclusion.b
        log_norm = stats.beta.logpdf(0.5, a, b) - (a - 1) * np.log(0.5) - (b - 1) * np.log(0.5)
        total += np.sum((a - 1) * log_in + (b - 1) * log_out + log_norm)
        total += np.sum(stats.beta.entropy(q.pi_a, q.pi_b))
        log_in, log_out = prior.by_row(log_in), prior.by_row(log_out)
    else:
        log_in, log_out = np.log(prior.inclusion_matrix()), np.log(1 - prior.inclusion_matrix())
    total += np.sum(q.eta * log_in + (1 - q.eta) * log_out)
    total -= 0.5 * N * (K * np.log(2 * np.pi) + np.linalg.slogdet(q.phi)[1])
    total -= 0.5 * sum(np.trace(np.linalg.solve(q.phi, ff[j])) for j in range(N))
    if prior.correlated:
        total += log_prior_of_correlations(q.phi, prior.correlation_df)
        total -= log_prior_of_correlations(np.eye(K), prior.correlation_df)
    for shape, rate, mean, log_mean, a, b in (
        (q.tau_shape, q.tau_rate, tau, log_tau, prior.noise_shape, prior.noise_rate),
        (q.alpha_shape, q.alpha_rate, alpha, log_alpha, prior.loading_shape, prior.loading_rate),
    ):
        constant = stats.gamma.logpdf(1.0, a, scale=1 / b) + b
        total += np.sum((a - 1) * log_mean - b * mean + constant)
        total += np.sum(stats.gamma.entropy(shape, scale=1 / rate))
    total += np.sum(0.5 * q.eta * (np.log(2 * np.pi * q.s2) + 1) - xlogy(q.eta, q.eta) - xlogy(1 - q.eta, 1 - q.eta))
    total += 0.5 * np.sum(np.linalg.slogdet(2 * np.pi * np.e * q.f_cov)[1])
    return float(total)


def log_prior_of_correlations(phi: Array, df: float) -> float:
    """Of Phi = D^-1/2 S D^-1/2, D the diagonal of S ~ inverse-Wishart(I, df), by integrating S over D.

    p(Phi) = integral of IW(D^1/2 Phi D^1/2) |dS / d(Phi, D)| over D; each d_k is an inverse gamma's integral.
    """
    K = len(phi)
    inverse = np.diag(np.linalg.inv(phi))
    at_one = stats.invwishart.logpdf(phi, df, np.eye(K)) + 0.5 * np.sum(inverse)  # less what depends on D
    return float(at_one + np.sum(gammaln(df / 2) - 0.5 * df * np.log(inverse / 2)))


def monte_carlo_elbo(data: Data, prior: Prior, q: Q, n: int, seed: int = 0) -> tuple[float, float]:
    """The mean of log p - log q over draws from q, and its standard error."""
    rng = np.random.default_rng(seed)
    Z = rng.random((n, *q.eta.shape)) < q.eta
    drawn = draws_of(q, Z, n, rng)
    log_q = log_density_of(q, Z, drawn) + summed(np.where(Z, np.log(q.eta), np.log(1 - q.eta)))
    pi = rng.beta(q.pi_a, q.pi_b, (n, *q.pi_a.shape)) if len(q.pi_a) else None
    if pi is not None:
        log_q += summed(stats.beta.logpdf(pi, q.pi_a, q.pi_b))
    values = np.array(
        [
            log_joint(data, prior, Z=Z[t], pi=None if pi is None else pi[t], **{k: v[t] for k, v in drawn.items()})
            for t in range(n)
        ]
    )
    values -= log_q
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(n))


def draws_of(q: Q, Z: Array, n: int, rng: np.random.Generator) -> dict[str, Array]:
    """n draws from q given Z (n, G, K), but for what inclusion has."""
    N = q.f_mean.shape[1]
    F = [rng.multivariate_normal(q.f_mean[:, j], q.f_cov[j], n) for j in range(N)]
    return {
        "L": np.where(Z, q.mu + np.sqrt(q.s2) * rng.standard_normal(Z.shape), 0.0),
        "F": np.stack(F, axis=2),
        "tau": rng.gamma(q.tau_shape, size=(n, *q.tau_shape.shape)) / q.tau_rate,
        "alpha": rng.gamma(q.alpha_shape, size=(n, *q.alpha_shape.shape)) / q.alpha_rate,
    }


def log_density_of(q: Q, Z: Array, drawn: dict[str, Array]) -> Array:
    """(n,) log q of what draws_of has drawn, given Z."""
    found = summed(np.where(Z, stats.norm.logpdf(drawn["L"], q.mu, np.sqrt(q.s2)), 0.0))
    for j in range(q.f_mean.shape[1]):
        found += stats.multivariate_normal.logpdf(drawn["F"][:, :, j], q.f_mean[:, j], q.f_cov[j])
    found += summed(stats.gamma.logpdf(drawn["tau"], q.tau_shape, scale=1 / q.tau_rate))
    return found + summed(stats.gamma.logpdf(drawn["alpha"], q.alpha_shape, scale=1 / q.alpha_rate))


def summed(values: Array) -> Array:
    """(n,) the sums over all axes but the first."""
    return values.reshape(len(values), -1).sum(axis=1)
