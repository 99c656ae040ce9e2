"""What the study measures: errors against a simulation's truth, and the fill-in error on held-out entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import sparsefactor as sf

from .watch import Array, Estimate

MEASURES = {
    "z_accuracy": "accuracy of Z",
    "rrmse_loadings": "RRMSE of L",
    "rrmse_activations": "RRMSE of F",
    "rrmse_signal": "RRMSE of LF",
}


class TruthGauge:
    """The paper's four measures."""

    def __init__(self, truth: sf.Simulation) -> None:
        self.truth = truth

    def signal(self, L: Array, F: Array) -> Array:
        return np.asarray(F.T @ L.T)

    def measure(self, estimate: Estimate) -> dict[str, float]:
        return sf.score(estimate, self.truth)

    def correlations(self, estimate: Any) -> Array:
        """(n_factors,) how each true factor's activations correlate with those of its partner, in absolute value."""
        found = sf.match(estimate, self.truth).apply(estimate.activations_mean)
        true = self.truth.activations
        products = np.sum(_centred(found) * _centred(true), axis=0)
        return np.asarray(np.abs(products))


class FillInGauge:
    """RRMSE on held-out entries of the posterior mean of their predictions."""

    def __init__(self, features: NDArray[Any], samples: NDArray[Any], values: Array) -> None:
        self.features, self.samples, self.values = features, samples, values

    def signal(self, L: Array, F: Array) -> Array:
        return np.asarray(np.einsum("ek,ek->e", L[self.features], F.T[self.samples]))

    def measure(self, estimate: Estimate) -> dict[str, float]:
        return {"rrmse": rrmse(estimate.signal, self.values)}


def rrmse(predicted: Array, values: Array) -> float:
    return float(np.sqrt(np.sum((predicted - values) ** 2) / np.sum(values**2)))


def _centred(F: Array) -> Array:
    F = F - F.mean(axis=0)
    norm = np.linalg.norm(F, axis=0)
    return np.asarray(F / np.where(norm > 0, norm, 1.0))
