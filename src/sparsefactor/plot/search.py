"""How a fit was found, and whether others found the same: the ELBO of all restarts, agreement of factors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..posterior import MCMCPosterior, VIPosterior
from ..relabel import unit
from ..storage.moments import chain_moments
from .base import (
    BLUE,
    GREY,
    MOST_NAMES,
    SEQUENTIAL,
    axes_for,
    checked,
    named_ticks,
    new_figure,
    shown_factors,
    unit_size,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def elbo(p: Any) -> Figure:
    """The ELBO of every restart by iteration, and on a log scale its gap to the best; the selected one is thick.

    Parameters
    ----------
    p : VIPosterior

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> figure = sf.plot.elbo(p)
    """
    if not hasattr(p, "elbo_history"):
        raise TypeError(f"p must be a variational posterior; got a {type(p).__name__}; pass what fit_vi returned")
    selected = np.asarray(p.elbo_history["iteration"]), np.asarray(p.elbo_history["elbo"], dtype=np.float64)
    others = _other_restarts(p)
    best = max([selected[1][-1], *(y[-1] for _, y in others)])
    figure = new_figure((8.4, 3.4))
    left, right = figure.subplots(1, 2)
    for x, y, color, width in [*((x, y, GREY, 1.0) for x, y in others), (*selected, BLUE, 2.4)]:
        # After convergence the last digits are rounding: a floor keeps them on the log scale.
        gap = np.maximum(best - y, 1e-9 * max(1.0, abs(best)))
        left.plot(x, y, color=color, linewidth=width, alpha=0.9)
        right.plot(x, gap, color=color, linewidth=width, alpha=0.9)
    low = np.quantile(np.concatenate([y for _, y in [*others, selected]]), 0.1)
    left.set(xlabel="iteration", ylabel="ELBO", ylim=(min(low, best - 1e-6 * abs(best)), best + 0.05 * (best - low)))
    right.set(xlabel="iteration", ylabel="ELBO gap", yscale="log")
    figure.suptitle(
        f"Convergence: {1 + len(others)} restarts; thick: the selected one, {best:,.2f}"
        if others
        else f"ELBO {best:,.2f}"
    )
    return figure


def _other_restarts(p: Any) -> list[tuple[Any, Any]]:
    history = getattr(p, "trial_history", None) or {}
    if not history:
        return []
    won = next((record["trial"] for record in p.trial_records if record.get("won")), None)
    rows = [history["trial"] == t for t in np.unique(history["trial"]) if t != won]
    return [(history["iteration"][own], history["elbo"][own]) for own in rows]


def agreement(p: Any, other: Any = None, *, ax: Axes | None = None) -> Axes:
    """Whether factors recur: in other restarts, in every chain, or in another result.

    Each cell is a cosine of activations, from 0 (nothing in common) to 1 (the same, up to scale and sign).

    Parameters
    ----------
    p : VIPosterior or MCMCPosterior
    other : VIPosterior or MCMCPosterior, optional
        Another result for the same samples: all its factors against all of p's. Without it, p's chains against their
        common mean; or, for variational inference, the factors of other converged restarts against p's.
    ax : matplotlib Axes, optional

    Returns
    -------
    matplotlib Axes

    Examples
    --------
    >>> ax = sf.plot.agreement(p)
    """
    checked(p)
    mine = shown_factors(p)
    if other is not None:
        theirs = shown_factors(checked(other))
        if len(p.activations_mean) != len(other.activations_mean):
            raise ValueError(
                f"both results must be of the same samples; got {len(p.activations_mean)} and "
                f"{len(other.activations_mean)}; fit them to the same samples"
            )
        cosine = np.abs(unit(other.activations_mean[:, theirs]).T @ unit(p.activations_mean[:, mine]))
        rows, ylabel = [str(k + 1) for k in theirs], "factor of the other result"
    elif isinstance(p, MCMCPosterior):
        means = chain_moments(p.draws, ["activations"])["activations"][0]
        cosine = np.stack([np.abs(np.sum(unit(one) * unit(p.activations_mean), axis=0)) for one in means])[:, mine]
        rows, ylabel = [str(number) for number in p.chain_numbers], "chain"
    else:
        cosine = _of_restarts(p)[:, mine]
        rows, ylabel = [str(n + 1) for n in range(len(cosine))], "other converged restart"
    R, K = cosine.shape
    ax = axes_for(ax, (unit_size(K, 0.34, 4.2, 12.0), unit_size(R, 0.28, 2.2, 8.0)))
    image = ax.imshow(np.clip(cosine, 0, 1), aspect="auto", cmap=SEQUENTIAL, vmin=0, vmax=1, interpolation="nearest")
    named_ticks(ax, "x", np.arange(K), [str(k + 1) for k in mine])
    named_ticks(ax, "y", np.arange(R), rows)
    if R * K <= 12 * MOST_NAMES // 6:
        for r, k in np.ndindex(R, K):
            shade = "white" if cosine[r, k] > 0.6 else "black"
            ax.text(k, r, f"{cosine[r, k]:.2f}", ha="center", va="center", fontsize=7, color=shade)
    ax.set(xlabel="factor", ylabel=ylabel, title="Do the factors recur?")
    ax.figure.colorbar(image, ax=ax, label="cosine of activations", shrink=0.8)
    return ax


def _of_restarts(p: VIPosterior) -> Any:
    if p.trial_agreement is None or not len(p.trial_agreement):
        raise ValueError(
            "agreement needs other restarts that have converged; this fit has none; fit with race=False, which lets "
            "every restart converge"
        )
    return p.trial_agreement
