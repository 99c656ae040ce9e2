"""The study's figures: inclusion side by side, measures over time, factors as bars over samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..explained import solid_first
from .base import MOST_PIXELS as MOST_PIXELS
from .base import enlarged

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

# From white to dark by lightness alone, so it reads without colour vision and in print.
COLOR_MAP = "Blues"
# Beyond this many, names on an axis would overlap.
MOST_TICKS = 30

# Near the Okabe-Ito palette, which readers of any colour vision tell apart, with a contrast of at least 3 on white and
# on the report's dark page; dashes tell plain from default as well.
STYLES = (("#B87A00", "--"), ("#D55E00", "-"), ("#3C95C9", "--"), ("#0072B2", "-"), ("#00916A", "-"), ("#C06A9A", "--"))
MOST_BARS_ACROSS = 15  # factors beside each other


@dataclass(frozen=True)
class Line:
    """One trial or chain: y over x, in the colour of its group; a marked one is drawn thick, with its end."""

    x: Sequence[float]
    y: Sequence[float]
    group: str
    marked: bool = False


@dataclass(frozen=True)
class Panel:
    """Lines under one title, with horizontal lines to compare them to."""

    title: str
    ylabel: str
    lines: Sequence[Line]
    levels: Mapping[str, float] = field(default_factory=dict)
    ylim: tuple[float, float] | None = None  # what is drawn of y; None: all of it


def inclusion_heatmap(panels: Mapping[str, ArrayLike], *, height: float = 5.0) -> Figure:
    """Side-by-side heatmaps of inclusion or its probability, one titled panel each, under one colour bar.

    Parameters
    ----------
    panels : dict of title to (n_features, n_factors) array
        Numbers in [0, 1].
    height : float
        Of the figure in inches.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> p = sf.fit_vi(sim.X, n_factors=2, n_trials=2)
    >>> figure = sf.plot.inclusion_heatmap({"truth": sim.inclusion, "found": p.inclusion_prob})
    """
    matrices = {title: _checked_panel(title, values) for title, values in panels.items()}
    if not matrices:
        raise ValueError("panels must name at least one matrix; got none; pass e.g. {'VI': p.inclusion_prob}")

    from matplotlib.figure import Figure

    widths = [max(1.8, 0.3 * values.shape[1]) for values in matrices.values()]
    figure = Figure(figsize=(sum(widths) + 1.6, height), layout="constrained")
    axes = figure.subplots(1, len(matrices), squeeze=False, width_ratios=widths)[0]
    for ax, (title, values) in zip(axes, matrices.items(), strict=True):
        n_features, n_factors = values.shape
        image = ax.imshow(
            enlarged(values),
            extent=(0.5, n_factors + 0.5, n_features, 0),
            aspect="auto",
            cmap=COLOR_MAP,
            vmin=0.0,
            vmax=1.0,
        )
        ax.set_title(title)
        ax.set_xlabel("factor")
        if n_factors <= MOST_TICKS:
            ax.set_xticks(np.arange(1, n_factors + 1))
        for k in range(1, n_factors):
            ax.axvline(k + 0.5, color="0.8", linewidth=0.5)
        if ax is axes[0]:
            ax.set_ylabel("feature")
        elif n_features == next(iter(matrices.values())).shape[0]:
            ax.set_yticklabels([])
    figure.colorbar(image, ax=list(axes), label="probability of inclusion", fraction=0.05, pad=0.02)
    return figure


def over_time(grid: Sequence[Sequence[Panel]], *, note: str = "") -> Figure:
    """A grid of panels over computation time (log axis), with one legend below and a note under it.

    Parameters
    ----------
    grid : list of lists of Panel
        Rows of panels; each has a title, a label and its lines.
    note : str
        Written below the legend.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import sparsefactor as sf
    >>> from sparsefactor.plot import Line, Panel
    >>> figure = sf.plot.over_time([[Panel("ELBO", "nats", [Line([1, 2, 4], [-9, -5, -4], "VI")])]])
    """
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    rows, columns = len(grid), max(len(row) for row in grid)
    figure = Figure(figsize=(3.6 * columns + 0.6, 2.7 * rows + 1.1), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    groups = list(dict.fromkeys(line.group for row in grid for panel in row for line in panel.lines))
    style: dict[str, tuple[str, Any]] = {group: STYLES[i % len(STYLES)] for i, group in enumerate(groups)}
    for r, row in enumerate(grid):
        for ax, panel in zip(axes[r], row, strict=False):
            for line in panel.lines:
                color, dash = style[line.group]
                width, alpha = (2.4, 1.0) if line.marked else (0.9, 0.7)
                ax.plot(line.x, line.y, color=color, linestyle=dash, linewidth=width, alpha=alpha)
                if line.marked:
                    ax.plot(line.x[-1:], line.y[-1:], "o", color=color, markersize=5)
            for value in panel.levels.values():
                ax.axhline(value, color="0.4", linestyle=":", linewidth=1)
            ax.set(xscale="log", title=panel.title, ylabel=panel.ylabel)
            if panel.ylim is not None:
                ax.set_ylim(panel.ylim)
            ax.grid(alpha=0.25)
            if r == rows - 1:
                ax.set_xlabel("seconds of computation")
    handles = [Line2D([], [], color=style[g][0], linestyle=style[g][1], label=g) for g in groups]
    handles.append(Line2D([], [], color="0.2", linewidth=2.4, marker="o", label="largest ELBO"))
    for name in dict.fromkeys(name for row in grid for panel in row for name in panel.levels):
        handles.append(Line2D([], [], color="0.4", linestyle=":", label=name))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    if note:
        figure.suptitle(note, fontsize="small", color="0.3")
    return figure


def factor_bars(activations: ArrayLike, sample_names: Sequence[Any], shares: ArrayLike, *, note: str = "") -> Figure:
    """Factors as bars over named samples, in order of the share of variance they explain; empty ones are left out.

    Parameters
    ----------
    activations : (n_samples, n_factors)
    sample_names : (n_samples,) names
    shares : (n_factors,)
        Of variance, in [0, 1].
    note : str
        Written below the bars.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> p = sf.fit_vi(sim.X, n_factors=2, n_trials=2)
    >>> figure = sf.plot.factor_bars(p.activations_mean, range(30), p.variance_explained(by="factor"))
    """
    from matplotlib.figure import Figure

    values, share = np.asarray(activations, dtype=np.float64), np.asarray(shares, dtype=np.float64)
    n_samples = len(values)
    order, solid = solid_first(share)
    n_factors = len(order)
    empty = "; all are empty" if not solid else f"; {len(share) - solid} empty left out" if solid < len(share) else ""
    rows = -(-n_factors // MOST_BARS_ACROSS)
    across = -(-n_factors // rows)
    figure = Figure(figsize=(2.6 + 0.75 * across, rows * (1.0 + 0.14 * n_samples)), layout="constrained")
    axes = figure.subplots(rows, across, squeeze=False, sharey=True)
    for place, ax in enumerate(axes.flat):
        if place >= n_factors:
            ax.set_visible(False)
            continue
        bars = values[:, order[place]]
        ax.barh(np.arange(n_samples), bars, color=np.where(bars < 0, "#D55E00", "#0072B2"), height=0.8)
        ax.axvline(0, color="0.5", linewidth=0.5)
        ax.set_title(f"{order[place] + 1}\n{share[order[place]]:.1%}", fontsize="small")
        ax.set_xticks([])
        ax.margins(y=0.01)
        ax.tick_params(axis="y", labelsize=6)
    axes[0, 0].set_yticks(np.arange(n_samples), [str(name) for name in sample_names])
    axes[0, 0].invert_yaxis()
    figure.suptitle((note or "Factors over samples, with the share of variance explained") + empty, fontsize="small")
    return figure


def _checked_panel(title: str, values: ArrayLike) -> Array:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"a panel must be (n_features, n_factors); got shape {matrix.shape} for {title!r}; reshape it")
    if not np.all((matrix >= 0) & (matrix <= 1)):
        raise ValueError(
            f"a panel must hold probabilities in [0, 1]; {title!r} does not; pass inclusion or inclusion_prob"
        )
    return matrix
