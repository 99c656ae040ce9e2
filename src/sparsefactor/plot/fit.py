"""The data themselves: missing values, and residuals of the fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import as_data
from ..questions.samples import training_matrix
from ..words import percent
from .base import BLUE, GREY, MOST_NAMES, SEQUENTIAL, axes_for, block_means, checked, named_ticks, new_figure, unit_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_DOTS = 5000  # beyond, density is drawn instead


def missingness(X: Any, *, ax: Axes | None = None) -> Axes:
    """Where entries are missing, samples down and features across; shares where cells are smaller than a pixel.

    Parameters
    ----------
    X : (n_samples, n_features) array or frame
        As for `fit_vi`; NaN where missing.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> ax = sf.plot.missingness(X)
    """
    data = as_data(X)
    N, G = data.n_samples, data.n_features
    missing = np.zeros((N, G), dtype=bool) if data.observed is None else ~data.observed.T
    ax = axes_for(ax, (unit_size(min(G, MOST_NAMES), 0.16, 4.6, 11.0), unit_size(min(N, MOST_NAMES), 0.16, 3.0, 9.0)))
    image = ax.imshow(
        block_means(missing),
        extent=(-0.5, G - 0.5, N - 0.5, -0.5),
        aspect="auto",
        cmap=SEQUENTIAL,
        vmin=0.0,
        vmax=1.0,
        interpolation="nearest",
    )
    named_ticks(ax, "x", np.arange(G), [str(name) for name in data.feature_names], size=7)
    named_ticks(ax, "y", np.arange(N), [str(name) for name in data.sample_names], size=7)
    ax.set(
        xlabel="features" if G <= MOST_NAMES else f"{G:,} features",
        ylabel="samples" if N <= MOST_NAMES else f"{N:,} samples",
        title=f"{percent(missing.mean())} of the entries are missing",
    )
    ax.figure.colorbar(image, ax=ax, label="share missing", shrink=0.8)
    return ax


def observed_fitted(p: Any, X: Any) -> Figure:
    """Observed entries against fitted ones, and the residuals in units of the noise, which should be standard normal.

    Parameters
    ----------
    p : VIPosterior or MCMCPosterior
    X : (n_samples, n_features) array or frame
        The data that p was fitted to.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> figure = sf.plot.observed_fitted(p, X)
    """
    checked(p)
    data, fitted = training_matrix(X, p.labels, "X", "pass the data of the fit"), p.predicted()
    seen = np.isfinite(data)
    x, y = fitted[seen], data[seen]
    tau = np.asarray(p.noise_precision_mean)
    weight = np.broadcast_to(tau[:, None] if p.prior.noise == "sample" else tau, fitted.shape)
    scale = np.asarray(getattr(p.labels, "scale", 1.0))  # noise precisions are those of what was fitted
    left_over = ((y - x) * (np.sqrt(weight) / scale)[seen]).astype(np.float64)
    figure = new_figure((9.0, 3.8))
    one, two = figure.subplots(1, 2)
    if len(x) <= MOST_DOTS:
        one.plot(x, y, "o", color=BLUE, markersize=2.5, alpha=0.5, markeredgewidth=0)
    else:
        dense = one.hexbin(x, y, gridsize=60, bins="log", cmap=SEQUENTIAL, mincnt=1)
        figure.colorbar(dense, ax=one, label="entries")
    ends = [min(x.min(), y.min()), max(x.max(), y.max())]
    one.plot(ends, ends, color="0.3", linewidth=1, linestyle="--")
    one.set(xlabel="fitted", ylabel="observed", title=f"{percent(p.variance_explained())} of the variance explained")
    edges = np.linspace(-5, 5, 61)
    two.hist(np.clip(left_over, -5, 5), edges, density=True, color=GREY)
    two.plot(edges, np.exp(-0.5 * edges**2) / np.sqrt(2 * np.pi), color=BLUE, linewidth=1.6)
    two.set(xlabel="residual in units of the noise", ylabel="density", title="Residuals; line: standard normal")
    return figure
