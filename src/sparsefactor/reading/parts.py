"""What every reader hands over: numbers as they lie in the file, and the names beside them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Parts:
    """values: as in the file. rows, columns: names, None where the file has none. corner: the title of the names."""

    values: NDArray[np.float64]
    rows: list[str] | None
    columns: list[str] | None
    kind: str
    corner: str = ""


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
