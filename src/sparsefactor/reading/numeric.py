"""How numbers are written in text: decimal sign, thousands separator, and what is neither a number nor missing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .missing_codes import NA

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.IGNORECASE | re.ASCII)
WITH_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")  # not 0,123
GROUPS = (",", ".", " ", "'")  # thousands separators; a space may be one that does not break
SPACED = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'"})


class NumberFormat:
    """The decimal sign, the thousands separator and the spellings of missing of a file."""

    def __init__(self, na: Iterable[str] = (), decimal: str = ".", thousands: str = "") -> None:
        self.na = frozenset({*NA, *na})
        self.decimal, self.thousands = decimal, thousands
        part, point = re.escape(thousands), re.escape(decimal)
        self.grouped = re.compile(rf"[+-]?\d{{1,3}}({part}\d{{3}})+({point}\d*)?")

    def is_missing(self, cell: str) -> bool:
        return cell.strip() in self.na

    def plain(self, cell: str) -> str:
        """A cell as Python writes numbers: no thousands separators, a decimal point."""
        text = cell.strip()
        if self.thousands:
            spaced = text.translate(SPACED)
            text = spaced.replace(self.thousands, "") if self.grouped.fullmatch(spaced) else text
        return text.replace(",", ".") if self.decimal == "," else text

    def is_number(self, cell: str) -> bool:
        return NUMBER.fullmatch(self.plain(cell)) is not None

    def is_text(self, cell: str) -> bool:
        return not self.is_number(cell) and not self.is_missing(cell)

    def parse(self, cells: list[str]) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        """The numbers in cells, NaN where missing, and the places of cells that are text."""
        import pandas as pd

        changes = self.thousands or self.decimal == ","
        array: NDArray[Any] = np.array([self.plain(cell) for cell in cells] if changes else cells, dtype=object)
        values = np.asarray(pd.to_numeric(array, errors="coerce"), dtype=np.float64)
        unknown = np.flatnonzero(np.isnan(values))
        return values, np.array([i for i in unknown if not self.is_missing(cells[i])], dtype=np.intp)


def thousands_of(cells: Sequence[str]) -> tuple[str, str] | None:
    """Thousands separator and decimal sign, where a cell leaves no doubt: 1,234.5 or 1.234,5 or 1 234 or 1'234."""
    texts = [cell.strip().translate(SPACED) for cell in cells if not NUMBER.fullmatch(cell)]
    for thousands in GROUPS:
        part = re.escape(thousands)
        points = {",": ".", ".": ","}.get(thousands, ".,")
        sure = re.compile(rf"[+-]?[1-9]\d{{0,2}}({part}\d{{3}})+([{points}])\d+")
        least = 2 if thousands in ",." else 1  # groups; one alone may be decimals
        twice = re.compile(rf"[+-]?[1-9]\d{{0,2}}({part}\d{{3}}){{{least},}}")
        found = [match for match in map(sure.fullmatch, texts) if match]
        if found or any(map(twice.fullmatch, texts)):
            return thousands, found[0][2] if found else points[0]
    return None


def decimal_of(cells: Sequence[str]) -> str | None:
    """The decimal sign that these cells use; None where 1,234 may be either 1.234 or 1234."""
    commas = [cell.strip() for cell in cells if WITH_COMMA.fullmatch(cell.strip())]
    if not commas or any("." in cell and NUMBER.fullmatch(cell.strip()) for cell in cells):
        return "."
    return None if all(THOUSANDS.fullmatch(cell) for cell in commas) else ","


def are_whole(cells: Sequence[str]) -> bool:
    return all(WHOLE.fullmatch(cell.strip()) for cell in cells)


def is_numeric(cells: Sequence[str], numbers: NumberFormat) -> bool:
    """Whether a column holds numbers and no text."""
    return any(map(numbers.is_number, cells)) and not any(map(numbers.is_text, cells))


def in_order(numbers: Sequence[float]) -> bool:
    """Whether numbers only rise, or only fall."""
    rising = sorted(numbers)
    return list(numbers) in (rising, rising[::-1])
