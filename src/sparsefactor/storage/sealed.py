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

from ..atomic import replacing

DIGEST = 32  # bytes of a SHA-256
LENGTH = 8
MAX_HEADER = 4_000_000  # bytes; a header has a line for each of some thirty sections
DAMAGED = "is damaged or cut short (its checksum is wrong)"


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


def write_atomically(path: Path, *content: Any, durable: bool = True) -> None:
    """Replace a file of a run, which has one writer at a time."""
    with replacing(path, durable=durable, sole=True) as temporary, temporary.open("wb") as file:
        for part in content:
            file.write(part)
