"""What a cell of a text table is: a number, a missing entry, or text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# How people write that an entry is missing; an empty cell is the first of them.
NA = ("", ".", "?", "-", "--", "NA", "na", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NAN", "null", "NULL", "None")
INFINITE = ("inf", "infinity")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
WITH_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")  # not 0,123
SCALE = 4  # numbers in order that may be a scale; fewer are in order too often by chance
WHOLE = re.compile(r"[+-]?\d+")


class Reader:
    """Tells cells apart, given how missing ones and decimals are written."""

    def __init__(self, na: Iterable[str] = (), decimal: str = ".") -> None:
        self.na = frozenset({*NA, *na})
        self.decimal = decimal

    def is_missing(self, cell: str) -> bool:
        return cell.strip() in self.na

    def is_number(self, cell: str) -> bool:
        text = cell.strip()
        if self.decimal == ",":
            text = text.replace(",", ".")
        return NUMBER.fullmatch(text) is not None or text.lstrip("+-").lower() in INFINITE

    def is_text(self, cell: str) -> bool:
        return not self.is_number(cell) and not self.is_missing(cell)


def decimal_of(cells: Sequence[str]) -> str | None:
    """The decimal sign that these cells use; None where 1,234 may be either 1.234 or 1234."""
    commas = [cell.strip() for cell in cells if WITH_COMMA.fullmatch(cell.strip())]
    if not commas or any("." in cell and NUMBER.fullmatch(cell.strip()) for cell in cells):
        return "."
    return None if all(THOUSANDS.fullmatch(cell) for cell in commas) else ","


def are_whole(cells: Sequence[str]) -> bool:
    return all(WHOLE.fullmatch(cell.strip()) for cell in cells)


def counts_up(cells: Sequence[str]) -> bool:
    """1, 2, 3, ... or 1990, 1991, ...: what lines and columns are numbered by."""
    if len(cells) < 2 or not are_whole(cells):
        return False
    return all(int(cell) == int(cells[0]) + i for i, cell in enumerate(cells))


def may_be_labels(cells: Sequence[str], body: Sequence[Sequence[str]]) -> bool:
    """Could these numbers name the columns of a body of numbers?

    Whole numbers in order (years, running numbers), whole numbers over decimals or the reverse, or a scale that only
    rises or falls (wavelengths), as the lines below it do not.
    """
    if len(cells) < 2 or not all(NUMBER.fullmatch(cell.strip()) for cell in cells):
        return False
    numbers = [float(cell) for cell in cells]
    if len(set(numbers)) < len(numbers):
        return False  # names do not repeat
    inside = [cell for line in body for cell in line if NUMBER.fullmatch(cell.strip())]
    if are_whole(cells):
        return _in_order(numbers) or not are_whole(inside)
    if len(body) > 2 and are_whole(inside):
        return True
    if len(cells) < SCALE or not _in_order(numbers):
        return False
    known = [[float(c) for c in line] for line in body if all(NUMBER.fullmatch(c.strip()) for c in line)]
    return not any(_in_order(line) for line in known)


def _in_order(numbers: Sequence[float]) -> bool:
    rising = sorted(numbers)
    return list(numbers) in (rising, rising[::-1])
