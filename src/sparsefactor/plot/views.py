"""The variance of each known group of features (view) that the factors explain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .base import SEQUENTIAL, axes_for, checked, named_ticks, short, shown_factors, unit_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NUMBERS = 150  # cells up to which each has its number written in it
PALE = 0.6  # of the largest share: darker cells have light numbers


def variance_by_group(p: Any, *, ax: Axes | None = None) -> Axes:
    """The share of variance lost if a factor is removed, in each group of features: groups by factors.

    Parameters
    ----------
    p : VIPosterior or MCMCPosterior
        Of a prior with groups.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> import sparsefactor as sf
    >>> views = ["rna"] * 30 + ["protein"] * 10
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[[0.5, 0.4], [0.0, 0.6]], groups=views, snr=4)
    >>> ax = sf.plot.variance_by_group(sf.fit_vi(sim.X, sf.Prior(n_factors=2, groups=views), n_trials=2))
    """
    checked(p)
    share = 100 * p.variance_explained(by="group")
    factors, names = shown_factors(p), p.prior.group_names
    share = np.maximum(
        share[:, factors], 0.0
    )  # a factor may fit a group a little worse; that explains none of its variance
    V, K = share.shape
    ax = axes_for(ax, (unit_size(K, 0.55, 4.2, 13.0), unit_size(V, 0.45, 2.4, 9.0)))
    top = float(np.nanmax(share, initial=0.0)) or 1.0
    image = ax.imshow(share, aspect="auto", cmap=SEQUENTIAL, vmin=0.0, vmax=top)
    named_ticks(ax, "x", np.arange(K), [str(k + 1) for k in factors])
    named_ticks(ax, "y", np.arange(V), [short(name) for name in names])
    if share.size <= MOST_NUMBERS:
        for (v, k), value in np.ndenumerate(share):
            if np.isfinite(value):
                ax.text(k, v, f"{value:.2g}", ha="center", va="center", fontsize=7, color=shade(value, top))
    ax.set(xlabel="factor", title="Share of each group's variance that a factor explains (%)")
    ax.figure.colorbar(image, ax=ax, label="share of the group's variance (%)", shrink=0.8)
    return ax


def shade(value: float, top: float) -> str:
    """A colour that can be read on a cell."""
    return "white" if value > PALE * top else "black"
