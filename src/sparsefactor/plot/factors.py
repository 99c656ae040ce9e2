"""One factor at a time, and what each explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..checks import checked_count
from ..words import percent
from .base import (
    BLUE,
    GREY,
    MOST_NAMES,
    ORANGE,
    axes_for,
    called,
    checked,
    jitter,
    labels_of,
    named_ticks,
    place,
    points,
    short,
    shown_factors,
    unit_size,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH = 2.0  # of an interval to each side, in posterior standard deviations


def top_loadings(p: Any, factor: int = 1, *, n: int = 20, ax: Axes | None = None) -> Axes:
    """The largest loadings of a factor, each with two posterior standard deviations to both sides.

    Parameters
    ----------
    p : VIPosterior or MCMCPosterior
    factor : int
        Numbered from 1.
    n : int
        At most this many features.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> ax = sf.plot.top_loadings(p, factor=1, n=10)
    """
    checked(p)
    k = place(p, factor)
    order = np.argsort(-np.abs(p.loadings_mean[:, k]), kind="stable")[: checked_count("n", n)]
    mean, sd, inside = p.loadings_mean[order, k], p.loadings_sd[order, k], p.inclusion_prob[order, k]
    ax = axes_for(ax, (5.6, unit_size(len(order), 0.24, 2.4, 11.0)))
    at = np.arange(len(order))
    for filled, label in ((True, "included (p > 0.5)"), (False, "not included")):
        some = (inside > 0.5) == filled
        if some.any():
            color = BLUE if filled else GREY
            ax.errorbar(
                mean[some],
                at[some],
                xerr=WIDTH * sd[some],
                fmt="o",
                color=color,
                markerfacecolor=color if filled else "white",
                markersize=5,
                elinewidth=1.4,
                label=label,
            )
    ax.axvline(0.0, color="0.5", linewidth=0.8)
    named_ticks(ax, "y", at, [str(p.feature_names[i]) for i in order])
    ax.set_ylim(len(order) - 0.5, -0.5)
    share = "empty" if p.empty[k] else f"{percent(p.variance_explained(by='factor')[k])} of the variance"
    ax.set(xlabel="loading, ± 2 standard deviations", title=f"{called(p, k)} ({share})")
    if not np.all(inside > 0.5):
        ax.legend(frameon=False, fontsize="small")
    return ax


def activations(p: Any, factor: int = 1, *, groups: ArrayLike | None = None, ax: Axes | None = None) -> Axes:
    """The scores (activations) of a factor: by group of samples, or sample by sample in order of size.

    Parameters
    ----------
    p : VIPosterior or MCMCPosterior
    factor : int
        Numbered from 1.
    groups : (n_samples,) labels, optional
        What the samples are; each group becomes a row of points with its median, groups in order of their medians.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> ax = sf.plot.activations(p, factor=1, groups=["a", "b", "c"] * 10)
    """
    checked(p)
    k = place(p, factor)
    values, sd = p.activations_mean[:, k], p.activations_sd[:, k]
    if groups is None:
        return _by_sample(p, k, values, sd, ax)
    labels = labels_of(groups, p.sample_names, "groups").astype(str)
    names = np.unique(labels)
    names = names[np.argsort([-np.median(values[labels == name]) for name in names], kind="stable")]
    ax = axes_for(ax, (6.0, unit_size(len(names), 0.3, 2.4, 12.0)))
    for row, name in enumerate(names):
        own = values[labels == name]
        color = BLUE
        ax.plot(own, row + jitter(len(own)), "o", color=color, markersize=3.5, alpha=0.65, markeredgewidth=0)
        ax.plot([np.median(own)] * 2, [row - 0.35, row + 0.35], color="0.1", linewidth=2)
    ax.axvline(0.0, color="0.5", linewidth=0.8)
    ax.set_yticks(np.arange(len(names)), [short(name) for name in names], fontsize=8 if len(names) <= MOST_NAMES else 5)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.set(xlabel="activation; a bar is the group's median", title=f"{called(p, k)} by group")
    return ax


def _by_sample(p: Any, k: int, values: Any, sd: Any, ax: Axes | None) -> Axes:
    order = np.argsort(-values, kind="stable")
    at = np.arange(len(order))
    if len(order) <= MOST_NAMES:
        ax = axes_for(ax, (5.6, unit_size(len(order), 0.2, 2.4, 12.0)))
        ax.barh(at, values[order], color=np.where(values[order] < 0, ORANGE, BLUE), height=0.75)
        ax.errorbar(values[order], at, xerr=WIDTH * sd[order], fmt="none", ecolor="0.25", elinewidth=1)
        named_ticks(ax, "y", at, [str(p.sample_names[j]) for j in order])
        ax.set_ylim(len(order) - 0.5, -0.5)
        ax.axvline(0.0, color="0.5", linewidth=0.8)
        ax.set(xlabel="activation, ± 2 standard deviations", title=called(p, k))
        return ax
    ax = axes_for(ax, (6.4, 3.4))
    ax.fill_between(at, values[order] - WIDTH * sd[order], values[order] + WIDTH * sd[order], color=BLUE, alpha=0.3)
    ax.plot(at, values[order], color=BLUE)
    ax.axhline(0.0, color="0.5", linewidth=0.8)
    ax.set(xlabel=f"{len(order):,} samples, in order", ylabel="activation", title=called(p, k))
    return ax


def scatter(p: Any, x: int = 1, y: int = 2, *, color: ArrayLike | None = None, ax: Axes | None = None) -> Axes:
    """The samples by their scores (activations) on two factors, coloured by what is known of them.

    Parameters
    ----------
    p : VIPosterior or MCMCPosterior
    x, y : int
        The factors, numbered from 1.
    color : (n_samples,) numbers or labels, optional
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> ax = sf.plot.scatter(p, color=range(30))
    """
    checked(p)
    if p.n_factors < 2:
        raise ValueError("scatter needs two factors; this result has one; draw it by activations")
    across, up = p.activations_mean[:, place(p, x)], p.activations_mean[:, place(p, y)]
    ax = axes_for(ax, (5.6, 4.6))
    points(ax, p, across, up, color)
    ax.axhline(0.0, color="0.8", linewidth=0.8, zorder=0)
    ax.axvline(0.0, color="0.8", linewidth=0.8, zorder=0)
    ax.set(xlabel=f"factor {x}", ylabel=f"factor {y}", title="Samples by their scores")
    return ax


def variance_explained(p: Any, *, ax: Axes | None = None) -> Axes:
    """The share of variance lost if a factor is removed, for each, and what all explain together.

    Parameters
    ----------
    p : VIPosterior or MCMCPosterior
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> ax = sf.plot.variance_explained(p)
    """
    checked(p)
    factors = shown_factors(p)
    share = 100 * p.variance_explained(by="factor")[factors]
    ax = axes_for(ax, (unit_size(len(factors), 0.34, 4.2, 12.0), 3.2))
    ax.bar(np.arange(len(factors)), share, color=BLUE, width=0.75)
    named_ticks(ax, "x", np.arange(len(factors)), [str(k + 1) for k in factors])
    ax.axhline(0.0, color="0.5", linewidth=0.8)
    ax.set(
        xlabel="factor",
        ylabel="share of variance (%)",
        title=f"All factors together explain {percent(p.variance_explained())}",
    )
    return ax
