"""Heywood cases: features whose noise has all but vanished, so that a factor is little more than the feature itself.

Nothing in the likelihood prevents it, and chains or optima may differ in which feature it is, so readers are told.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .names import listed, shown

VANISHED = 0.01  # of a feature's variance: noise below this has vanished
MOST_NAMED = 3


def noise_share(p: Any) -> NDArray[np.float64]:
    """(n_features,) the noise's share of each feature's variance; NaN where the feature does not vary.

    Empty where noise does not belong to features, or the result does not know what the data's variance was.
    """
    if p.prior.noise != "feature" or p.fit_sums is None:
        return np.zeros(0)
    sums = p.fit_sums
    precision = p.noise_precision_mean * sums.unit**2  # in the units of the sums
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.where(sums.total > 0, sums.count / (precision * sums.total), np.nan))


def nearly_noiseless(p: Any) -> list[int]:
    """Which features have hardly any noise left, the one with the least first."""
    share = noise_share(p)
    cases = np.flatnonzero(share < VANISHED)
    return [int(i) for i in cases[np.argsort(share[cases], kind="stable")]]


def heywood_sentence(p: Any) -> str:
    """The features that are explained almost perfectly, and what to do; "" where there are none."""
    cases = nearly_noiseless(p)
    if not cases:
        return ""
    named = [shown(p.feature_names[i]) for i in cases[:MOST_NAMED]]
    rest = len(cases) - len(named)
    names = ", ".join(named) + f" and {rest} others" if rest > 1 else listed(named + ["1 other"] * rest)
    one = len(cases) == 1
    case, be = ("a Heywood case", "is") if one else ("Heywood cases", "are")
    near = "it may be a near-duplicate" if one else "they may be near-duplicates"
    return (
        f"{names} {be} explained almost perfectly ({case}: noise below {VANISHED:.0%} of the variance); {near} of "
        "other features. Remove duplicates, lower n_factors, or raise noise_rate."
    )
