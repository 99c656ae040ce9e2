"""Binary tables: NumPy, Parquet, Feather, R's .rds, AnnData's .h5ad and Excel's .xlsx."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import needs
from . import names
from .cells import Reader
from .guess import dropped_columns, names_in
from .parts import Parts
from .text import opened, read_text

if TYPE_CHECKING:
    import pandas

    from .table import Choices

HEAD = 1000


def format_of(path: Path) -> str:
    """What the file's first bytes say it is; "text" where they say nothing."""
    with path.open("rb") as file:
        start = file.read(8)
    marks = {b"PAR1": "parquet", b"ARROW1": "feather", b"FEA1": "feather", b"\x93NUMPY": "npy", b"\x89HDF": "h5ad"}
    for mark, name in marks.items():
        if start.startswith(mark):
            return name
    if start.startswith(b"PK\x03\x04"):
        if path.suffix.lower() in (".xlsx", ".xlsm"):
            return "xlsx"
        raise ValueError(f"a table must be a file of its own; {path.name} is an archive (zip, npz); unpack it first")
    try:
        with opened(path) as unpacked:
            inside = unpacked.read(5)
    except (EOFError, OSError):
        return "text"  # whose reader says what is wrong with it
    return "rds" if inside[:2] in (b"X\n", b"A\n", b"B\n") and path.suffix.lower() not in (".csv", ".tsv") else "text"


def read_npy(path: Path, choices: Choices) -> Parts:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as problem:
        raise ValueError(f"a .npy file must hold numbers; {path.name} does not ({problem}); save it again") from None
    return Parts(_numbers(array, path), None, None, "NumPy array")


def read_arrow(path: Path, choices: Choices) -> Parts:
    kind = format_of(path)
    try:
        import pyarrow
    except ImportError as problem:
        raise needs(f"reading {path.name}", "pyarrow", "files", problem) from problem
    import pandas as pd

    try:
        frame = pd.read_parquet(path, engine="pyarrow") if kind == "parquet" else pd.read_feather(path)
    except (pyarrow.ArrowException, OSError) as problem:
        raise ValueError(f"a {kind} file must be whole; {path.name} is not ({problem}); copy it again") from None
    return from_frame(frame, path, choices, kind.capitalize())


def read_rds(path: Path, choices: Choices) -> Parts:
    try:
        import rdata
    except ImportError as problem:
        raise needs(f"reading {path.name}", "rdata", "files", problem) from problem
    found = rdata.read_rds(path)
    if hasattr(found, "dims"):  # a matrix with names comes as an xarray.DataArray
        rows, columns = (
            names.checked([str(n) for n in found.coords[d].values], what, path.name) if d in found.coords else None
            for d, what in zip(found.dims, ("line", "column"), strict=True)
        )
        return Parts(_numbers(found.values, path), rows, columns, "R matrix")
    if hasattr(found, "columns"):
        return from_frame(found, path, choices, "R data frame")
    return Parts(_numbers(np.asarray(found), path), None, None, "R matrix")


def read_h5ad(path: Path, choices: Choices) -> Parts:
    try:
        import h5py
    except ImportError as problem:
        raise needs(f"reading {path.name}", "h5py", "files", problem) from problem
    try:
        opening = h5py.File(path, "r")
    except OSError as problem:
        raise ValueError(f"an HDF5 file must be whole; {path.name} is not ({problem}); copy it again") from None
    with opening as file:
        if not {"X", "obs", "var"} <= file.keys():
            raise ValueError(f"an HDF5 file must be AnnData's; {path.name} has no X, obs and var; export it as CSV")
        X = file["X"]
        if isinstance(X, h5py.Group):  # sparse: what is not stored is zero, and observed
            from scipy import sparse

            kind = sparse.csc_matrix if "csc" in str(X.attrs.get("encoding-type", "")) else sparse.csr_matrix
            n_rows, n_columns = (int(n) for n in X.attrs["shape"])
            values = kind((X["data"][:], X["indices"][:], X["indptr"][:]), shape=(n_rows, n_columns)).toarray()
        else:
            values = X[:]
        rows, columns = (_h5ad_names(file[part], path) for part in ("obs", "var"))
    return Parts(
        _numbers(values, path),
        names.checked(rows, "line", path.name),
        names.checked(columns, "column", path.name),
        "AnnData (X, observations by variables)",
    )


