"""Factors against what else is known of the samples, as a heatmap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from .base import DIVERGING, axes_for, named_ticks, unit_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_COLUMNS = 60


def association_heatmap(table: pd.DataFrame, fdr: float, ax: Axes | None = None) -> Axes:
    """Columns by factors: the effect as colour, a dot where it is found at this false discovery rate."""
    if not len(table):
        raise ValueError("an association plot needs a factor that is not empty; this result has none")
    names = list(dict.fromkeys(table["column"]))[:MOST_COLUMNS]  # the clearest first
    factors = sorted(table["factor"].unique())
    shape = {"index": "column", "columns": "factor"}
    effect = table.pivot(values="effect", **shape).reindex(index=names, columns=factors)
    rate = table.pivot(values="fdr", **shape).reindex(index=names, columns=factors)
    V, K = effect.shape
    ax = axes_for(ax, (unit_size(K, 0.5, 4.6, 13.0), unit_size(V, 0.3, 2.4, 12.0)))
    image = ax.imshow(effect, aspect="auto", cmap=DIVERGING, vmin=-1.0, vmax=1.0, interpolation="nearest")
    rows, columns = np.nonzero(rate.to_numpy() <= fdr)
    ax.plot(columns, rows, "o", color="black", markersize=4, markeredgecolor="white", linestyle="none")
    named_ticks(ax, "x", np.arange(K), [str(k) for k in factors])
    named_ticks(ax, "y", np.arange(V), names)
    ax.set(xlabel=f"factor (dot: false discovery rate ≤ {fdr:g})", title="Associations of the scores")
    ax.figure.colorbar(image, ax=ax, label="correlation, η", shrink=0.9)
    return ax
