"""How a text table is written, from its first lines. What can be read in two ways is asked for, never guessed."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .cells import Reader, are_whole, counts_up, decimal_of, may_be_labels, thousands_of

if TYPE_CHECKING:
    from .table import Choices

Records = list[list[str]]

SPACES = " "  # one or more
SEPARATORS = {",": "comma", "\t": "tab", ";": "semicolon", "|": "bar", SPACES: "space"}
AMONG_NAMES = ";\t|"  # separators that names rarely hold; commas and spaces they often do
QUOTED = re.compile(r'"[^"]*"')
MOSTLY = 0.5  # of the cells that a separator yields must be numbers
# In the corner of a table these say that the lines are features.
FEATURE_WORDS = frozenset(
    ["cpg", "feature", "gene", "genesymbol", "item", "metabolite", "peptide", "probe", "probeset", "protein", "snp"]
) | {"symbol", "transcript", "variable", "variant"}
LABEL_WORDS = frozenset(
    ["barcode", "cell", "index", "key", "number", "observation", "patient", "row", "sample", "subject", "unnamed:0", ""]
)


class AmbiguousTableError(ValueError):
    """A file that can be read in two ways; the message names the settings that decide."""


@dataclass(frozen=True)
class Form:
    """How a text table is written.

    titles: of all columns, empty where there is no line of them. names_at: the column of names, if any; kept: those of
    numbers. width: fields of a line. skip: lines before the table. ragged: R writes no title for the column of names.
    """

    sep: str
    decimal: str
    titles: tuple[str, ...]
    names_at: int | None
    kept: tuple[int, ...]
    width: int
    skip: int
    ragged: bool
    thousands: str = ""  # what parts them, if anything does


def fields(lines: Iterable[str], sep: str) -> Records:
    if sep == SPACES:
        lines = (line.strip() for line in lines)
    return [record for record in csv.reader(lines, delimiter=sep, skipinitialspace=True) if record]


def comment_lines(lines: Sequence[str], sep: str | None) -> int:
    """Lines that begin with # and stand before the table; a last one with as many fields as the table is its header."""
    count = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    if 0 < count < len(lines):
        chosen = [sep] if sep else [s for s in SEPARATORS if s in lines[count]]
        for s in chosen:
            if len(fields([lines[count - 1]], s)[0]) == len(fields([lines[count]], s)[0]) > 1:
                return count - 1
    return count


def separator(lines: Sequence[str], given: str | None, reader: Reader, file: str) -> str:
    """The one separator under which every line has as many fields, most of them numbers.

    One that the first line lacks, where it has another, is none: 1,5 may be a number between semicolons.
    """
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
            shares[sep] = _share_of_numbers(records, reader)
    likely = [sep for sep, share in shares.items() if share >= MOSTLY] or list(shares)
    best = [sep for sep in likely if shares[sep] == max(shares[s] for s in likely)]
    if len(best) == 1:
        return best[0]
    if best:
        words = " or ".join(SEPARATORS[sep] for sep in best)
        raise AmbiguousTableError(f"fields must be parted in one way; {file} can be read by {words}; pass sep= (--sep)")
    present = in_first or [sep for sep in SEPARATORS if any(sep in line for line in lines)]
    if present:
        records = fields(lines, present[0])
        raise ragged(records, file)
    raise ValueError(
        f"a table must have at least two columns; the lines of {file} hold no comma, tab, semicolon, bar or space; "
        "pass sep= (--sep) if fields are parted by something else"
    )


def ragged(records: Records, file: str) -> ValueError:
    usual = max({len(r) for r in records}, key=[len(r) for r in records].count)
    number, record = next((i + 1, r) for i, r in enumerate(records) if len(r) != usual)
    return ValueError(
        f"every line must have as many fields; line {number} of {file} has {len(record)}, others have {usual}; "
        "mend the line, or pass sep= (--sep) if this is not the separator"
    )


def width_of(records: Records) -> int | None:
    """Fields of a line: the same for all, but the first may lack one. None where they differ, or where it is one."""
    last = len(records[-1])
    whole = all(len(r) == last for r in records[1:]) and len(records[0]) in (last, last - 1)
    return last if whole and last > 1 else None


