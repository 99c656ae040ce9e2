"""All factors in one figure: their strongest loadings, and what they contribute to each sample."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..checks import checked_count
from .base import GREY, PALETTE, axes_for, checked, labels_of, new_figure, place, short, shown_factors
from .factors import top_loadings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ACROSS = 3  # panels beside each other
MOST_PANELS = 24
GAP = 0.02  # of all samples, between groups


def loadings(p: Any, factors: Iterable[int] | None = None, *, n: int = 10) -> Figure:
    """The strongest loadings of each factor, a panel for each, with two posterior standard deviations to both sides.

    Parameters
    ----------
    p : VIPosterior or MCMCPosterior
    factors : list of int, optional
        Numbered from 1; by default those that are not empty, at most 24.
    n : int
        At most this many features of each.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> figure = sf.plot.loadings(p, n=5)
    """
    checked(p)
    chosen = shown_factors(p)[:MOST_PANELS] if factors is None else [place(p, k) for k in factors]
    if not len(chosen):
        raise ValueError("factors must name at least one factor; got none; leave it out for all")
    count = min(checked_count("n", n), len(p.feature_names))
    across, down = min(ACROSS, len(chosen)), -(-len(chosen) // ACROSS)
    figure = new_figure((3.4 * across, down * (1.0 + 0.2 * count)))
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for ax, k in zip(axes, chosen, strict=False):
        top_loadings(p, int(k) + 1, n=n, ax=ax)
        ax.set_title(ax.get_title().replace(" of the variance)", ")"), fontsize="medium")  # no panel has more room
        ax.set_xlabel("")
        if ax.get_legend() is not None:
            ax.get_legend().remove()
    for ax in axes[len(chosen) :]:
        ax.set_axis_off()
    said = "loading, ± 2 standard deviations", "open circles: not included (p ≤ 0.5)", "in brackets: share of variance"
    figure.supxlabel(("; " if across == ACROSS else "\n").join(said), fontsize="small")
    return figure


def structure(p: Any, *, groups: ArrayLike | None = None, ax: Axes | None = None) -> Axes:
    """What each factor contributes to each sample, stacked: positive scores above zero, negative ones below.

    A bar's height is the score times the norm of the factor's loadings. Samples with the same largest factor stand
    together.

    Parameters
    ----------
    p : VIPosterior or MCMCPosterior
    groups : (n_samples,) labels, optional
        What the samples are; those of a group stand together.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> ax = sf.plot.structure(p, groups=["a", "b", "c"] * 10)
    """
    checked(p)
    factors = shown_factors(p)
    parts = p.activations_mean[:, factors] * np.sqrt(np.sum(p.loadings_mean[:, factors] ** 2, axis=0))
    N = len(parts)
    labels = np.zeros(N, dtype=int) if groups is None else labels_of(groups, p.sample_names, "groups").astype(str)
    names = np.unique(labels)
    largest = np.abs(parts).argmax(axis=1)
    value = parts[np.arange(N), largest]
    ax = axes_for(ax, (8.0, 3.4))
    first, middles = 0.0, []
    for name in names:
        own = np.flatnonzero(labels == name)
        own = own[np.lexsort((-value[own], largest[own]))]
        _stack(ax, first, parts[own])
        middles.append(first + len(own) / 2)
        first += len(own) + max(1.0, GAP * N)
    shown = min(len(factors), len(PALETTE))
    for k, color in zip(factors[:shown], PALETTE, strict=False):
        ax.fill_between([], [], [], color=color, label=f"factor {k + 1}")
    if shown < len(factors):
        ax.fill_between([], [], [], color=GREY, alpha=0.5, label="others")
    ax.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    ax.axhline(0.0, color="0.2", linewidth=0.8)
    ax.margins(x=0.01)
    ax.set_xticks([] if groups is None else middles, [] if groups is None else [short(name) for name in names])
    if groups is not None and sum(len(short(name)) for name in names) > 80:
        ax.tick_params(axis="x", rotation=90)
    ax.set(xlabel=f"{N:,} samples", ylabel="contribution of the factors", title="Factors in each sample")
    return ax


def _stack(ax: Axes, first: float, parts: np.ndarray[Any, Any]) -> None:
    """Samples beside each other from `first` on; parts: (n, n_factors)."""
    x = first + np.arange(len(parts) + 1)
    named, others = parts[:, : len(PALETTE)], parts[:, len(PALETTE) :]
    for sign in (1.0, -1.0):
        base = np.zeros(len(parts))
        layers = [(np.maximum(sign * column, 0.0), PALETTE[k], 1.0) for k, column in enumerate(named.T)]
        layers.append((np.maximum(sign * others, 0.0).sum(axis=1), GREY, 0.5))
        for height, color, alpha in layers:
            low, high = (np.append(edge, edge[-1:]) for edge in (sign * base, sign * (base + height)))
            ax.fill_between(x, low, high, step="post", color=color, alpha=alpha, linewidth=0)
            base = base + height
