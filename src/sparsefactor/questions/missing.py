"""What is missing: predictions with the uncertainty of signal and noise, and intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import t as student

from ..containers import container_of, like_input
from ..posterior import MCMCPosterior, VIPosterior
from ..storage.moments import blocks
from .predict import Index, noise_place, signal_variance
from .project import under_draw, under_q
from .rows import BLOCK_ENTRIES, Draw, each_draw, mean_inverse, noise_shape
from .samples import Border, Samples

Array = NDArray[np.float64]

INTERVAL_DRAWS = 200  # an interval's ends are quantiles of a mixture over about so many draws
TAIL = 10.0  # standard deviations beyond which no quantile is looked for
NEWTON = 30  # steps; a few suffice unless the mixture has gaps, where they halve the bracket
MIXTURE_ENTRIES = 4_000_000  # of (draws, entries) made at once


def impute(
    p: VIPosterior | MCMCPosterior,
    X: Any = None,
    *,
    return_sd: bool = False,
    interval: float | None = None,
    covariates: Any = None,
    client: Any = None,
) -> Any:
    """Predictions of missing entries, with standard deviations and central intervals of what would be observed."""
    if interval is not None and not (isinstance(interval, int | float | np.number) and 0 < interval < 1):
        raise ValueError(f"interval must lie strictly between 0 and 1; got {interval!r}; pass e.g. 0.9")
    if X is None:
        found = predictions(p, None, return_sd, interval)
        named: tuple[Any, ...] = p.labels.container, p.sample_names, p.feature_names
    else:
        border = Border(X, p.labels, covariates)
        found = [border.room() for _ in range(1 + return_sd + 2 * (interval is not None))]
        for rows, own in border.answers(client, predictions, p, return_sd, interval):
            for whole, part in zip(found, own, strict=True):
                whole[rows] = part
        named = container_of(X), border.names, border.features
    parts = [like_input(whole, *named) for whole in found]
    return parts[0] if len(parts) == 1 else tuple(parts)


def predictions(
    p: VIPosterior | MCMCPosterior, samples: Samples | None, return_sd: bool, interval: float | None
) -> list[Array]:
    """(n, n_features) with what is missing predicted, features in the order of X; then what else is asked for."""
    shape = (len(p.activations_mean) if samples is None else len(samples.Y), len(p.loadings_mean))
    missing = np.ones(shape, dtype=bool) if samples is None else ~samples.observed
    j, i = np.nonzero(missing)
    law: _Student | _Mixture = _Student(p, samples, j, i) if isinstance(p, VIPosterior) else _Mixture(p, samples, j, i)
    by_covariates = p.labels.known() if samples is None else samples.known
    units = p.labels.scale[i]
    offset = p.labels.offset[i] + np.broadcast_to(by_covariates, shape)[j, i] * units

    def placed(values: Array, rest: Array) -> Array:
        out = rest.copy()
        out[j, i] = values
        if samples is not None:
            out[:, samples.order] = out.copy()
        return out

    known, zeros = (np.zeros(shape) if samples is None else samples.values), np.zeros(shape)
    parts = [placed(law.mean * units + offset, known)]
    if return_sd:
        parts.append(placed(np.sqrt(law.variance) * units, zeros))
    if interval is not None:
        ends = (0.5 - interval / 2, 0.5 + interval / 2)
        parts += [placed(law.quantile(end) * units + offset, known) for end in ends]
    return parts


class _Student:
    """Entries under q: Student's t, exact where the signal is known."""

    def __init__(self, p: VIPosterior, samples: Samples | None, j: Index, i: Index) -> None:
        activations = None if samples is None else under_q(p, samples)
        tau, shape = np.atleast_1d(p.noise_precision_mean), np.atleast_1d(noise_shape(p))
        if activations is None or samples is None:
            self.mean: Array = p.signal()[j, i]
        else:
            self.mean = np.einsum("ek,ek->e", activations.mean[j], p.loadings_mean[i])
            if activations.tau is not None:
                tau, shape = activations.tau, p.prior.noise_shape + 0.5 * samples.count
        at = noise_place(p, j, i)
        signal = signal_variance(p, j, i, activations)
        self.variance = signal + mean_inverse(shape, tau)[at]
        self.scale, self.df = np.sqrt(signal + 1.0 / tau[at]), 2.0 * shape[at]

    def quantile(self, q: float) -> Array:
        return np.asarray(self.mean + self.scale * student.ppf(q, self.df))


class _Mixture:
    """Entries by draw: a Gaussian given each, and their mixture."""

    def __init__(self, p: MCMCPosterior, samples: Samples | None, j: Index, i: Index) -> None:
        self.p, self.samples, self.j, self.i = p, samples, j, i
        self.mean, square = np.zeros(len(j)), np.zeros(len(j))
        for draw in each_draw(p):
            mean, variance = self.given(draw, slice(None))
            self.mean += draw.weight * mean
            square += draw.weight * (variance + mean**2)
        self.variance = np.maximum(square - self.mean**2, 0.0)

    def given(self, draw: Draw, part: slice) -> tuple[Array, Array]:
        """(entries,) mean and variance of some of the entries given one draw."""
        j, i = self.j[part], self.i[part]
        place = noise_place(self.p, j, i)
        if self.samples is None:
            return np.einsum("ek,ek->e", draw.F[j], draw.L[i]), 1.0 / np.atleast_1d(draw.tau)[place]
        found = under_draw(self.p, draw, self.samples)
        noise = 1.0 / (np.atleast_1d(draw.tau) if found.tau is None else found.tau)[place]
        mean, signal = np.empty(len(j)), np.empty(len(j))
        for block in blocks(len(j), max(1, BLOCK_ENTRIES // self.p.n_factors**2)):
            l, jb = draw.L[i[block]], j[block]
            V = found.covariance[np.zeros_like(jb) if len(found.covariance) == 1 else jb]
            mean[block] = np.einsum("ek,ek->e", found.mean[jb], l)
            signal[block] = np.einsum("ek,ekl,el->e", l, V, l)
        return mean, signal + noise

    def quantile(self, q: float) -> Array:
        """Where the mixture's distribution function is q, by Newton's method inside a shrinking bracket."""
        out = np.empty(len(self.j))
        for part in blocks(len(out), MIXTURE_ENTRIES // INTERVAL_DRAWS):
            given = [(draw.weight, *self.given(draw, part)) for draw in each_draw(self.p, INTERVAL_DRAWS)]
            weight = np.array([w for w, _, _ in given])
            weight /= weight.sum()
            mean, sd = np.array([m for _, m, _ in given]), np.sqrt([v for _, _, v in given])
            low, high = (mean - TAIL * sd).min(axis=0), (mean + TAIL * sd).max(axis=0)
            x = np.clip(self.mean[part] + ndtri(q) * np.sqrt(self.variance[part]), low, high)
            for _ in range(NEWTON):
                z = (x - mean) / sd
                excess = weight @ ndtr(z) - q
                low, high = np.where(excess < 0, x, low), np.where(excess > 0, x, high)
                slope = weight @ (np.exp(-0.5 * z**2) / (sd * np.sqrt(2 * np.pi)))
                step = x - excess / np.maximum(slope, 1e-300)
                x = np.where((step >= low) & (step <= high), step, 0.5 * (low + high))
            out[part] = x
        return out
