"""Text tables: opened whatever their compression and encoding, and read in blocks once their dialect is known.

pandas converts the numbers. Records are read by `csv`, since pandas fills a short line with missing entries, takes a
sample called NA for a missing one, sets no limit to the length of a field, and does not say where a wrong cell stands.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..words import plural
from . import names
from .dialect import SPACES, Dialect, find_dialect, is_record
from .layout import Layout, find_layout
from .limits import COLUMN_BYTES, NAME_BYTES, PIECE_SHARE, check_table, too_large
from .missing_codes import NA
from .numeric import WITH_COMMA
from .parsed import Parsed

if TYPE_CHECKING:
    from .table import Choices

HEAD_LINES = 1000
HEAD_CHARACTERS = 1 << 20  # and at least FEW lines
FEW = 20
FEWEST = 2  # however long they are
CHUNK = 1 << 20  # bytes looked at together
BLOCK_CELLS = 500_000  # converted together; each takes about 100 bytes
MOST_WORDS = 5  # that are not numbers, to be named
COMPRESSED: dict[bytes, Callable[[Path, str], Any]] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def opened(path: Path) -> IO[bytes]:
    """The file, decompressed where its first bytes say so."""
    with path.open("rb") as file:
        start = file.read(8)
    for mark, open_file in COMPRESSED.items():
        if start.startswith(mark):
            unpacked: IO[bytes] = open_file(path, "rb")
            return unpacked
    return path.open("rb")


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed; one that is damaged is refused."""
    try:
        with opened(path) as file:
            yield file
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise
        raise ValueError(f"a compressed file must be whole; {path.name} is not ({problem}); copy it again") from None


def read_whole(path: Path, limit: int) -> bytes:
    """All bytes of a file, decompressed."""
    content = bytearray()
    with unpacked(path) as file:
        while chunk := file.read(CHUNK):
            content += chunk
            if len(content) > limit:
                raise too_large(path, f"unpacks to more than {limit:,} bytes", limit, 2 * limit)
    return bytes(content)


@dataclass(frozen=True)
class Extent:
    """The size of a text: lines, and bytes of the longest."""

    lines: int
    longest: int


def extent(path: Path, limit: int) -> Extent:
    """Look through a text once; refuse one that unpacks to more than `limit` bytes, and a line too long to be split."""
    packed = total = longest = run = ends = returns = 0
    with unpacked(path) as file:
        packed = not isinstance(file, io.BufferedReader)
        while chunk := file.read(CHUNK):
            total += len(chunk)
            breaks = [place for end in (b"\n", b"\r") for place in (chunk.find(end), chunk.rfind(end)) if place >= 0]
            longest = max(longest, run + (min(breaks) if breaks else len(chunk)))
            run = len(chunk) - max(breaks) if breaks else run + len(chunk)
            ends, returns = ends + chunk.count(b"\n"), returns + chunk.count(b"\r")
            if packed and total > limit:
                raise too_large(path, f"unpacks to more than {limit:,} bytes", limit, 2 * limit)
            if longest > limit // PIECE_SHARE:
                what = f"has a line of more than {limit // PIECE_SHARE:,} bytes"
                raise too_large(path, what, limit, 2 * limit)
    return Extent(max(ends, returns) + (run > 1), longest)


def encoding_of(path: Path, encoding: str | None) -> str:
    """The encoding of a file: what its byte order mark says, else the one that was given, else UTF-8."""
    with unpacked(path) as file:
        start = file.read(4)
    return next((name for mark, name in MARKS.items() if start.startswith(mark)), encoding or "utf-8")


@contextmanager
def text_of(path: Path, encoding: str | None) -> Iterator[io.TextIOWrapper]:
    """The text of a file; line ends are left to who reads."""
    found = encoding_of(path, encoding)
    try:
        with unpacked(path) as file, io.TextIOWrapper(file, encoding=found, newline="") as text:
            yield text
    except UnicodeError as problem:
        raise ValueError(
            f"text must be readable in its encoding; {path.name} is not in {found} ({problem}); "
            "pass encoding='cp1252' (Windows), 'latin-1' or another"
        ) from None
    except LookupError:
        raise ValueError(f"encoding must be known to Python; got {encoding!r}; try latin-1 or cp1252") from None


