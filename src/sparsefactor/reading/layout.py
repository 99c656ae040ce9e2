"""Which columns of a table hold names, and which hold numbers, from its first records.

What can be read in two ways is asked, never guessed. Questions are collected, so that they can be answered together.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import groupby
from typing import TYPE_CHECKING

from ..words import plural
from .header import Records, check_title_lines, extra_header_lines, has_header
from .names import listed, shown
from .numeric import NumberFormat
from .row_names import is_label, names_rows, orientation_question

if TYPE_CHECKING:
    from .table import Choices

TEXT_SHARE = 0.25  # a column with more cells of text than this is one of text; fewer are wrong cells among numbers
MANY_TEXTS = 10
MOST_DROPPED = 8  # columns of text to be named one by one


@dataclass(frozen=True)
class Layout:
    """titles: of all columns, empty without a header. n_header: its records. index: the column of names, if any.

    kept: the columns of numbers. width: fields of a record. questions: still open. notes: what was decided.
    """

    titles: tuple[str, ...]
    n_header: int
    index: int | None
    kept: tuple[int, ...]
    width: int
    questions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def index_title(self) -> str:
        return self.titles[self.index] if self.titles and self.index is not None else ""

    def title(self, column: int) -> str:
        """The title of a column, or its number from 1."""
        return (self.titles[column] if self.titles else "") or str(column + 1)


def find_layout(records: Records, numbers: NumberFormat, n_rows: int, file: str, choices: Choices) -> Layout:
    """The layout of a table of about n_rows records, of which these are the first."""
    if choices.header is None:
        check_title_lines(records, file)
    width = max(map(len, records))
    short = len(records[0]) == width - 1  # R writes no title above the names of rows
    header = choices.header
    if header is None:
        header = short or has_header(records, numbers, file)
    titles = tuple(cell.strip() for cell in ([""] if short else []) + records[0]) if header else ()
    body = records[1:] if header else records
    extra = extra_header_lines(body, numbers) if header else 0
    if not body[extra:]:
        raise ValueError(f"a table must hold numbers; {file} has names only; check how it was made")
    notes = (f"{plural(extra, 'further header line')} left out ({shown(body[0][-1], 40)})",) if extra else ()
    layout = choose_columns(titles, body[extra:], numbers, n_rows, file, choices, named_first=short)
    return replace(layout, n_header=int(header) + extra, notes=notes + layout.notes)


def choose_columns(
    titles: tuple[str, ...],
    body: Records,
    numbers: NumberFormat,
    n_rows: int,
    file: str,
    choices: Choices,
    text: Collection[int] | None = None,
    named_first: bool = False,
) -> Layout:
    """The column of names and those of numbers.

    text: the columns of text, where the file itself says; else found. named_first: whether the first holds names.
    """
    width, known = len(body[0]), choices.features is not None
    columns = list(zip(*body, strict=True))
    layout = Layout(titles, int(bool(titles)), None, (), width)
    dropped = find_columns(choices.drop, titles, width, "drop", file, lenient=known)
    wanted = None
    if known and not choices.transpose:
        wanted = _features(choices.features or (), titles, file)
    elif choices.columns:
        wanted = find_columns(choices.columns, titles, width, "columns", file)
    used = [j for j in range(width) if j not in dropped]
    kept = [j for j in used if wanted is None or j in wanted]
    while (
        len(kept) > 1
        and not wanted
        and not (titles and titles[kept[-1]])
        and not any(map(str.strip, columns[kept[-1]]))
    ):
        kept.pop()  # of nothing at all: separators at the ends of lines
    questions: list[str] = []
    index = None
    if isinstance(choices.index, str):
        index = min(find_columns([choices.index], titles, width, "index", file, lenient=known), default=None)
    if index is None and choices.index is not False and used:
        first = used[0]
        if choices.index is True or (named_first and first == 0):
            index = first
        elif first not in (wanted or ()):
            title = titles[first].strip() if titles else None
            beside = columns[first + 1] if first + 1 < width else ()
            found, question = names_rows(title, columns[first], beside, numbers, file, first + 1)
            index = first if found else None
            questions += [question] if question and first in kept else []
    kept = [j for j in kept if j != index]
    texts = {j: None for j in kept if (_is_text(columns[j], numbers) if text is None else j in text)}
    if texts:
        question = _text_question(layout, kept, list(texts), columns[next(iter(texts))], numbers, file)
        named = [layout.title(j) for j in texts if titles and is_label(titles[j]) and _all_differ(columns[j])]
        if named and index is None and choices.index is not False:
            question += f"; if {shown(named[0])} names the rows, pass index={named[0]!r}"
        questions.append(question)
        kept = [j for j in kept if j not in texts]
    if not kept:
        raise ValueError(
            questions[-1] if texts else f"a table must hold numbers; no column of {file} is left; drop fewer"
        )
    notes = []
    others = [titles[j] for j in sorted({*range(width)} - {*kept, index}) if titles[j]] if known and wanted else []
    if others:
        notes = [f"{plural(len(others), 'column')} not in the fit left out: {listed(others)}"]
    layout = replace(layout, index=index, kept=tuple(kept), notes=tuple(notes))
    if choices.transpose is None and not known and index is not None:
        names = [cell.strip() for cell in columns[index]]
        named = [layout.title(j) for j in kept]
        questions += filter(None, [orientation_question(layout.index_title, names, named, n_rows, file)])
    return replace(layout, questions=tuple(questions))


def _text_question(
    layout: Layout, kept: list[int], texts: list[int], cells: Sequence[str], numbers: NumberFormat, file: str
) -> str:
    """Of columns of text, the cells of the first among them: leave them out?"""
    words = [layout.title(j) for j in texts]
    example = shown(next(filter(numbers.is_text, cells), cells[0]).strip(), 30)
    said = f"column {shown(words[0])} holds" if len(words) == 1 else f"columns {listed(words)} hold"
    said += f" text ({example!r}) in {file}: all columns except an ID column must be numeric; "
    them = "it" if len(words) == 1 else "them"
    remedy = f"write {them} as plain numbers" if any(map(str.isdigit, example)) else f"encode {them} as numbers"
    if len(texts) == len(kept):
        return said + remedy
    if len(texts) <= MOST_DROPPED:
        return said + f"pass drop={words} to leave {them} out, or {remedy}"
    inside = set(texts)
    runs = [list(run) for is_text, run in groupby(kept, lambda j: j in inside) if not is_text]
    longest = max(runs, key=len)
    return said + f"pass those to be used, e.g. columns='{layout.title(longest[0])}:{layout.title(longest[-1])}'"


def _all_differ(cells: Sequence[str]) -> bool:
    return len(set(cells)) == len(cells)


def _is_text(cells: Sequence[str], numbers: NumberFormat) -> bool:
    texts, known = sum(map(numbers.is_text, cells)), sum(map(numbers.is_number, cells))
    return texts > TEXT_SHARE * (texts + known) and (not known or texts >= MANY_TEXTS)


def find_columns(
    given: Sequence[str], titles: Sequence[str], width: int, name: str, file: str, lenient: bool = False
) -> set[int]:
    """Columns by title, number from 1, range FIRST:LAST, or several of these separated by commas."""
    found: set[int] = set()

    def place(word: str) -> list[int]:
        word = word.strip()
        if word in titles:
            return [j for j, title in enumerate(titles) if title == word]
        return [int(word) - 1] if word.isdecimal() and 1 <= int(word) <= width else []

    def places(word: str) -> list[int]:
        if direct := place(word):
            return direct
        for cut in (i for i, sign in enumerate(word) if sign == ":"):
            first, last = place(word[:cut]), place(word[cut + 1 :])
            if first and last and first[0] <= last[-1]:
                return list(range(first[0], last[-1] + 1))
        return []

    for word in given:
        if direct := places(word):
            found.update(direct)
            continue
        for part in word.split(","):
            if not (direct := places(part)) and not lenient:
                wrong = next((end for end in part.split(":") if not place(end)), part).strip()
                near = get_close_matches(wrong, titles, 1, cutoff=0.5)
                among = f"titles such as {listed(titles)}" if titles else f"numbers from 1 to {width}"
                hint = f"did you mean {near[0]!r}?" if near else f"pass {among}, or a range FIRST:LAST"
                raise ValueError(f"{name} must name columns of {file}; got {shown(wrong)!r}; {hint}")
            found.update(direct)
    return found


def _features(known: Sequence[str], titles: Sequence[str], file: str) -> set[int] | None:
    """The places of a fit's features; None where the file names none of them."""
    given, wanted = set(titles), set(known)
    absent = [name for name in known if name not in given]
    if len(absent) == len(known):
        return None
    if absent:
        raise ValueError(
            f"a table must have all features of the fit; {file} lacks {len(absent)} of {len(known)} "
            f"({listed(absent)}); add them, empty where they are missing"
        )
    return {j for j, title in enumerate(titles) if title in wanted}
