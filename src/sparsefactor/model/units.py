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
DIGITS = 304  # decimal, that a precision may have: draws spread around it, and doubles end at 1.8e308
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


def refuse_overflow(prior: Prior, data: Data) -> None:
    """Refuse data and priors with precisions beyond double precision, in which no draw would be finite.

    data: at an ordinary size.
    """
    scale = np.log10(data.unit_scale * data.unit)
    for name, given in (("noise_rate", prior.noise_rate), ("loading_rate", prior.loading_rate)):
        beside = 0.0 if given is None else np.log10(np.asarray(given, dtype=np.float64)) - 2.0 * scale
        if np.max(np.abs(beside)) > DIGITS:
            raise ValueError(
                f"{name} must be within a factor of 1e{DIGITS} of the mean square of the data; {name}={_shown(given)} "
                f"is 1e{np.ravel(beside)[np.argmax(np.abs(beside))]:+.0f} times that; leave it out, or rescale X"
            )
    n_own = {"feature": data.n_features, "sample": data.n_samples}.get(prior.noise, 1)
    # Entries that a noise precision belongs to, and loadings of a factor: the least precisions that draws are near to
    # are those of noise where the factors explain nothing, and of loadings where these are as large as the data.
    for name, count, more in (("noise", data.n_observed / n_own, 0.5), ("loading", data.n_features, 0.0)):
        shape, rate = getattr(prior, f"{name}_shape"), getattr(prior, f"{name}_rate")
        own = 0.0 if rate is None else np.max(rate) / data.unit**2
        least = (shape + more * count) / (own + 0.5 * count * data.unit_scale**2)
        digits = np.log10(least) - 2.0 * np.log10(data.unit)
        if digits > DIGITS:
            raise ValueError(
                f"precisions must not exceed 1e{DIGITS}; {name}_shape={_shown(shape)} and {name}_rate={_shown(rate)} "
                f"make {name} precisions of about 1e{digits:+.0f}; leave them out, or rescale X"
            )


def _shown(value: Any) -> str:
    return str(value) if value is None else f"{value:g}" if np.ndim(value) == 0 else "an array"


def _warn_strong(name: str, value: Any, share: float) -> None:
    if share > STRONG_SHARE:
        warn(
            f"{name}={_shown(value)} outweighs the data, which are small beside it; leave it out to have it in units "
            "of the data, or rescale X",
            PriorWarning,
        )
