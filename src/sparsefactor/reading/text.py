"""Text tables: opened whatever their compression and encoding, read by pandas once their form is known."""

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
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import names
from .cells import NA, Reader
from .guess import SEPARATORS, SPACES, Form, Records, fields, form
from .limits import COLUMN_BYTES, NAME_BYTES, PIECE_SHARE, check_table, too_large
from .parts import Parts

if TYPE_CHECKING:
    from .table import Choices

HEAD_LINES = 1000
HEAD_CHARACTERS = 1 << 20  # and at least FEW lines
FEW = 20
FEWEST = 2  # however long they are
CHUNK = 1 << 20  # bytes looked at together
PARSED_TOGETHER = 256_000_000  # bytes of text; what pandas takes for them is a few times as much
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


@contextmanager
def text_of(path: Path, encoding: str | None) -> Iterator[io.TextIOWrapper]:
    """The text of a file; line ends are left to who reads."""
    marked = "utf-8"
    try:
        with unpacked(path) as file:
            start = file.read(4)
        marked = next((name for mark, name in MARKS.items() if start.startswith(mark)), marked)
        with unpacked(path) as file, io.TextIOWrapper(file, encoding=encoding or marked, newline="") as text:
            yield text
    except UnicodeError as problem:
        raise ValueError(
            f"text must be readable in its encoding; {path.name} is not in {encoding or marked} ({problem}); "
            "pass encoding= (--encoding), often latin-1 or cp1252"
        ) from None
    except LookupError:
        raise ValueError(f"encoding must be known to Python; got {encoding!r}; try latin-1 or cp1252") from None


