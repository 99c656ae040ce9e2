"""Tables that the command line reads: what was read is said, and remembered in the result."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..reading import Choices, Table, read
from ..reading.hints import hints
from ..reading.names import shown
from . import console
from .console import note
from .spelling import as_options

if TYPE_CHECKING:
    import pandas

REMEMBERED = {f.name for f in fields(Choices)} - {"max_bytes", "few", "features", "drop_empty"}


def read_and_say(
    path: Path, choices: Choices, center: bool | None = None, scale: bool = False, result: Any = None
) -> Table:
    """Read a table, and state what was read and how to change that. result: the posterior that it is for."""
    with console.working(f"Reading {path.name}"):
        chosen = choices if result is None else remembered(choices, result)
        table = read(path, replace(chosen, drop_empty=True))
    facts = table.facts()
    rows_are = "features" if table.transposed else "samples"
    frame = table.frame
    rows = [
        ("format", facts["format"], "--sep --decimal --encoding" if "text" in table.kind else ""),
        _names_row("samples", frame.index, table, table.sample_names, rows_are == "samples"),
        _names_row("features", frame.columns, table, table.feature_names, rows_are == "features"),
        ("rows are", rows_are, "--no-transpose" if table.transposed else "--transpose if they are features"),
        ("missing", f"{facts['missing']:,} of {frame.size:,} entries ({facts['missing_share']:.1%})", "--na WORD"),
    ]
    if center is not None:
        what = "each feature's mean is subtracted" if center else "no"
        rows.append(("centred", what, "--no-center" if center else "--center"))
        rows.append(("scaled", "to unit variance" if scale else "no", "--no-scale" if scale else "--scale"))
    width = max(len(what) for _, what, _ in rows)
    note(f"Read {path}")
    for name, what, flags in rows:
        note(f"  {name:<9} {what:<{width}}  {flags}".rstrip())
    for said in table.notes:
        note(f"  note      {said}")
    for said in hints(frame, scale) if center is not None else ():
        note(as_options(f"Hint: {said}"))
    return table


def _names_row(what: str, index: pandas.Index, table: Table, named: bool, rows: bool) -> tuple[str, str, str]:
    if not named:
        return what, f"{len(index):,}, without names", "--index COLUMN if one names them" if rows else "--header"
    few = ", ".join(shown(name, 16) for name in index[:3])
    title = table.parsed.index
    column = f" (column {shown(title, 20)})" if rows and title else " (first column)" if rows else ""
    flag = "--no-index" if rows else "--no-header"
    return what, f"{len(index):,}: {few}{', ...' if len(index) > 3 else ''}{column}", flag


def remembered(choices: Choices, p: Any) -> Choices:
    """How to read more samples for a result: as the table of its fit was read, unless the caller says otherwise."""
    stored = {
        name: tuple(value) if isinstance(value, list) else value for name, value in p.record.get("reading", {}).items()
    }
    named = p.labels.feature_names.dtype.kind not in "iu"
    if named:
        stored.pop("columns", None)
    known = {name: value for name, value in stored.items() if name in REMEMBERED}
    return Choices(**{**known, **_given(choices), "features": tuple(map(str, p.feature_names)) if named else None})


def remember(p: Any, choices: Choices, table: Table) -> None:
    """Write into a result how its table was read, for `transform`, `impute` and `refine`."""
    given = _given(choices)
    if choices.index is None and table.parsed.index:
        given["index"] = table.parsed.index
    p.record["reading"] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in given.items() if name in REMEMBERED
    }


def _given(choices: Choices) -> dict[str, Any]:
    """The settings that the caller gave."""
    return {f.name: getattr(choices, f.name) for f in fields(choices) if getattr(choices, f.name) != f.default}
