"""Inclusion or loadings of all features on all factors, features with the same factors together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import checked_choice
from ..frames import INCLUDED
from .base import DIVERGING, MOST_NAMES, SEQUENTIAL, axes_for, checked, enlarged, named_ticks, shown_factors, unit_size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OUTSTANDING = 0.995  # share of the loadings other than zero that have colours of their own
LABELS = {
    "inclusion": "probability of inclusion",
    "loadings": "loading",
    "standardized": "standardised loading",
}

TITLES = {"inclusion": "Features included in each factor", "loadings": "Loadings", "standardized": "Loadings"}


def heatmap(
    p: Any,
    what: Literal["inclusion", "loadings", "standardized"] = "inclusion",
    *,
    cluster: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Features by factors as a heatmap; empty factors are left out.

    Parameters
    ----------
    p : VIPosterior or MCMCPosterior
    what : "inclusion", "loadings" or "standardized"
        Probabilities of inclusion; loadings in units of the features; or in their standard deviations.
    cluster : bool
        Put features with the same factors together, in the order of the factors, strongest first; features that no
        factor includes last. Otherwise as in the data.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> ax = sf.plot.heatmap(p)
    """
    checked(p)
    checked_choice("what", what, LABELS)
    factors = shown_factors(p)
    chosen = p.inclusion_prob if what == "inclusion" else p.loadings_mean
    values = (p.standardized_loadings if what == "standardized" else chosen)[:, factors]
    order = feature_order(p) if cluster else np.arange(len(values))
    G, K = values.shape
    ax = axes_for(ax, (unit_size(K, 0.32, 4.2, 13.0), unit_size(min(G, MOST_NAMES), 0.16, 3.6, 11.0)))
    pixels = enlarged(values[order])
    largest = float(np.abs(pixels).max(initial=0.0)) or 1.0
    top = 1.0 if what == "inclusion" else limit(pixels)
    image = ax.imshow(
        pixels,
        extent=(0.5, K + 0.5, G + 0.5, 0.5),
        aspect="auto",
        cmap=SEQUENTIAL if what == "inclusion" else DIVERGING,
        vmin=0.0 if what == "inclusion" else -top,
        vmax=top,
    )
    named_ticks(ax, "x", np.arange(1, K + 1), [str(k + 1) for k in factors])
    for k in range(1, K):
        ax.axvline(k + 0.5, color="0.8", linewidth=0.5)
    named_ticks(ax, "y", np.arange(1, G + 1), [str(p.feature_names[i]) for i in order], size=7)
    if G > MOST_NAMES:
        ax.set_ylabel(f"{G:,} features, {'those with the same factors together' if cluster else 'as in the data'}")
    left = p.n_factors - K
    ax.set_xlabel(f"factor{f' ({left} empty left out)' if left and not p.empty.all() else ''}")
    full = what == "inclusion" and (values > INCLUDED).all()
    ax.set_title("Every feature is included in every factor" if full else TITLES[what])
    beyond = "both" if what != "inclusion" and largest > top else "neither"
    ax.figure.colorbar(image, ax=ax, label=LABELS[what], shrink=0.8, extend=beyond)
    return ax


def limit(values: NDArray[np.float64]) -> float:
    """Where colours end: at the largest, or where a few that stand out would make all others pale, before them."""
    sizes = np.abs(values[values != 0.0])
    return float(np.quantile(sizes, OUTSTANDING)) if len(sizes) else 1.0


def feature_order(p: Any) -> NDArray[np.intp]:
    """(n_features,) by the factor that adds most to the feature, its sign, the next factor, and size; others last.

    Signs come early, so that the means which are drawn of many features are of like ones.
    """
    scale = np.sqrt(np.mean(p.activations_mean**2, axis=0))
    weight = np.abs(p.loadings_mean) * scale * (p.inclusion_prob > INCLUDED) * ~p.empty
    ranked = np.argsort(-weight, axis=1, kind="stable")
    first, second = ranked[:, 0], ranked[:, min(1, weight.shape[1] - 1)]
    rows = np.arange(len(weight))
    none, alone = weight[rows, first] == 0, weight[rows, second] == 0
    negative = p.loadings_mean[rows, first] < 0
    return np.lexsort((-weight[rows, first], np.where(alone, -1, second), negative, first, none)).astype(np.intp)