def _h5ad_names(group: Any, path: Path) -> list[str]:
    key = group.attrs.get("_index", "_index")
    if not hasattr(group, "keys") or key not in group or not hasattr(group[key], "asstr"):
        raise ValueError(
            f"names in .h5ad must be a column of text; {path.name} has others; write it by anndata 0.8 or newer"
        )
    return [str(name) for name in group[key].asstr()[:]]


def read_xlsx(path: Path, choices: Choices) -> Parts:
    try:
        import openpyxl
    except ImportError as problem:
        raise needs(f"reading {path.name}", "openpyxl", "files", problem) from problem
    with tempfile.TemporaryDirectory() as folder, closing(openpyxl.load_workbook(path, data_only=True)) as book:
        sheet = book.worksheets[0]
        copy = Path(folder) / path.name  # as text, which is then read like any other
        with copy.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(
                ["" if v is None else v for v in row] for row in sheet.iter_rows(values_only=True)
            )
        return replace(read_text(copy, choices), kind="Excel sheet, the first")


READERS: dict[str, Callable[[Path, Choices], Parts]] = {
    "npy": read_npy,
    "parquet": read_arrow,
    "feather": read_arrow,
    "rds": read_rds,
    "h5ad": read_h5ad,
    "xlsx": read_xlsx,
}


def from_frame(frame: pandas.DataFrame, path: Path, choices: Choices, kind: str) -> Parts:
    """A frame's numbers and names; a first column of names is found as in text."""
    import pandas as pd

    frame = frame.copy(deep=False)
    frame.columns = [str(name) for name in frame.columns]
    dropped_columns(list(frame.columns), frame.shape[1], choices.drop, path.name)
    corner, rows = "", None
    counted = frame.index.dtype.kind in "iu" and list(frame.index[:HEAD]) in (
        list(range(min(HEAD, len(frame)))),
        list(range(1, 1 + min(HEAD, len(frame)))),
    )
    if choices.index is not False and not counted:
        corner, rows = str(frame.index.name or ""), [str(name) for name in frame.index]
    frame = frame.drop(columns=list(choices.drop))
    if rows is None and choices.index is not False and frame.shape[1] > 1:
        title = str(frame.columns[0])
        column = ["" if value is None or value is pd.NA else str(value) for value in frame.iloc[:, 0]]
        if choices.index or names_in(title, column[:HEAD], Reader(choices.na), path.name):
            corner, rows, frame = title, column, frame.iloc[:, 1:]
    text = [c for c, kind_of in zip(frame.columns, frame.dtypes, strict=True) if kind_of.kind not in "fiub"]
    if text:
        shown = names.shown(text[0])
        raise ValueError(
            f"every column but one of names must hold numbers; column {shown!r} of {path.name} does not; "
            f"pass drop=[{shown!r}] (--drop {shown!r}) to leave it out, or encode it"
        )
    return Parts(
        frame.to_numpy(dtype=np.float64, na_value=np.nan),
        None if rows is None else names.checked(rows, "line", path.name),
        names.checked(list(frame.columns), "column", path.name),
        kind,
        corner,
    )


def _numbers(array: NDArray[Any], path: Path) -> NDArray[np.float64]:
    if np.ma.isMaskedArray(array):
        array = np.ma.filled(array.astype(np.float64), np.nan)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise ValueError(
            f"a table must be a matrix of numbers; {path.name} has shape {array.shape} and type {array.dtype}; "
            "save a two-dimensional array of numbers"
        )
    return array.astype(np.float64)
