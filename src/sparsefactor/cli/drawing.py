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


@command(
    "sparsefactor plot loadings fit.sf --out loadings.png",
    "sparsefactor plot heatmap fit.sf --out heatmap.png",
    "sparsefactor plot top_loadings fit.sf --factor 2 --out factor2.svg",
    "sparsefactor plot trace draws.sf --out trace.png",
    "sparsefactor plot data_heatmap fit.sf --data X.csv --factor 1 --out data.png",
    reads=True,
)
def plot(
    kind: Annotated[str, typer.Argument(help="What to draw, e.g. loadings; a wrong name lists them all.")],
    result: Annotated[Path, typer.Argument(help="A result of fit or sample; for missingness, a table.")],
    out: Out,
    choices: Choices,
    factor: Annotated[
        list[int] | None, typer.Option(help="The factor to draw; for scatter twice, for loadings repeatable.")
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The table that was fitted, for plots of data.")] = None,
    chains: Chains = None,
    dpi: Annotated[int, typer.Option(min=10, help="Resolution of a .png.")] = 150,
) -> None:
    """Draw a saved posterior (.png, .svg or .pdf)."""
    from .. import plot as drawing

    kind = kind.replace("-", "_")
    known: dict[str, Any] = {**drawing.KINDS, **drawing.DATA_KINDS, "missingness": drawing.missingness}
    if kind not in known:
        raise ValueError(f"KIND must be one of {', '.join(known)}; got {kind!r}; choose one of them")
    check_out(out, result)
    if out.suffix.lower() not in SUFFIXES:
        raise ValueError(f"--out must end in {', '.join(SUFFIXES)}; got {out.name!r}; name it so")
    named = [name for name in inspect.signature(known[kind]).parameters if name in ("factor", "x", "y")]
    if kind == "loadings":
        chosen: dict[str, Any] = {"factors": factor or None}
    elif factor and len(factor) > len(named):
        raise ValueError(f"{kind} takes --factor {len(named)} times at most; got {len(factor)}; leave some out")
    else:
        chosen = dict(zip(named, factor or (), strict=False))
    given: list[Any] = []
    if kind == "missingness":
        given.append(read_and_say(result, choices).frame)
    elif kind in drawing.DATA_KINDS:
        if data is None:
            raise ValueError(f"{kind} needs the table that was fitted; none was given; pass --data TABLE")
        p = opened(result, chains)
        given += [p, read_and_say(data, choices, result=p).frame]
    else:
        given.append(opened(result, chains))
    with working("Drawing"):
        picture = known[kind](*given, **chosen)
    figure = picture if hasattr(picture, "savefig") else picture.figure
    figure.savefig(out, dpi=dpi)
    answer(str(out), {"out": out})
