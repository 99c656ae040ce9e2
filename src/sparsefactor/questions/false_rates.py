"""Which loadings are there, and of which sign: local false sign rates, and lists at a false discovery rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ..checks import checked_choice, checked_number, checked_share
from ..posterior import MCMCPosterior, VIPosterior
from ..standardized import factor_size, to_standardized
from .rows import each_draw

if TYPE_CHECKING:
    import pandas

Array = NDArray[np.float64]
DIGITS = 12  # probabilities that agree so far are the same for all purposes


def local_false_sign_rate(p: VIPosterior | MCMCPosterior) -> Array:
    """(n_features, n_factors) the probability that a loading is zero or has the other sign than its likelier one."""
    if isinstance(p, VIPosterior):
        mu, s2, eta = (p.parameters[name] for name in ("mu", "s2", "eta"))
        return np.asarray(1.0 - eta * ndtr(np.abs(mu) / np.sqrt(s2)))
    above, below = np.zeros_like(p.loadings_mean), np.zeros_like(p.loadings_mean)
    for draw in each_draw(p):
        above += draw.weight * (draw.L > 0)
        below += draw.weight * (draw.L < 0)
    return np.asarray(np.clip(1.0 - np.maximum(above, below), 0.0, 1.0))


def probability_of_size(p: VIPosterior | MCMCPosterior, least: float) -> Array:
    """(n_features, n_factors) the probability that a standardised loading is larger than `least` in absolute value."""
    if isinstance(p, VIPosterior):
        mu, s2, eta = (p.parameters[name] for name in ("mu", "s2", "eta"))
        size, sd = factor_size(p), np.sqrt(s2)
        scale = to_standardized(p, np.ones_like(mu), size)  # from loadings to standardised ones
        with np.errstate(divide="ignore"):
            bound = least / scale
        return np.asarray(eta * (ndtr((mu - bound) / sd) + ndtr((-mu - bound) / sd)))
    larger = np.zeros_like(p.loadings_mean)
    for draw in each_draw(p):
        size = np.sqrt(np.mean(draw.F**2, axis=0))
        larger += draw.weight * (np.abs(to_standardized(p, draw.L, size)) > least)
    return np.clip(larger, 0.0, 1.0)


def discoveries(
    p: VIPosterior | MCMCPosterior, fdr: float = 0.05, *, by: str = "inclusion", min_loading: float = 0.0
) -> pandas.DataFrame:
    """One line for each feature of each factor that is found at this Bayesian false discovery rate, surest first."""
    import pandas as pd

    checked_share("fdr", fdr, "0.05")
    checked_choice("by", by, ("inclusion", "sign"))
    checked_number("min_loading", min_loading, "pass e.g. 0.3, or 0 for any size")
    if min_loading and by == "sign":
        raise ValueError('min_loading goes with by="inclusion"; got by="sign"; leave one of them out')
    signs = local_false_sign_rate(p)
    if min_loading:
        wrong = 1.0 - probability_of_size(p, min_loading)
    else:
        wrong = 1.0 - p.inclusion_prob if by == "inclusion" else signs
    standardized = p.standardized_loadings if p.fit_sums is not None else np.full(p.loadings_mean.shape, np.nan)
    frames = []
    for k in range(p.n_factors):
        chosen, rate = found(wrong[:, k], np.abs(p.loadings_mean[:, k]), fdr)
        frames.append(
            pd.DataFrame(
                {
                    "factor": np.full(len(chosen), k + 1),
                    "feature": p.feature_names[chosen],
                    "loading": p.loadings_mean[chosen, k],
                    "standardized": standardized[chosen, k],
                    "sd": p.loadings_sd[chosen, k],
                    "inclusion_prob": p.inclusion_prob[chosen, k],
                    "lfsr": signs[chosen, k],
                    "fdr": rate,
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def found(wrong: Array, strength: Array, fdr: float) -> tuple[NDArray[np.intp], Array]:
    """The longest list, surest first, whose mean probability of being wrong is at most fdr; and that mean along it.

    Of features that are as good as equally sure, the strongest comes first.
    """
    order = np.lexsort((-strength, np.round(wrong, DIGITS)))
    rate = np.cumsum(wrong[order]) / np.arange(1, len(order) + 1)
    n = int(np.searchsorted(rate, fdr, side="right"))  # the mean of ascending numbers ascends
    return order[:n], rate[:n]
