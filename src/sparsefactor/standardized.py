"""Standardised loadings, communalities and salient features: what tables of factor analysis show.

A standardised loading is in standard deviations of the feature for one standard deviation of the factor's activations,
so that features of different units can be compared; where factors are correlated it is a pattern coefficient.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SALIENT = 0.3  # standardised loadings of at least this size are counted and printed, as is usual in the field
DENSE = 0.9  # share of the features in a factor, from which on inclusion does not select
FEWEST_FEATURES = 20  # in data with fewer features a factor may well load on all of them
MOST_NAMED = 5


def feature_sd(p: Any) -> Array:
    """(n_features,) standard deviations of the data, in the units that were fitted."""
    sums = p._sums()
    return np.asarray(np.sqrt(sums.total / np.maximum(sums.count, 1)) * sums.unit)


def factor_size(p: Any) -> Array:
    """(n_factors,) root mean squares of the activations of the samples that were fitted."""
    return np.asarray(np.sqrt(np.mean(p.activations_mean**2 + p.activations_sd**2, axis=0)))


def to_standardized(p: Any, loadings: Array, size: Array) -> Array:
    """(n_features, n_factors) loadings in standardised units; size: of the factors' activations. Zero for constants."""
    sd = feature_sd(p)[:, None]
    return np.where(sd > 0, loadings * size / np.where(sd > 0, sd, 1.0), 0.0)


def communalities(p: Any) -> Array:
    """(n_features,) the share of each feature's variance that the factors explain in the model."""
    L = p.loadings_mean * factor_size(p)
    signal = np.einsum("ik,kl,il->i", L, p.factor_correlation_mean, L)
    noise = 1.0 / p.noise_precision_mean
    return np.asarray(signal / (signal + (noise.mean() if p.prior.noise == "sample" else noise)))


def salient(p: Any, at_least: float = SALIENT) -> NDArray[np.intp]:
    """(n_factors,) features with a standardised loading of at least this size; none where a factor is empty."""
    return np.where(p.empty, 0, (np.abs(p.standardized_loadings) >= at_least).sum(axis=0))


def dense_factors(p: Any) -> list[int]:
    """The factors, from 0, that include nearly every feature of many."""
    G = len(p.inclusion_prob)
    if G < FEWEST_FEATURES:
        return []
    return np.flatnonzero((p.inclusion_prob > 0.5).sum(axis=0) >= DENSE * G).tolist()


def dense_sentence(p: Any) -> str:
    """The factors that include nearly every feature, and how to get a short list; "" where there are none."""
    dense = [] if p.fit_sums is None else [k for k in dense_factors(p) if not p.empty[k]]
    if not dense:
        return ""
    if len(dense) == int((~p.empty).sum()) and len(dense) > 1:
        named = "All factors load"
    else:
        first = ", ".join(str(k + 1) for k in dense[:MOST_NAMED]) + (", ..." if len(dense) > MOST_NAMED else "")
        named = f"Factor {first} loads" if len(dense) == 1 else f"Factors {first} load"
    return (
        f"{named} on nearly all features; inclusion does not select here. For short lists use "
        f"discoveries(min_loading={SALIENT}) or fit with inclusion=0.1."
    )
