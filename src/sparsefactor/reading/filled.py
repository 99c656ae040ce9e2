"""A file's table with its missing entries filled in; titles, other columns and observed cells stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .dialect import is_record
from .table import Table

if TYPE_CHECKING:
    import pandas

DIGITS = 6  # significant ones, of what is filled in


def in_file(table: Table, values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values (n_samples, n_features) of a table in the shape of its file, NaN for what was not used."""
    whole = np.full(table.parsed.values.shape, np.nan)
    turned = whole.T if table.transposed else whole
    turned[np.ix_(table.samples_at, table.features_at)] = values
    return whole


def filled_records(table: Table, values: NDArray[np.float64]) -> list[list[str]]:
    """The records of a text file or a sheet from the header on. values: in_file."""
    decimal = table.parsed.dialect.numbers.decimal
    records = _records(table)
    for place, column, value in _fills(table, records, values):
        records[place][column] = f"{value:.{DIGITS}g}".replace(".", decimal)
    return records


def fill_sheet(table: Table, values: NDArray[np.float64], out: Path) -> None:
    """Write a workbook with the cells of its first sheet filled in; formats and other sheets stay."""
    import openpyxl

    book = openpyxl.load_workbook(table.path)
    sheet, skip = book.worksheets[0], table.parsed.dialect.skip
    for place, column, value in _fills(table, _records(table), values):
        sheet.cell(skip + place + 1, column + 1).value = value
    book.save(out)


def filled_frame(table: Table, values: NDArray[np.float64]) -> pandas.DataFrame:
    """All columns of a file as a frame: numbers filled in, others as they are. values: in_file."""
    import pandas as pd

    parsed = table.parsed
    whole = np.where(np.isnan(parsed.values), values, parsed.values)
    if parsed.frame is not None:
        frame = parsed.frame.copy()
        for j, kind in enumerate(frame.dtypes):
            if kind.name == "category":  # as texts of Parquet were read
                frame.isetitem(j, frame.iloc[:, j].astype(str).array)
        frame.index = frame.index.astype(str) if frame.index.dtype.name == "category" else frame.index
    elif parsed.records is not None:
        records = _records(table)
        places = _places(table, records)
        body = [records[place] for place in places]
        titles = next(record for record in records if is_record(record)) if parsed.n_header else None
        frame = pd.DataFrame(body, columns=[""] * (len(body[0]) - len(titles)) + titles if titles else None)
    else:
        return pd.DataFrame(whole, index=parsed.rows, columns=parsed.columns)
    for j, column in enumerate(parsed.kept):
        if parsed.frame is None or np.isnan(parsed.values[:, j]).any():
            frame.isetitem(column, whole[:, j])
    return frame


def _records(table: Table) -> list[list[str]]:
    assert table.parsed.records is not None
    return table.parsed.records()


def _places(table: Table, records: list[list[str]]) -> list[int]:
    """Where the rows of data stand among records: below the header, without the blank ones around it."""
    first = 0
    for _ in range(table.parsed.n_header + 1):
        first = next(i for i in range(first, len(records)) if is_record(records[i])) + 1
    return list(range(first - 1, first - 1 + len(table.parsed.values)))


def _fills(table: Table, records: list[list[str]], values: NDArray[np.float64]) -> Iterator[tuple[int, int, float]]:
    """Record, column and value of each entry that is missing in the file."""
    places = _places(table, records)
    for i, j in np.argwhere(np.isnan(table.parsed.values) & ~np.isnan(values)):
        yield places[i], table.parsed.kept[j], float(values[i, j])
