"""How likely data are under a posterior: whole samples that it has not seen, or entries held out of its own."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import t as student

from ..checks import checked_choice
from ..densities import LOG_2PI, log_gamma_density
from ..posterior import MCMCPosterior, VIPosterior
from .noise import fixed_point, noise_grid, noise_rate, over_noise
from .predict import Index, known_at, noise_place, products_at, signal_at, signal_variance
from .project import observed_gram, squares_of_units
from .rows import (
    correlation_root,
    each_draw,
    feature_blocks,
    loading_covariance,
    noise_shape,
    noise_variance,
    per_feature,
)
from .samples import Samples, new_samples, training_matrix

Array = NDArray[np.float64]
Of = Literal["samples", "entries"]


def covariance(p: VIPosterior | MCMCPosterior) -> Array:
    """(n_features, n_features) the posterior mean of L L' + noise, in the data's units.

    Where noise belongs to samples, that of the average training sample.
    """
    if isinstance(p, VIPosterior):
        L = p.loadings_mean @ correlation_root(p.prior, p.factor_correlation_mean)
        total, noise = L @ L.T, noise_variance(p)
        diagonal = own_spread(p) + (noise.mean() if p.prior.noise == "sample" else noise)
    else:
        G = len(p.loadings_mean)
        total, diagonal = np.zeros((G, G)), np.zeros(G)
        for draw in each_draw(p):
            L = draw.L @ draw.root
            total += draw.weight * (L @ L.T)
            diagonal += draw.weight * (np.mean(1 / draw.tau) if p.prior.noise == "sample" else 1 / draw.tau)
    total[np.diag_indices(len(total))] += diagonal
    return np.asarray(total * np.outer(p.labels.scale, p.labels.scale))


def log_density(p: VIPosterior | MCMCPosterior, X: Any, *, of: Of = "samples", covariates: Any = None) -> Array:
    """(n,) log predictive density of each new sample, or the (n_samples, n_features) of held-out training entries."""
    checked_choice("of", of, get_args(Of))
    if of == "entries":
        return entries_density(p, X)
    samples = new_samples(X, p.labels, covariates)
    units = samples.observed @ np.log(p.labels.scale)
    if isinstance(p, VIPosterior):
        return _under_q(p, samples) - units
    squares = np.sum(samples.Y**2, axis=1)
    rate = noise_rate(p, squares, samples.count)
    terms, weights = [], []
    for draw in each_draw(p):
        L = draw.L @ draw.root
        if p.prior.noise == "sample":
            gram, linear = observed_gram(L, np.ones(len(L)), samples), samples.Y @ L
            found = over_noise(gram, linear, squares, samples.count, p.prior, rate)
            terms.append(found.log_density)
        else:
            terms.append(gaussian(L, 1.0 / per_feature(p, draw.tau), samples))
        weights.append(draw.weight)
    return np.asarray(logsumexp(np.array(terms), axis=0, b=np.array(weights)[:, None])) - units


def _under_q(p: VIPosterior, samples: Samples) -> Array:
    """(n,) of the Gaussian that has the predictive mean and covariance under q."""
    spread, L = own_spread(p), p.loadings_mean @ correlation_root(p.prior, p.factor_correlation_mean)
    if p.prior.noise != "sample":
        return gaussian(L, spread + per_feature(p, noise_variance(p)), samples)
    # The noise of a new sample is known by its prior alone, over which the density is averaged.
    gram = observed_gram(L, np.ones(len(spread)), samples)
    squares, count = np.sum(samples.Y**2, axis=1), samples.count
    rate = noise_rate(p, squares_of_units(p, samples), count)
    middle = fixed_point(gram, samples.Y @ L, squares, count, p.prior, rate, joint=True)
    grid = noise_grid(middle, p.n_factors, count, p.prior)
    log_p = log_gamma_density(grid, p.prior.noise_shape, rate[:, None]) + np.log(grid)
    for j in range(len(grid)):
        one = samples.one(j)
        log_p[j] += [float(gaussian(L, spread + 1.0 / tau, one)[0]) for tau in grid[j]]
    return np.asarray(logsumexp(log_p, axis=1) + np.log(np.log(grid[:, 1] / grid[:, 0])))


def own_spread(p: VIPosterior) -> Array:
    """(n_features,) the variance of each feature that the uncertainty of its loadings adds: tr(Cov(l_i) Phi)."""
    if not p.prior.correlated or p.module_prob is None:
        return np.asarray(np.sum(p.loadings_sd**2, axis=1))
    G, K = p.loadings_mean.shape
    each = [loading_covariance(p, rows) for rows in feature_blocks(G, K)]
    return np.concatenate([np.einsum("ikl,kl->i", V, p.factor_correlation_mean) for V in each])


def gaussian(L: Array, noise: Array, samples: Samples) -> Array:
    """(n,) log N(y | 0, L L' + diag(noise)) of each sample's observed entries; noise: (G,)."""
    K = L.shape[1]
    weight = 1.0 / noise
    precision = np.eye(K) + observed_gram(L, weight, samples)
    linear = samples.Y @ (weight[:, None] * L)
    wide = np.broadcast_to(precision, (len(linear), K, K))
    explained = np.einsum("jk,jk->j", linear, np.linalg.solve(wide, linear[:, :, None])[:, :, 0])
    log_det = samples.observed @ np.log(noise) + np.linalg.slogdet(precision)[1]
    return np.asarray(-0.5 * (samples.count * LOG_2PI + log_det + samples.Y**2 @ weight - explained))


def entries_density(p: VIPosterior | MCMCPosterior, X: Any) -> Array:
    """(n_samples, n_features) log density of entries of the training samples that the fit did not see.

    X: of the shape of the training data, matched by name where it has names; numbers at the held-out entries, NaN
    elsewhere, and NaN there in the answer, which has the order of the fit.
    """
    remedy = 'pass NaN where an entry is not held out, or of="samples" for new samples'
    values = training_matrix(X, p.labels, "held-out entries", remedy)
    if np.isinf(values).any():
        raise ValueError("held-out entries must be finite; some are infinite; pass NaN where an entry is not held out")
    j, i = np.nonzero(~np.isnan(values))
    answer = np.full(values.shape, np.nan)
    answer[j, i] = density_at(p, j, i, values[j, i])
    return answer


def density_at(p: VIPosterior | MCMCPosterior, j: Index, i: Index, x: Array) -> Array:
    """(entries,) log density of what training samples j have at features i, which the fit did not see."""
    labels = p.labels
    y = (x - labels.offset[i]) / labels.scale[i] - known_at(p, j, i)
    found = _entries_under_q(p, j, i, y) if isinstance(p, VIPosterior) else _entries_by_draw(p, j, i, y)
    return np.asarray(found - np.log(labels.scale[i]))


def _entries_under_q(p: VIPosterior, j: Index, i: Index, y: Array) -> Array:
    """Student's t: exact where the signal is known, and with the right variance of the signal where it is not."""
    at = noise_place(p, j, i)
    tau, shape = np.atleast_1d(p.noise_precision_mean)[at], np.atleast_1d(noise_shape(p))[at]
    scale = np.sqrt(signal_variance(p, j, i) + 1.0 / tau)
    return np.asarray(student.logpdf(y, df=2.0 * shape, loc=signal_at(p, j, i), scale=scale))


def _entries_by_draw(p: MCMCPosterior, j: Index, i: Index, y: Array) -> Array:
    total = np.full(len(y), -np.inf)
    for draw in each_draw(p):
        precision = np.atleast_1d(draw.tau)[noise_place(p, j, i)]
        residual = y - products_at(draw.F, draw.L, j, i)
        log_p = 0.5 * (np.log(precision) - LOG_2PI) - 0.5 * precision * residual**2
        total = np.logaddexp(total, np.log(draw.weight) + log_p)
    return total
