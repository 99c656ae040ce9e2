"""How a text table is written, from its first lines: separator, comments, decimal sign, thousands separator.

What can be read in two ways is asked, never guessed.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .numeric import NumberFormat, decimal_of, thousands_of
from .parsed import AmbiguousTableError

if TYPE_CHECKING:
    from .table import Choices

Records = list[list[str]]

SPACES = " "  # one or more
SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar", SPACES: "space"}
AMONG_NAMES = ";\t|"  # separators that names rarely hold; commas and spaces they often do
QUOTED = re.compile(r'"[^"]*"')
COMMENTS = ("#", "!", "sep=")  # GEO marks with !, Excel writes sep=; into a first line
MOSTLY = 0.5  # of the cells that a separator yields must be numbers
SHARE_CELLS = 20_000  # looked at for it
MOST_SKIPPED = 20  # lines before a header, to be suggested
LEAST_BELOW = 3  # lines below those


@dataclass(frozen=True)
class Dialect:
    """skip: lines before the table."""

    sep: str
    numbers: NumberFormat
    skip: int

    @property
    def kind(self) -> str:
        """In words."""
        return (
            f"{SEPARATORS.get(self.sep, repr(self.sep))}-separated text"
            + (", decimal commas" if self.numbers.decimal == "," else "")
            + (f", thousands separator {self.numbers.thousands!r}" if self.numbers.thousands else "")
        )


def fields(lines: Iterable[str], sep: str) -> Records:
    """The fields of each line that is a record."""
    if sep == SPACES:
        lines = (line.strip() for line in lines)
    return [record for record in csv.reader(lines, delimiter=sep, skipinitialspace=True) if is_record(record)]


def is_record(record: Sequence[str]) -> bool:
    """Whether fields are more than a blank line, or than the mark at the end of a GEO series matrix."""
    return any(cell.strip() for cell in record) and not (len(record) == 1 and record[0].startswith("!"))


def find_dialect(lines: Sequence[str], file: str, choices: Choices) -> tuple[Dialect, Records]:
    """The dialect of these first lines of a table, and their fields."""
    comments = _comment_lines(lines[choices.skip :], choices.sep)
    skip = choices.skip + comments
    lines = [line for line in lines[skip:] if line.strip()]
    if not lines:
        raise ValueError(f"a table must hold numbers; {file} is empty; check how it was made")
    sep = _separator(lines, skip, choices, file)
    records = fields(lines, sep)
    if width_of(records) is None:
        if max(len(r) for r in records) == 1:
            raise ValueError(
                f"a table must have at least two columns; separated by {sep!r}, {file} has one; pass sep=..."
            )
        raise _ragged(records, lines, skip, file)
    cells = [cell for record in records[1:] or records for cell in record[1:]]
    if choices.sep is None:
        _check_separator(lines, sep, file)
    return Dialect(sep, number_format(cells, file, choices), skip), records


def number_format(cells: Sequence[str], file: str, choices: Choices) -> NumberFormat:
    """The decimal sign and the thousands separator (mostly none) of these cells."""
    thousands, decimal = choices.thousands or "", choices.decimal
    if thousands:
        decimal = decimal or ("," if thousands == "." else ".")
    elif (sure := thousands_of(cells)) is not None and decimal in (None, sure[1]):
        thousands, decimal = sure
    else:
        decimal = decimal or decimal_of(cells)
    if decimal is None:
        raise AmbiguousTableError(
            f"numbers must be readable in one way; in {file}, 1,234 may be 1.234 or 1234; pass decimal=',' if it is "
            "the former, thousands=',' if the latter"
        )
    return NumberFormat(choices.na, decimal, thousands)


def _comment_lines(lines: Sequence[str], sep: str | None) -> int:
    """Lines before a table that begin as comments; a last one with # with as many fields as the table is its header."""
    count = next((i for i, line in enumerate(lines) if not line.startswith(COMMENTS)), len(lines))
    if 0 < count < len(lines) and lines[count - 1].startswith("#"):
        chosen = [sep] if sep else [s for s in SEPARATORS if s in lines[count]]
        for s in chosen:
            if len(fields([lines[count - 1]], s)[0]) == len(fields([lines[count]], s)[0]) > 1:
                return count - 1
    return count


