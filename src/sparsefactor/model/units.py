"""A prior in units of the data: rates that were left out, and a warning where given ones are too strong (1.9)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import Data
from ..notices import warn
from .beta import Beta

if TYPE_CHECKING:
    from .prior import Prior

# What the priors' rates are where they are left out, in units of the data: of the variance of what a noise precision
# belongs to, and of the mean square of all entries.
RELATIVE_NOISE_RATE = 0.02  # with NOISE_SHAPE, chosen by `python -m benchmarks.corpus noise`
# Of the slab, where inclusion is learnt: by `corpus slab` and `corpus surplus`. Where it is given, a factor that the
# data do not have can only become faint, and the prior must let it.
LEARNT_SLAB, GIVEN_SLAB = (1.0, 0.1), (1e-3, 1e-3)
STRONG_SHARE = 0.5  # of the features: where a given rate outweighs the data of more than these, it is worth a warning
CONSTANT = 1e-10  # of the mean square: a variance below this is none


class PriorWarning(UserWarning):
    """Numbers given in a prior decide the answer rather than the data."""


def slab_default(inclusion: Any) -> tuple[float, float]:
    """The slab's shape and relative rate where they are left out."""
    return LEARNT_SLAB if isinstance(inclusion, Beta) else GIVEN_SLAB


def in_units_of(prior: Prior, data: Data) -> Prior:
    """A prior for `data.Y`, its rates as numbers: noise_rate (G,) or (N,) where noise belongs to these."""
    if prior.settled:
        return prior
    if data.design is not None and data.design.covariates is not None:
        return in_units_of(prior, data.residual())  # what covariates explain is not in these units
    wanted = {"feature": data.n_features, "sample": data.n_samples}.get(prior.noise, 0)
    rate = prior.noise_rate
    if rate is None:
        square = {"feature": data.row_ss / data.row_count, "sample": data.column_ss / data.column_count}
        mean_square = data.unit_scale**2
        own = np.atleast_1d(square.get(prior.noise, np.array(mean_square)))
        # What does not vary has no scale of its own.
        rate = RELATIVE_NOISE_RATE * np.where(own > CONSTANT * mean_square, own, mean_square)
    else:
        rate = np.asarray(rate, dtype=np.float64) / data.unit**2
    rate = np.broadcast_to(rate, wanted).copy() if wanted else float(np.mean(rate))
    prior = prior.matched_to(data)
    return replace(prior, noise_rate=rate, loading_rate=_loading_rate(prior, data), settled=True)


def _loading_rate(prior: Prior, data: Data) -> Any:
    """The rate for `data.Y`; where it is left out and there are groups, (V,): views have units of their own."""
    if prior.loading_rate is not None:
        return float(prior.loading_rate / data.unit**2)
    square: Any = data.unit_scale**2
    if prior.grouped:
        total, count = (np.bincount(prior.group_index, values) for values in (data.row_ss, data.row_count))
        own = total / count
        square = np.where(own > CONSTANT * square, own, square)
    rate = slab_default(prior.inclusion)[1] * square
    return rate if prior.grouped else float(rate)


def warn_if_strong(prior: Prior, data: Data) -> None:
    """Warn where rates given as numbers outweigh what the data say of noise and loadings."""
    in_units = in_units_of(prior, data)
    if prior.noise_rate is not None:
        total = {"feature": data.row_ss, "sample": data.column_ss}.get(prior.noise, data.row_ss.sum())
        _warn_strong("noise_rate", prior.noise_rate, float(np.mean(in_units.noise_rate > 0.5 * total)))
    if prior.loading_rate is not None:
        strong = in_units.loading_rate > 0.5 * data.n_features * data.unit_scale**2
        _warn_strong("loading_rate", prior.loading_rate, float(strong))


def _warn_strong(name: str, value: Any, share: float) -> None:
    if share > STRONG_SHARE:
        given = f"{value:g}" if np.ndim(value) == 0 else "an array"
        warn(
            f"{name}={given} outweighs the data, which are small beside it; leave it out to have it in units of the "
            "data, or rescale X",
            PriorWarning,
        )
