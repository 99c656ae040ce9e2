"""Which lines and columns of a table hold names, and which hold numbers, from its first records.

What can be read in two ways is asked, never guessed. Questions are collected, so that they can be answered together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import pairwise
from typing import TYPE_CHECKING

from ..words import plural
from .names import listed, shown
from .numeric import NUMBER, NumberFormat, are_whole, in_order
from .parsed import AmbiguousTableError

if TYPE_CHECKING:
    from .table import Choices

Records = list[list[str]]

# Titles of a first column, as `_word` leaves them: of features, which then lie in rows, and of samples.
FEATURE = re.compile(
    "asv|cpg|(ensembl|entrez)(gene)?|feature|gene(symbol)?|hugosymbol|idref|item|marker|metabolite|mirna|otu|"
    "peptide|probe(set)?|protein|snp|symbol|target|taxon|transcript|uniprot|variable|variant"
)
LABEL = re.compile(
    "|barcode|case|cell|code|index|key|no|nr|number|ob|observation|participant|patient|person|record|respondent|response|"
    "row|sample|student|subj|subject|vp"
)
UNTITLED = re.compile(r"(|unnamed: ?0|\.\.\.1|x)", re.IGNORECASE)  # as R, pandas and readr write names of rows
FEATURE_NAME = re.compile(  # gene1, TP53, Cd8a, YAL001C, ENSG00000141510, 1007_s_at; not S12, p003, subject7
    r"(?i:gene|feature|probe|protein|transcript|snp|cpg|metabolite|otu|asv)[ _.-]?\w+|"
    r"(?![A-Za-z][_.-]?\d+$|(?i:row|obs|case|sample|sub|subj|subject|pat|patient|person|participant|id|vp)[ _.-]?\d+$)"
    r"(?=\S*[A-Za-z])(?=\S*\d|[A-Z-]{2,}$)[\w.:@/|-]{2,25}",
)
TALL, MANY = 3, 100  # times as many rows as columns, and rows, where features may lie in rows
SCALE = 4  # numbers in order that may be a scale; fewer are in order too often by chance
MANY_IN_ORDER = 5  # whole numbers that only rise or fall, of which the first column may be an ID
EXTRA_LINES = 3  # at most, of a header
TEXT_SHARE = 0.25  # a column with more cells of text than this is one of text; fewer are wrong cells among numbers
MANY_TEXTS = 10
MOST_DROPPED = 8  # columns of text to be named one by one
LEAST = 3  # records below a title
BLANK_SHARE = 0.5  # of a line of a title padded with separators, more than this is blank


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
    notes: tuple[str, ...] = field(default=())

    @property
    def index_title(self) -> str:
        return self.titles[self.index] if self.titles and self.index is not None else ""

    def title(self, column: int) -> str:
        """The title of a column, or its number from 1."""
        return (self.titles[column] if self.titles else "") or str(column + 1)


def find_layout(records: Records, numbers: NumberFormat, n_rows: int, file: str, choices: Choices) -> Layout:
    """The layout of a table of about n_rows records, of which these are the first."""
    _check_title_lines(records, file)
    width = max(map(len, records))
    short = len(records[0]) == width - 1  # R writes no title above the names of rows
    header = choices.header
    if header is None:
        header = short or _has_header(records, numbers, file)
    titles = tuple(cell.strip() for cell in ([""] if short else []) + records[0]) if header else ()
    body = records[1:] if header else records
    extra = _extra_header_lines(body, numbers) if header else 0
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
    text: Sequence[int] | None = None,
    named_first: bool = False,
) -> Layout:
    """The column of names and those of numbers. text: the columns of text, where the file itself says; else found."""
    width = len(body[0])
    columns = list(zip(*body, strict=True))
    dropped = find_columns(choices.drop, titles, width, "drop", file, choices.features is not None)
    known = choices.features if choices.features is not None and not choices.transpose else None
    wanted = _features(known, titles, file) if known else None
    if wanted is None and choices.columns:
        wanted = find_columns(choices.columns, titles, width, "columns", file)
    kept = [j for j in range(width) if j not in dropped and (wanted is None or j in wanted)]
    if wanted is None:
        kept = _without_blank_ends(kept, titles, columns)
    questions: list[str] = []
    notes: list[str] = []
    chosen = set() if wanted is None else wanted
    index = _index_column(titles, columns, kept, dropped, chosen, numbers, file, choices, questions, named_first)
    if index is not None and (wanted is None or index not in wanted):
        kept = [j for j in kept if j != index]
    if not kept:
        raise ValueError(f"a table must hold numbers; no column of {file} is left; drop fewer")
    layout = Layout(titles, int(bool(titles)), index, tuple(kept), width)
    if text is None:
        text = [j for j in kept if _is_text(columns[j], numbers)]
    if any(j in text for j in kept):
        kept = [j for j in kept if j not in text]
        questions.append(_text_question(layout, columns, set(text), numbers, file))
    if not kept:
        raise ValueError(questions[-1])
    if known is not None:
        others = [layout.title(j) for j in range(width) if j not in kept and j != index and (titles and titles[j])]
        if others:
            notes.append(f"{plural(len(others), 'column')} not in the fit left out: {listed(others)}")
    if choices.transpose is None and known is None and index is not None:
        questions += _orientation(layout, [c.strip() for c in columns[index]], n_rows, file)
    return replace(layout, kept=tuple(kept), questions=tuple(questions), notes=tuple(notes))


def _text_question(
    layout: Layout, columns: Sequence[Sequence[str]], text: set[int], numbers: NumberFormat, file: str
) -> str:
    """Of columns of text: leave them out?"""
    words = [layout.title(j) for j in layout.kept if j in text]
    cells = columns[next(j for j in layout.kept if j in text)]
    example = shown(next((cell for cell in cells if numbers.is_text(cell)), cells[0]).strip(), 30)
    said = f"column {shown(words[0])} holds" if len(words) == 1 else f"columns {listed(words)} hold"
    said += f" text ({example!r}) in {file}: all columns except an ID column must be numeric; "
    if len(words) <= MOST_DROPPED:
        remedy = "write it as plain numbers" if any(sign.isdigit() for sign in example) else "encode it as numbers"
        return said + f"pass drop={words} to leave {'it' if len(words) == 1 else 'them'} out, or {remedy}"
    runs: list[list[int]] = [[]]
    for j in layout.kept:
        if j in text:
            runs.append([])
        else:
            runs[-1].append(j)
    longest = max(runs, key=len)
    if len(longest) < 2:
        return said + f"pass the columns to be used, e.g. columns={[layout.title(j) for j in layout.kept[:2]]}"
    return said + f"pass those to be used, e.g. columns='{layout.title(longest[0])}:{layout.title(longest[-1])}'"


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
    absent = [name for name in known if name not in titles]
    if len(absent) == len(known):
        return None
    if absent:
        raise ValueError(
            f"a table must have all features of the fit; {file} lacks {len(absent)} of {len(known)} "
            f"({listed(absent)}); add them, empty where they are missing"
        )
    return {j for j, title in enumerate(titles) if title in set(known)}


def _check_title_lines(records: Records, file: str) -> None:
    """Ask whether lines that are mostly blank, above lines that are not, are a title."""
    filled = [sum(bool(cell.strip()) for cell in record) for record in records[: EXTRA_LINES + LEAST + 1]]
    least = (1 - BLANK_SHARE) * max(filled)
    first = next(i for i, count in enumerate(filled) if count >= least)
    if 0 < first <= EXTRA_LINES and max(filled) > 2:
        raise AmbiguousTableError(
            f"the first line must be a header or data; that of {file} is nearly empty ({shown(_first_text(records))}). "
            f"Does the table begin below it? Pass skip={first} if so, header=True if not"
        )


def _first_text(records: Records) -> str:
    return next((cell for cell in records[0] if cell.strip()), "")


def _without_blank_ends(kept: list[int], titles: Sequence[str], columns: Sequence[Sequence[str]]) -> list[int]:
    """Leave out last columns of nothing at all, which come from separators at the ends of lines, and from Excel."""
    while len(kept) > 1 and not (titles and titles[kept[-1]]) and not any(cell.strip() for cell in columns[kept[-1]]):
        kept = kept[:-1]
    return kept


def _is_numeric(cells: Sequence[str], numbers: NumberFormat) -> bool:
    return any(map(numbers.is_number, cells)) and not any(map(numbers.is_text, cells))


def _is_text(cells: Sequence[str], numbers: NumberFormat) -> bool:
    texts, known = sum(map(numbers.is_text, cells)), sum(map(numbers.is_number, cells))
    return texts > TEXT_SHARE * (texts + known) and (not known or texts >= MANY_TEXTS)


# ---- header -----------------------------------------------------------------------------------------------------


def _has_header(records: Records, numbers: NumberFormat, file: str) -> bool:
    """Whether the first record is one of names."""
    first, body = records[0], records[1:]
    if not body:
        return all(map(numbers.is_text, first))
    columns = list(zip(*body, strict=True))
    for cell, column in zip(first, columns, strict=True):
        if numbers.is_text(cell) and _is_numeric(column, numbers):
            return True
    if all(numbers.is_text(cell) for cell in first[1:]):
        return True  # text over text: names, or nothing here is a number
    cells = [record[1:] for record in body]
    corner_is_empty = not first[0].strip() and all(cell.strip() for cell in columns[0])
    if corner_is_empty and (any(map(numbers.is_text, first[1:])) or _may_be_labels(first[1:], cells)):
        return True  # an empty corner over a column that is full: as R and pandas write
    if numbers.is_text(first[0]) and _is_label(first[0]):
        return True  # a title such as "name" over names
    over_names = corner_is_empty or numbers.is_text(first[0])
    if corner_is_empty or _may_be_labels(first[1:] if over_names else first, cells if over_names else body):
        raise AmbiguousTableError(
            f"Is the first line of {file} ({_beginning(first)}) a header or data? Pass header=True or header=False"
        )
    return False


def _extra_header_lines(body: Records, numbers: NumberFormat) -> int:
    """Lines below the header that are not data: texts of questions and import IDs (Qualtrics), units.

    They hold texts, each another, above columns that hold none.
    """
    marked = [k for k, record in enumerate(body[:EXTRA_LINES]) if any('"ImportId"' in cell for cell in record)]
    if marked:
        return marked[-1] + 1
    for count in range(min(EXTRA_LINES, len(body) - 2), 0, -1):
        columns = list(zip(*body[count:], strict=True))
        numeric = [
            j for j, c in enumerate(columns) if any(map(numbers.is_number, c)) and not any(map(numbers.is_text, c))
        ]
        if len(numeric) > 2 and all(_are_titles([record[j] for j in numeric], numbers) for record in body[:count]):
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


# ---- names of rows ------------------------------------------------------------------------------------------------


def _index_column(
    titles: Sequence[str],
    columns: Sequence[Sequence[str]],
    kept: Sequence[int],
    dropped: set[int],
    chosen: set[int],
    numbers: NumberFormat,
    file: str,
    choices: Choices,
    questions: list[str],
    named_first: bool,
) -> int | None:
    """The column of names of rows: the one that was asked for, or the first where it must be one."""
    width = len(columns)
    if isinstance(choices.index, str):
        found = find_columns([choices.index], titles, width, "index", file, choices.features is not None)
        if found:
            return min(found)
    elif choices.index is not None:
        return next((j for j in range(width) if j not in dropped), None) if choices.index else None
    first = next((j for j in range(width) if j not in dropped), None)
    if first is None:
        return None
    if named_first and first == 0:
        return 0
    if first in chosen:
        return None  # of numbers, as the caller says
    title = titles[first].strip() if titles else None
    column = columns[first]
    beside = columns[first + 1] if first + 1 < width else []
    decimals = any(not are_whole([cell]) for cell in beside if numbers.is_number(cell))
    found_as = _names_in(title, column, numbers, decimals)
    if found_as == "names":
        return first
    if found_as == "unclear" and first in kept:
        what = f"{shown(title)}: {_beginning(column)}" if title else _beginning(column)
        questions.append(
            f"Is the first column of {file} ({what}) an ID or data? Pass index={title or str(first + 1)!r} if it is an "
            "ID, index=False if it is data"
        )
    if found_as == "repeated" and first in kept:
        again = next(cell for i, cell in enumerate(column) if cell in column[:i])
        raise ValueError(
            f"names must not repeat; the first column of {file} holds {shown(again)!r} more than once; make its names "
            f"unique, or pass drop={[title or str(first + 1)]} to leave it out"
        )
    return None


def _names_in(title: str | None, column: Sequence[str], numbers: NumberFormat, decimals: bool) -> str:
    """What a first column holds: names, data, names that are repeated, or what may be names or data.

    title: None without a header. decimals: whether its neighbour holds some.
    """
    untitled = title is not None and UNTITLED.fullmatch(title) is not None
    label = title is not None and (_is_label(title) or FEATURE.fullmatch(_word(title)) is not None)
    unique = len(set(column)) == len(column)
    texts = sum(map(numbers.is_text, column))
    if texts and (label or untitled or 2 * texts > sum(map(numbers.is_number, column))):
        return "names" if unique else "repeated" if label or untitled else "data"
    if texts:
        return "data"
    whole = are_whole(column) and unique
    values = [int(cell) for cell in column] if whole else []
    steps = {later - value for value, later in pairwise(values)}
    counts = len(values) > 2 and (steps == {1} or (len(values) > MANY_IN_ORDER and in_order(values)))
    if title is not None and title.lower() == "x" and not counts:
        untitled = False
    if whole and (label or untitled):
        return "names"
    if untitled or counts or (title is None and whole and decimals):
        return "unclear"
    return "unclear" if label and not all(map(numbers.is_number, column)) else "data"


def _orientation(layout: Layout, names: Sequence[str], n_rows: int, file: str) -> list[str]:
    """Ask for the orientation where rows are called features, or are many more than columns and have no title."""
    title = layout.index_title
    if FEATURE.fullmatch(_word(title)):
        return [
            f"Are the rows of {file} ({shown(title)}: {_beginning(names)}) features or samples? Pass transpose=True if "
            "they are features, transpose=False if they are samples"
        ]
    tall = n_rows >= max(MANY, TALL * len(layout.kept))
    like_genes = sum(FEATURE_NAME.fullmatch(name) is not None for name in names)
    if tall and UNTITLED.fullmatch(title) and 2 * like_genes > len(names):
        columns = listed([layout.title(j) for j in layout.kept])
        return [
            f"{file} has many more rows ({_beginning(names)}) than columns ({columns}). Are its rows features, "
            "such as genes? Pass transpose=True if so, transpose=False if they are samples"
        ]
    return []


def _beginning(cells: Sequence[str]) -> str:
    return ", ".join(shown(cell.strip(), 20) for cell in cells[:3]) + (", ..." if len(cells) > 3 else "")


def _is_label(title: str) -> bool:
    return LABEL.fullmatch(_word(title)) is not None


def _word(title: str) -> str:
    """A title without case, marks, plural, and "id", "name" or "number" at its end; "id" itself becomes empty."""
    word = re.sub(r"[\s_.-]", "", title.lower()).removesuffix("s")
    for ending in ("id", "name", "number", "nr", "no"):
        word = word.removesuffix(ending) if word != ending or ending in ("id", "name") else word
    return word