def _share_of_numbers(records: Records, reader: Reader) -> float:
    cells = [cell for record in records[1:] or records for cell in record[1:]]
    grouped = thousands_of(cells)
    ways = [reader, Reader(reader.na, ","), *([Reader(reader.na, grouped[1], grouped[0])] if grouped else [])]
    return sum(not all(way.is_text(cell) for way in ways) for cell in cells) / max(1, len(cells))


def form(lines: Sequence[str], file: str, choices: Choices) -> tuple[Form, Records]:
    """How these first lines of a table are written, and the fields of those that hold data."""
    skip = comment_lines(lines, choices.sep)
    lines = [line for line in lines[skip:] if line.strip()]
    if not lines:
        raise ValueError(f"a table must hold numbers; {file} is empty; check how it was made")
    sep = separator(lines, choices.sep, Reader(choices.na), file)
    records = fields(lines, sep)
    width = width_of(records)
    if width is None:
        if max(len(r) for r in records) == 1:
            raise ValueError(
                f"a table must have at least two columns; parted by {sep!r}, {file} has one; pass another sep= (--sep)"
            )
        raise ragged(records, file)
    thousands, decimal = _signs([cell for record in records[1:] or records for cell in record[1:]], file, choices)
    reader = Reader(choices.na, decimal, thousands)
    short = len(records[0]) == width - 1
    header = choices.header
    if header is None:
        header = short or _has_header(records, reader, file)
    titles = tuple(cell.strip() for cell in ([""] if short else []) + records[0]) if header else ()
    body = records[1:] if header else records
    if not body:
        raise ValueError(f"a table must hold numbers; {file} has names only; check how it was made")
    dropped = dropped_columns(titles, width, choices.drop, file)
    left = [j for j in range(width) if j not in dropped]
    index = choices.index
    if index is None and left:
        title = titles[left[0]] if titles else None
        column, *others = ([record[j] for record in body] for j in left)
        decimals = any(not are_whole([c]) for c in others[0] if reader.is_number(c)) if others else False
        index = (short and left[0] == 0) or names_in(title, column, reader, file, decimals)
    names_at = left.pop(0) if index and left else None
    if not left:
        raise ValueError(f"a table must hold numbers; no column of {file} is left; drop fewer")
    if choices.sep is None:
        ask_separator(lines, sep, file, alone=len(left) == 1 and not choices.drop and not choices.few)
    return Form(sep, decimal, titles, names_at, tuple(left), width, skip, short, thousands), body


def ask_separator(lines: Sequence[str], sep: str, file: str, alone: bool) -> None:
    """Refuse a separator that was found where unquoted text holds another as well, or that leaves one feature `alone`.

    A first line that has the one and not the other leaves no doubt.
    """
    bare = [QUOTED.sub("", line) for line in lines]
    others = [s for s in AMONG_NAMES if s != sep and any(s in line for line in bare)]
    if sep in bare[0]:
        others = [s for s in others if s in bare[0]]
    spelt = {s: "tab" if s == "\t" else repr(s) for s in SEPARATORS}
    if others:
        other = others[0]
        raise AmbiguousTableError(
            f"fields must be separated in one way; lines of {file} hold {other!r} beside {sep!r}. Is the separator "
            f"{other!r}? Pass sep={other!r} (--sep {spelt[other]}) if it is, sep={sep!r} (--sep {spelt[sep]}) if not"
        )
    if alone:
        raise AmbiguousTableError(
            f"a table must have at least two features; separated by {sep!r}, {file} has one. Is the separator {sep!r}? "
            f"Pass sep={sep!r} (--sep {spelt[sep]}) if it is, or the right one"
        )


def _signs(cells: Sequence[str], file: str, choices: Choices) -> tuple[str, str]:
    """What parts thousands (nothing, mostly), and the decimal sign."""
    if choices.thousands:
        return choices.thousands, choices.decimal or ("," if choices.thousands == "." else ".")
    sure = thousands_of(cells)
    if sure is not None and choices.decimal in (None, sure[1]):
        return sure
    decimal = choices.decimal or decimal_of(cells)
    if decimal is None:
        raise AmbiguousTableError(
            f"numbers must be readable in one way; in {file}, 1,234 may be 1.234 or 1234; pass decimal=',' "
            "(--decimal ,) if it is the former, thousands=',' (--thousands ,) if the latter"
        )
    return "", decimal


