"""Activations of new samples: the update that the fit itself makes, with its features held as they are.

Under q, a sample's activations have precision Phi^-1 + sum_i tau_i E[l_i l_i'] over its observed features, so that the
loadings' uncertainty counts (math.md, 7.1). With draws, the same holds in each, and the draws are averaged.
Correlated activations f are root g with Phi = root root' and g ~ N(0, I): all is computed for g, with loadings L root.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..containers import scores_like_input
from ..posterior import MCMCPosterior, VIPosterior
from .noise import fixed_point, noise_rate, over_noise
from .rows import Draw, correlation_root, each_draw, feature_blocks, loading_covariance
from .samples import Border, Samples

Array = NDArray[np.float64]


class Activations(NamedTuple):
    """The law of new samples' activations: (n, K) means and (1 or n, K, K) covariances."""

    mean: Array
    covariance: Array
    tau: Array | None = None  # (n,) the samples' own noise precisions, where noise belongs to samples

    @property
    def variance(self) -> Array:
        return np.broadcast_to(np.einsum("jkk->jk", self.covariance), self.mean.shape)

    def times(self, root: Array) -> Activations:
        """The law of root times these activations."""
        return self._replace(mean=self.mean @ root.T, covariance=root @ self.covariance @ root.T)


def transform(
    p: VIPosterior | MCMCPosterior, X: Any, *, return_sd: bool = False, covariates: Any = None, client: Any = None
) -> Any:
    """(n, n_factors) the posterior mean of new samples' activations, and their standard deviation if asked for."""
    border = Border(X, p.labels, covariates)
    found = [own for _, own in border.answers(client, moments, p)]
    mean, sd = (
        scores_like_input(np.concatenate([own[place] for own in found]), X, border.names, p.factor_names)
        for place in range(2)
    )
    return (mean, sd) if return_sd else mean


def moments(p: VIPosterior | MCMCPosterior, samples: Samples) -> tuple[Array, Array]:
    """(n, n_factors) means and standard deviations of the samples' activations."""
    if isinstance(p, VIPosterior):
        law = under_q(p, samples)
        return law.mean, np.sqrt(law.variance)
    total, square = np.zeros((len(samples.Y), p.n_factors)), np.zeros((len(samples.Y), p.n_factors))
    for draw in each_draw(p):
        found = under_draw(p, draw, samples)
        total += draw.weight * found.mean
        square += draw.weight * (found.variance + found.mean**2)
    return total, np.sqrt(np.maximum(square - total**2, 0.0))


def under_q(p: VIPosterior, samples: Samples) -> Activations:
    """q(f) of each sample, of the family that the fit used: joint over the factors, or independent."""
    weight = p.noise_precision_mean if p.prior.noise == "feature" else np.ones(len(p.loadings_mean))
    root = correlation_root(p.prior, p.factor_correlation_mean)
    gram, linear = _gram_under_q(p, samples, weight), samples.Y @ (weight[:, None] * p.loadings_mean)
    gram, linear = root.T @ gram @ root, linear @ root
    joint = p.parameters["f_var"].ndim == 3
    if p.prior.noise == "sample":
        squares = np.sum(samples.Y**2, axis=1) + known_variance(p, samples)
        rate = noise_rate(p, squares_of_units(p, samples), samples.count)
        tau = fixed_point(gram, linear, squares, samples.count, p.prior, rate, joint=joint)
        found = solved(gram, linear, tau)._replace(tau=tau)
    else:
        found = solved(gram, linear, 1.0 if p.prior.noise == "feature" else float(p.noise_precision_mean))
    found = found.times(root)
    if joint:
        return found
    # The means of independent factors solve the same equations; their variances are one over the diagonal.
    precision = np.linalg.inv(found.covariance)
    diagonal = np.zeros_like(precision)
    at = np.arange(p.n_factors)
    diagonal[:, at, at] = 1.0 / precision[:, at, at]
    return found._replace(covariance=diagonal)


def known_variance(p: VIPosterior, samples: Samples) -> Array:
    """(n,) what the uncertainty of covariates' loadings and intercepts adds to the samples' squares."""
    if "base_var" not in p.parameters or samples.directions is None:
        return np.zeros(len(samples.Y))
    return np.sum((samples.observed @ p.parameters["base_var"]) * samples.directions**2, axis=1)


def squares_of_units(p: VIPosterior, samples: Samples) -> Array:
    """(n,) the squares that the rates of the samples' noise are in units of, as in the fit (math.md, 1.9)."""
    if "base_of_units" not in p.parameters or samples.directions is None:
        return np.asarray(np.sum(samples.Y**2, axis=1))
    moved = samples.directions @ (p.parameters["base"] - p.parameters["base_of_units"]).T
    return np.asarray(np.sum((samples.Y + samples.observed * moved) ** 2, axis=1))


def under_draw(p: MCMCPosterior, draw: Draw, samples: Samples) -> Activations:
    """f given one draw of the features; where each sample has a noise of its own, averaged over that as well."""
    L, tau = draw.L @ draw.root, draw.tau
    weight = tau if p.prior.noise == "feature" else np.ones(len(L))
    gram, linear = observed_gram(L, weight, samples), samples.Y @ (weight[:, None] * L)
    if p.prior.noise != "sample":
        return solved(gram, linear, 1.0 if p.prior.noise == "feature" else float(tau)).times(draw.root)
    squares = np.sum(samples.Y**2, axis=1)
    rate = noise_rate(p, squares, samples.count)
    found = over_noise(gram, linear, squares, samples.count, p.prior, rate)
    return Activations(found.mean, found.covariance, 1.0 / found.noise_variance).times(draw.root)


def solved(gram: Array, linear: Array, tau: Any) -> Activations:
    """N(P^-1 tau b, P^-1) with P = I + tau D; gram: (1 or n, K, K); linear: (n, K); tau: a number or (n,)."""
    tau = np.atleast_1d(np.asarray(tau, dtype=np.float64))
    covariance = np.linalg.inv(np.eye(gram.shape[-1]) + tau[:, None, None] * gram)
    each = np.broadcast_to(covariance, (len(linear), *gram.shape[1:]))
    return Activations(np.einsum("jkl,jl->jk", each, tau[:, None] * linear), covariance)


def observed_gram(L: Array, weight: Array, samples: Samples) -> Array:
    """(1 or n, K, K) sum of weight_i l_i l_i' over the features observed in each sample; one where all are."""
    if samples.complete:
        return ((weight[:, None] * L).T @ L)[None]
    return _summed(samples, len(L), L.shape[1], lambda rows: weight[rows, None, None] * _outer(L[rows]))


def _gram_under_q(p: VIPosterior, samples: Samples, weight: Array) -> Array:
    """As `observed_gram`, of E[l_i l_i'] under q."""

    def outer(rows: slice) -> Array:
        return weight[rows, None, None] * (_outer(p.loadings_mean[rows]) + loading_covariance(p, rows))

    G, K = p.loadings_mean.shape
    if samples.complete:
        return np.sum([outer(rows).sum(axis=0) for rows in feature_blocks(G, K)], axis=0)[None]
    return _summed(samples, G, K, outer)


def _summed(samples: Samples, G: int, K: int, outer: Any) -> Array:
    """(n, K, K) each sample's sum of outer(features) over what is observed, a block of features at a time."""
    total = np.zeros((len(samples.Y), K * K))
    for rows in feature_blocks(G, K):
        total += samples.observed[:, rows].astype(np.float64) @ outer(rows).reshape(-1, K * K)
    return total.reshape(-1, K, K)


def _outer(L: Array) -> Array:
    return L[:, :, None] * L[:, None, :]
