"""The factors' correlations Phi in Gibbs sampling, by parameter expansion (math.md, 2.19).

In the expanded model the factors have scales d: activations d f, loadings l / d, slab precisions d^2 alpha, and the
covariance Sigma = diag(d) Phi diag(d), a priori inverse-Wishart(I, df). Rotations, shears and the draw of Phi are made
there; `GibbsState.phi` is then Sigma.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular

from ..kernels.contract import Array, CorrelationNoise
from ..model import Prior
from .state import GibbsState


def expand(state: GibbsState, df: float, rng: np.random.Generator) -> GibbsState:
    """The state at scales drawn from their prior given Phi (2.19a); as it is where factors are uncorrelated."""
    if not len(state.phi):
        return state
    precision = np.diagonal(np.linalg.inv(state.phi))
    return rescale(state, np.sqrt(0.5 * precision / rng.standard_gamma(0.5 * df, len(precision))))


def contract(state: GibbsState) -> GibbsState:
    """The state of the expanded model back at scales of one."""
    if not len(state.phi):
        return state
    scaled = rescale(state, 1.0 / np.sqrt(np.diagonal(state.phi)))
    return scaled._replace(phi=correlations_of(state.phi))


def rescale(state: GibbsState, d: Array) -> GibbsState:
    """Activations times d, (K,), and what follows from that."""
    slab = state.alpha.reshape(len(d), -1) * d[:, None] ** 2
    F, phi = state.F * d[:, None], state.phi * np.outer(d, d)
    return state._replace(F=F, alpha=slab.reshape(state.alpha.shape), scale=state.scale / d, phi=phi)


def correlation_noise(K: int, N: int, prior: Prior, rng: np.random.Generator) -> CorrelationNoise:
    """The randomness of `draw_correlation` without groups of features, in its order; the scales of moves are ones."""
    df, scales = prior.correlation_df, np.ones((3, K))
    scales[0] = rng.standard_gamma(0.5 * df, K)
    normal = rng.standard_normal((K, K))
    gamma = rng.standard_gamma(0.5 * (df + N + 2.0 * prior.loading_shape - np.arange(K)))
    return CorrelationNoise(scales, normal, gamma, float(np.log(rng.random())))


def draw_correlation(state: GibbsState, prior: Prior, df: float, rng: np.random.Generator) -> GibbsState:
    """Phi and the factors' scales given the rest (2.19b): a proposal that is nearly always accepted."""
    wide = expand(state, df, rng)
    K, N = wide.F.shape
    slab = wide.alpha.reshape(K, -1)
    power, penalty = slab.shape[1] * prior.loading_shape, slab_penalty(slab, prior)
    moments = np.asarray(wide.F @ wide.F.T)  # of activations that may be where the rows are
    proposed = draw_inverse_wishart(np.eye(K) + moments + np.diag(2.0 * penalty), df + N + 2.0 * power, rng)
    ratio = log_weight(proposed, power, penalty) - log_weight(wide.phi, power, penalty)
    if not np.log(rng.random()) < ratio:
        return state
    return contract(wide._replace(phi=proposed))


def slab_penalty(slab: Array, prior: Prior) -> Array:
    """(K,) the sum over groups of rate times slab precision (K, V)."""
    return np.asarray(np.sum(prior.loading_rate * slab, axis=1))


def log_weight(sigma: Array, power: float, penalty: Array) -> float:
    """log of the conditional density of Sigma over that of the proposal, up to a constant (2.19b)."""
    log_det = np.linalg.slogdet(correlations_of(sigma))[1]
    excess = np.diagonal(np.linalg.inv(sigma)) - 1.0 / np.diagonal(sigma)
    return float(power * log_det + penalty @ excess)


def draw_inverse_wishart(scale: Array, df: float, rng: np.random.Generator) -> Array:
    """Sigma with density proportional to |Sigma|^(-(df + K + 1) / 2) exp(-tr(scale Sigma^-1) / 2)."""
    K = len(scale)
    B = np.tril(rng.standard_normal((K, K)), -1)  # the Bartlett factor of a Wishart matrix
    B[np.diag_indices(K)] = np.sqrt(2.0 * rng.standard_gamma(0.5 * (df - np.arange(K))))
    half = solve_triangular(B, np.linalg.cholesky(scale).T, lower=True)
    return np.asarray(half.T @ half)


def correlations_of(covariance: Array) -> Array:
    """The correlation matrix of a covariance matrix, exactly symmetric and with a diagonal of ones."""
    d = np.sqrt(np.diagonal(covariance))
    phi = 0.5 * (covariance + covariance.T) / np.outer(d, d)
    np.fill_diagonal(phi, 1.0)
    return np.asarray(phi)
