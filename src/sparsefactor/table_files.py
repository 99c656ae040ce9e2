"""Tables as files: CSV, TSV, Parquet, and workbooks formatted for reading."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .atomic import replacing
from .errors import needs
from .names import shown

if TYPE_CHECKING:
    import pandas

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet", ".xlsx")
FORMULA_MARKS = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet may take for the beginning of a formula
LONGEST_TITLE = 31  # characters, of a sheet
NARROWEST, WIDEST = 8, 50  # characters, of a column
MEASURED = 500  # rows that decide the width of a column
SIGNIFICANT = 3  # digits of the largest number of a column that are displayed; cells keep all
MOST_DECIMALS = 6  # beyond, numbers are displayed in scientific notation
WARM, COLD = "F4B183", "9DC3E6"  # of negative and positive loadings


def writer_of(suffix: str) -> Any:
    """The library that writes such tables, where it takes one."""
    try:
        if suffix == ".parquet":
            import pyarrow

            return pyarrow
        if suffix == ".xlsx":
            import openpyxl
            import openpyxl.formatting.rule
            import openpyxl.styles
            import openpyxl.utils.exceptions

            return openpyxl
    except ImportError as problem:
        library = "pyarrow" if suffix == ".parquet" else "openpyxl"
        raise needs(f"writing {suffix} files", library, "files", problem) from problem
    return None


def write_table(frame: pandas.DataFrame, out: Path, index: bool = True) -> None:
    """Write a frame by its suffix: whole, or not at all."""
    suffix = out.suffix.lower()
    writer_of(suffix)
    with replacing(out, suffix=suffix) as temporary:
        if suffix == ".parquet":
            frame.to_parquet(temporary, index=index)
        elif suffix == ".xlsx":
            _write_sheets({"Sheet1": frame}, temporary, index)
        else:
            frame.to_csv(temporary, index=index, sep="\t" if suffix == ".tsv" else ",")


def write_workbook(frames: Mapping[str, pandas.DataFrame], out: Path) -> None:
    """Write a sheet for each frame: whole, or not at all."""
    writer_of(".xlsx")
    with replacing(out, suffix=".xlsx") as temporary:
        _write_sheets(frames, temporary, True)


def _write_sheets(frames: Mapping[str, pandas.DataFrame], out: Path, index: bool) -> None:
    import pandas as pd

    illegal = writer_of(".xlsx").utils.exceptions.IllegalCharacterError
    with pd.ExcelWriter(out, engine="openpyxl") as book:
        for name, frame in frames.items():
            try:
                frame.to_excel(book, sheet_name=name[:LONGEST_TITLE], index=index)
            except illegal as problem:
                raise ValueError(
                    f"names in .xlsx must not hold control characters; one does ({shown(problem)}); write .csv or "
                    ".parquet instead"
                ) from None
            _format(book.sheets[name[:LONGEST_TITLE]], frame, index, shaded=name == "sorted_loadings")


def _format(sheet: Any, frame: pandas.DataFrame, index: bool, shaded: bool) -> None:
    """Freeze the headings, set widths and digits. Names stay text: one that begins with "=" becomes no formula."""
    openpyxl = writer_of(".xlsx")
    sheet.freeze_panes = "B2" if index else "A2"
    formats = ["General"] * index + [number_format(frame.iloc[:, c]) for c in range(frame.shape[1])]
    for column, shape in zip(sheet.iter_cols(), formats, strict=False):
        for cell in column:
            if isinstance(cell.value, str):
                if cell.value.startswith(FORMULA_MARKS):
                    cell.data_type, cell.quotePrefix = "s", True
            elif shape != "General":
                cell.number_format = shape
        column[0].alignment = openpyxl.styles.Alignment(wrap_text=True, vertical="top")
        longest = max((len(_text(cell.value, shape)) for cell in column[1:MEASURED]), default=0)
        title = max(map(len, str(column[0].value or "").split()), default=0)
        sheet.column_dimensions[column[0].column_letter].width = float(
            np.clip(max(longest, title) + 2, NARROWEST, WIDEST)
        )
    if shaded and frame.size:
        ends = {"start_type": "num", "start_value": -1, "start_color": WARM}
        ends |= {"mid_type": "num", "mid_value": 0, "mid_color": "FFFFFF"}
        ends |= {"end_type": "num", "end_value": 1, "end_color": COLD}
        scale = openpyxl.formatting.rule.ColorScaleRule(**ends)
        sheet.conditional_formatting.add(f"B2:{sheet.dimensions.split(':')[-1]}", scale)


def _text(value: Any, shape: str) -> str:
    """About what a cell displays."""
    if value is None:
        return ""
    return f"{value:,.{max(0, len(shape.partition('.')[2]))}f}" if isinstance(value, float) else str(value)


def number_format(column: pandas.Series[Any]) -> str:
    """The spreadsheet format in which a column's largest number has about three digits."""
    if column.dtype.kind in "iu":
        return "#,##0"
    if column.dtype.kind != "f":
        return "General"
    sizes = np.abs(column.to_numpy())
    largest = float(np.max(sizes, where=np.isfinite(sizes), initial=0.0))
    places = SIGNIFICANT - 1 - int(np.floor(np.log10(largest))) if largest > 0 else 0
    if places > MOST_DECIMALS:
        return "0.00E+00"
    return f"#,##0.{'0' * places}" if places > 0 else "#,##0"
