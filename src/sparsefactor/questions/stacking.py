"""Weights of chains by how well each predicts entries that are left out (math.md, section 6).

Chains that sit in different modes do not say how probable each mode is. Stacking asks instead which mixture of them
predicts best, each entry judged without itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ..densities import LOG_2PI
from ..posterior import MCMCPosterior
from .samples import training_matrix

Array = NDArray[np.float64]

DRAWS = 100  # of each chain, evenly spaced
ENTRIES = 20_000  # at most, evenly spaced over the observed ones
MAX_ITER = 10_000
TOL = 1e-10


def stacking_weights(mc: MCMCPosterior, X: Any) -> Array:
    """(chain,) weights whose mixture of the chains' leave-one-out densities of entries is the largest.

    X: the data that the chains were drawn from, (n_samples, n_features), NaN where missing.
    """
    if X is None:
        raise ValueError('stacking predicts the data, which draws do not keep; got none; pass combine("stacking", X)')
    values = training_matrix(X, mc.labels, "X", "pass the data of these draws")
    Y = (values - mc.labels.offset) / mc.labels.scale - mc.labels.known()
    at = np.flatnonzero(~np.isnan(Y).ravel())
    at = at[:: max(1, -(-len(at) // ENTRIES))]
    return mixture_weights(np.stack([_chain_density(mc, c, Y, at) for c in range(mc.n_chains)]))


def _chain_density(mc: MCMCPosterior, chain: int, Y: Array, at: NDArray[np.intp]) -> Array:
    """(len(at),) a chain's log density of entries, each without itself."""
    posterior = mc.draws["posterior"]
    L = posterior["loadings"].variable.transpose("chain", "draw", "feature", "factor")
    tau = posterior["noise_precision"].variable.transpose("chain", "draw", ...)
    chosen = np.unique(np.linspace(0, L.shape[1] - 1, min(DRAWS, L.shape[1])).astype(int))
    log_p = np.empty((len(chosen), len(at)))
    for s, t in enumerate(chosen):
        noise = np.asarray(tau[chain, t].values, float)
        precision = noise[:, None] if mc.prior.noise == "sample" else np.atleast_1d(noise)[None, :]
        log_p[s] = entry_density(np.asarray(L[chain, t].values, float), precision, Y).ravel()[at]
    return without_itself(log_p)


def entry_density(L: Array, precision: Array, Y: Array) -> Array:
    """(n_samples, n_features) log p(y_ji | the sample's other entries, L, precision), activations integrated out (6.4).

    precision: broadcasts to Y's shape; NaN where an entry of Y is missing.
    """
    N, K = len(Y), L.shape[1]
    seen = ~np.isnan(Y)
    W = np.where(seen, precision, 0.0)
    y = np.where(seen, Y, 0.0)
    outer = (L[:, :, None] * L[:, None, :]).reshape(len(L), K * K)
    covariance = np.linalg.inv(np.eye(K) + (W @ outer).reshape(N, K, K))
    f = np.einsum("jkl,jl->jk", covariance, (W * y) @ L)
    leverage = covariance.reshape(N, K * K) @ outer.T
    kappa = np.maximum(W - W**2 * leverage, 1e-300)
    residual = W * (y - f @ L.T)
    return np.where(seen, 0.5 * (np.log(kappa) - LOG_2PI) - 0.5 * residual**2 / kappa, np.nan)


def without_itself(log_p: Array) -> Array:
    """(n,) log densities given draws that never saw the entry, from log_p (draw, n) of draws that did.

    By importance sampling with weights 1 / p, of which none may exceed the mean times the root of their number
    (Ionides, 2008), so that the variance stays finite.
    """
    S = len(log_p)
    log_w = -log_p
    log_w = np.minimum(log_w, logsumexp(log_w, axis=0) - np.log(S) + 0.5 * np.log(S))
    return np.asarray(logsumexp(log_w + log_p, axis=0) - logsumexp(log_w, axis=0))


def mixture_weights(log_p: Array) -> Array:
    """(chain,) weights w that maximise the sum of log(w @ p), for log densities (chain, n), by EM."""
    p = np.exp(log_p - log_p.max(axis=0))
    w = np.full(len(p), 1.0 / len(p))
    for _ in range(MAX_ITER):
        new = w * np.mean(p / (w @ p), axis=1)
        done = np.abs(new - w).max() < TOL
        w = new / new.sum()
        if done:
            break
    return np.asarray(w)
