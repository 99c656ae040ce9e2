"""`plot`: a picture of a result, or of a result and its data."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from ..reading import Choices
from .app import command
from .console import answer, working
from .files import check_out
from .input import read_and_say
from .looking import opened
from .options import Chains, Out

SUFFIXES = (".png", ".svg", ".pdf")
OF_DATA = ("missingness", "observed_fitted")  # beside those of a result alone


@command(
    "sparsefactor plot heatmap fit.sf --out heatmap.png",
    "sparsefactor plot top_loadings fit.sf --factor 2 --out factor2.svg",
    "sparsefactor plot trace draws.sf --out trace.png",
    "sparsefactor plot observed_fitted fit.sf --data X.csv --out fitted.png",
    reads=True,
)
def plot(
    kind: Annotated[str, typer.Argument(help="What to draw; a wrong one lists them all.")],
    result: Annotated[Path, typer.Argument(help="A file saved by fit or sample; for missingness, a table.")],
    out: Out,
    choices: Choices,
    factor: Annotated[list[int] | None, typer.Option(help="Factor to plot; twice for scatter.")] = None,
    data: Annotated[Path | None, typer.Option(help="The table that was fitted, for observed_fitted.")] = None,
    chains: Chains = None,
    dpi: Annotated[int, typer.Option(min=10, help="Resolution of a .png.")] = 150,
) -> None:
    """Draw a saved posterior (.png, .svg or .pdf)."""
    from .. import plot as drawing

    kind = kind.replace("-", "_")
    known = [*drawing.KINDS, *OF_DATA]
    if kind not in known:
        raise ValueError(f"KIND must be one of {', '.join(known)}; got {kind!r}; choose one of them")
    check_out(out, result)
    if out.suffix.lower() not in SUFFIXES:
        raise ValueError(f"--out must end in {', '.join(SUFFIXES)}; got {out.name!r}; name it so")
    picture: Any
    if kind == "missingness":
        picture = drawing.missingness(read_and_say(result, choices).frame)
    elif kind == "observed_fitted":
        if data is None:
            raise ValueError("observed_fitted needs the table that was fitted; none was given; pass --data TABLE")
        p = opened(result, chains)
        picture = drawing.observed_fitted(p, read_and_say(data, choices, result=p).frame)
    else:
        draw: Any = drawing.KINDS[kind]
        named = [name for name in inspect.signature(draw).parameters if name in ("factor", "x", "y")]
        if factor and len(factor) > len(named):
            raise ValueError(f"{kind} takes --factor {len(named)} times at most; got {len(factor)}; leave some out")
        p = opened(result, chains)
        with working("Drawing"):
            picture = draw(p, **dict(zip(named, factor or (), strict=False)))
    figure = picture if hasattr(picture, "savefig") else picture.figure
    figure.savefig(out, dpi=dpi)
    answer(str(out), {"out": out})
