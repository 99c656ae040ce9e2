"""Matrices of features by samples for the fill-in test: from a file or simulated; held-out entries; baselines."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import sparsefactor as sf

from .measures import rrmse
from .recording import Array

FULL_SHAPE = (16_069, 44)
HELD_OUT = 0.1
MAX_ITERATIONS = 200  # of the completion at one penalty
PENALTIES = 25


@dataclass(frozen=True)
class Matrix:
    """values: (n_features, n_samples); simulated: says in words that no file was read, and is empty otherwise."""

    values: Array
    feature_names: list[str]
    sample_names: list[str]
    source: str
    simulated: str = ""

    @property
    def digest(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self.values).tobytes()).hexdigest()[:24]


def read_matrix(path: Path, *, transpose: bool = False) -> Matrix:
    """Read a file as `sf.read_table` does; transpose: rows of the file are features."""
    frame = sf.read_table(path, transpose=transpose)
    values = frame.to_numpy(dtype=float).T.copy()
    if not np.isfinite(values).all():
        raise ValueError(
            f"data must be complete for the fill-in test; {path.name} has missing or infinite entries; drop their rows"
        )
    features, samples = [str(name) for name in frame.columns], [str(name) for name in frame.index]
    return Matrix(values, features, samples, path.name + (" --transpose" if transpose else ""))


def simulate_matrix(shape: tuple[int, int] = FULL_SHAPE, n_factors: int = 26, seed: int = 0) -> Matrix:
    """A matrix like the GTEx z-scores: one factor on most features, the others ever sparser, two thirds signal."""
    n_features, n_samples = shape
    inclusion = [0.9, *np.geomspace(0.3, 0.02, n_factors - 1)]
    simulation = sf.simulate(n_features=n_features, n_samples=n_samples, inclusion=inclusion, snr=2, seed=seed)
    return Matrix(
        simulation.X.T.copy(),
        [f"variant {i + 1}" for i in range(n_features)],
        [f"tissue {j + 1}" for j in range(n_samples)],
        f"simulated, seed {seed}",
        f"Not GTEx: a {n_features:,} x {n_samples} matrix simulated from the model.",
    )


def held_out(shape: tuple[int, int], seed: int, share: float = HELD_OUT) -> NDArray[np.intp]:
    """(n_held_out,) flat indices, row-major over features by samples."""
    size = shape[0] * shape[1]
    return np.random.default_rng(seed).choice(size, round(share * size), replace=False)


def baselines(values: Array, held: NDArray[np.intp], seed: int) -> dict[str, float]:
    """Fill-in RRMSE of zero, of feature means and of a soft-thresholded SVD."""
    observed = np.ones(values.size, dtype=bool)
    observed[held] = False
    observed = observed.reshape(values.shape)
    truth = values.ravel()[held]
    means = np.where(observed, values, 0.0).sum(axis=1) / np.maximum(observed.sum(axis=1), 1)
    return {
        "zero": rrmse(np.zeros(len(held)), truth),
        "feature mean": rrmse(means[held // values.shape[1]], truth),
        "soft-thresholded SVD": rrmse(soft_svd(values, observed, seed).ravel()[held], truth),
    }


def soft_svd(values: Array, observed: NDArray[np.bool_], seed: int) -> Array:
    """Completion by a soft-thresholded SVD; its penalty is the best on a tenth of the observed entries."""
    entries = np.flatnonzero(observed.ravel())
    validation = np.random.default_rng([seed, 7]).choice(entries, len(entries) // 10, replace=False)
    training = observed.ravel().copy()
    training[validation] = False
    training = training.reshape(observed.shape)
    signal = np.where(training, values, 0.0)
    largest = float(np.linalg.norm(signal, 2))
    penalties = np.geomspace(0.5, 0.005, PENALTIES) * largest
    best, chosen = np.inf, largest
    for penalty in penalties:
        signal = complete(values, training, penalty, signal)
        error = rrmse(signal.ravel()[validation], values.ravel()[validation])
        if error < best:
            best, chosen = error, penalty
        elif error > 1.02 * best:
            break  # smaller penalties only fit the noise
    result = np.where(observed, values, 0.0)
    for penalty in penalties[penalties >= chosen]:
        result = complete(values, observed, penalty, result)
    return result


def complete(values: Array, observed: NDArray[np.bool_], penalty: float, start: Array) -> Array:
    """The fixed point of "fill in, take the SVD, shrink its values", from a start near it; all entries predicted."""
    signal = start
    for _ in range(MAX_ITERATIONS):
        filled = np.where(observed, values, signal)
        squares, V = np.linalg.eigh(filled.T @ filled)
        s = np.sqrt(np.maximum(squares, 0.0))
        shrink = np.maximum(s - penalty, 0.0) / np.where(s > 0, s, 1.0)
        new = filled @ (V * shrink) @ V.T
        change = np.linalg.norm(new - signal)
        signal = new
        if change <= 1e-4 * np.linalg.norm(signal):
            break
    return np.asarray(signal)


def factor_shares(values: Array, L: Array, F: Array) -> Array:
    """(n_factors,) share of variance lost if a factor is removed. values: (G, N); L: (G, K); F: (N, K)."""
    residual = values - L @ F.T
    cross = np.einsum("gn,gk,nk->k", residual, L, F, optimize=True)
    size = np.sum(L**2, axis=0) * np.sum(F**2, axis=0)
    total = np.sum((values - values.mean(axis=1, keepdims=True)) ** 2)
    return np.asarray((2 * cross + size) / total)
