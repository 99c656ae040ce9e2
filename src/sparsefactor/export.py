"""A result's tables as files: a workbook with a sheet for each, a folder of them, or one table in one file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .frames import TABLES
from .table_files import TABLE_SUFFIXES, write_table, write_workbook
from .words import about

if TYPE_CHECKING:
    import pandas

# Of files that are no tables, or none that are written: a folder of such a name is a mistake.
OTHER_SUFFIXES = frozenset(
    [
        ".doc",
        ".docx",
        ".feather",
        ".h5",
        ".h5ad",
        ".html",
        ".json",
        ".ods",
        ".pdf",
        ".rds",
        ".sav",
        ".sf",
        ".tab",
        ".txt",
        ".xls",
        ".xlsm",
        ".zarr",
        ".zip",
    ]
)
ON_DEMAND = ("reconstruction",)  # as large as the data


def _about(p: Any) -> pandas.DataFrame:
    """The verdict, and how the result was made."""
    import pandas as pd

    return pd.DataFrame([{"what": "verdict", "value": str(p.verdict)}, *about(p)]).set_index("what")


ALL: dict[str, Callable[[Any], Any]] = {"about": _about, **TABLES}


def table_names(p: Any) -> list[str]:
    """The tables that this result has."""
    absent = "trials" if hasattr(p, "draws") else "diagnostics"
    return [name for name in ALL if name != absent]


def chosen_tables(p: Any, tables: Sequence[str] | str | None, argument: str = "tables") -> list[str]:
    """The tables asked for, or by default all but the largest; `argument`: what errors call them."""
    known = table_names(p)
    if tables is None:
        return [name for name in known if name not in ON_DEMAND]
    given = [tables] if isinstance(tables, str) else list(tables)
    for name in given:
        if name not in known:
            raise ValueError(f"{argument} must be one of {', '.join(known)}; got {name!r}; choose one of them")
    return given


def is_one_file(path: Path) -> bool:
    """Whether tables are to go into a file rather than a folder; a kind of file that is not written is refused."""
    if path.suffix.lower() in OTHER_SUFFIXES and not path.is_dir():
        raise ValueError(
            f"tables are written to a folder or to a file that ends in one of {', '.join(TABLE_SUFFIXES)}; got "
            f"{path.name!r}; name it so"
        )
    return path.suffix.lower() in TABLE_SUFFIXES and not path.is_dir()


def export(p: Any, path: Path, names: Sequence[str], format: str = "csv") -> list[Path]:
    """Write the named tables, and return the files."""
    if not is_one_file(path):
        path.mkdir(parents=True, exist_ok=True)
        files = [path / f"{name}.{format}" for name in names]
        for name, file in zip(names, files, strict=True):
            write_table(ALL[name](p), file)
        return files
    if path.suffix.lower() == ".xlsx":
        write_workbook({name: ALL[name](p) for name in names}, path)
    elif len(names) == 1:
        write_table(ALL[names[0]](p), path)
    else:
        raise ValueError(
            f"one file holds one table; {len(names)} were asked for; name one ({', '.join(table_names(p))}), or pass a "
            "folder or an .xlsx file"
        )
    return [path]
