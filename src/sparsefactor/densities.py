"""Densities and divergences of the model's gamma and beta distributions (math.md, 1 and 3.9)."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import gammaln

from .arrays import NUMPY, Arrays

LOG_2PI = float(np.log(2 * np.pi))


def log_gamma_density(x: Any, shape: Any, rate: Any) -> Any:
    """log Gamma(x | shape, rate), elementwise."""
    return shape * np.log(rate) - gammaln(shape) + (shape - 1) * np.log(x) - rate * x


def gamma_kl(shape: Any, rate: Any, prior_shape: Any, prior_rate: Any, on: Arrays = NUMPY) -> Any:
    """KL(Gamma(shape, rate) || Gamma(prior_shape, prior_rate)), elementwise (3.9)."""
    return (
        (shape - prior_shape) * on.digamma(shape)
        - on.gammaln(shape)
        + on.gammaln(prior_shape)
        + prior_shape * (on.xp.log(rate) - on.xp.log(prior_rate))
        + shape * (prior_rate / rate - 1.0)
    )


def beta_kl(A: Any, B: Any, a: Any, b: Any, on: Arrays = NUMPY) -> Any:
    """KL(Beta(A, B) || Beta(a, b)), elementwise (3.9b)."""
    both = on.digamma(A + B)
    kl = on.betaln(a, b) - on.betaln(A, B)
    return kl + (A - a) * (on.digamma(A) - both) + (B - b) * (on.digamma(B) - both)
