"""Binary tables, known by their first bytes: NumPy, Parquet and Feather here, the others in files of their own."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import needs
from ..names import shown
from .csv import opened
from .excel import read_excel
from .frames import from_frame
from .h5ad import read_h5ad
from .limits import check_table
from .names import LONGEST
from .parsed import Parsed, numbers
from .rds import read_rds

if TYPE_CHECKING:
    from .table import Choices


FOREIGN = {
    b"$FL2": "a file of SPSS",
    b"$FL3": "a file of SPSS",
    b"<stata_d": "a file of Stata",
    b"\xd0\xcf\x11\xe0": "an Excel workbook of the old kind (.xls)",
    b"RDX": "a workspace of R (.RData)",
    b"<html": "a web page",
    b"<!DOCTYP": "a web page",
}


def format_of(path: Path) -> str:
    """What the file's first bytes say it is; "text" where they say nothing."""
    with path.open("rb") as file:
        start = file.read(8)
    marks = {b"PAR1": "parquet", b"ARROW1": "feather", b"FEA1": "feather", b"\x93NUMPY": "npy", b"\x89HDF": "h5ad"}
    for mark, name in marks.items():
        if start.startswith(mark):
            return name
    for mark, name in FOREIGN.items():
        if start.startswith(mark):
            raise ValueError(f"a table must be of a known format; {path.name} is {name}; save it as CSV or .xlsx")
    if start.startswith(b"PK\x03\x04"):
        if path.suffix.lower() in (".xlsx", ".xlsm"):
            return "xlsx"
        raise ValueError(f"a table must be a file of its own; {path.name} is an archive (zip, npz); unpack it first")
    try:
        with opened(path) as unpacked:
            inside = unpacked.read(5)
    except (EOFError, OSError, lzma.LZMAError, zlib.error):
        return "text"  # whose reader says what is wrong with it
    return "rds" if inside[:2] in (b"X\n", b"A\n", b"B\n") and path.suffix.lower() not in (".csv", ".tsv") else "text"


def read_npy(path: Path, choices: Choices) -> Parsed:
    try:
        # Mapped, so that a file which says more than it holds is refused, not allocated.
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as problem:
        raise ValueError(f"a .npy file must hold numbers; {path.name} does not ({problem}); save it again") from None
    if array.ndim == 2:
        n_rows, n_columns = array.shape
        check_table(n_rows, n_columns, path, choices.limit)
    return Parsed(np.array(numbers(array, path)), None, None, "NumPy array")


def arrow(path: Path) -> Any:
    """pyarrow with its parts, where it is installed."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.dataset
        import pyarrow.feather
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError as problem:
        raise needs(f"reading {path.name}", "pyarrow", "files", problem) from problem
    return pyarrow


def read_arrow(path: Path, choices: Choices) -> Parsed:
    kind = format_of(path)
    pyarrow = arrow(path)
    try:
        table = (_parquet if kind == "parquet" else _feather)(path, choices.limit)
        _check_words(table, path)
        frame = table.to_pandas()
    except (pyarrow.ArrowException, OSError) as problem:
        raise ValueError(f"a {kind} file must be whole; {path.name} is not ({problem}); copy it again") from None
    return from_frame(frame, path, choices, kind.capitalize())


def _parquet(path: Path, limit: int) -> Any:
    parquet = arrow(path).parquet
    with parquet.ParquetFile(path) as file:
        about = file.metadata
        groups = [about.row_group(i) for i in range(about.num_row_groups)]
        rows = max(about.num_rows, sum(group.num_rows for group in groups))
        check_table(rows, about.num_columns, path, limit)
        words = [field.name for field in file.schema_arrow if _is_text(field.type)]
    # Texts stay as they are in the file, each once: many names may be one long text.
    with parquet.ParquetFile(path, read_dictionary=words) as file:
        return file.read()


def _feather(path: Path, limit: int) -> Any:
    dataset, feather = arrow(path).dataset, arrow(path).feather
    with path.open("rb") as file:
        first_version = file.read(4) == b"FEA1"  # never compressed
    if not first_version:
        whole = dataset.dataset(path, format="feather")
        check_table(whole.count_rows(), len(whole.schema), path, limit)
    return feather.read_table(path, memory_map=False)


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "binary", "large_binary")


def _check_words(table: Any, path: Path) -> None:
    """Refuse texts that are too long for names, before they are repeated."""
    pc = arrow(path).compute
    for name, column in zip(table.column_names, table.columns, strict=True):
        for chunk in column.chunks:
            words = getattr(chunk, "dictionary", None)
            if words is None or not _is_text(words.type) or len(words) == 0:
                continue
            longest = pc.max(pc.binary_length(words)).as_py() or 0
            if longest > 4 * LONGEST:  # bytes of a character
                raise ValueError(
                    f"names must have at most {LONGEST} characters; column {shown(name)!r} of {path.name} has a text "
                    f"of {longest} bytes; shorten it, or write the file without this column"
                )


READERS: dict[str, Callable[[Path, Choices], Parsed]] = {
    "npy": read_npy,
    "parquet": read_arrow,
    "feather": read_arrow,
    "rds": read_rds,
    "h5ad": read_h5ad,
    "xlsx": read_excel,
}
