"""Zarr stores, read along their chunks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from socket import gethostname
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..annotated import BLOCK_ENTRIES
from ..errors import needs
from .known import Done, Known, check_matrix, nothing


@dataclass
class ZarrSource(Known):
    """A zarr array, or the `X` of a group that is laid out as AnnData's are."""

    path: str = ""
    key: str = ""

    @classmethod
    def of(cls, store: Any, path: str | None = None) -> ZarrSource:
        samples = features = None
        array, key = store, ""
        if not hasattr(store, "shape"):
            if "X" not in store or not hasattr(store["X"], "shape"):
                raise ValueError(
                    f"a zarr group must hold a dense array called 'X'; {store!s} has {sorted(store)[:5]}; pass the "
                    "path of the array itself"
                )
            array, key = store["X"], "X"
            samples, features = (_zarr_names(store, name) for name in ("obs", "var"))
        check_matrix(array.shape, array.dtype)
        _refuse_missing_chunks(array)
        if path is None:
            path, key = str(array.store_path).removeprefix("file://"), ""
        return cls(tuple(array.shape), np.dtype(array.dtype), samples, features, path=path, key=key)

    def fill(self, values: NDArray[Any], first: int, last: int, done: Done = nothing) -> None:
        store = opened(self.path)
        array: Any = store[self.key] if self.key else store
        for rows, columns in _grid(array.shape, array.chunks, first, last):
            try:
                block = array[rows, columns]
            except Exception as problem:
                raise ValueError(
                    f"every chunk of a zarr store must be readable; that of samples {rows.start} to {rows.stop - 1}, "
                    f"features {columns.start} to {columns.stop - 1} of {self.path!r} is not "
                    f"({type(problem).__name__}: {problem}); restore it, or write the store again"
                ) from problem
            values[rows, columns.start - first : columns.stop - first] = block
            done()


def opened(path: str) -> Any:
    try:
        import zarr
    except ImportError as problem:
        raise needs("a zarr store", "zarr", "dask", problem) from problem
    try:
        return zarr.open(path, mode="r")
    except FileNotFoundError as problem:
        raise FileNotFoundError(
            f"X must be at a path that whoever reads it sees, each worker, too; there is no {path!r} on "
            f"{gethostname()}; put it on a disk that they share"
        ) from problem
    except Exception as problem:
        raise ValueError(
            f"a zarr store must say what it holds; {path!r} does not ({type(problem).__name__}: {problem}); restore "
            "its metadata, or write the store again"
        ) from problem


def _zarr_names(store: Any, which: str) -> list[str] | None:
    try:
        table: Any = store[which]
        return [str(name) for name in table[table.attrs["_index"]][:]]
    except KeyError:
        return None


def _refuse_missing_chunks(array: Any) -> None:
    """A chunk that is not there reads as the fill value, which nobody would notice."""
    there, wanted = int(array.nchunks_initialized), int(array.nchunks)
    fill_value = array.fill_value
    if there < wanted and not (fill_value is not None and np.isnan(fill_value)):
        raise ValueError(
            f"every chunk of a zarr store must be there; {wanted - there} of {wanted} are missing, and would read as "
            f"{fill_value}; restore them, or, where they hold nothing else, write the store with "
            "config={'write_empty_chunks': True}"
        )


def _grid(shape: Any, chunks: Any, first: int, last: int) -> Iterator[tuple[slice, slice]]:
    """Parts of a matrix along its chunks, of some features, each of BLOCK_ENTRIES or one chunk."""
    high, wide = (max(1, int(size)) for size in chunks)
    wide = wide * max(1, BLOCK_ENTRIES // (high * wide))
    begin = first
    while begin < last:
        end = min((begin // wide + 1) * wide, last)
        for row in range(0, shape[0], high):
            yield slice(row, min(row + high, shape[0])), slice(begin, end)
        begin = end