def read_text(path: Path, choices: Choices) -> Parts:
    """The table in a text file."""
    size = extent(path, choices.limit)
    with text_of(path, choices.encoding) as text:
        head = _head(text, path, choices.limit)
    _check_width(head, path, choices.limit)
    if any("\0" in line for line in head):
        raise ValueError(
            f"a table must be text or of a known format; {path.name} holds other bytes; see docs for the formats"
        )
    try:
        found, body = form(head, path.name, choices)
        named = found.names_at is not None
        check_table(size.lines, len(found.kept), path, choices.limit, n_names=size.lines if named else 0)
        labels, n_lines = names_of(path, choices, found)
        check_numeric(path, found, body, choices)
        values = parse(path, found, choices, n_lines, max(1, PARSED_TOGETHER // size.longest))
    except csv.Error as problem:
        raise ValueError(f"fields must be readable; {path.name}: {problem}; check its quotes and long names") from None
    titles = [found.titles[j] for j in found.kept] if found.titles else None
    if values.shape[1] > 1 and not (titles and titles[-1]) and _ends_empty(body, values):
        values, titles = values[:, :-1], titles and titles[:-1]
    return Parts(
        values=values,
        rows=names.checked(labels, "line", path.name) if named else None,
        columns=None if titles is None else names.checked(titles, "column", path.name),
        kind=f"{SEPARATORS.get(found.sep, repr(found.sep))}-separated text"
        + (", decimal commas" if found.decimal == "," else "")
        + (f", thousands parted by {found.thousands!r}" if found.thousands else ""),
        corner=found.titles[found.names_at] if found.titles and found.names_at is not None else "",
    )


def _check_width(head: list[str], path: Path, limit: int) -> None:
    """Refuse more columns than fit, before lines are split."""
    width = 1 + max((max(map(line.count, ",\t;|")) or line.count(SPACES) for line in head), default=0)
    if COLUMN_BYTES * width > limit:
        raise too_large(path, f"has about {width} columns", limit, COLUMN_BYTES * width)


def _ends_empty(body: Records, values: NDArray[np.float64]) -> bool:
    """A last column of nothing at all comes from separators at the ends of lines."""
    return all(not record[-1].strip() for record in body) and bool(np.isnan(values[:, -1]).all())


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


def names_of(path: Path, choices: Choices, found: Form) -> tuple[list[str], int]:
    """The names of the lines, as they are written, and how many lines there are; all have as many fields.

    pandas would take a sample called NA for a missing one, and fill a short line with missing entries.
    """
    labels: list[str] = []
    n_lines = 0
    at, sep, begun = found.names_at, found.sep, not found.titles
    with text_of(path, choices.encoding) as text:
        for number, line in enumerate(text, start=1):
            if '"' in line and line.count('"') % 2:
                break  # a field spans lines
            bare = line.strip() if sep == SPACES else line.rstrip("\r\n")
            if number <= found.skip or not bare.strip(" "):
                continue
            if '"' in bare:
                record = fields([bare], sep)[0]
                size = len(record)
            else:
                parts = None if sep == SPACES else sep
                size = len(bare.split()) if sep == SPACES else bare.count(sep) + 1
                record = bare.split(parts, at + 1) if at is not None else []
            if size != found.width and not (not begun and found.ragged):
                raise _short(path, f"line {number}", size, found.width)
            n_lines += begun
            if begun and at is not None:
                labels.append(record[at])
            begun = True
        else:
            return labels, n_lines
    labels, n_lines = [], 0
    with text_of(path, choices.encoding) as text:
        for _ in range(found.skip):
            text.readline()
        records = (record for record in csv.reader(text, delimiter=sep, skipinitialspace=True) if record)
        for number, record in enumerate(records, start=1):
            if len(record) != found.width and not (number == 1 and found.ragged):
                raise _short(path, f"record {number}", len(record), found.width)
            if number == 1 and found.titles:
                continue
            n_lines += 1
            if at is not None:
                labels.append(record[at])
    return labels, n_lines


def _short(path: Path, where: str, size: int, expected: int) -> ValueError:
    return ValueError(
        f"every line must have as many fields; {where} of {path.name} has {size}, others have {expected}; "
        "mend it (the file may have been cut off)"
    )


def check_numeric(path: Path, found: Form, body: Records, choices: Choices) -> None:
    """Refuse columns of text, with the setting that leaves them out."""
    reader = Reader(choices.na, found.decimal, found.thousands)
    wrong = {}
    for j in found.kept:
        cells = [record[j] for record in body]
        texts = [cell for cell in cells if reader.is_text(cell)]
        if texts and not any(map(reader.is_number, cells)):
            wrong[names.shown(found.titles[j] if found.titles else j + 1)] = texts[0]
    if wrong:
        shown = list(wrong)[:3]
        more = f" and {len(wrong) - len(shown)} more" if len(wrong) > len(shown) else ""
        flags = " ".join(f"--drop {name!r}" for name in shown)
        raise ValueError(
            f"every column but one of names must hold numbers; in {path.name}, column {', '.join(shown)}{more} holds "
            f"text ({names.shown(wrong[shown[0]])!r}); pass drop={shown} ({flags}) to leave it out, or "
            + ("write it as plain numbers" if any(sign.isdigit() for sign in wrong[shown[0]]) else "encode it")
        )


def parse(path: Path, found: Form, choices: Choices, n_lines: int, together: int) -> NDArray[np.float64]:
    """The numbers of n_lines, so many of them `together`."""
    import pandas as pd

    values = np.empty((len(found.kept), n_lines)).T  # a column's numbers side by side, as pandas has them

    how: dict[str, Any] = {
        "header": None,
        "names": range(found.width),
        "usecols": found.kept,
        "dtype": str if found.thousands else np.float64,
        "sep": r"\s+" if found.sep == SPACES else found.sep,
        "decimal": found.decimal,
        "skipinitialspace": found.sep != SPACES,
        "na_values": [*NA, *choices.na],
        "keep_default_na": False,
        "low_memory": False,
        "index_col": False,
        "chunksize": together,
    }
    plain = Reader(choices.na, found.decimal, found.thousands).plain
    done = 0
    with text_of(path, choices.encoding) as text:
        for _ in range(found.skip):
            text.readline()
        if found.titles:
            next(record for record in csv.reader(text, delimiter=found.sep) if record)
        try:
            with pd.read_csv(text, **how) as frames:
                for frame in frames:
                    if found.thousands:
                        frame = frame.map(plain, na_action="ignore").astype(np.float64)
                    values[done : done + len(frame)] = frame.to_numpy(dtype=np.float64)
                    done += len(frame)
        except (ValueError, OverflowError) as problem:
            raise _misfit(path, found, choices) or problem from None
    if done != n_lines:
        raise ValueError(f"every line must be a record; of {path.name}, {n_lines} were found and {done} read; check it")
    return values


def _misfit(path: Path, found: Form, choices: Choices) -> ValueError | None:
    """The first cell that is neither a number nor missing."""
    reader = Reader(choices.na, found.decimal, found.thousands)
    with text_of(path, choices.encoding) as text:
        for _ in range(found.skip):
            text.readline()
        lines = (line.strip() for line in text) if found.sep == SPACES else text
        rows = csv.reader(lines, delimiter=found.sep, skipinitialspace=True)
        for number, record in enumerate(record for record in rows if record):
            for j in found.kept if number or not found.titles else ():
                if reader.is_text(record[j]):
                    title = found.titles[j] if found.titles else str(j + 1)
                    cell = names.shown(record[j].strip())
                    return ValueError(
                        f"every cell must be a number or a missing entry ({' '.join(NA[1:9])} or empty); line "
                        f"{rows.line_num + found.skip}, column {names.shown(title)} of {path.name} holds {cell!r}; "
                        f"mend it, pass na=[{cell!r}] (--na {cell!r}) if it means missing, or leave the column out by "
                        f"drop=[{title!r}] (--drop {title!r})"
                    )
    return None