def read_csv(path: Path, choices: Choices) -> Parsed:
    """The table in a text file."""
    size = extent(path, choices.limit)
    with text_of(path, choices.encoding) as text:
        head = _head(text, path, choices.limit)
    _check_width(head, path, choices.limit)
    if any("\0" in line for line in head):
        raise ValueError(
            f"a table must be text or of a known format; {path.name} holds other bytes; save it as CSV or .xlsx"
        )
    try:
        dialect, records = find_dialect(head, path.name, choices)
        layout = find_layout(records, dialect.numbers, size.lines, path.name, choices)
        check_table(
            size.lines, len(layout.kept), path, choices.limit, n_names=0 if layout.index is None else size.lines
        )
        values, labels, blank, questions = _read_values(path, dialect, layout, choices, size.lines)
    except csv.Error as problem:
        raise ValueError(f"fields must be readable; {path.name}: {problem}; check its quotes and long names") from None
    chosen = choices.few or choices.drop or choices.columns or layout.questions
    if choices.sep is None and len(layout.kept) == 1 and not chosen:
        questions = [_one_feature(dialect.sep, path.name), *questions]
    titles = [layout.titles[j] or "column 1" * (j == 0) for j in layout.kept] if layout.titles else None
    if titles and "" in titles:
        number = layout.kept[titles.index("")] + 1
        raise ValueError(
            f"every column must have a title; column {number} of {path.name} has none; add it, or pass "
            f"drop=['{number}'] to leave the column out"
        )
    notes = (f"{plural(blank, 'blank line')} at the end left out",) if blank else ()
    return Parsed(
        values=values,
        rows=None if layout.index is None else names.checked(labels, "row", path.name),
        columns=None if titles is None else names.checked(titles, "column", path.name),
        kind=dialect.kind,
        index=layout.index_title,
        questions=(*layout.questions, *questions),
        notes=(*layout.notes, *notes),
        kept=layout.kept,
        n_header=layout.n_header,
        dialect=dialect,
        lead=tuple(head[: dialect.skip]),
        records=partial(_records_as_written, path, dialect, choices.encoding),
        encoding=encoding_of(path, choices.encoding),
    )


def _one_feature(sep: str, file: str) -> str:
    return (
        f"a table must have at least two features; separated by {sep!r}, {file} has one. Is the separator {sep!r}? "
        f"Pass sep={sep!r} if it is, or the right one"
    )


def _check_width(head: list[str], path: Path, limit: int) -> None:
    """Refuse more columns than fit, before lines are split."""
    width = 1 + max((max(map(line.count, ",\t;|")) or line.count(SPACES) for line in head), default=0)
    if COLUMN_BYTES * width > limit:
        raise too_large(path, f"has about {width} columns", limit, COLUMN_BYTES * width)


def _head(text: io.TextIOWrapper, path: Path, limit: int) -> list[str]:
    """The first lines: enough of them to judge by, whether they are short or long."""
    lines: list[str] = []
    size = quotes = 0
    most = limit // PIECE_SHARE
    for line in text:
        lines.append(line)
        size, quotes = size + len(line), quotes + line.count('"')
        enough = len(lines) >= HEAD_LINES or (size >= HEAD_CHARACTERS and len(lines) >= FEW)
        if (enough or (size >= most and len(lines) >= FEWEST)) and quotes % 2 == 0:
            break  # a name that spans lines is not cut in two
        if size + NAME_BYTES * len(lines) > HEAD_CHARACTERS + 2 * most:
            raise ValueError(
                f"a quoted field must end; {path.name} has one that does not; remove its quote, or add one"
            )
    return lines


@contextmanager
def records_of(path: Path, dialect: Dialect, encoding: str | None) -> Iterator[Iterator[tuple[int, list[str]]]]:
    """The records of a table with their line numbers; empty lines are left out."""
    with text_of(path, encoding) as text:
        for _ in range(dialect.skip):
            text.readline()
        lines = (line.strip() for line in text) if dialect.sep == SPACES else text
        reader = csv.reader(lines, delimiter=dialect.sep, skipinitialspace=True)
        yield ((reader.line_num + dialect.skip, record) for record in reader if record)


