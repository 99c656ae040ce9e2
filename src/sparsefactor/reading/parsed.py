"""What every reader returns: numbers as they lie in the file, names, and questions that are still open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas


class AmbiguousTableError(ValueError):
    """A file that can be read in two ways; the message names the settings that decide."""


@dataclass(frozen=True)
class Parsed:
    """A table as it lies in its file.

    values: NaN where missing. rows, columns: names, None where the file has none. index: the title of the column of
    names. questions: what the caller must decide before the table can be used. notes: what was done without asking.
    kept: places of the columns of numbers in the file. n_header, dialect, lead (lines before the header), encoding
    and records (of text and sheets), frame (of other files): what it takes to write the file again with entries filled
    in.
    """

    values: NDArray[np.float64]
    rows: list[str] | None
    columns: list[str] | None
    kind: str
    index: str = ""
    questions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    kept: tuple[int, ...] = ()
    n_header: int = 0
    dialect: Any = None
    lead: tuple[str, ...] = ()
    encoding: str = "utf-8"
    records: Callable[[], list[list[str]]] | None = field(default=None, repr=False)
    frame: pandas.DataFrame | None = field(default=None, repr=False)


def numbers(array: NDArray[Any], path: Path) -> NDArray[np.float64]:
    """A matrix as floating-point numbers."""
    if np.ma.isMaskedArray(array):
        array = np.ma.filled(array.astype(np.float64), np.nan)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise ValueError(
            f"a table must be a matrix of numbers; {path.name} has shape {array.shape} and type {array.dtype}; "
            "save a two-dimensional array of numbers"
        )
    return array.astype(np.float64, copy=False)