def dropped_columns(titles: Sequence[str], width: int, drop: Sequence[str], file: str) -> set[int]:
    """Columns by title, or by number from 1 where there are no titles."""
    known = list(titles) or [str(j + 1) for j in range(width)]
    for name in drop:
        if name not in known:
            among = "one of its titles" if titles else f"a number from 1 to {width}"
            raise ValueError(f"drop must name a column of {file}; got {name!r}; pass {among}")
    return {j for j, title in enumerate(known) if title in drop}


def _has_header(records: Records, reader: Reader, file: str) -> bool:
    """Is the first line one of names?"""
    first, body = records[0], records[1:]
    if not body:
        return False
    columns = list(zip(*body, strict=True))
    for cell, column in zip(first, columns, strict=True):
        if reader.is_text(cell) and any(map(reader.is_number, column)) and not any(map(reader.is_text, column)):
            return True
    if all(reader.is_text(cell) for cell in first[1:]):
        return True  # text over text: names, or nothing here is a number
    cells = [record[1:] for record in body]
    corner_is_empty = not first[0].strip() and all(cell.strip() for cell in columns[0])
    if corner_is_empty and may_be_labels(first[1:], cells):
        return True  # an empty corner over a column that is full: as R and pandas write
    if reader.is_text(first[0]) and _word(first[0]) in LABEL_WORDS:
        return True  # a title such as "name" over names
    over_names = corner_is_empty or reader.is_text(first[0])
    if corner_is_empty or may_be_labels(first[1:] if over_names else first, cells if over_names else body):
        raise AmbiguousTableError(
            f"the first line must be known as names or as data; that of {file} begins with "
            f"{', '.join(first[:4])}, which may be either; pass header=True or False (--header, --no-header)"
        )
    return False


def names_in(corner: str | None, column: Sequence[str], reader: Reader, file: str, decimals: bool = False) -> bool:
    """Does the first column hold names? corner: its title, None where there are none. decimals: of its neighbour."""
    if any(reader.is_text(cell) for cell in column):
        repeated = next((cell for i, cell in enumerate(column) if cell in column[:i]), None)
        if repeated is None:
            return True
        title = corner or "1"
        raise ValueError(
            f"names must not repeat; the first column of {file} holds text, and {repeated!r} more than once; "
            f"pass drop=[{title!r}] (--drop {title!r}) to leave it out, or make its names unique"
        )
    label = corner is not None and _word(corner) in LABEL_WORDS
    whole = are_whole(column) and len(set(column)) == len(column)
    if corner == "" and whole:
        return True  # numbers under an empty title: as R and pandas write
    numbers = all(reader.is_number(cell) for cell in column)
    odd = corner is None and whole and decimals  # whole numbers that differ, beside decimals
    if corner == "" or odd or (len(column) > 2 and counts_up(column)) or (label and (whole or not numbers)):
        raise AmbiguousTableError(
            f"the first column must be known as names or as data; that of {file} begins with "
            f"{', '.join(column[:4])}, which may be either; pass index=True or False (--index, --no-index)"
        )
    return False


def check_orientation(corner: str, transpose: bool | None, file: str) -> None:
    """Refuse a table whose corner says that its lines are features, unless told which way it lies."""
    if transpose is None and _word(corner) in FEATURE_WORDS:
        raise AmbiguousTableError(
            f"samples must be the lines of a table; {file} calls its lines {corner!r}, as if they were features; "
            "pass transpose=True (--transpose) if they are, transpose=False (--no-transpose) if not"
        )


def _word(title: str) -> str:
    """A title without case, marks, plural, and "id" or "name" at its end; "id" itself becomes empty."""
    word = re.sub(r"[\s_.-]", "", title.lower())
    return word.removesuffix("s").removesuffix("id").removesuffix("name")
