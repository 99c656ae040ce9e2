"""What is known of the features: moments of their loadings and noise under q, or draw by draw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..model import Prior
from ..posterior import MCMCPosterior, VIPosterior
from ..posterior.mcmc import chain_shares
from ..storage.lazy import draws_per_block
from ..storage.moments import blocks

Array = NDArray[np.float64]
BLOCK_ENTRIES = 2_000_000  # of (features, K, K) made at once


class Draw(NamedTuple):
    """One draw of the features, and its weight among all draws (they add up to one)."""

    L: Array  # (G, K)
    tau: Array  # (G,), () or (N,), as the noise structure has it
    F: Array  # (N, K)
    root: Array  # (K, K) of the factors' correlations: root root'
    weight: float


def each_draw(p: MCMCPosterior, most: int | None = None) -> Iterator[Draw]:
    """The draws one by one, read in blocks; at most about so many, evenly spaced."""
    posterior = p.draws["posterior"]
    names = {"loadings": "feature", "activations": "observation"}
    L, F = (posterior[name].variable.transpose("chain", "draw", own, "factor") for name, own in names.items())
    tau = posterior["noise_precision"].variable.transpose("chain", "draw", ...)
    phi = posterior["factor_correlation"].variable if p.prior.correlated else None
    root = np.eye(p.n_factors)
    weights = chain_shares(p.weights, p.n_chains)
    n_draws = L.shape[1]
    step = 1 if most is None else max(1, -(-n_draws * p.n_chains // most))
    chosen = range(step - 1, n_draws, step) or range(n_draws - 1, n_draws)
    for chain in np.flatnonzero(weights):
        for part in blocks(n_draws, draws_per_block(L.shape[2:], np.float64)):
            picked = [t for t in range(part.start, part.stop) if t in chosen]
            if not picked:
                continue
            at = np.array(picked)
            drawn = [np.asarray(v[int(chain), at].values, float) for v in (L, tau, F)]
            roots = (
                [root] * len(at) if phi is None else np.linalg.cholesky(np.asarray(phi[int(chain), at].values, float))
            )
            for l, t, f, own in zip(*drawn, roots, strict=True):
                yield Draw(l, t, f, own, float(weights[chain]) / len(chosen))


def correlation_root(prior: Prior, correlation: Array) -> Array:
    """(K, K) a root of the factors' correlation matrix: root root'; the identity where factors are uncorrelated."""
    return np.asarray(np.linalg.cholesky(correlation) if prior.correlated else np.eye(len(correlation)))


def feature_blocks(G: int, K: int) -> Iterator[slice]:
    return blocks(G, max(1, BLOCK_ENTRIES // (K * K)))


def loading_covariance(p: VIPosterior, rows: slice | NDArray[np.intp]) -> Array:
    """(rows, K, K) covariance of l_i under q: diagonal, unless modules tie the inclusions of a feature together."""
    K = p.n_factors
    if p.module_prob is None:
        covariance = np.zeros((len(p.loadings_mean[rows]), K, K))
    else:
        # Given the module, inclusions are independent; the module itself ties them (math.md, 3.17).
        given = p.parameters["mu"][rows][:, :, None] * p.parameters["within"][rows]
        member = p.parameters["member"][rows]
        centred = given - p.loadings_mean[rows][:, :, None]
        covariance = np.einsum("im,ikm,ilm->ikl", member, centred, centred)
    covariance[:, np.arange(K), np.arange(K)] = p.loadings_sd[rows] ** 2
    return np.asarray(covariance)


def noise_variance(p: VIPosterior) -> Array:
    """E[1 / tau] as the noise structure has it: (G,), () or (N,)."""
    return mean_inverse(noise_shape(p), p.noise_precision_mean)


def mean_inverse(shape: Any, mean: Any) -> Array:
    """E[1 / tau] of a gamma with this shape and mean; 1 / E[tau] where it is infinite."""
    finite = shape > 1.0
    return np.asarray(np.where(finite, shape / np.where(finite, shape - 1.0, 1.0), 1.0) / mean)


def noise_shape(p: VIPosterior) -> Any:
    """The shape of q(tau): (G,), () or (N,)."""
    shape = np.asarray(p.parameters["tau_shape"])
    if not shape.size:  # an older file: as if nothing had been missing
        shape = np.full(len(p.loadings_mean), p.prior.noise_shape + 0.5 * len(p.activations_mean))
    return shape[0] if p.prior.noise == "shared" else shape


def per_feature(p: Any, values: Any) -> Array:
    """(G,) for a model whose noise does not depend on the sample."""
    return np.broadcast_to(np.asarray(values, dtype=np.float64), (len(p.loadings_mean),))
