"""The law of single entries: mean and variance of the signal, and of signal and noise together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..posterior import MCMCPosterior, VIPosterior
from ..storage.moments import blocks
from .project import Activations
from .rows import BLOCK_ENTRIES, loading_covariance

Array = NDArray[np.float64]
Index = NDArray[np.intp]

ENTRIES = 1_000_000  # whose products are made together


def fitted(p: VIPosterior) -> Activations:
    """q(f) of the training samples."""
    variance = p.parameters["f_var"]
    if variance.ndim == 3:
        return Activations(p.activations_mean, variance)
    covariance = np.zeros((len(p.activations_mean), p.n_factors, p.n_factors))
    covariance[:, np.arange(p.n_factors), np.arange(p.n_factors)] = p.activations_sd**2
    return Activations(p.activations_mean, covariance)


def signal_variance(p: VIPosterior, j: Index, i: Index, activations: Activations | None = None) -> Array:
    """(entries,) variance of l_i'f_j under q, at samples j and features i: E[f]' V_l E[f] + E[l' V_f l].

    activations: those of new samples; else of the training samples.
    """
    f, V, _ = fitted(p) if activations is None else activations
    out = np.empty(len(j))
    step = max(1, BLOCK_ENTRIES // p.n_factors**2)
    order = np.argsort(i, kind="stable")  # entries of a feature together: its covariance is made once
    for part in blocks(len(j), step):
        at = order[part]
        features, place = np.unique(i[at], return_inverse=True)
        cov_l = loading_covariance(p, features)
        cov_f = V[np.zeros_like(j[at])] if len(V) == 1 else V[j[at]]
        mean_f, mean_l, cov = f[j[at]], p.loadings_mean[i[at]], cov_l[place]
        first = np.einsum("ek,ekl,el->e", mean_f, cov, mean_f)
        out[at] = first + np.einsum("ek,ekl,el->e", mean_l, cov_f, mean_l) + np.einsum("ekl,ekl->e", cov, cov_f)
    return np.maximum(out, 0.0)


def noise_place(p: VIPosterior | MCMCPosterior, j: Index, i: Index) -> Index:
    """Where in the noise's own array the noise of entries (sample j, feature i) is."""
    return {"feature": i, "sample": j, "shared": np.zeros_like(i)}[p.prior.noise]


def products_at(F: Array, L: Array, j: Index, i: Index) -> Array:
    """(entries,) f_j'l_i of samples j and features i, without all others; F: (N, K), L: (G, K)."""
    found = np.empty(len(j))
    for part in blocks(len(j), ENTRIES):
        found[part] = np.einsum("ek,ek->e", F[j[part]], L[i[part]])
    return found


def signal_at(p: VIPosterior | MCMCPosterior, j: Index, i: Index) -> Array:
    """(entries,) what `p.signal()` has at training samples j and features i."""
    if p.signal_mean is not None:
        return np.asarray(p.signal_mean[j, i])
    return products_at(p.activations_mean, p.loadings_mean, j, i)


def known_at(p: VIPosterior | MCMCPosterior, j: Index, i: Index) -> Array:
    """(entries,) what covariates explain there, in the units that were fitted."""
    labels = p.labels
    return products_at(labels.covariates - labels.covariate_mean, labels.covariate_loadings, j, i)


def predicted_at(p: VIPosterior | MCMCPosterior, j: Index, i: Index) -> Array:
    """(entries,) what `p.predicted()` has there."""
    return np.asarray((signal_at(p, j, i) + known_at(p, j, i)) * p.labels.scale[i] + p.labels.offset[i])
