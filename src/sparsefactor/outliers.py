"""Samples that dominate a factor: outliers, or samples unlike all others, with a factor of their own.

The noise is Gaussian, so that wrong entries in several features of one sample are better explained by a factor than by
noise. What else is missing in the sample is then predicted far off; other samples are hardly affected.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .names import shown

# A factor is dominated where a few samples hold this share of the sum of squares of its activations, and the activation
# of each of them is at least GAP times as large as that of any other sample. The gap tells outliers from skewed
# factors, whose largest activations have neighbours. How often outliers are found, and others accused, is measured by
# `python -m benchmarks.outliers` (docs/results.md).
HELD = 0.4
GAP = 3.0
MOST_SAMPLES, SHARE_OF_SAMPLES = 5, 0.03  # at most this number of samples, and this share of all; at least one
FEWEST_SAMPLES = 15  # of the data; of 10 samples of four Gaussian factors one stands out in 2 % of fits, by chance
MOST_NAMED, STRONGEST = 3, 3  # factors, and features of each


def dominating_samples(p: Any) -> dict[int, list[int]]:
    """By factor, from 0, the samples that dominate it, largest activation first; other factors are left out."""
    N = len(p.activations_mean)
    if N < FEWEST_SAMPLES or p.fit_sums is None:
        return {}
    most = min(MOST_SAMPLES, max(1, int(SHARE_OF_SAMPLES * N)))
    found = {}
    for k in np.flatnonzero(~p.empty):
        order, share = largest_shares(p, int(k), most + 1)
        apart = (np.cumsum(share[:-1]) >= HELD) & (share[:-1] >= GAP**2 * share[1:])
        if apart.any():
            found[int(k)] = [int(j) for j in order[: np.argmax(apart) + 1]]
    return found


def largest_shares(p: Any, k: int, n: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """(n,) the samples with the largest shares of the sum of squares of factor k's activations, and these shares."""
    square = p.activations_mean[:, k] ** 2
    order = np.argpartition(-square, n - 1)[:n]
    order = order[np.argsort(-square[order], kind="stable")]
    return order, square[order] / square.sum()


def names_of(p: Any, samples: list[int]) -> str:
    """The samples' names, as text that is safe to show."""
    return ", ".join(shown(p.sample_names[j]) for j in samples)


def outlier_sentence(p: Any) -> str:
    """The factors that few samples dominate, with these samples and the features, and what helps; "" where none is."""
    found = dominating_samples(p)
    if not found:
        return ""
    said = []
    for k, samples in list(found.items())[:MOST_NAMED]:
        held = largest_shares(p, k, len(samples))[1].sum()
        top = np.argsort(-np.abs(p.loadings_mean[:, k]), kind="stable")[:STRONGEST]
        said.append(
            f"Factor {k + 1} is dominated by sample{'s' if len(samples) > 1 else ''} {names_of(p, samples)} "
            f"({held:.0%} of its activations' sum of squares; strongest features: "
            f"{', '.join(shown(p.feature_names[i]) for i in top)})."
        )
    if len(found) > MOST_NAMED:
        said.append(
            f"Further factors dominated by few samples: {', '.join(str(k + 1) for k in list(found)[MOST_NAMED:])}."
        )
    said.append(
        "Check these samples for outliers: their missing entries are predicted badly. Set wrong values to NaN, drop "
        "the samples, or transform the features (logarithm, clipping; scale=True where units differ)."
    )
    return " ".join(said)
