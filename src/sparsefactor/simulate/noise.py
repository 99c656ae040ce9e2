"""Noise precisions, and holes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import is_number
from ..model import Prior
from .simulation import Array


def noise_precision_of_snr(signal: Array, snr: float, prior: Prior | None) -> Array:
    """(n_features,): snr / V_i (6.1), and for features without signal the median of the others' noise."""
    if not (is_number(snr) and np.isfinite(snr) and snr > 0):
        raise ValueError(f"snr must be a positive number; got {snr!r}; pass e.g. snr=5")
    if prior is not None and prior.noise != "feature":
        raise ValueError(
            f"snr sets one noise precision per feature; got a prior with noise={prior.noise!r}; leave snr out to draw "
            'the noise from the prior, or use noise="feature"'
        )
    if len(signal) < 2:
        raise ValueError(
            f"snr needs the sample variance of the signal, so n_samples >= 2; got {len(signal)}; use a prior instead"
        )
    variance = np.var(signal, axis=0, ddof=1)
    # A constant signal has variance zero but for rounding.
    variance[variance <= (8 * np.finfo(float).eps * np.abs(signal).max(axis=0)) ** 2] = 0.0
    has_signal = variance > 0
    if not has_signal.any():
        return np.ones(len(variance))
    variance[~has_signal] = np.median(variance[has_signal])
    return snr / variance


def gamma(rng: np.random.Generator, what: str, shape: float, rate: float, size: Any) -> Array:
    """Gamma draws; a vague prior's draws underflow, and 1 / sqrt(precision) would not be finite."""
    draws = np.asarray(rng.gamma(shape, 1.0 / rate, size=size))
    if not np.all(np.isfinite(draws) & (draws > 1e-200)):
        raise ValueError(
            f"{what}_shape must be large enough to draw from; got {shape:g}, under which a drawn precision is "
            f"{float(draws.min()):g}; pass a prior with e.g. {what}_shape=3"
        )
    return draws


def draw_missing(missing: float, N: int, G: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """(N, G) holes: as many as asked for, all entries equally likely, no row or column empty."""
    if not (is_number(missing) and 0 <= missing < 1):
        raise ValueError(f"missing must be a fraction, at least 0 and below 1; got {missing!r}; pass e.g. missing=0.1")
    holes = np.zeros((N, G), dtype=bool)
    count = round(missing * (N * G))
    if count == 0:
        return holes
    # These max(N, G) entries stay: they meet every sample and every feature.
    index = np.arange(max(N, G))
    kept = np.zeros((N, G), dtype=bool)
    kept[rng.permutation(N)[index % N], rng.permutation(G)[index % G]] = True
    free = np.flatnonzero(~kept)
    if count > len(free):
        raise ValueError(
            f"missing must leave an entry to every feature and sample; got {missing:g} at {N} samples by {G} features; "
            f"the most is {len(free) / (N * G):.3g}"
        )
    holes.flat[rng.choice(free, size=count, replace=False)] = True
    return holes
