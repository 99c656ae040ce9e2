"""The header of a table: whether its first record holds titles, and which further lines belong to it."""

from __future__ import annotations

from collections.abc import Sequence

from .names import beginning, shown
from .numeric import NUMBER, NumberFormat, are_whole, in_order, is_numeric
from .parsed import AmbiguousTableError
from .row_names import is_label

Records = list[list[str]]

SCALE = 4  # numbers in order that may be a scale; fewer are in order too often by chance
EXTRA_LINES = 3  # at most, of a header
LEAST = 3  # records below a title, and texts in a further line of a header
BLANK_SHARE = 0.5  # of a line of a title padded with separators, more than this is blank


def has_header(records: Records, numbers: NumberFormat, file: str) -> bool:
    """Whether the first record is one of names."""
    first, body = records[0], records[1:]
    if not body:
        return all(map(numbers.is_text, first))
    columns = list(zip(*body, strict=True))
    for cell, column in zip(first, columns, strict=True):
        if numbers.is_text(cell) and is_numeric(column, numbers):
            return True
    if all(numbers.is_text(cell) for cell in first[1:]):
        return True  # text over text: names, or nothing here is a number
    cells = [record[1:] for record in body]
    corner_is_empty = not first[0].strip() and all(cell.strip() for cell in columns[0])
    if corner_is_empty and (any(map(numbers.is_text, first[1:])) or _may_be_labels(first[1:], cells)):
        return True  # an empty corner over a column that is full: as R and pandas write
    if numbers.is_text(first[0]) and is_label(first[0]):
        return True  # a title such as "name" over names
    over_names = corner_is_empty or numbers.is_text(first[0])
    if corner_is_empty or _may_be_labels(first[1:] if over_names else first, cells if over_names else body):
        raise AmbiguousTableError(
            f"Is the first line of {file} ({beginning(first)}) a header or data? Pass header=True or header=False"
        )
    return False


def extra_header_lines(body: Records, numbers: NumberFormat) -> int:
    """Lines below the header that are not data: texts of questions and import IDs (Qualtrics), units.

    They hold texts, each another, above columns that hold none.
    """
    marked = [k for k, record in enumerate(body[:EXTRA_LINES]) if any('"ImportId"' in cell for cell in record)]
    if marked:
        return marked[-1] + 1
    if not body or sum(map(numbers.is_text, body[0])) < LEAST:
        return 0
    for count in range(min(EXTRA_LINES, len(body) - 2), 0, -1):
        columns = list(zip(*body[count:], strict=True))
        numeric = [j for j, column in enumerate(columns) if is_numeric(column, numbers)]
        if len(numeric) >= LEAST and all(_are_titles([record[j] for j in numeric], numbers) for record in body[:count]):
            return count
    return 0


def _are_titles(cells: Sequence[str], numbers: NumberFormat) -> bool:
    texts = [cell for cell in cells if numbers.is_text(cell)]
    return 2 * len(texts) > len(cells) and len(set(texts)) == len(texts) and not any(map(numbers.is_number, cells))


def _may_be_labels(cells: Sequence[str], body: Records) -> bool:
    """Whether these numbers could name the columns of a body of numbers.

    Whole numbers in order (years, running numbers), whole numbers over decimals or the reverse, or a scale that only
    rises or falls (wavelengths), as the lines below it do not.
    """
    if len(cells) < 2 or not all(NUMBER.fullmatch(cell.strip()) for cell in cells):
        return False
    values = [float(cell) for cell in cells]
    if len(set(values)) < len(values):
        return False  # names do not repeat
    inside = [cell for line in body for cell in line if NUMBER.fullmatch(cell.strip())]
    if are_whole(cells):
        return in_order(values) or not are_whole(inside)
    if len(body) > 2 and are_whole(inside):
        return True
    if len(cells) < SCALE or not in_order(values):
        return False
    known = [[float(c) for c in line] for line in body if all(NUMBER.fullmatch(c.strip()) for c in line)]
    return not any(in_order(line) for line in known)


def check_title_lines(records: Records, file: str) -> None:
    """Ask whether lines that are mostly blank, above lines that are not, are a title."""
    filled = [sum(bool(cell.strip()) for cell in record) for record in records[: EXTRA_LINES + LEAST + 1]]
    least = (1 - BLANK_SHARE) * max(filled)
    first = next(i for i, count in enumerate(filled) if count >= least)
    text = next((cell for cell in records[0] if cell.strip()), "")
    if 0 < first <= EXTRA_LINES and max(filled) > 2:
        raise AmbiguousTableError(
            f"the first line must be a header or data; that of {file} is nearly empty ({shown(text)}). "
            f"Does the table begin below it? Pass skip={first} if so, header=True if not"
        )
