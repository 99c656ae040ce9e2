"""Pictures of what `tl.sparse_factors` wrote into an AnnData or MuData. Embeddings are scanpy's: basis="sfa"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import checked_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["loadings", "variance_explained"]

COLOR, FAINT = "#0072B2", "#9ECAE1"
ACROSS = 4  # panels beside each other


def loadings(adata: Any, *, key: str = "sfa", n_features: int = 10, factors: Any = None) -> Figure:
    """The strongest loadings of each factor as bars, faint where a feature is not included (p ≤ 0.5).

    Parameters
    ----------
    adata : AnnData or MuData
        With results under `key`.
    key : str
        The `key_added` of `tl.sparse_factors`.
    n_features : int
        Shown of each factor.
    factors : list of int, optional
        Numbers of factors, from 1; all by default.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> sf.pl.loadings(adata, n_features=5)  # doctest: +SKIP
    """
    from ..plot.base import new_figure, short

    values, sure = _results(adata, key, "loadings"), _results(adata, key, "inclusion_prob")
    chosen = _chosen(factors, values.shape[1], key)
    n_features = checked_count("n_features", n_features)
    names = np.asarray(adata.var_names)
    rows = -(-len(chosen) // ACROSS)
    width = 2.8 * min(len(chosen), ACROSS)
    figure = new_figure((width, (0.6 + 0.22 * min(n_features, len(names))) * rows))
    axes = figure.subplots(rows, min(len(chosen), ACROSS), squeeze=False).ravel()
    for ax, factor in zip(axes, chosen, strict=False):
        own = np.nan_to_num(values[:, factor - 1])
        top = np.argsort(-np.abs(own), kind="stable")[:n_features][::-1]
        colors = [COLOR if sure[i, factor - 1] > 0.5 else FAINT for i in top]
        ax.barh(np.arange(len(top)), own[top], color=colors)
        ax.set_yticks(np.arange(len(top)), [short(name) for name in names[top]], fontsize="small")
        ax.axvline(0, color="0.4", linewidth=0.8)
        ax.set_title(f"factor {factor}", fontsize="medium")
    for ax in axes[len(chosen) :]:
        ax.set_axis_off()
    figure.supxlabel("loading")
    return figure


def variance_explained(adata: Any, *, key: str = "sfa") -> Figure:
    """The share of variance lost if a factor is removed, as bars.

    Parameters
    ----------
    adata : AnnData or MuData
        With results under `key`.
    key : str
        The `key_added` of `tl.sparse_factors`.

    Returns
    -------
    matplotlib.figure.Figure

    Examples
    --------
    >>> sf.pl.variance_explained(adata)  # doctest: +SKIP
    """
    from ..plot.base import new_figure

    if key not in adata.uns:
        raise KeyError(f"key must be one that tl.sparse_factors wrote; got {key!r}; run it first")
    shares = np.asarray(adata.uns[key]["variance_explained_by_factor"])
    figure = new_figure((float(np.clip(1.0 + 0.3 * len(shares), 3.0, 14.0)), 3.0))
    ax = figure.subplots()
    ax.bar(np.arange(1, len(shares) + 1), 100 * shares, color=COLOR)
    ax.set_xlabel("factor")
    ax.set_ylabel("variance explained (%)")
    ax.set_title(f"all factors: {100 * float(adata.uns[key]['variance_explained']):.3g} %", fontsize="medium")
    return figure


def _chosen(factors: Any, n: int, key: str) -> list[int]:
    """Numbers of factors, from 1."""
    if not n:
        raise ValueError(f"there must be a factor to draw; {key!r} has none, for the data support none; fit other data")
    given = range(1, n + 1) if factors is None else np.atleast_1d(factors).tolist()
    wrong = [factor for factor in given if isinstance(factor, bool) or factor not in range(1, n + 1)]
    if wrong or not len(given):
        raise ValueError(f"factors must be numbers from 1 to {n}; got {factors!r}; choose among them")
    return list(given)


def _results(adata: Any, key: str, what: str) -> Any:
    name = f"{key}_{what}"
    if name not in adata.varm:
        raise KeyError(f"key must be one that tl.sparse_factors wrote; varm has no {name!r}; run it first")
    return np.asarray(adata.varm[name])
