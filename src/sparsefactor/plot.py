"""Figures: inclusion as heatmaps, and the ELBO's climb. matplotlib is imported when a figure is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

# From white to dark by lightness alone, so it reads without colour vision and in print.
COLOR_MAP = "Blues"
LINE_COLOR = "#0072B2"  # of the Okabe-Ito palette
# Beyond this many, names on an axis would overlap.
MOST_TICKS = 30
# A panel is drawn with fewer pixels than this either way, at any usual resolution.
MOST_PIXELS = 1200


def inclusion_heatmap(panels: Mapping[str, ArrayLike], *, height: float = 5.0) -> Figure:
    """Side-by-side heatmaps of inclusion or its probability, one titled panel each, under one colour bar.

    panels: title to (n_features, n_factors) in [0, 1]; height: of the figure in inches. Save with `.savefig(path)`.
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
            _enlarged(values),
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


def elbo(p: Any) -> Figure:
    """The winning trial's ELBO by iteration, and on a log scale how far below its last value it was.

    p: a VIPosterior, or anything with elbo_history: iteration and elbo, (n,) each.
    """
    if not hasattr(p, "elbo_history"):
        raise TypeError(f"p must be a variational posterior; got a {type(p).__name__}; pass what fit_vi returned")

    from matplotlib.figure import Figure

    iteration = np.asarray(p.elbo_history["iteration"])
    values = np.asarray(p.elbo_history["elbo"], dtype=np.float64)
    figure = Figure(figsize=(8.0, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(iteration, values, color=LINE_COLOR)
    left.set(xlabel="iteration", ylabel="ELBO")
    gap = values[-1] - values
    rising = gap > 0
    right.plot(iteration[rising], gap[rising], color=LINE_COLOR)
    right.set(xlabel="iteration", ylabel="last ELBO minus ELBO")
    if rising.any():
        right.set_yscale("log")
    return figure


def _enlarged(values: Array) -> Array:
    """Every entry repeated, up to more pixels than are drawn: edges stay sharp where entries are larger than a
    pixel, and are averaged, not dropped, where they are smaller."""
    rows, columns = (-(-MOST_PIXELS // size) for size in values.shape)
    return values.repeat(rows, axis=0).repeat(columns, axis=1)


def _checked_panel(title: str, values: ArrayLike) -> Array:
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        raise ValueError(f"a panel must be (n_features, n_factors); got shape {matrix.shape} for {title!r}; reshape it")
    if not np.all((matrix >= 0) & (matrix <= 1)):
        raise ValueError(
            f"a panel must hold probabilities in [0, 1]; {title!r} does not; pass inclusion or inclusion_prob"
        )
    return matrix
