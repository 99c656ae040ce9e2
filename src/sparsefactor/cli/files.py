"""Files that the command line writes: checked before any work, and written whole or not at all."""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ..atomic import replacing
from ..reading import Table
from ..reading.filled import fill_sheet, filled_frame, filled_records, in_file
from ..reading.formats import format_of
from ..table_files import TABLE_SUFFIXES, writer_of
from ..table_files import write_table as write_table
from . import console

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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


def write_filled(table: Table, values: NDArray[np.float64], out: Path) -> None:
    """Write a file's table again with its missing entries filled in from values (n_samples, n_features)."""
    whole, parsed, suffix = in_file(table, values), table.parsed, out.suffix.lower()
    if parsed.dialect is not None and suffix == ".xlsx" and format_of(table.path) == "xlsx":
        with replacing(out, suffix=suffix) as temporary:
            fill_sheet(table, whole, temporary)
    elif parsed.dialect is not None and suffix in (".csv", ".tsv"):
        same = suffix in [ending.lower() for ending in table.path.suffixes]
        other = "\t" if suffix == ".tsv" else ";" if parsed.dialect.numbers.decimal == "," else ","
        with (
            replacing(out, suffix=suffix) as temporary,
            temporary.open("w", newline="", encoding=parsed.encoding) as file,
        ):
            file.writelines(parsed.lead)
            writer = csv.writer(file, delimiter=parsed.dialect.sep if same else other, lineterminator="\n")
            writer.writerows(filled_records(table, whole))
    else:
        frame = filled_frame(table, whole)
        numbered = parsed.frame is not None and type(frame.index).__name__ == "RangeIndex"
        write_table(frame, out, index=parsed.dialect is None and not numbered)
