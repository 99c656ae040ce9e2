"""Excel's .xlsx: the first sheet, as text that is then read like any other."""

from __future__ import annotations

import csv
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TooLargeError
from .csv import read_csv
from .limits import PIECE_SHARE, check_table, too_large
from .parsed import Parsed

if TYPE_CHECKING:
    from .table import Choices

CHUNK = 1 << 20
MOST_ROWS = 1_048_576  # of a sheet, in Excel
ROW_END = b"row>"  # whatever the prefix of its name is


def read_excel(path: Path, choices: Choices) -> Parsed:
    """The first sheet of a workbook."""
    with as_csv(path, choices.limit, choices.skip) as text:
        parsed = read_csv(text, replace(choices, sep=",", encoding="utf-8", skip=0))

    def records() -> list[list[str]]:
        with as_csv(path, choices.limit, choices.skip) as text, text.open(newline="", encoding="utf-8") as file:
            return list(csv.reader(file))

    dialect = replace(parsed.dialect, skip=choices.skip + parsed.dialect.skip)
    return replace(parsed, kind="Excel, first sheet", dialect=dialect, records=records)


@contextmanager
def as_csv(path: Path, limit: int, skip: int) -> Iterator[Path]:
    """The first sheet as a text file, without its first `skip` rows; all rows are as long as the longest."""
    import openpyxl

    with tempfile.TemporaryDirectory() as folder:
        short, whole = Path(folder) / "short", Path(folder) / path.name
        try:
            check_members(path, limit)
            with closing(openpyxl.load_workbook(path, data_only=True, read_only=True)) as book:
                sheet = book.worksheets[0]
                sheet.reset_dimensions()  # those that a file states may be wrong
                width = _write(short, sheet.iter_rows(values_only=True), path, limit)
        except (TooLargeError, MemoryError):
            raise
        except Exception as problem:  # of many kinds, where a file is damaged
            raise ValueError(
                f"an .xlsx file must be a workbook with a sheet of cells; {path.name} is not, or is damaged "
                f"({type(problem).__name__}: {problem}); save it again, or as CSV"
            ) from problem
        with (
            short.open(newline="", encoding="utf-8") as file,
            whole.open("w", newline="", encoding="utf-8") as target,
        ):
            rows = islice(csv.reader(file), skip, None)
            csv.writer(target).writerows(row + [""] * (width - len(row)) for row in rows)
        yield whole


def _write(target: Path, rows: Iterator[tuple[Any, ...]], path: Path, limit: int) -> int:
    """Write rows as CSV, as far as each has cells; the width of the widest."""
    width = 0
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        for number, row in enumerate(rows, start=1):
            width = max(width, len(row))
            if number > MOST_ROWS:
                raise ValueError(f"a sheet has at most {MOST_ROWS} rows")
            check_table(number, max(width, 1), path, limit)
            writer.writerow(["" if value is None else value for value in row])
    return width


def check_members(path: Path, limit: int) -> None:
    """Refuse a workbook that unpacks to more than is allowed, as a whole or in a piece that is held at once.

    A sheet is read row by row; its other files are held whole.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        total = sum(info.file_size for info in members)
        if total > limit:
            raise too_large(path, f"unpacks to {total:,} bytes", limit, total)
        for info in members:
            if info.file_size > limit // PIECE_SHARE:
                with archive.open(info) as file:
                    longest = longest_piece(file)
                if longest > limit // PIECE_SHARE:
                    needed = PIECE_SHARE * longest
                    raise too_large(path, f"has {longest:,} bytes in one piece in {info.filename}", limit, needed)


def longest_piece(file: Any) -> int:
    """The most bytes between two ends of rows."""
    longest = run = 0
    kept = b""
    while chunk := file.read(CHUNK):
        chunk, begin = kept + chunk, len(kept)
        first, last = chunk.find(ROW_END), chunk.rfind(ROW_END)
        if first < 0:
            run += len(chunk) - begin
        else:
            longest = max(longest, run + first)
            run = len(chunk) - last
        kept = chunk[-len(ROW_END) + 1 :]  # an end may be cut in two
    return max(longest, run)
