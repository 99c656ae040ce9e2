"""The correlation matrix Phi of the factors, for variational inference (math.md, 3.22).

Activations are f_j ~ N(0, Phi). Phi is a point estimate under the prior that an inverse-Wishart covariance induces on
its correlation matrix (1.13). Its update and the change of scale of the factors are one step, made under parameter
expansion: both are read off the second moments of the activations. A step is taken only as far as it raises the ELBO.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy.special import gammaln, multigammaln

from ..arrays import Arrays
from .contract import Array, VIColumns

STEPS = (1.0, 0.5, 0.25, 0.125, 0.0)  # of the way from the present Phi to the proposed one


def prior_precision(columns: VIColumns, on: Arrays) -> Array:
    """(K, K) Phi^-1, the prior precision of the activations; the identity where factors are uncorrelated."""
    K = columns.f_mean.shape[0]
    return on.xp.linalg.inv(columns.phi) if columns.phi.shape[0] else on.xp.eye(K, dtype=columns.f_mean.dtype)


def inverse_of(phi: Array, K: int, on: Arrays) -> Array:
    """(K, K) Phi^-1 of phi (K, K), or the identity where phi is (0,)."""
    return on.xp.linalg.inv(phi) if phi.shape[0] else on.xp.eye(K)


def gaussian_density(phi: Array, inverse: Array, moments: Array, n: float, on: Arrays) -> Any:
    """log p(F), or its expectation, less its constant: -(n log|Phi| + tr(Phi^-1 S)) / 2; moments: S = E[F F']."""
    return -0.5 * (n * on.xp.linalg.slogdet(phi)[1] + on.xp.sum(inverse * moments))


def correlation_of(F: Array, df: float) -> Array:
    """(K, K) correlations of activations F (K, N), shrunk by a prior with these degrees of freedom, to start from."""
    size = np.sqrt(np.mean(F**2, axis=1))
    unit = F / np.where(size > 0, size, 1.0)[:, None]
    moments = unit @ unit.T + df * np.eye(len(F))
    root = np.sqrt(np.diag(moments))
    return np.asarray(moments / np.outer(root, root))


def log_prior(phi: Array, inverse: Array, df: float, on: Arrays) -> Any:
    """log p(Phi) of a correlation matrix with its inverse, every constant included (1.13)."""
    return log_constant(phi.shape[-1], df) + log_prior_ratio(phi, inverse, df, on)


def log_prior_ratio(phi: Array, inverse: Array, df: float, on: Arrays) -> Any:
    """log p(Phi) / p(I) of correlation matrices (..., K, K) with their inverses."""
    xp, K = on.xp, phi.shape[-1]
    log_det, diagonal = xp.linalg.slogdet(phi)[1], xp.linalg.diagonal(inverse)
    return -0.5 * (df + K + 1) * log_det - 0.5 * df * xp.sum(xp.log(diagonal), axis=-1)


@cache
def log_constant(K: int, df: float) -> float:
    """Of p(Phi): K log Gamma(df / 2) less the log of the multivariate gamma function."""
    return float(K * gammaln(0.5 * df) - multigammaln(0.5 * df, K))


def correlation_term(columns: VIColumns, df: float, on: Arrays) -> Any:
    """log p(Phi) / p(I), the term of the ELBO; zero where factors are uncorrelated.

    Phi is a point, whose density alone would not be comparable between models with and without correlations, or with
    more and fewer factors.
    """
    if not columns.phi.shape[0]:
        return 0.0
    return log_prior_ratio(columns.phi, on.xp.linalg.inv(columns.phi), df, on)


def update_correlation(
    phi: Array, moments: Array, penalty: Array, n: float, power: Any, df: float, on: Arrays
) -> tuple[Array, Array]:
    """The new Phi (K, K), and the scale c (K,) by which activations are multiplied (3.22).

    moments: E[F F'], (K, K); penalty: (K,) and power: of the slab precisions' terms, power log c - penalty c^2 / 2, as
    in `rescaled`.
    """
    xp, K = on.xp, phi.shape[0]
    one = xp.eye(K, dtype=phi.dtype)
    own = xp.linalg.diagonal(moments)
    c = xp.sqrt((n + power) / (own + penalty))
    scaled = moments * c[:, None] * c[None, :]
    pseudo = df / xp.linalg.diagonal(xp.linalg.inv(phi))  # what the prior adds to the second moments
    proposed = scaled + one * pseudo[:, None]
    root = xp.sqrt(xp.linalg.diagonal(proposed))
    proposed = proposed / (root[:, None] * root[None, :])
    step = xp.asarray(STEPS, dtype=phi.dtype)[:, None, None]
    phis = xp.concat([(1.0 - step) * phi + step * proposed, phi[None, :, :]], axis=0)
    # The last candidate changes nothing, not even the scale: the ELBO cannot fall.
    scales = xp.concat([xp.broadcast_to(c, (len(STEPS), K)), xp.ones((1, K), dtype=phi.dtype)], axis=0)
    inverse = xp.linalg.inv(phis)
    gain = (n + power) * xp.sum(xp.log(scales), axis=1) - 0.5 * xp.sum(penalty * scales**2, axis=1)
    gain = gain - 0.5 * n * xp.linalg.slogdet(phis)[1]
    gain = gain - 0.5 * xp.sum(inverse * moments * scales[:, :, None] * scales[:, None, :], axis=(1, 2))
    gain = gain + log_prior_ratio(phis, inverse, df, on)
    best = xp.argmax(xp.astype(gain >= gain[-1], xp.int64), keepdims=True)  # the longest step not to lower the ELBO
    return xp.take(phis, best, axis=0)[0, :, :], xp.take(scales, best, axis=0)[0, :]