def _records_as_written(path: Path, dialect: Dialect, encoding: str | None) -> list[list[str]]:
    """All records from the header on."""
    with records_of(path, dialect, encoding) as records:
        return [record for _, record in records]


def _read_values(
    path: Path, dialect: Dialect, layout: Layout, choices: Choices, most: int
) -> tuple[NDArray[np.float64], list[str], int, list[str]]:
    """The numbers and the names of at most `most` rows, the count of blank rows at the end, and open questions."""
    values = np.empty((most, len(layout.kept)))
    labels: list[str] = []
    wrong = WrongCells(path.name, layout)
    pick: Any = itemgetter(*layout.kept) if len(layout.kept) > 1 else lambda record: (record[layout.kept[0]],)
    done = 0
    blank: list[tuple[int, list[str]]] = []
    with records_of(path, dialect, choices.encoding) as records:
        rows = _data(records, path, layout, blank)
        while block := list(islice(rows, max(1, BLOCK_CELLS // layout.width))):
            cells = list(chain.from_iterable(pick(record) for _, record in block))
            numbers, texts = dialect.numbers.parse(cells)
            values[done : done + len(block)] = numbers.reshape(len(block), -1)
            for place in texts:
                row, column = divmod(int(place), len(layout.kept))
                wrong.add(block[row][0], column, cells[place].strip())
            if layout.index is not None:
                labels += [record[layout.index] for _, record in block]
            done += len(block)
    values = values[:done]
    return values, labels, len(blank), wrong.questions(values)


def _data(
    records: Iterator[tuple[int, list[str]]], path: Path, layout: Layout, blank: list[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    """The records of data, all of one width; blank ones wait in `blank` until another follows."""
    seen = 0
    for number, record in records:
        if not is_record(record):
            blank += [(number, record)] if seen > layout.n_header else []  # not those around the header
            continue
        for at, row in [*blank, (number, record)]:
            short_header = seen == 0 < layout.n_header and len(row) == layout.width - 1  # as R writes
            if len(row) != layout.width and not short_header:
                raise ValueError(
                    f"every line must have as many fields; line {at} of {path.name} has {len(row)}, others have "
                    f"{layout.width}; fix it (the file may have been cut off)"
                )
            seen += 1
            if seen > layout.n_header:
                yield at, row
        blank.clear()


class WrongCells:
    """Cells of text among numbers, to be asked about together."""

    def __init__(self, file: str, layout: Layout) -> None:
        self.file, self.layout = file, layout
        self.first: tuple[int, int, str] | None = None
        self.words: dict[str, None] = {}
        self.counts: dict[int, int] = {}

    def add(self, line: int, column: int, word: str) -> None:
        self.first = self.first or (line, column, word)
        self.counts[column] = self.counts.get(column, 0) + 1
        if len(self.words) <= MOST_WORDS:
            self.words[word] = None

    def questions(self, values: NDArray[np.float64]) -> list[str]:
        if self.first is None:
            return []
        line, column, word = self.first
        title = self.layout.title(self.layout.kept[column])
        columns = [self.layout.title(self.layout.kept[j]) for j in sorted(self.counts)]
        ways = (
            [] if len(columns) > MOST_WORDS else [f"drop={columns} to leave the column{'s' * (len(columns) > 1)} out"]
        )
        number = sum(self.counts.values())
        others = f" ({number - 1} more such cell{'s' * (number > 2)})" if number > 1 else ""
        if WITH_COMMA.fullmatch(word):
            ways.insert(0, "decimal=',' if it is a decimal comma, thousands=',' if not")
        elif len(self.words) <= MOST_WORDS:
            ways.insert(0, f"na={list(self.words)} if {'it means' if len(self.words) == 1 else 'they mean'} missing")
        remedy = f"fix the cell{'s' * (number > 1)}" + (", or pass " + ", or ".join(ways) if ways else "")
        return [
            f"every cell must be a number or a missing entry ({' '.join(NA[1:9])} or empty); line {line}, column "
            f"{names.shown(title)} of {self.file} holds {names.shown(word)!r}{others}; {remedy}"
        ]
