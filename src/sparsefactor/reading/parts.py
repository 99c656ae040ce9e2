"""What every reader hands over: numbers as they lie in the file, and the names beside them."""

from __future__ import annotations

from dataclasses import dataclass

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
