"""Files that the command line writes: checked before any work, and written whole or not at all."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..atomic import replacing
from ..errors import needs
from ..reading import Table
from ..reading.filled import fill_sheet, filled_frame, filled_records, in_file
from ..reading.formats import format_of
from ..reading.names import shown
from . import console

if TYPE_CHECKING:
    import numpy as np
    import pandas
    from numpy.typing import NDArray

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".xlsx")
FORMULA_MARKS = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet may take for the beginning of a formula
LONGEST_TITLE = 31  # characters, of a sheet
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


def writer_of(suffix: str) -> Any:
    """The library that writes such tables, where it takes one."""
    try:
        if suffix == ".parquet":
            import pyarrow

            return pyarrow
        if suffix == ".xlsx":
            import openpyxl
            import openpyxl.utils.exceptions

            return openpyxl
    except ImportError as problem:
        raise needs(
            f"writing {suffix} files", "pyarrow" if suffix == ".parquet" else "openpyxl", "files", problem
        ) from (problem)
    return None


def write_table(frame: pandas.DataFrame, out: Path, index: bool = True) -> None:
    """Write a frame by its suffix: whole, or not at all."""
    suffix = out.suffix.lower()
    with replacing(out, suffix=suffix) as temporary:
        if suffix == ".parquet":
            frame.to_parquet(temporary, index=index)
        elif suffix == ".xlsx":
            write_sheets({"Sheet1": frame}, temporary, index)
        else:
            frame.to_csv(temporary, index=index, sep="\t" if suffix == ".tsv" else ",")


def write_sheets(frames: Mapping[str, pandas.DataFrame], out: Path, index: bool = True) -> None:
    """Write a sheet for each frame. Names are text: one that begins with "=" does not become a formula."""
    import pandas as pd

    illegal = writer_of(".xlsx").utils.exceptions.IllegalCharacterError

    with pd.ExcelWriter(out, engine="openpyxl") as book:
        for name, frame in frames.items():
            try:
                frame.to_excel(book, sheet_name=name[:LONGEST_TITLE], index=index)
            except illegal as problem:
                raise ValueError(
                    f"names in .xlsx must not hold control characters; one does ({shown(problem)}); pass another "
                    "--out, such as .csv or .parquet"
                ) from None
            for row in book.sheets[name[:LONGEST_TITLE]].iter_rows():
                for cell in row:
                    if isinstance(cell.value, str) and cell.value.startswith(FORMULA_MARKS):
                        cell.data_type, cell.quotePrefix = "s", True


def write_filled(table: Table, values: NDArray[np.float64], out: Path) -> None:
    """Write a file's table again with its missing entries filled in from values (n_samples, n_features)."""
    whole, parsed, suffix = in_file(table, values), table.parsed, out.suffix.lower()
    if parsed.dialect is not None and suffix == ".xlsx" and format_of(table.path) == "xlsx":
        with replacing(out, suffix=suffix) as temporary:
            fill_sheet(table, whole, temporary)
    elif parsed.dialect is not None and suffix in (".csv", ".tsv"):
        same = suffix in [ending.lower() for ending in table.path.suffixes]
        other = "\t" if suffix == ".tsv" else ";" if parsed.dialect.numbers.decimal == "," else ","
        with replacing(out, suffix=suffix) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
            file.writelines(parsed.lead)
            writer = csv.writer(file, delimiter=parsed.dialect.sep if same else other, lineterminator="\n")
            writer.writerows(filled_records(table, whole))
    else:
        frame = filled_frame(table, whole)
        numbered = parsed.frame is not None and type(frame.index).__name__ == "RangeIndex"
        write_table(frame, out, index=parsed.dialect is None and not numbered)
