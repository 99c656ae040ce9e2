"""What the study measures: errors against a simulation's truth, and the error on held-out entries."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import sparsefactor as sf

from .recording import Array, Estimate

MEASURES = {
    "z_accuracy": "accuracy of Z",
    "rrmse_loadings": "RRMSE of L",
    "rrmse_activations": "RRMSE of F",
    "rrmse_signal": "RRMSE of LF",
}


class Measure(Protocol):
    """A set of measures of an estimate."""

    def signal(self, L: Array, F: Array) -> Array:
        """The part of the signal whose posterior mean is needed; L: (G, K), F: (K, N)."""
        ...

    def __call__(self, estimate: Estimate) -> dict[str, float]: ...


class TruthMeasure:
    """The paper's four measures against a known truth."""

    def __init__(self, truth: sf.Simulation) -> None:
        self.truth = truth

    def signal(self, L: Array, F: Array) -> Array:
        return np.asarray(F.T @ L.T)

    def __call__(self, estimate: Estimate) -> dict[str, float]:
        return sf.score(estimate, self.truth)

    def correlations(self, estimate: Any) -> Array:
        """(n_factors,) absolute correlation of each true factor's activations with those of the matched factor."""
        matched = sf.match(estimate, self.truth).apply(estimate.activations_mean)
        products = np.sum(_standardize(matched) * _standardize(self.truth.activations), axis=0)
        return np.asarray(np.abs(products))


class FillInMeasure:
    """RRMSE of the posterior mean prediction of held-out entries."""

    def __init__(self, features: NDArray[Any], samples: NDArray[Any], values: Array) -> None:
        self.features, self.samples, self.values = features, samples, values

    def signal(self, L: Array, F: Array) -> Array:
        return np.asarray(np.einsum("ek,ek->e", L[self.features], F.T[self.samples]))

    def __call__(self, estimate: Estimate) -> dict[str, float]:
        return {"rrmse": rrmse(estimate.signal, self.values)}


def rrmse(predicted: Array, values: Array) -> float:
    """Relative root mean squared error."""
    return float(np.sqrt(np.sum((predicted - values) ** 2) / np.sum(values**2)))


def _standardize(F: Array) -> Array:
    """Columns with mean 0 and norm 1."""
    F = F - F.mean(axis=0)
    norm = np.linalg.norm(F, axis=0)
    return np.asarray(F / np.where(norm > 0, norm, 1.0))
