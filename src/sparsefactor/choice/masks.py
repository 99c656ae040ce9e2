"""Entries held out, and what one fit without them predicts."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..diagnostics import SamplingWarning
from ..mcmc import sample
from ..metrics import fill_in_error
from ..model import Prior
from ..notices import unwarned
from ..start import Start
from ..vi import ConvergenceWarning, fit_vi

Array = NDArray[np.float64]
METHODS: dict[str, Any] = {"vi": fit_vi, "mcmc": sample}


class Mask(NamedTuple):
    """A way to hold entries out."""

    number: int
    held: NDArray[np.bool_]  # (n_samples, n_features)


def centred(values: Array) -> Array:
    """Each feature less its mean over what is observed; one that is not finite stays, for the fit to refuse."""
    seen = ~np.isnan(values)
    means = np.where(seen, values, 0.0).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    return values - np.where(np.isfinite(means), means, 0.0)


def hold_out(observed: NDArray[np.bool_], share: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """(N, G) which of the observed entries are held out; every sample and feature keeps two, or what it has.

    Two, for the spread of a feature with one entry is not known.
    """
    rank = np.where(observed, rng.random(observed.shape), 2.0)
    kept = (rank <= np.sort(rank, axis=0)[min(1, len(rank) - 1)]) | (
        rank <= np.sort(rank, axis=1)[:, [min(1, rank.shape[1] - 1)]]
    )
    free = np.flatnonzero(observed & ~kept)
    count = round(share * int(observed.sum()))
    if not 0 < count <= len(free):
        raise ValueError(
            f"share must hold out at least one entry and leave two to every sample and feature; got {share:g}; the "
            f"most is {len(free) / int(observed.sum()):.3g}"
        )
    held = np.zeros(observed.shape, dtype=bool)
    held.flat[rng.choice(free, size=count, replace=False)] = True
    return held


def judged(
    values: Array, labels: Any, prior: Prior, held: NDArray[np.bool_], inference: str, options: dict[str, Any]
) -> tuple[dict[str, Any], Start]:
    """One fit without the entries held out: what it predicts of them, and where it ended."""
    seen = np.where(held, np.nan, values)
    begin = time.perf_counter()
    with unwarned(ConvergenceWarning, SamplingWarning):
        # One fit of many that stops early is a line of the table, not a reason to stop.
        index, columns = labels  # by which covariates and groups are matched
        X = seen if index is None and columns is None else pd.DataFrame(seen, index=index, columns=columns)
        p = METHODS[inference](X, prior, progress=False, **options)
    seconds = time.perf_counter() - begin
    density = p.log_density(np.where(held, values, np.nan), of="entries")
    found = {
        "error": fill_in_error(p, values, held),
        "log_density": float(np.nanmean(density)),
        "found": int(np.sum(~p.empty)),
        "held_out": int(held.sum()),
        "seconds": seconds,
    }
    return found, Start("neighbour", p.loadings_mean, np.ascontiguousarray(p.activations_mean.T))


def mean_error(values: Array, held: NDArray[np.bool_]) -> float:
    """The error of predicting each feature's mean over what is not held out."""
    means = np.nanmean(np.where(held, np.nan, values), axis=0)
    truth, guess = values[held], np.broadcast_to(means, values.shape)[held]
    return float(np.sqrt(np.sum((guess - truth) ** 2) / np.sum(truth**2)))
