"""The law of single entries: mean and variance of the signal, and of signal and noise together."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..posterior import MCMCPosterior, VIPosterior
from ..storage.moments import blocks
from .project import Activations
from .rows import BLOCK_ENTRIES, loading_covariance

Array = NDArray[np.float64]


def fitted(p: VIPosterior) -> Activations:
    """q(f) of the training samples."""
    variance = p.parameters["f_var"]
    if variance.ndim == 3:
        return Activations(p.activations_mean, variance)
    covariance = np.zeros((len(p.activations_mean), p.n_factors, p.n_factors))
    covariance[:, np.arange(p.n_factors), np.arange(p.n_factors)] = p.activations_sd**2
    return Activations(p.activations_mean, covariance)


def signal_variance(
    p: VIPosterior, j: NDArray[np.intp], i: NDArray[np.intp], activations: Activations | None = None
) -> Array:
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


def noise_place(p: VIPosterior | MCMCPosterior, j: NDArray[np.intp], i: NDArray[np.intp]) -> NDArray[np.intp]:
    """Where in the noise's own array the noise of entries (sample j, feature i) is."""
    return {"feature": i, "sample": j, "shared": np.zeros_like(i)}[p.prior.noise]
