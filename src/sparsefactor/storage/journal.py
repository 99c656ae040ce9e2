"""A journal on disk: records one after another, each with its checksum, of which a torn end is dropped."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

LENGTH, CHECK = 8, 8  # bytes of a record's length, and of its checksum
MAX_RECORD = 2**40


class Journal:
    """The records of a file, in their order; new ones are added at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("r+b" if path.exists() else "w+b")
        self.places: list[int] = []  # where each record begins
        self.end = 0
        while self._at(self.end) is not None:
            self.places.append(self.end)
            self.end = self.file.tell()

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, number: int) -> bytes:
        record = self._at(self.places[number])
        assert record is not None
        return record

    def _at(self, place: int) -> bytes | None:
        """The record that begins there, if it is whole; the file then stands after it."""
        self.file.seek(place)
        head = self.file.read(LENGTH + CHECK)
        if len(head) < LENGTH + CHECK:
            return None
        length = int.from_bytes(head[:LENGTH], "little")
        record = self.file.read(length) if length < MAX_RECORD else b""
        whole = len(record) == length and _check(record) == head[LENGTH:]
        return record if whole else None

    def cut(self, n: int) -> None:
        """Keep the first n records."""
        if n < len(self.places):
            self.end = self.places[n]
            del self.places[n:]
        self.file.truncate(self.end)

    def add(self, record: bytes) -> None:
        self.file.seek(self.end)
        self.file.write(len(record).to_bytes(LENGTH, "little") + _check(record) + record)
        self.places.append(self.end)
        self.end = self.file.tell()

    def settle(self) -> None:
        """All records are on the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()


def _check(record: bytes) -> bytes:
    return hashlib.sha256(record).digest()[:CHECK]


# ---- values as bytes ----------------------------------------------------------------------------------------------


def packed(value: Any, same: Mapping[str, Any]) -> bytes:
    """Numbers, arrays, tuples, lists and named tuples of them. same: objects that are known by name and identity."""
    buffers: list[bytes] = []
    text = json.dumps(_plan(value, buffers, {id(one): name for name, one in same.items()})).encode()
    return len(text).to_bytes(LENGTH, "little") + text + b"".join(buffers)


def unpacked(record: bytes, same: Mapping[str, Any], kinds: Mapping[str, Any]) -> Any:
    """What `packed` was given; kinds: the named tuples by name."""
    length = int.from_bytes(record[:LENGTH], "little")
    plan = json.loads(record[LENGTH : LENGTH + length])
    value, end = _made(plan, record, LENGTH + length, same, kinds)
    if end != len(record):
        raise ValueError("a record must be as long as it says")
    return value


def _plan(value: Any, buffers: list[bytes], names: Mapping[int, str]) -> Any:
    if id(value) in names:
        return {"same": names[id(value)]}
    if isinstance(value, np.ndarray):
        buffers.append(np.ascontiguousarray(value).tobytes())
        return {"array": value.dtype.str, "shape": value.shape}
    if isinstance(value, tuple | list):
        kind = type(value).__name__
        return {"each": [_plan(one, buffers, names) for one in value], "kind": kind}
    if value is None or isinstance(value, bool | int | float | str):
        return {"plain": value}
    if isinstance(value, np.generic):
        buffers.append(np.asarray(value).tobytes())
        return {"array": value.dtype.str, "shape": None}
    raise TypeError(f"a journal holds numbers and arrays; got a {type(value).__name__}")


def _made(plan: Any, record: bytes, at: int, same: Mapping[str, Any], kinds: Mapping[str, Any]) -> tuple[Any, int]:
    if "same" in plan:
        return same[plan["same"]], at
    if "plain" in plan:
        return plan["plain"], at
    if "array" in plan:
        shape = plan["shape"]
        flat = np.frombuffer(record, plan["array"], int(np.prod(shape or (), dtype=np.int64)), at)
        return (flat[0] if shape is None else flat.reshape(shape).copy()), at + flat.nbytes
    values = []
    for one in plan["each"]:
        value, at = _made(one, record, at, same, kinds)
        values.append(value)
    if plan["kind"] in ("tuple", "list"):
        return (tuple(values) if plan["kind"] == "tuple" else values), at
    return kinds[plan["kind"]](*values), at
