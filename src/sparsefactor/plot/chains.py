"""Relabelled draws: traces, and ranks, which should be uniform in every chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..checks import checked_choice
from ..diagnostics import summaries
from .base import PALETTE, drawn, new_figure, shown_factors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUANTITIES = {
    "loadings_norm": "|loadings|²",
    "activations_norm": "|activations|²",
    "n_active": "active loadings",
}
BINS = 20
MOST_POINTS = 1000  # of a trace; more cannot be seen
MOST_FACTORS = 5


def trace(mc: Any, what: str = "loadings_norm", *, n: int = MOST_FACTORS) -> Figure:
    """The log joint density and a quantity of the strongest factors, draw by draw, a colour for each chain.

    Parameters
    ----------
    mc : MCMCPosterior
    what : "loadings_norm", "activations_norm" or "n_active"
    n : int
        At most this many factors.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> figure = sf.plot.trace(mc)
    """
    return _panels(mc, what, n, _trace, "draw")


def rank(mc: Any, what: str = "loadings_norm", *, n: int = MOST_FACTORS) -> Figure:
    """Ranks among the draws of all chains, a histogram for each chain: uniform where the chains agree.

    Parameters
    ----------
    mc : MCMCPosterior
    what : "loadings_norm", "activations_norm" or "n_active"
    n : int
        At most this many factors.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> figure = sf.plot.rank(mc)
    """
    return _panels(mc, what, n, _ranks, "rank among all draws")


def _panels(mc: Any, what: str, n: int, draw: Any, xlabel: str) -> Figure:
    drawn(mc)
    checked_choice("what", what, QUANTITIES)
    values = np.asarray(summaries(mc)[what])
    factors = shown_factors(mc)[: max(n, 0)]
    series = {"log joint": mc.draws["sample_stats"].to_dataset()["lp"].values}
    series |= {f"factor {k + 1}\n{QUANTITIES[what]}": values[:, :, k] for k in factors}
    figure = new_figure((7.0, 1.1 * len(series) + 0.9))
    axes = figure.subplots(len(series), 1, squeeze=False, sharex=True)[:, 0]
    for ax, (name, rows) in zip(axes, series.items(), strict=True):
        draw(ax, rows)
        ax.set_ylabel(name, fontsize="small")
        ax.tick_params(labelsize=7)
    axes[-1].set_xlabel(xlabel)
    handles = [axes[0].lines[c] for c in range(min(len(values), len(PALETTE)))]
    names = [f"chain {number}" for number in mc.chain_numbers[: len(PALETTE)]]
    figure.legend(handles, names, loc="outside upper center", ncols=min(len(names), 8), frameon=False, fontsize="small")
    return figure


def _trace(ax: Axes, rows: NDArray[Any]) -> None:
    step = -(-rows.shape[1] // MOST_POINTS)
    for c, row in enumerate(rows):
        ax.plot(np.arange(len(row))[::step], row[::step], color=PALETTE[c % len(PALETTE)], linewidth=0.7, alpha=0.85)


def _ranks(ax: Axes, rows: NDArray[Any]) -> None:
    bins = int(min(BINS, max(2, rows.size // 10)))
    edges = np.linspace(0, rows.size, bins + 1)
    for c, own in enumerate(ranks(rows)):
        counts, _ = np.histogram(own, edges)
        ax.stairs(counts, edges, color=PALETTE[c % len(PALETTE)], linewidth=1.2)
        ax.plot([], [], color=PALETTE[c % len(PALETTE)])  # for the legend
    ax.axhline(rows.shape[1] / bins, color="0.4", linestyle=":", linewidth=1)
    ax.set_ylim(bottom=0)


def ranks(rows: NDArray[Any]) -> NDArray[np.float64]:
    """(chain, draw) ranks among all draws, from 0.5; equal draws share the mean of theirs."""
    from scipy.stats import rankdata

    return rankdata(rows).reshape(rows.shape) - 0.5
