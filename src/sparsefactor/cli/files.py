"""Files of the command line: where results may go, checked before any work, and tables in and out."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..reading import Choices, Table, read
from ..reading.names import shown
from ..table_files import TABLE_SUFFIXES, writer_of
from ..table_files import write_table as write_table
from . import console
from .console import note

if TYPE_CHECKING:
    import pandas

ZIP = b"PK\x03\x04"  # what results begin with


def check_out(out: Path, *inputs: Path, option: str = "--out", is_result: bool = False, goes_on: bool = False) -> None:
    """Refuse a file that could not be written, or that should not be, before any work is done.

    goes_on: what is there came from the same run, and may be replaced without asking.
    """
    if out.is_dir():
        raise ValueError(f"{option} must be a file; {str(out)!r} is a folder; pass e.g. {str(out / 'fit.sf')!r}")
    for source in inputs:
        if out.exists() and source.exists() and out.samefile(source):
            raise ValueError(f"{option} must not be the input; {str(out)!r} is; pass another name")
    _check_folder(out.absolute().parent, option)
    if is_result and out.exists():
        with out.open("rb") as file:
            if file.read(4) not in (ZIP, b""):
                raise ValueError(
                    f"{option} may replace a result only; {str(out)!r} holds something else; pass another name, or "
                    "remove it"
                )
    if not goes_on:
        check_new(out, option)


def check_new(out: Path, option: str = "--out") -> None:
    """Refuse to replace a file without being asked to."""
    if out.exists() and not console.settings.overwrite:
        raise ValueError(f"{option} must be a new file; {str(out)!r} exists; pass another name, or --overwrite")


def check_folder_out(out: Path, option: str = "--out") -> None:
    """Refuse a folder that could not be made or written to."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"{option} must be a folder; {str(out)!r} is a file; pass another name")
    _check_folder(out if out.is_dir() else out.absolute().parent, option)


def _check_folder(folder: Path, option: str) -> None:
    if not folder.is_dir():
        raise ValueError(f"the folder of {option} must exist; {str(folder)!r} does not; make it: mkdir -p {folder}")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise ValueError(
            f"the folder of {option} must be writable; {str(folder)!r} is not ({problem.strerror}); pass another"
        ) from None


def check_table_out(out: Path, *inputs: Path, option: str = "--out") -> None:
    """As check_out, for a table; its library is asked for as well."""
    check_out(out, *inputs, option=option)
    if out.suffix.lower() not in TABLE_SUFFIXES:
        raise ValueError(f"{option} must end in one of {', '.join(TABLE_SUFFIXES)}; got {out.name!r}; name it so")
    writer_of(out.suffix.lower())


def read_and_say(path: Path, choices: Choices, center: bool | None = None, scale: bool = False) -> Table:
    """Read a table, and state what was read and how to change that."""
    with console.working(f"Reading {path.name}"):
        table = read(path, choices)
    facts = table.facts()
    lines = "features" if table.transposed else "samples"
    frame = table.frame
    rows = [
        ("format", facts["format"], "--sep --decimal --encoding" if "text" in table.kind else ""),
        _names_row("samples", frame.index, table.sample_names, lines == "samples"),
        _names_row("features", frame.columns, table.feature_names, lines == "features"),
        ("lines are", lines, "--no-transpose" if table.transposed else "--transpose if they are features"),
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
    return table


def _names_row(what: str, index: pandas.Index, named: bool, lines: bool) -> tuple[str, str, str]:
    place, flag = ("first column", "index") if lines else ("first line", "header")
    if not named:
        return what, f"{len(index):,}, without names", f"--{flag} if the {place} names them"
    few = ", ".join(shown(name, 16) for name in index[:3])
    return what, f"{len(index):,}: {few}{', ...' if len(index) > 3 else ''}", f"--no-{flag}"
