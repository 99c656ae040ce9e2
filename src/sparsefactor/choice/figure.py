"""A comparison of priors as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOR, MARKED = "#0072B2", "#D55E00"  # of the Okabe-Ito palette


def comparison_figure(table: pd.DataFrame, baseline: float) -> Figure:
    """Error and log density of each prior, one standard error to either side; the choice stands out."""
    from ..plot.base import new_figure

    figure = new_figure((max(5.0, 1.5 + 0.5 * len(table)), 5.5))
    upper, lower = figure.subplots(2, 1, sharex=True)
    x = np.arange(len(table))
    chosen = table["chosen"].to_numpy()
    for ax, name, label in ((upper, "error", "relative error"), (lower, "log_density", "log density per entry")):
        ax.errorbar(x, table[name], yerr=table[f"{name}_se"], fmt="o-", color=COLOR, capsize=3, linewidth=1)
        ax.plot(x[chosen], table[name][chosen], "D", color=MARKED, markersize=9, zorder=3)
        ax.set_ylabel(f"{label}\nof entries held out")
    upper.axhline(baseline, color="0.6", linestyle="--", linewidth=1)
    upper.annotate("feature means", (x[-1], baseline), ha="right", va="bottom", color="0.4", fontsize="small")
    upper.set_title(f"chosen: {table.index[chosen][0]}", color=MARKED, fontsize="medium")
    lower.set_xticks(x, [str(name) for name in table.index], rotation=0 if len(table) < 12 else 90)
    lower.set_xlabel("prior")
    return figure
