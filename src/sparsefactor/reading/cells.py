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
GROUPS = (",", ".", " ", "'")  # what parts thousands; a space also where it is one that does not break
SPACED = {"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'"}
SCALE = 4  # numbers in order that may be a scale; fewer are in order too often by chance
WHOLE = re.compile(r"[+-]?\d+")


class Reader:
    """Tells cells apart, given how missing ones and decimals are written."""

    def __init__(self, na: Iterable[str] = (), decimal: str = ".", thousands: str = "") -> None:
        self.na = frozenset({*NA, *na})
        self.decimal = decimal
        self.thousands = thousands

    def is_missing(self, cell: str) -> bool:
        return cell.strip() in self.na

    def plain(self, cell: str) -> str:
        """A cell as Python writes numbers: thousands run together, a decimal point."""
        text = ungrouped(cell, self.thousands, self.decimal) if self.thousands else cell.strip()
        return text.replace(",", ".") if self.decimal == "," else text

    def is_number(self, cell: str) -> bool:
        text = self.plain(cell)
        return NUMBER.fullmatch(text) is not None or text.lstrip("+-").lower() in INFINITE

    def is_text(self, cell: str) -> bool:
        return not self.is_number(cell) and not self.is_missing(cell)


def ungrouped(cell: str, thousands: str, decimal: str) -> str:
    """1,234.5 as 1234.5: a number without what parts its thousands; anything else as it is."""
    text = "".join(SPACED.get(sign, sign) for sign in cell.strip())
    part, point = re.escape(thousands), re.escape(decimal)
    return text.replace(thousands, "") if re.fullmatch(rf"[+-]?\d{{1,3}}({part}\d{{3}})+({point}\d*)?", text) else text


def thousands_of(cells: Sequence[str]) -> tuple[str, str] | None:
    """What parts thousands and the decimal sign, where a cell leaves no doubt: 1,234.5 or 1.234,5 or 1 234 or 1'234."""
    texts = ["".join(SPACED.get(sign, sign) for sign in cell.strip()) for cell in cells]
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
