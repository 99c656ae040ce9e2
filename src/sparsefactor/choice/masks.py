"""What fits without the entries held out predict of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..diagnostics import SamplingWarning
from ..mcmc import sample
from ..model import Prior
from ..notices import unwarned
from ..questions.density import density_at
from ..questions.predict import predicted_at
from ..start import Start
from ..vi import ConvergenceWarning, fit_vi
from .hidden import Hidden, Laid, Mask

Array = NDArray[np.float64]
Index = NDArray[np.intp]
METHODS: dict[str, Any] = {"vi": fit_vi, "mcmc": sample}
TOGETHER = 1_000_000  # entries that are predicted together, or a few more


def judged(
    laid: Laid, prior: Prior, mask: Mask, inference: str, options: dict[str, Any], source: Any = None
) -> tuple[dict[str, Any], Start]:
    """One fit without the entries held out: what it predicts of them, and where it ended.

    source: where the fit is to read the matrix, if not here.
    """
    begin = time.perf_counter()
    with unwarned(ConvergenceWarning, SamplingWarning):
        # One fit of many that stops early is a line of the table, not a reason to stop.
        p = METHODS[inference](seen(laid, mask, source), prior, progress=False, **options)
    seconds = time.perf_counter() - begin
    error = size = density = 0.0
    for j, i, x in entries(laid, mask):
        error += float(np.sum((predicted_at(p, j, i) - x) ** 2))
        size += float(np.sum(x**2))
        density += float(np.sum(density_at(p, j, i, x)))
    found = {
        "error": float(np.sqrt(error / size)),
        "log_density": density / mask.total,
        "found": int(np.sum(~p.empty)),
        "held_out": mask.total,
        "seconds": seconds,
    }
    return found, Start("neighbour", p.loadings_mean, np.ascontiguousarray(p.activations_mean.T))


def seen(laid: Laid, mask: Mask, source: Any = None) -> Any:
    """What a fit may see, as it takes it: in memory, or to be read a part at a time."""
    hidden = Hidden.of(laid, mask, source)
    if source is not None or laid.spool is not None:
        return hidden
    index, columns = (None if names.dtype.kind in "iu" else names for names in (laid.samples, laid.features))
    if index is None and columns is None:
        return hidden.whole()
    return pd.DataFrame(hidden.whole(), index=index, columns=columns)  # by which covariates and groups are matched


def entries(laid: Laid, mask: Mask) -> Iterator[tuple[Index, Index, Array]]:
    """Samples, features and values of what is held out, many at a time."""
    parts: list[tuple[Index, Index, Array]] = []
    for rows, values in laid.units():
        i, j = np.nonzero(mask.held(rows, ~np.isnan(values)))
        parts.append((j, i + rows.start, values[i, j]))
        if sum(len(part[0]) for part in parts) >= TOGETHER:
            yield joined(parts)
            parts = []
    if parts:
        yield joined(parts)


def joined(parts: list[tuple[Index, Index, Array]]) -> tuple[Index, Index, Array]:
    j, i, x = (np.concatenate(each) for each in zip(*parts, strict=True))
    return j, i, x


def mean_error(laid: Laid, mask: Mask) -> float:
    """The error of predicting each feature's mean over what is not held out."""
    error = size = 0.0
    for rows, values in laid.units():
        held = mask.held(rows, ~np.isnan(values))
        guess = np.nanmean(np.where(held, np.nan, values), axis=1)[:, None]
        error += float(np.sum((guess - values)[held] ** 2))
        size += float(np.sum(values[held] ** 2))
    return float(np.sqrt(error / size))
