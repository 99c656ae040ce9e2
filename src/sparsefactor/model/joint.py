"""The log joint density of the model, and draws of modules from their prior (math.md, 1.7 and 1.8)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln, multigammaln, xlog1py, xlogy

from ..data import Data
from ..densities import LOG_2PI, log_gamma_density
from .beta import Beta
from .prior import Prior


def log_joint(
    data: Data,
    prior: Prior,
    *,
    L: NDArray[np.float64],
    F: NDArray[np.float64],
    Z: NDArray[Any],
    tau: NDArray[np.float64],
    alpha: NDArray[np.float64],
    pi: NDArray[np.float64] | None = None,
    member: NDArray[np.intp] | None = None,
    own: NDArray[np.bool_] | None = None,
    w: NDArray[np.float64] | None = None,
    phi: NDArray[np.float64] | None = None,
) -> float:
    """log p(Y, L, Z, F, tau, alpha[, pi[, member, w]][, Phi]), every constant included (math.md, 1.7 and 1.8).

    L, Z: (G, K); F: (K, N); tau: (G,), () or (N,) as the noise structure has it; alpha, pi: (K,) or (K, V).
    With modules, pi: (K, M + 1), of which each factor uses the first M where `own` (K,) says so and the last one
    otherwise; member: (G,); w: (M,). phi: (K, K), where the factors' correlations are learnt (2.19).
    """
    prior = prior.in_units_of(data)
    Z, tau = np.asarray(Z, dtype=bool), np.atleast_1d(tau)
    weights = tau[:, None] if prior.noise == "feature" else tau[None, :]
    observed = np.ones(data.Y.shape, dtype=bool) if data.observed is None else data.observed
    density = 0.5 * (np.log(weights) - LOG_2PI) - 0.5 * weights * (data.dense().Y - L @ F) ** 2
    total = float(density[observed].sum())
    of_row = prior.by_row(alpha)
    slab = 0.5 * (np.log(of_row) - LOG_2PI) - 0.5 * of_row * L**2
    total += float(slab[Z].sum())
    used, M = pi, prior.n_modules
    probability = prior.inclusion_matrix()
    if pi is not None and member is None:
        probability = prior.by_row(pi)
    if pi is not None and member is not None and own is not None and w is not None:
        probability = np.where(own[:, None], pi[:, :M], pi[:, M:]).T[member]
        used = np.concatenate([pi[own, :M].ravel(), pi[~own, M]])
        total += float(np.sum(np.log(w[member])) + np.sum((1 / M - 1) * np.log(w)) - M * gammaln(1 / M))
        total -= prior.K * np.log(2.0)
    total += float(np.sum(xlogy(Z, probability) + xlog1py(~Z, -probability)))
    if phi is None:
        total += float(-0.5 * np.sum(F**2 + LOG_2PI))
    else:
        K, N, df, inverse = *F.shape, prior.correlation_df, np.linalg.inv(phi)
        log_det = np.linalg.slogdet(phi)[1]
        total -= float(0.5 * (np.sum(inverse * (F @ F.T)) + N * log_det + F.size * LOG_2PI))
        total += float(K * gammaln(0.5 * df) - multigammaln(0.5 * df, K) - 0.5 * (df + K + 1) * log_det)
        total -= float(0.5 * df * np.sum(np.log(np.diagonal(inverse))))
    total += float(np.sum(log_gamma_density(tau, prior.noise_shape, prior.noise_rate)))
    total += float(np.sum(log_gamma_density(alpha, prior.loading_shape, prior.loading_rate)))
    if isinstance(prior.inclusion, Beta):
        assert used is not None
        a, b = prior.inclusion.a, prior.inclusion.b
        total += float(np.sum(xlogy(a - 1, used) + xlog1py(b - 1, -used) - betaln(a, b)))
    return total


def draw_modules(prior: Prior, n_features: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Modules, their inclusion rates and their weights from the prior (1.8)."""
    assert isinstance(prior.inclusion, Beta)
    M, beta = prior.n_modules, prior.inclusion
    weight = rng.dirichlet(np.full(M, 1.0 / M))
    own = rng.random(prior.K) < 0.5
    rate = np.where(own, rng.beta(beta.a, beta.b, size=(M, prior.K)), rng.beta(beta.a, beta.b, size=prior.K))
    return {"module": rng.choice(M, size=n_features, p=weight), "module_rate": rate, "module_weight": weight}
