"""Heywood cases: features whose noise has all but vanished, so that a factor is little more than the feature itself.

Nothing in the likelihood forbids it, and chains or optima may differ in which feature it is; the reader is to know.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

VANISHED = 0.01  # of a feature's variance: noise below this is hardly any
MOST_NAMED = 5


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
    """The features that have hardly any noise left, and what to make of it; "" where none has."""
    cases = nearly_noiseless(p)
    if not cases:
        return ""
    share, first = noise_share(p), cases[:MOST_NAMED]
    named = ", ".join(f"{p.feature_names[i]} ({100 * share[i]:.2g} %)" for i in first)
    more = f" and {len(cases) - len(first)} more" if len(cases) > len(first) else ""
    return (
        f"Hardly any noise is left (below {VANISHED:.0%} of the variance; a Heywood case where it is one feature of "
        f"its factor) in {named}{more}: their factors may be those features themselves; look for near copies among the "
        "features, lower n_factors, or raise noise_rate."
    )
