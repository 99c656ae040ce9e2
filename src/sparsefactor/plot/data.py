"""The data beside the factors: heatmap and scatter of a factor's strongest features, and the fit of each sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ..checks import checked_count
from ..questions.samples import training_matrix
from ..words import percent
from .base import (
    BLUE,
    MOST_NAMES,
    axes_for,
    called,
    checked,
    named_ticks,
    new_figure,
    place,
    points,
    short,
    unit_size,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DATA_MAP = "RdBu_r"  # high values red, as in heatmaps of expression
MOST_SD = 2.5  # colours end at this many standard deviations
ACROSS = 4  # panels beside each other


def data_heatmap(p: Any, X: Any, factor: int = 1, *, n: int = 20, ax: Axes | None = None) -> Axes:
    """The data of a factor's strongest features, samples ordered by their scores on the factor.

    Each feature is shown in its own standard deviations from its mean; missing values are grey.

    Parameters
    ----------
    p : VIPosterior or MCMCPosterior
    X : (n_samples, n_features) array or frame
        The data that p was fitted to.
    factor : int
        Numbered from 1.
    n : int
        At most this many features, ordered by their loadings.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> ax = sf.plot.data_heatmap(p, X, factor=1)
    """
    from matplotlib import colormaps

    checked(p)
    k = place(p, factor)
    data = training_matrix(X, p.labels, "X", "pass the data of the fit")
    top = _strongest(p, k, n)
    top = top[np.argsort(-p.loadings_mean[top, k], kind="stable")]
    order = np.argsort(-p.activations_mean[:, k], kind="stable")
    values = data[np.ix_(order, top)].T
    sd = np.nanstd(values, axis=1, keepdims=True)
    values = (values - np.nanmean(values, axis=1, keepdims=True)) / np.where(sd > 0, sd, 1.0)
    N = len(order)
    ax = axes_for(ax, (unit_size(min(N, MOST_NAMES), 0.16, 5.0, 11.0), unit_size(len(top), 0.22, 2.4, 9.0)))
    image = ax.imshow(
        np.ma.masked_invalid(values),
        aspect="auto",
        cmap=colormaps[DATA_MAP].with_extremes(bad="0.8"),
        vmin=-MOST_SD,
        vmax=MOST_SD,
    )
    named_ticks(ax, "y", np.arange(len(top)), [_signed(p, i, k) for i in top])
    named_ticks(ax, "x", np.arange(N), [str(p.sample_names[j]) for j in order], size=7)
    if N > MOST_NAMES:
        ax.set_xticks([])
    ax.set(xlabel=f"{N:,} samples, highest score first", title=f"Data of the strongest features of {_lower(p, k)}")
    ax.figure.colorbar(image, ax=ax, label="standard deviations from the mean", shrink=0.8, extend="both")
    return ax


def data_scatter(
    p: Any,
    X: Any,
    factor: int = 1,
    *,
    features: Sequence[Any] | None = None,
    n: int = 4,
    color: ArrayLike | None = None,
) -> Figure:
    """Data against the scores on a factor, a panel for each feature, with the least-squares line.

    Parameters
    ----------
    p : VIPosterior or MCMCPosterior
    X : (n_samples, n_features) array or frame
        The data that p was fitted to.
    factor : int
        Numbered from 1.
    features : list of names, optional
        By default the n strongest of the factor.
    n : int
    color : (n_samples,) numbers or labels, optional

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> figure = sf.plot.data_scatter(p, X, factor=1, n=2)
    """
    checked(p)
    k = place(p, factor)
    data = training_matrix(X, p.labels, "X", "pass the data of the fit")
    chosen = _strongest(p, k, n) if features is None else [_feature(p, name) for name in features]
    if not len(chosen):
        raise ValueError("features must name at least one feature; got none; leave it out for the strongest")
    across, down = min(ACROSS, len(chosen)), -(-len(chosen) // ACROSS)
    figure = new_figure((2.9 * across + 0.6, 2.6 * down + 0.5))
    axes = figure.subplots(down, across, squeeze=False).ravel()
    score = p.activations_mean[:, k]
    for place_of, (ax, i) in enumerate(zip(axes, chosen, strict=False)):
        seen = np.isfinite(data[:, i])
        points(ax, p, score, data[:, i], color, legend=place_of == across - 1)
        title = short(p.feature_names[i])
        if np.ptp(score[seen]) > 0 and np.ptp(data[seen, i]) > 0:
            line = np.polynomial.Polynomial.fit(score[seen], data[seen, i], 1)
            ends = np.array([score[seen].min(), score[seen].max()])
            ax.plot(ends, line(ends), color="0.25", linewidth=1.2)
            title += f" (r = {np.corrcoef(score[seen], data[seen, i])[0, 1]:.2f})"
        ax.set_title(title, fontsize="small")
        ax.tick_params(labelsize=7)
    for ax in axes[len(chosen) :]:
        ax.set_axis_off()
    figure.supxlabel(f"score on {_lower(p, k)}", fontsize="medium")
    figure.supylabel("data", fontsize="medium")
    return figure


def variance_by_sample(p: Any, X: Any, *, ax: Axes | None = None) -> Axes:
    """The share of each sample's variance that the factors explain together; samples in order.

    Parameters
    ----------
    p : VIPosterior or MCMCPosterior
    X : (n_samples, n_features) array or frame
        The data that p was fitted to.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> ax = sf.plot.variance_by_sample(p, X)
    """
    checked(p)
    share = 100 * p.variance_explained(by="sample", X=X)
    order = np.argsort(-np.nan_to_num(share, nan=-np.inf), kind="stable")
    at, N = np.arange(len(order)), len(order)
    title = f"All samples together: {percent(p.variance_explained())}"
    if N <= MOST_NAMES:
        ax = axes_for(ax, (5.6, unit_size(N, 0.2, 2.4, 12.0)))
        ax.barh(at, share[order], color=BLUE, height=0.75)
        named_ticks(ax, "y", at, [str(p.sample_names[j]) for j in order])
        ax.set_ylim(N - 0.5, -0.5)
        ax.set(xlabel="variance explained (%)", title=title)
        return ax
    ax = axes_for(ax, (6.4, 3.4))
    ax.plot(at, share[order], color=BLUE)
    ax.axhline(0.0, color="0.5", linewidth=0.8)
    ax.set(xlabel=f"{N:,} samples, in order", ylabel="variance explained (%)", title=title)
    return ax


def _strongest(p: Any, k: int, n: int) -> Any:
    return np.argsort(-np.abs(p.loadings_mean[:, k]), kind="stable")[: checked_count("n", n)]


def _signed(p: Any, i: int, k: int) -> str:
    return f"{'-' if p.loadings_mean[i, k] < 0 else ''}{p.feature_names[i]}"


def _lower(p: Any, k: int) -> str:
    return called(p, k).replace("Factor", "factor", 1)


def _feature(p: Any, name: Any) -> int:
    at = np.flatnonzero(p.feature_names.astype(str) == str(name))
    if not len(at):
        raise ValueError(f"features must be names of features of the fit; got {name!r}; see p.feature_names")
    return int(at[0])
