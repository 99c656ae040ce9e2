"""What all plots have in common: axes, names that fit, colours that can be distinguished."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..design import matching_rows
from ..names import shown
from ..posterior import MCMCPosterior, VIPosterior

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Array = NDArray[np.float64]

# The Okabe-Ito palette, of which those with a contrast of less than 3 on white are darkened.
PALETTE = ("#0072B2", "#D55E00", "#00785A", "#A8477D", "#8A6500", "#2C84B5", "#444444", "#B03A2E")
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6B7280"
SEQUENTIAL = "Blues"  # from white to dark by lightness alone
DIVERGING = "RdBu"  # red below zero, blue above, as the bars have it
NUMBER_MAP = "viridis"  # colours of samples by a number
MOST_NAMES = 60  # names on an axis; more would overlap
LONGEST_NAME = 28  # characters
END_OF_NAME = 10  # of them
_off_screen: ContextVar[bool] = ContextVar("off_screen", default=False)
MOST_PIXELS = 1200  # a panel has fewer pixels than this either way, at any usual resolution


def axes_for(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """The axes given, or new ones; in a notebook, those that it shows at the end of the cell."""
    if ax is not None:
        return ax
    if in_notebook():
        import matplotlib.pyplot as plt

        return plt.subplots(figsize=size, layout="constrained")[1]
    return new_figure(size).subplots()


def new_figure(size: tuple[float, float]) -> Figure:
    """A figure that pyplot does not manage."""
    if in_notebook():
        import matplotlib.pyplot as plt  # noqa: F401 - it teaches the notebook to show figures
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


@contextmanager
def off_screen() -> Iterator[None]:
    """Make figures for a file: pyplot does not keep them, and a notebook does not show them."""
    before = _off_screen.set(True)
    try:
        yield
    finally:
        _off_screen.reset(before)


def in_notebook() -> bool:
    """Whether figures are shown as they are made: in a notebook, or once pyplot was imported."""
    if _off_screen.get():
        return False
    if "matplotlib.pyplot" in sys.modules:
        return True
    shell = sys.modules.get("IPython")
    return shell is not None and getattr(shell, "get_ipython", lambda: None)() is not None


def short(name: Any) -> str:
    """A name that fits on an axis; control characters are spelt out, and a dollar sign begins no formula."""
    text = shown(name, 10 * LONGEST_NAME)
    if len(text) > LONGEST_NAME:  # names often differ at their ends
        text = f"{text[: LONGEST_NAME - END_OF_NAME - 1]}…{text[-END_OF_NAME:]}"
    return text.replace("$", r"\$")


def unit_size(n: int, each: float, least: float, most: float) -> float:
    """Inches for n things in a row."""
    return float(np.clip(each * n + 1.0, least, most))


def checked(p: Any, kind: str = "a result") -> VIPosterior | MCMCPosterior:
    if not isinstance(p, VIPosterior | MCMCPosterior):
        raise TypeError(f"p must be {kind}; got a {type(p).__name__}; pass what fit_vi or sample returned")
    return p


def drawn(mc: Any) -> MCMCPosterior:
    if not isinstance(mc, MCMCPosterior):
        raise TypeError(f"this plot is of draws; got a {type(mc).__name__}; pass what sample returned")
    return mc


def place(p: VIPosterior | MCMCPosterior, factor: int) -> int:
    """The column of a factor that is numbered from 1."""
    whole = isinstance(factor, int | np.integer) and not isinstance(factor, bool)
    if not whole or not 1 <= factor <= p.n_factors:
        raise ValueError(f"factor must be a whole number from 1 to {p.n_factors}; got {factor!r}; choose one of them")
    return int(factor) - 1


def called(p: VIPosterior | MCMCPosterior, k: int) -> str:
    """What factor k, from 0, is called in a title."""
    return f"Factor {k + 1}" + ("" if p.prior.factor_names is None else f", {short(p.factor_names[k])}")


def shown_factors(p: VIPosterior | MCMCPosterior) -> NDArray[np.intp]:
    """The factors that are not empty; the first where all are."""
    solid = np.flatnonzero(~p.empty)
    return solid if len(solid) else np.arange(1)


def labels_of(values: Any, samples: NDArray[Any], what: str) -> NDArray[Any]:
    """(n,) one value per sample; a Series is matched by name where X had names and so has it."""
    n = len(samples)
    if hasattr(values, "iloc"):
        rows = matching_rows(values.index, samples, what)
        values = values if rows is None else values.iloc[rows]
    array = np.asarray(values)
    if array.shape != (n,):
        raise ValueError(f"{what} must have one value per sample ({n}); got shape {array.shape}; pass a vector")
    return array


def is_numeric(values: NDArray[Any]) -> bool:
    return values.dtype.kind in "fiu" and len(np.unique(values)) > len(PALETTE)


def points(ax: Axes, p: Any, x: Array, y: Array, color: Any, legend: bool = True) -> None:
    """A dot for each sample, coloured by numbers or labels where these are given."""
    size = float(np.clip(4000 / len(x), 4, 40))
    if color is None:
        ax.scatter(x, y, s=size, color=BLUE, alpha=0.8, linewidths=0)
        return
    known = labels_of(color, p.sample_names, "color")
    if is_numeric(known):
        drawn = ax.scatter(x, y, s=size, c=known.astype(float), cmap=NUMBER_MAP, linewidths=0)
        if legend:
            ax.figure.colorbar(drawn, ax=ax, label=short(getattr(color, "name", None) or ""))
        return
    for n, name in enumerate(np.unique(known.astype(str))):
        own, marker = known.astype(str) == name, "os^Dv"[n // len(PALETTE) % 5]
        shade = PALETTE[n % len(PALETTE)]
        ax.scatter(x[own], y[own], s=size, color=shade, marker=marker, linewidths=0, label=short(name))
    if legend:
        ax.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))


def jitter(n: int) -> Array:
    """(n,) small steps that spread points, the same each time."""
    return np.asarray(((np.arange(n) * 0.6180339887498949) % 1.0 - 0.5) * 0.5, dtype=np.float64)


def block_means(values: NDArray[Any]) -> NDArray[np.float64]:
    """Means over blocks of neighbours, so that no side has more than MOST_PIXELS."""
    out = values.astype(np.float64)
    for axis, size in enumerate(values.shape):
        per = -(-size // MOST_PIXELS)
        if per > 1:
            starts = np.arange(0, size, per)
            counts = np.diff(np.append(starts, size))
            out = np.add.reduceat(out, starts, axis=axis) / np.expand_dims(counts, 1 - axis)
    return out


def enlarged(values: Array) -> Array:
    """Every entry repeated up to more pixels than are drawn, so that edges stay sharp; of too many, means."""
    values = block_means(values)
    rows, columns = (-(-MOST_PIXELS // size) for size in values.shape)
    return values.repeat(rows, axis=0).repeat(columns, axis=1)


def named_ticks(ax: Axes, axis: str, at: ArrayLike, names: Sequence[Any], *, size: float = 8.0) -> None:
    """Names along an axis where they fit; none otherwise."""
    if len(names) > MOST_NAMES:
        return
    words = [short(name) for name in names]
    if axis == "y":
        ax.set_yticks(np.asarray(at), words, fontsize=size)
    else:
        crowded = max(map(len, words), default=0) * len(words) > 60
        ax.set_xticks(np.asarray(at), words, fontsize=size, rotation=90 if crowded else 0)
