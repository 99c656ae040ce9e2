"""What may be read: regular files, whose table is estimated and compared with `max_bytes` before it is made."""

from __future__ import annotations

from pathlib import Path

from ..errors import TooLargeError

MAX_BYTES = 2_000_000_000  # of a table, unless its reader allows more: most computers have four times as much memory
NUMBER_BYTES = 8
NAME_BYTES = 100  # a short name as Python holds it, and its place in an index
COLUMN_BYTES = 2000  # what pandas and the first lines take for a column of text, however few lines there are (measured)
# Text between two line ends, and a file inside an .xlsx, are split into Python objects at once, which take up to fifty
# times as much: this share of max_bytes is allowed for them.
PIECE_SHARE = 64


def check_file(path: Path, what: str = "data") -> None:
    """Refuse what is not there, and what is not a regular file: opening a pipe blocks, and a device never ends."""
    if not path.exists():
        raise FileNotFoundError(f"{what} must be a file; {str(path)!r} does not exist; check the path")
    if path.is_dir():
        raise ValueError(f"{what} must be a file; {str(path)!r} is a folder; pass the file in it")
    if not path.is_file():
        raise ValueError(
            f"{what} must be a regular file; {str(path)!r} is not (a device, pipe or socket); save it as a file first"
        )


def check_table(n_rows: int, n_columns: int, path: Path, limit: int, n_names: int = 0) -> None:
    """Refuse a table of numbers and names that would take more than `limit` bytes."""
    size = NUMBER_BYTES * n_rows * n_columns + NAME_BYTES * n_names
    if size > limit:
        what = f"{n_rows} rows and {n_columns} columns" if n_columns else f"{n_names} names"
        raise too_large(path, f"holds {what}, {size:,} bytes", limit, size)


def too_large(path: Path, what: str, limit: int, needed: int) -> TooLargeError:
    return TooLargeError(
        f"a table must take at most {limit:,} bytes; {path.name} {what}; if you trust the file and have the memory, "
        f"pass max_bytes={needed}"
    )
