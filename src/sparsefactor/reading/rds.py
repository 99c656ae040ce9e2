"""R's .rds: a matrix or a data frame. What it says of lengths is checked before `rdata` makes objects of it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..errors import TooLargeError, needs
from . import names
from .csv import read_whole
from .frames import from_frame
from .limits import NUMBER_BYTES, too_large
from .parsed import Parsed, numbers

if TYPE_CHECKING:
    from .table import Choices

OBJECT_BYTES = 1000  # an R object as rdata holds it; in the file it may take four bytes

# Types of objects as R numbers them.
SYMBOL, ENVIRONMENT, CHARACTERS, POINTER, SEQUENCE, NAMESPACE = 1, 4, 9, 22, 238, 249
PAIRS = (2, 3, 5, 6, 17)  # lists, functions, promises, calls, dots
BUILTIN = (7, 8)
ARRAYS = {10: 4, 13: 4, 14: 8, 15: 16}  # logical, integer, real, complex: bytes of a number
VECTORS = (16, 19, 20)  # of strings, of objects, of expressions
BARE = (0, 25, 241, 242, 251, 253, 254, 255)  # NULL, S4, environments that all have, a missing argument, a reference
SPECIAL = (254, 255)  # which have no flags


def read_rds(path: Path, choices: Choices) -> Parsed:
    try:
        import rdata
        from rdata.parser import DEFAULT_ALTREP_MAP
    except ImportError as problem:
        raise needs(f"reading {path.name}", "rdata", "files", problem) from problem
    content = read_whole(path, choices.limit)
    try:
        check_objects(content, path, choices.limit)
        found = rdata.read_rds(
            io.BytesIO(content), altrep_constructor_dict=_sequences(DEFAULT_ALTREP_MAP, path, choices.limit)
        )
    except (TooLargeError, MemoryError):
        raise
    except Exception as problem:  # of many kinds, where a file is damaged
        raise ValueError(
            f"an .rds file must hold an R object; {path.name} does not, or is damaged "
            f"({type(problem).__name__}: {problem}); save it again by saveRDS(), or as CSV"
        ) from problem
    if hasattr(found, "dims"):  # a matrix with names comes as an xarray.DataArray
        rows, columns = (
            names.checked([str(n) for n in found.coords[d].values], what, path.name) if d in found.coords else None
            for d, what in zip(found.dims, ("row", "column"), strict=True)
        )
        return Parsed(numbers(found.values, path), rows, columns, "R matrix")
    if hasattr(found, "columns"):
        return from_frame(found, path, choices, "R data frame")
    return Parsed(numbers(np.asarray(found), path), None, None, "R matrix")


class Binary:
    """Numbers one after the other."""

    def __init__(self, content: memoryview, order: Literal["big", "little"]) -> None:
        self.content, self.at = content, 0
        self.order: Literal["big", "little"] = order

    def skip(self, count: int, size: int) -> None:
        if not 0 <= count * size <= len(self.content) - self.at:
            raise ValueError(f"{count} values of {size} bytes are not there")
        self.at += count * size

    def integer(self) -> int:
        begin = self.at
        self.skip(1, 4)
        return int.from_bytes(self.content[begin : self.at], self.order, signed=True)

    def text(self, length: int) -> None:
        self.skip(length, 1)


class Lines:
    """The same as text, a line for each number and each string."""

    def __init__(self, content: memoryview) -> None:
        self.lines = io.BytesIO(content)

    def line(self) -> bytes:
        if not (line := self.lines.readline()):
            raise ValueError("it ends too early")
        return line

    def skip(self, count: int, size: int) -> None:
        if count < 0:
            raise ValueError(f"a length is {count}")
        for _ in range(count * (size // 16 or 1)):  # a complex number has two lines
            self.line()

    def integer(self) -> int:
        return int(self.line())

    def text(self, length: int) -> None:
        self.line()


def check_objects(content: bytes, path: Path, limit: int) -> None:
    """Walk over the objects of a file; refuse more than would fit, and what no table holds."""
    view = memoryview(content)
    start, rest = bytes(view[:2]), view[2:]
    order: Literal["big", "little"] = "big" if start == b"X\n" or not rest[0] else "little"
    source = Lines(rest) if start == b"A\n" else Binary(rest, order)
    version = source.integer()
    source.skip(2, 4)
    if version == 3:
        source.text(source.integer())  # the encoding
    pending, count = 1, 0
    while pending:
        pending, count = pending - 1, count + 1
        if count * OBJECT_BYTES > limit:
            raise too_large(path, f"holds more than {count} R objects", limit, 2 * limit)
        pending += _children(source)


def _children(source: Binary | Lines) -> int:
    """Read the head of an object, and all of one that has no parts; the number of objects that follow as its parts."""
    flags = source.integer()
    kind = flags & 0xFF
    attributes, tag = (0, 0) if kind in SPECIAL else (flags >> 9 & 1, flags >> 10 & 1)
    if kind in PAIRS:
        return 2 + attributes + tag
    if kind in VECTORS:
        length = source.integer()
        if length < 0:
            raise ValueError(f"a length is {length}")
        return length + attributes
    if kind in ARRAYS:
        source.skip(source.integer(), ARRAYS[kind])
    elif kind == CHARACTERS or kind in BUILTIN:
        length = source.integer()
        if length >= 0:
            source.text(length)
    elif kind == SYMBOL:
        return 1 + attributes
    elif kind == ENVIRONMENT:
        source.integer()
        return 4 + attributes
    elif kind == POINTER:
        return 2 + attributes
    elif kind == SEQUENCE:
        return 3
    elif kind == NAMESPACE:
        source.integer()
        return source.integer() + attributes
    elif kind not in BARE:
        raise ValueError(f"objects of type {kind} are no part of a table")
    return attributes


def _sequences(known: Any, path: Path, limit: int) -> dict[bytes, Callable[[Any], Any]]:
    """R's short forms, such as 1:n, which say how long they are; all of them together must fit."""
    made = 0

    def bounded(make: Callable[[Any], Any], length: Callable[[Any], int], size: int) -> Callable[[Any], Any]:
        def expand(state: Any) -> Any:
            nonlocal made
            made += size * length(state)
            if made > limit:
                raise too_large(path, f"holds a sequence that takes {made:,} bytes", limit, made)
            return make(state)

        return expand

    known = dict(known)
    for name in (b"compact_intseq", b"compact_realseq"):
        known[name] = bounded(known[name], lambda state: int(state.value[0]), 4 * NUMBER_BYTES)
    known[b"deferred_string"] = bounded(
        known[b"deferred_string"], lambda state: len(state.value[0].value), OBJECT_BYTES
    )
    return known
