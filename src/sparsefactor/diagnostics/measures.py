"""R-hat, effective sample sizes and Monte Carlo errors of many parameters at once.

The measures are those of Vehtari and others (2021): chains are split into halves, draws replaced by the normal scores
of their ranks, and autocorrelations summed as long as Geyer's sequence of pairs stays positive. The numbers are those
of arviz-stats, which takes parameters one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

if TYPE_CHECKING:
    import xarray

Array = NDArray[np.float64]

MEASURES = ("r_hat", "ess_bulk", "ess_tail", "mcse", "sd")
TAILS = (0.05, 0.95)
FEWEST_DRAWS = 4
BLOCK_DRAWS = 400_000  # draws of all parameters that a thread works on at once
THREADS = 4  # at most; sorting and transforming let go of the interpreter's lock


def measure(array: xarray.DataArray, quick: bool = False) -> xarray.DataArray:
    """(measure, ...) of an array (chain, draw, ...); NaN where a parameter never changes or is not finite.

    quick: R-hat and the bulk's effective sample size alone, which a verdict needs; the others are NaN.
    """
    import xarray as xr

    ordered = array.transpose("chain", "draw", ...)
    values = ordered.values.astype(np.float64, copy=False)
    n_chains, n_draws, *own = values.shape
    flat = np.ascontiguousarray(values.reshape(n_chains, n_draws, -1).transpose(2, 0, 1))
    out = np.full((len(MEASURES), len(flat)), np.nan)
    with np.errstate(invalid="ignore"):
        spread = flat.max(axis=(1, 2)) - flat.min(axis=(1, 2))
    usable = np.flatnonzero(np.isfinite(spread) & (spread > 0))
    if len(usable) and n_draws >= FEWEST_DRAWS:
        out[:, usable] = measures(flat[usable], quick)
    dims = ("measure", *ordered.dims[2:])
    coords = {name: c for name, c in ordered.coords.items() if set(c.dims) <= set(dims)}
    return xr.DataArray(out.reshape(len(MEASURES), *own), dims=dims, coords={**coords, "measure": list(MEASURES)})


def measures(x: Array, quick: bool = False) -> Array:
    """(len(MEASURES), n) of finite parameters (n, chain, draw) that vary."""
    out = np.empty((len(MEASURES), len(x)))
    step = max(1, BLOCK_DRAWS // (x.shape[1] * x.shape[2]))
    parts = [slice(first, first + step) for first in range(0, len(x), step)]

    def work(part: slice) -> None:
        out[:, part] = _measures(x[part], quick)

    _in_threads(work, parts)
    return out


def _in_threads(work: Callable[[slice], None], parts: list[slice]) -> None:
    if len(parts) == 1:
        work(parts[0])
        return
    with ThreadPoolExecutor(min(THREADS, len(parts)), "sparsefactor-measure") as pool:
        for _ in pool.map(work, parts):
            pass


def _measures(x: Array, quick: bool) -> Array:
    n, n_chains, _ = x.shape
    half = split(x)
    sorting = Sorting.of(half)
    score = sorting.normal_score()
    out = np.full((len(MEASURES), n), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        # Where each chain is stuck at its own value, R-hat is infinite, and rightly so.
        if n_chains > 1:
            out[0] = np.fmax(spread_ratio(score), spread_ratio(sorting.folded().normal_score()))
        out[1] = ess(score)
        if not quick:
            flat = x.reshape(n, -1)
            below = [split((x <= q[:, None, None]).astype(np.float64)) for q in np.quantile(flat, TAILS, axis=1)]
            out[2] = np.minimum(*map(ess, below))
            out[3] = flat.std(axis=1, ddof=1) / np.sqrt(ess(half))
            out[4] = flat.std(axis=1)
    return out


def split(x: Array) -> Array:
    """(n, 2 chain, draw // 2): the two halves of every chain."""
    half = x.shape[2] // 2
    return np.concatenate([x[:, :, :half], x[:, :, -half:]], axis=1)


class Sorting(NamedTuple):
    """Parameters' draws in their order: values, and where each was among the draws, (n, chain x draw)."""

    values: Array
    order: NDArray[np.intp]
    shape: tuple[int, ...]  # of the draws

    @classmethod
    def of(cls, x: Array) -> Sorting:
        flat = x.reshape(len(x), -1)
        order = np.argsort(flat, axis=1)
        return cls(np.take_along_axis(flat, order, axis=1), order, x.shape)

    def folded(self) -> Sorting:
        """The distances from the median, in their order: they fall and then rise, which a merge makes use of."""
        size = self.values.shape[1]
        middle = 0.5 * (self.values[:, (size - 1) // 2] + self.values[:, size // 2])
        distance = np.abs(self.values - middle[:, None])
        order = np.argsort(distance, axis=1, kind="stable")
        values, places = (np.take_along_axis(a, order, axis=1) for a in (distance, self.order))
        return Sorting(values, places, self.shape)

    def normal_score(self) -> Array:
        """Each parameter's draws replaced by the normal quantiles of their ranks; ties share a mean rank."""
        n, size = self.values.shape
        # A mean rank is a multiple of a half, so that there are few quantiles to compute.
        quantile = ndtri((np.arange(2 * size - 1) / 2 + 1 - 3 / 8) / (size + 1 / 4))
        out = np.empty((n, size))
        new = self.values[:, 1:] != self.values[:, :-1]
        tied = ~new.all(axis=1)
        np.put_along_axis(out, self.order, quantile[::2][None], axis=1)
        if tied.any():
            scores = quantile[_twice_mean_place(new[tied])]
            own = np.empty_like(scores)
            np.put_along_axis(own, self.order[tied], scores, axis=1)
            out[tied] = own
        return out.reshape(self.shape)


def _twice_mean_place(new: NDArray[np.bool_]) -> NDArray[np.intp]:
    """(n, size) the first and last place of each run of ties, added; new: where a value differs from the one before."""
    n, size = len(new), new.shape[1] + 1
    ends = np.ones((n, 1), dtype=bool)
    place = np.broadcast_to(np.arange(size), (n, size))
    begin = np.maximum.accumulate(np.where(np.hstack([ends, new]), place, 0), axis=1)
    last = np.where(np.hstack([new, ends]), place, size)
    return np.asarray(begin + np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1])


def spread_ratio(x: Array) -> Array:
    """(n,) R-hat of (n, chain, draw): the standard deviation of all draws against that within chains."""
    length = x.shape[2]
    between = length * x.mean(axis=2).var(axis=1, ddof=1)
    within = x.var(axis=2, ddof=1).mean(axis=1)
    return np.asarray(np.sqrt((between / within + length - 1) / length))


def ess(x: Array) -> Array:
    """(n,) effective sample sizes of the means of (n, chain, draw), by Geyer's initial monotone sequence."""
    n, n_chains, length = x.shape
    mean = x.mean(axis=2)
    covariance = _autocovariance(x - mean[:, :, None])
    within = covariance[:, 0] * length / (length - 1.0)
    total = covariance[:, 0] + (mean.var(axis=1, ddof=1) if n_chains > 1 else 0.0)
    constant = np.ptp(x.reshape(n, -1), axis=1) < np.finfo(np.float64).resolution
    rho = 1.0 - (within[:, None] - covariance) / np.where(constant, 1.0, total)[:, None]
    rho[:, 0] = 1.0
    pairs = rho[:, : length // 2 * 2].reshape(n, -1, 2).sum(axis=2)
    n_pairs = max(1, -(-(length - 2) // 2))
    ended = pairs[:, :n_pairs] <= 0.0
    last = np.where(ended.any(axis=1), ended.argmax(axis=1), n_pairs - 1)
    before = np.arange(n_pairs) < last[:, None]
    falling = np.minimum.accumulate(pairs[:, :n_pairs], axis=1)
    even = np.take_along_axis(rho, 2 * last[:, None], axis=1)[:, 0]
    ends_well = (even > 0.0) | (np.take_along_axis(pairs, last[:, None], axis=1)[:, 0] >= 0.0)
    time = -1.0 + 2.0 * np.sum(np.where(before, falling, 0.0), axis=1) + np.where(ends_well, even, 0.0)
    size = n_chains * length
    return np.where(constant, size, size / np.maximum(time, 1.0 / np.log10(size)))


def _autocovariance(x: Array) -> Array:
    """(n, lag) the mean over chains of the autocovariance of (n, chain, draw) with mean zero."""
    length = x.shape[2]
    padded = next_fast_len(2 * length, real=True)
    wave = rfft(x, n=padded, axis=2)
    power = np.mean(wave.real**2 + wave.imag**2, axis=1)
    return np.asarray(irfft(power, n=padded, axis=1)[:, :length] / length)
