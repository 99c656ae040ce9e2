"""Enrichment as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGEST = 180.0  # area of the dot of a set that is all in the factor
SUREST = 10.0  # minus log10 of the false discovery rate from where on dots are darkest


def enrichment_figure(table: pd.DataFrame, fdr: float, most: int) -> Figure:
    """Sets by factors: a dot's area is the share of the set in the factor, its colour how sure the overlap is."""
    from ..plot.base import new_figure, short

    clear = table[(table["fdr_overlap"] <= fdr) & (table["overlap"] > 0)]
    sets = list(dict.fromkeys(clear.sort_values("p_overlap")["set"]))[:most]
    factors = sorted(table["factor"].unique())
    shown = clear[clear["set"].isin(sets)]
    figure = new_figure((3.0 + 0.35 * len(factors), 1.4 + 0.25 * max(len(sets), 1)))
    ax = figure.subplots()
    if sets:
        row = {name: at for at, name in enumerate(reversed(sets))}
        sure = np.minimum(-np.log10(np.maximum(shown["fdr_overlap"], 1e-300)), SUREST)
        dots = ax.scatter(
            [factors.index(f) for f in shown["factor"]],
            [row[name] for name in shown["set"]],
            s=LARGEST * shown["overlap"] / shown["size"],
            c=sure,
            cmap="viridis_r",
            vmin=0,
            vmax=SUREST,
        )
        figure.colorbar(dots, ax=ax, label=f"-log10 of the false discovery rate (to {SUREST:.0f})")
        ax.set_yticks(list(row.values()), [short(name) for name in row])
    else:
        ax.set_yticks([])
        ax.set_title(f"no set at a false discovery rate of {fdr:g}", fontsize="medium")
    ax.set_xticks(range(len(factors)), [str(f) for f in factors])
    ax.set_xlim(-0.5, max(len(factors), 1) - 0.5)
    ax.set_xlabel("factor")
    return figure
