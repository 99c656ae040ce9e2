"""A posterior's tables and figures by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sparsefactor as sf

from ..atomic import replacing
from ..frames import TABLES, strongest
from ..reading.names import shown
from ..words import percent
from .files import write_sheets

if TYPE_CHECKING:
    import pandas

Posterior = sf.VIPosterior | sf.MCMCPosterior
LONGEST_NAME = 30  # characters, of a feature among others in a line


def factors(p: Posterior) -> list[dict[str, Any]]:
    """A line per factor, as values."""
    rows: list[dict[str, Any]] = p.summary().reset_index().to_dict("records")  # type: ignore[assignment]
    return rows


def readable(p: Posterior, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same for a reader: shares as per cent, the strongest features last, cut where long, no column of nothing."""
    empty = p.empty
    lines = [
        {
            "factor": row["factor"],
            "variance": percent(row["share_of_variance"]),
            "features": row["features"],
            "stability": "" if row["stability"] != row["stability"] else percent(row["stability"]),
            "R-hat": "" if row["r_hat"] != row["r_hat"] else f"{row['r_hat']:.3f}",
            "strongest": "empty" if empty[k] else ", ".join(shown(name, LONGEST_NAME) for name in strongest(p, k)),
        }
        for k, row in enumerate(rows)
    ]
    nothing = [name for name in lines[0] if all(row[name] == "" for row in lines)]
    return [{name: value for name, value in row.items() if name not in nothing} for row in lines]


def _discoveries(p: Posterior) -> pandas.DataFrame:
    return p.discoveries().set_index("factor")


OWN: dict[str, Callable[[Any], Any]] = {"discoveries": _discoveries}


def names(p: Posterior) -> list[str]:
    """The tables that this posterior has."""
    absent = "diagnostics" if isinstance(p, sf.VIPosterior) else "trials"
    return [name for name in (*TABLES, *OWN) if name != absent]


def table(p: Posterior, name: str) -> pandas.DataFrame:
    return p.to_frame(name) if name in TABLES else OWN[name](p)


def write_workbook(frames: Mapping[str, pandas.DataFrame], out: Path) -> None:
    """A sheet for each table: whole, or not at all."""
    with replacing(out, suffix=".xlsx") as temporary:
        write_sheets(frames, temporary)
