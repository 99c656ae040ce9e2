"""What a shard keeps, as a file from which another shard of the same rows goes on."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...data import Data
from ...data.spool import Scratch
from ...kernels.exchange import Exchange

if TYPE_CHECKING:
    from .shard import Shard


def saved(shard: Shard) -> Scratch:
    """All that is kept but engines, in a file: there may be as much of it as there is memory left."""
    scratch = Scratch()
    _Pickler(scratch.file, shard).dump({key: value for key, value in shard.kept.items() if not _is_engine(value)})
    return scratch


def restored(scratch: Scratch, shard: Shard) -> Any:
    """What another has kept, around the data and engines of this one."""
    scratch.file.seek(0)
    return _Unpickler(scratch.file, shard).load()


def pieces_of(scratch: Scratch, size: int) -> Iterator[tuple[bytes, bool]]:
    """The pieces of a file, of so many bytes, and whether each is its last, which has fewer."""
    first, last = 0, False
    while not last:
        scratch.file.seek(first)
        piece = scratch.file.read(size)
        first, last = first + len(piece), len(piece) < size
        yield piece, last


def _is_engine(value: Any) -> bool:
    return hasattr(value, "vi_row_pass")


class _Pickler(pickle.Pickler):
    """Leaves out what a shard has anyway: data, exchange, engines."""

    def __init__(self, file: Any, shard: Shard) -> None:
        super().__init__(file, protocol=5)
        self.known = known_of(shard)

    def persistent_id(self, obj: Any) -> Any:
        return self.known.get(id(obj)) if isinstance(obj, Data | Exchange) or _is_engine(obj) else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, shard: Shard) -> None:
        super().__init__(file)
        self.shard = shard

    def persistent_load(self, pid: Any) -> Any:
        kind, key = pid
        if kind == "data":
            return self.shard.data
        return self.shard.exchange if kind == "exchange" else self.shard.kept[key]


def known_of(shard: Shard) -> dict[int, Any]:
    """By identity: what a shard has anyway, and what to call it."""
    known: dict[int, Any] = {id(shard.data): ("data", None), id(shard.exchange): ("exchange", None)}
    for key, value in shard.kept.items():
        if _is_engine(value):
            known[id(value)] = ("engine", key)
            known.setdefault(id(value.data), ("data", None))
    return known