def _separator(lines: Sequence[str], skipped: int, choices: Choices, file: str) -> str:
    """The one separator under which every line has as many fields, most of them numbers.

    One that the first line lacks, where it has another, is none: 1,5 may be a number between semicolons.
    """
    given, numbers = choices.sep, NumberFormat(choices.na)
    if given is not None:
        return SPACES if given.isspace() and given != "\t" else given
    first = QUOTED.sub("", lines[0])
    in_first = [sep for sep in SEPARATORS if sep in first]
    shares: dict[str, float] = {}
    for sep in SEPARATORS:
        if not any(sep in line for line in lines) or (sep == SPACES and shares):
            continue
        if sep not in in_first and any(other != SPACES for other in in_first):
            continue
        records = fields(lines, sep)
        if width_of(records) is not None:
            shares[sep] = _share_of_numbers(records, numbers)
    likely = [sep for sep, share in shares.items() if share >= MOSTLY] or list(shares)
    best = [sep for sep in likely if shares[sep] == max(shares[s] for s in likely)]
    if len(best) == 1:
        return best[0]
    if best:
        words = " or ".join(SEPARATORS[sep] for sep in best)
        raise AmbiguousTableError(
            f"fields must be separated in one way; {file} can be read by {words}; pass sep={best[0]!r} or "
            f"sep={best[1]!r}"
        )
    present = in_first or [sep for sep in SEPARATORS if any(sep in line for line in lines)]
    if present:
        raise _ragged(fields(lines, present[0]), lines, skipped, file)
    raise ValueError(
        f"a table must have at least two columns; the lines of {file} hold no comma, tab, semicolon, bar or space; "
        "pass sep=... if the fields are separated by something else"
    )


def _ragged(records: Records, lines: Sequence[str], skipped: int, file: str) -> ValueError:
    """The error for lines of unequal length; lines of a title before the header are the usual cause."""
    for before in range(1, min(MOST_SKIPPED, len(lines) - LEAST_BELOW) + 1):
        below = lines[before:]
        for sep in ",;\t|":
            if sep in below[0] and lines[before - 1].count(sep) != below[0].count(sep):
                width = width_of(fields(below, sep))
                if width is not None and width > 2:
                    return AmbiguousTableError(
                        f"every line must have as many fields; from line {skipped + before + 1} on, those of {file} "
                        f"have {width}. Do the lines before belong to a title? Pass skip={skipped + before} if so"
                    )
    usual = max({len(r) for r in records}, key=[len(r) for r in records].count)
    number, record = next((i + 1, r) for i, r in enumerate(records) if len(r) != usual)
    return ValueError(
        f"every line must have as many fields; line {number} of {file} has {len(record)}, others have {usual}; "
        "fix the line, or pass sep=... if this is not the separator"
    )


def width_of(records: Records) -> int | None:
    """Fields of a line: the same for all, but the first may lack one. None where they differ, or where it is one."""
    last = len(records[-1]) if records else 0
    whole = all(len(r) == last for r in records[1:]) and len(records[0]) in (last, last - 1) if records else False
    return last if whole and last > 1 else None


def _share_of_numbers(records: Records, numbers: NumberFormat) -> float:
    cells = [cell for record in records[1:] or records for cell in record[1:]]
    cells = cells[:: 1 + len(cells) // SHARE_CELLS]
    grouped = thousands_of(cells)
    ways = [numbers, NumberFormat(numbers.na, ",")]
    ways += [NumberFormat(numbers.na, grouped[1], grouped[0])] if grouped else []
    return sum(not all(way.is_text(cell) for way in ways) for cell in cells) / max(1, len(cells))


def _check_separator(lines: Sequence[str], sep: str, file: str) -> None:
    """Refuse a separator that was found where unquoted text holds another as well.

    A first line that has the one and not the other leaves no doubt.
    """
    bare = [QUOTED.sub("", line) for line in lines]
    others = [s for s in AMONG_NAMES if s != sep and any(s in line for line in bare)]
    if sep in bare[0]:
        others = [s for s in others if s in bare[0]]
    if others:
        raise AmbiguousTableError(
            f"fields must be separated in one way; lines of {file} hold {others[0]!r} beside {sep!r}. Is the separator "
            f"{others[0]!r}? Pass sep={others[0]!r} if it is, sep={sep!r} if not"
        )
