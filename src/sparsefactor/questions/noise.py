"""A new sample's own noise precision, where noise belongs to samples: a fixed point under q, a quadrature given a draw.

Given loadings L and the sample's precision tau, all that is needed of the sample are D = L'L, b = L'y, y'y and the
number of its observed features; in the eigenvectors of D everything is a sum over factors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ..densities import LOG_2PI, log_gamma_density
from ..model import CONSTANT, RELATIVE_NOISE_RATE, Prior
from ..posterior import MCMCPosterior, VIPosterior

Array = NDArray[np.float64]

ROUNDS = 2000  # of the fixed point; it needs a few tens
SETTLED = 1e-12  # relative change of the precision
POINTS = 161  # of the quadrature; the trapezoid rule converges geometrically for such integrands
WIDTH = 12.0  # standard deviations of log tau to either side
LARGEST_LOG = 700.0  # of tau, which must be a number


class _Rotated(NamedTuple):
    s: Array  # (n, K) eigenvalues of D
    V: Array  # (n, K, K) eigenvectors
    c: Array  # (n, K) V'b


def _rotated(gram: Array, linear: Array) -> _Rotated:
    s, V = np.linalg.eigh(np.broadcast_to(gram, (len(linear), *gram.shape[1:])))
    return _Rotated(np.maximum(s, 0.0), V, np.einsum("jkl,jk->jl", V, linear))


def noise_rate(p: VIPosterior | MCMCPosterior, squares: Array, count: Array) -> Array:
    """(n,) the rate of the gamma prior on each new sample's precision; left out, it is in units of the sample.

    squares: (n,) sums over each sample's observed entries. As in the fit, a sample that does not vary around the
    means has no unit of its own and takes that of all data (math.md, 1.9), here as the model has it.
    """
    if p.prior.noise_rate is not None:
        return np.full(len(count), float(np.mean(p.prior.noise_rate)))
    signal = np.mean(np.sum(p.loadings_mean**2 + p.loadings_sd**2, axis=1))
    mean_square = signal + np.mean(1.0 / p.noise_precision_mean)
    own = squares / count
    return np.asarray(RELATIVE_NOISE_RATE * np.where(own > CONSTANT * mean_square, own, mean_square))


def fixed_point(
    gram: Array, linear: Array, squares: Array, count: Array, prior: Prior, rate: Array, *, joint: bool
) -> Array:
    """(n,) E[tau] of each sample where q(f) and q(tau) agree (math.md, 3.3 to 3.6); rate: see `noise_rate`."""
    s, _, c = _rotated(gram, linear)
    diagonal = np.broadcast_to(np.einsum("jkk->jk", gram), s.shape)
    shape = prior.noise_shape + 0.5 * count
    tau = shape / (rate + 0.5 * squares)
    for _ in range(ROUNDS):
        f = tau[:, None] * c / (1.0 + tau[:, None] * s)
        spread = s / (1.0 + tau[:, None] * s) if joint else diagonal / (1.0 + tau[:, None] * diagonal)
        rss = squares - 2.0 * np.sum(f * c, axis=1) + np.sum(s * f**2, axis=1) + np.sum(spread, axis=1)
        new = shape / (rate + 0.5 * np.maximum(rss, 0.0))
        done = np.all(np.abs(new - tau) <= SETTLED * tau)
        tau = new
        if done:
            break
    return np.asarray(tau)


class OverNoise(NamedTuple):
    """What is left when a sample's precision is integrated out."""

    mean: Array  # (n, K) of f
    covariance: Array  # (n, K, K)
    noise_variance: Array  # (n,) E[1 / tau]
    log_density: Array  # (n,) log p(y)


def over_noise(gram: Array, linear: Array, squares: Array, count: Array, prior: Prior, rate: Array) -> OverNoise:
    """f, 1 / tau and p(y) with tau integrated out over its prior (math.md, 7.2).

    gram: (1 or n, K, K); linear: (n, K); squares, count: (n,) y'y and the number of observed features; rate: see
    `noise_rate`.
    """
    s, V, c = _rotated(gram, linear)
    middle = fixed_point(gram, linear, squares, count, prior, rate, joint=True)
    tau = noise_grid(middle, s.shape[1], count, prior)  # (n, points)
    shrink = tau[:, :, None] / (1.0 + tau[:, :, None] * s[:, None, :])
    f = shrink * c[:, None, :]
    quadratic = tau * (squares[:, None] - np.einsum("jpk,jk->jp", f, c))
    log_p = 0.5 * count[:, None] * (np.log(tau) - LOG_2PI) - 0.5 * np.maximum(quadratic, 0.0)
    log_p -= 0.5 * np.sum(np.log1p(tau[:, :, None] * s[:, None, :]), axis=2)
    log_p += log_gamma_density(tau, prior.noise_shape, rate[:, None]) + np.log(tau)  # per unit of log tau
    step = np.log(tau[:, 1] / tau[:, 0])
    total = logsumexp(log_p, axis=1)
    share = np.exp(log_p - total[:, None])
    mean = np.einsum("jp,jpk->jk", share, f)
    within = np.einsum("jp,jpk->jk", share, 1.0 / (1.0 + tau[:, :, None] * s[:, None, :]))
    centred = f - mean[:, None, :]
    covariance = np.einsum("jp,jpk,jpl->jkl", share, centred, centred)
    covariance[:, np.arange(s.shape[1]), np.arange(s.shape[1])] += within
    return OverNoise(
        mean=np.einsum("jkl,jl->jk", V, mean),
        covariance=np.einsum("jka,jab,jlb->jkl", V, covariance, V),
        noise_variance=np.sum(share / tau, axis=1),
        log_density=np.asarray(total + np.log(step)),
    )


def noise_grid(middle: Array, n_factors: int, count: Array, prior: Prior) -> Array:
    """(n, POINTS) values of tau, evenly spaced in their logarithm, that cover its posterior around `middle`."""
    free = np.maximum(count - n_factors, 1.0)  # what the factors could take away at most
    spread = WIDTH / np.sqrt(0.5 * free + prior.noise_shape)
    low, high = (np.clip(np.log(middle) + side * spread, -LARGEST_LOG, LARGEST_LOG) for side in (-1, 1))
    return np.exp(np.linspace(low, high, POINTS, axis=1))
