"""Matrices of features by samples: read from a file, or made in the likeness of one; held-out entries; baselines."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sparsefactor as sf

from ..reading import Choices, Table, read
from .gauges import rrmse

Array = NDArray[np.float64]

FULL_SHAPE = (16_069, 44)
HELD_OUT = 0.1
ROUNDS = 200  # of completion at one penalty
PENALTIES = 25


@dataclass(frozen=True)
class Matrix:
    """values: (n_features, n_samples); source: as the command line spells it.

    `made` says in words that no file was read, and is empty otherwise.
    """

    values: Array
    feature_names: list[str]
    sample_names: list[str]
    source: str
    made: str = ""

    @property
    def digest(self) -> str:
        return hashlib.sha256(np.ascontiguousarray(self.values).tobytes()).hexdigest()[:24]


def read_matrix(path: Path, **choices: Any) -> Matrix:
    """A file as `read_table` reads it: samples as lines, unless `transpose=True` says that features are."""
    return matrix_of(read(path, Choices(**choices)))


def matrix_of(table: Table) -> Matrix:
    """A table that was read, for the fill-in test."""
    frame, name = table.frame, table.path.name
    if not np.isfinite(frame.to_numpy()).all():
        raise ValueError(
            f"data must be complete for the fill-in test; {name} has missing or infinite entries; drop their rows"
        )
    features, samples = (
        [f"{what} {i + 1}" for i in range(len(index))] if index.dtype.kind in "iu" else [str(name) for name in index]
        for what, index in (("feature", frame.columns), ("sample", frame.index))
    )
    flag = " --transpose" if table.transposed else ""
    return Matrix(frame.to_numpy().T.copy(), features, samples, name + flag)


def made_matrix(shape: tuple[int, int] = FULL_SHAPE, n_factors: int = 26, seed: int = 0) -> Matrix:
    """In the likeness of the GTEx z-scores: one factor on most features, the others ever sparser, two thirds signal."""
    inclusion = [0.9, *np.geomspace(0.3, 0.02, n_factors - 1)]
    n_features, n_samples = shape
    simulation = sf.simulate(n_features=n_features, n_samples=n_samples, inclusion=inclusion, snr=2, seed=seed)
    return Matrix(
        simulation.X.T.copy(),
        [f"variant {i + 1}" for i in range(n_features)],
        [f"tissue {j + 1}" for j in range(n_samples)],
        f"simulated, seed {seed}",
        f"Not GTEx: a {n_features:,} x {n_samples} matrix simulated from the model in its likeness.",
    )


def held_out(shape: tuple[int, int], seed: int, share: float = HELD_OUT) -> NDArray[np.intp]:
    """(n_held_out,) flat indices, row-major over features by samples, as numpy's default generator chooses them."""
    size = shape[0] * shape[1]
    return np.random.default_rng(seed).choice(size, round(share * size), replace=False)


def baselines(values: Array, held: NDArray[np.intp], seed: int) -> dict[str, float]:
    """Fill-in RRMSE of what a reader wants beside the model: zero, feature means, soft-thresholded SVD."""
    observed = np.ones(values.size, dtype=bool)
    observed[held] = False
    seen = observed.reshape(values.shape)
    truth = values.ravel()[held]
    means = np.where(seen, values, 0.0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
    rows = held // values.shape[1]
    return {
        "zero": rrmse(np.zeros(len(held)), truth),
        "feature mean": rrmse(means[rows], truth),
        "soft-thresholded SVD": rrmse(soft_svd(values, seen, seed).ravel()[held], truth),
    }


def soft_svd(values: Array, seen: NDArray[np.bool_], seed: int) -> Array:
    """Completion by a soft-thresholded SVD; its penalty is the best on a tenth of the observed entries."""
    entries = np.flatnonzero(seen.ravel())
    inner = np.random.default_rng([seed, 7]).choice(entries, len(entries) // 10, replace=False)
    kept = seen.ravel().copy()
    kept[inner] = False
    inside = kept.reshape(seen.shape)
    largest = float(np.linalg.norm(np.where(inside, values, 0.0), 2))
    best, chosen = np.inf, largest
    filled = np.where(inside, values, 0.0)
    penalties = np.geomspace(0.5, 0.005, PENALTIES) * largest
    for penalty in penalties:
        filled = completed(values, inside, penalty, filled)
        error = rrmse(filled.ravel()[inner], values.ravel()[inner])
        if error < best:
            best, chosen = error, penalty
        elif error > 1.02 * best:
            break  # smaller penalties only fit the noise
    result = np.where(seen, values, 0.0)
    for penalty in penalties[penalties >= chosen]:
        result = completed(values, seen, penalty, result)
    return result


def completed(values: Array, seen: NDArray[np.bool_], penalty: float, start: Array) -> Array:
    """The fixed point of "fill in, take the SVD, shrink its values", from a start near it; all entries predicted."""
    signal = start
    for _ in range(ROUNDS):
        filled = np.where(seen, values, signal)
        squares, V = np.linalg.eigh(filled.T @ filled)
        s = np.sqrt(np.maximum(squares, 0.0))
        shrink = np.maximum(s - penalty, 0.0) / np.where(s > 0, s, 1.0)
        new = filled @ (V * shrink) @ V.T
        moved = np.linalg.norm(new - signal)
        signal = new
        if moved <= 1e-4 * np.linalg.norm(signal):
            break
    return np.asarray(signal)
