"""Correlations of the factors as a heatmap with their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .base import DIVERGING, axes_for, checked, named_ticks, shown_factors, unit_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NUMBERS = 15  # factors up to which each correlation is written into its cell
DARK = 0.6  # absolute correlation from which on numbers are white


def factor_correlation(p: Any, *, ax: Axes | None = None) -> Axes:
    """Correlations of the factors; empty factors are left out.

    Parameters
    ----------
    p : VIPosterior or MCMCPosterior
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> ax = sf.plot.factor_correlation(p)
    """
    checked(p)
    factors = shown_factors(p)
    values = np.asarray(p.factor_correlation_mean)[np.ix_(factors, factors)]
    K = len(factors)
    side = unit_size(K, 0.5, 3.2, 9.0)
    ax = axes_for(ax, (side + 1.0, side))
    image = ax.imshow(values, cmap=DIVERGING, vmin=-1.0, vmax=1.0)
    names = [str(k + 1) for k in factors]
    named_ticks(ax, "x", np.arange(K), names)
    named_ticks(ax, "y", np.arange(K), names)
    if K <= MOST_NUMBERS:
        for k, l in np.argwhere(~np.eye(K, dtype=bool)):
            color = "white" if abs(values[k, l]) >= DARK else "black"
            ax.text(l, k, f"{values[k, l]:.2f}", ha="center", va="center", fontsize=8, color=color)
    ax.set_xlabel("factor")
    ax.set_ylabel("factor")
    ax.set_title("Correlations of the factors" + (" (all are empty)" if np.all(p.empty) else ""))
    ax.figure.colorbar(image, ax=ax, label="correlation", shrink=0.8)
    return ax
