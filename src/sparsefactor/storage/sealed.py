"""Sealed files: a header and named sections, each with its SHA-256, written whole or not at all.

A file is its kind's eight letters, the header's length, a JSON header, the SHA-256 of all that, and the sections one
after another. The header states facts (whose file it is) and every section's size and SHA-256, so that a part of a
file can be read and still be trusted, and a file in another's place is known.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..atomic import open_replacing

DIGEST = 32  # bytes of a SHA-256
LENGTH = 8
MAX_HEADER = 4_000_000  # bytes; a header has a line for each of some thirty sections
DAMAGED = "is damaged or cut short (its checksum is wrong)"
ARRAYS = "arrays"  # the fact that states dtype and shape of sections that are arrays
NUMBERS = "biufc"  # kinds of dtypes that a section may have

Arrays = dict[str, NDArray[Any]]


class SealedError(ValueError):
    """A file that is not what it should be; completes "FILE ..."."""


class Section(NamedTuple):
    start: int
    size: int
    digest: str


def seal(kind: bytes, facts: Mapping[str, Any], sections: Mapping[str, Any]) -> list[Any]:
    """The content of a file, one buffer after another; sections are not copied."""
    listed = [[name, memoryview(part).nbytes, hashlib.sha256(part).hexdigest()] for name, part in sections.items()]
    text = json.dumps({"facts": dict(facts), "sections": listed}).encode()
    if len(text) > MAX_HEADER:
        raise ValueError(
            f"the facts of a sealed file must fit into {MAX_HEADER} bytes; got {len(text)}; put more into its sections"
        )
    head = kind + len(text).to_bytes(LENGTH, "little") + text
    return [head, hashlib.sha256(head).digest(), *sections.values()]


class Sealed:
    """A sealed file that is open for reading: its facts are verified, its sections when they are read."""

    def __init__(self, file: IO[bytes], kind: bytes, what: str) -> None:
        self.file = file
        lead = file.read(len(kind) + LENGTH)
        if lead[: len(kind)] != kind:
            raise SealedError(f"is not {what} of sparsefactor")
        length = int.from_bytes(lead[len(kind) :], "little")
        text = file.read(length) if length <= MAX_HEADER else b""
        if hashlib.sha256(lead + text).digest() != file.read(DIGEST):
            raise SealedError(DAMAGED)
        try:
            header = json.loads(text)
            self.facts: dict[str, Any] = dict(header["facts"])
            self.sections: dict[str, Section] = {}
            at = len(lead) + length + DIGEST
            for name, size, digest in header["sections"]:
                self.sections[name] = Section(at, int(size), str(digest))
                at += int(size)
        except (ValueError, KeyError, TypeError, RecursionError) as problem:
            raise SealedError(f"has a header that cannot be read ({problem})") from problem
        if any(section.size < 0 for section in self.sections.values()) or file.seek(0, os.SEEK_END) != at:
            raise SealedError(DAMAGED)

    def read(self, name: str) -> bytes:
        """A section, verified."""
        if name not in self.sections:
            raise SealedError(f"has no {name}")
        section = self.sections[name]
        self.file.seek(section.start)
        content = self.file.read(section.size)
        if hashlib.sha256(content).hexdigest() != section.digest:
            raise SealedError(DAMAGED)
        return content

    def check(self) -> None:
        """Verify every section."""
        for name in self.sections:
            self.read(name)


def seal_arrays(kind: bytes, facts: Mapping[str, Any], arrays: Arrays) -> list[Any]:
    """The content of a file with a section for each array; the arrays are not copied."""
    plain = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    listed = {name: [values.dtype.str, list(np.shape(arrays[name]))] for name, values in plain.items()}
    sections = {name: values.reshape(-1).view(np.uint8).data for name, values in plain.items()}
    return seal(kind, {**facts, ARRAYS: listed}, sections)


def read_arrays(sealed: Sealed) -> Arrays:
    """The arrays that `seal_arrays` was given, verified; each is as large as its section, not as the header says."""
    arrays: Arrays = {}
    try:
        for name, (dtype, shape) in sealed.facts[ARRAYS].items():
            kind = np.dtype(dtype)
            if kind.kind not in NUMBERS:
                raise SealedError(f"has an array {name} of {dtype!r}, which are not numbers")
            arrays[name] = np.frombuffer(sealed.read(name), dtype=kind).reshape(shape).copy()
    except SealedError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as problem:
        raise SealedError(f"has a header that cannot be read ({problem})") from problem
    return arrays


def write_atomically(path: Path, *content: Any, durable: bool = True) -> None:
    """Replace a file, whole or not at all."""
    with open_replacing(path, durable=durable) as file:
        for part in content:
            file.write(part)
