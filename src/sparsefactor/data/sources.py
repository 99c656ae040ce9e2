"""Matrices that are read a part at a time: zarr stores, dask arrays, folders of Parquet files, AnnData on disk.

A source says its shape, type and names, and writes any range of its features into a matrix that is held for it. It can
be sent to another process, which opens the same thing for itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..annotated import BLOCK_ENTRIES, fill, matrix_of
from ..errors import needs
from ..names import shown

logger = logging.getLogger("sparsefactor")


Done = Callable[[], None]


def nothing() -> None:
    """To be done after a part."""


class Source(Protocol):
    """A matrix (n_samples, n_features) that is somewhere else."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    samples: Any  # names, None where there are none
    features: Any

    def fill(self, values: NDArray[Any], first: int, last: int, done: Done = nothing) -> None:
        """Write features first .. last into values (n_samples, last - first), in any order of the parts.

        done: called after each of them.
        """
        ...


def source_of(X: Any) -> Source | None:
    """Where X is not in memory; None where it is."""
    module = type(X).__module__.split(".")[0]
    if isinstance(X, str | os.PathLike):
        return from_path(Path(X))
    if module == "dask":
        return DaskSource.of(X)
    if module == "zarr":
        return ZarrSource.of(X)
    if module == "anndata" and getattr(X, "isbacked", False) and not getattr(X, "is_view", False):
        return AnnDataSource.of(X)  # of a view, the file holds more than is asked for: it is read as it is indexed
    return X if isinstance(X, Known) and hasattr(X, "fill") else None


def from_path(path: Path) -> Source:
    """A zarr store, or a folder of Parquet files."""
    if not path.exists():
        raise FileNotFoundError(
            f"X as a path must be a zarr store or a Parquet folder; there is no {str(path)!r}; "
            "pass one that exists, or read a table with read_table first"
        )
    if any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup")):
        return ZarrSource.of(_opened(str(path)), str(path))
    if path.suffix == ".parquet" or (path.is_dir() and any(path.glob("*.parquet"))):
        return ParquetSource.of(str(path))
    raise ValueError(
        f"X as a path must be a zarr store or a folder of Parquet files; {str(path)!r} is neither; read it first, e.g. "
        "by pandas, and pass the frame"
    )


def check_matrix(shape: tuple[Any, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) != 2:
        raise ValueError(f"X must be two-dimensional (samples by features); got shape {tuple(shape)}; reshape it")
    if dtype.kind not in "fiub":
        raise TypeError(f"X must be real and numeric; got dtype {dtype}; convert it to float")
    if min(shape) < 1:
        raise ValueError(f"X must have at least one sample and one feature; got shape {tuple(shape)}; pass some data")


@dataclass
class Known:
    """What is known of a source's matrix before it is read; names are None where there are none."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    samples: Any = None
    features: Any = None


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
        store = _opened(self.path)
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


def _opened(path: str) -> Any:
    try:
        import zarr
    except ImportError as problem:
        raise needs("a zarr store", "zarr", "dask", problem) from problem
    return zarr.open(path, mode="r")


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


@dataclass
class DaskSource(Known):
    """A dask array, computed chunk by chunk."""

    array: Any = None

    @property
    def how(self) -> dict[str, str]:
        """By this process's threads, unless a cluster has parts of it."""
        graph = dict(self.array.__dask_graph__())
        with_others = any(type(value).__module__.startswith("distributed") for value in graph.values())
        return {} if with_others else {"scheduler": "threads"}

    @classmethod
    def of(cls, X: Any) -> DaskSource:
        if not hasattr(X, "chunks"):
            raise TypeError(f"X must be a dask array; got a dask {type(X).__name__}; use X.to_dask_array(lengths=True)")
        if any(np.isnan(size) for size in X.shape):
            raise ValueError(
                f"the chunks of a dask array must have known sizes; got shape {X.shape}; call X.compute_chunk_sizes()"
            )
        check_matrix(X.shape, np.dtype(X.dtype))
        if len(X.chunks[0]) > 1:
            logger.info(
                "X is chunked by samples (%d chunks of them): it is laid out by feature once, before the fit",
                len(X.chunks[0]),
            )
        return cls(tuple(X.shape), np.dtype(X.dtype), array=X)

    def fill(self, values: NDArray[Any], first: int, last: int, done: Done = nothing) -> None:
        how, parts = self.how, list(self._parts(first, last))

        def made(part: tuple[slice, slice]) -> Any:
            block = self.array[part].compute(**how)
            return block.toarray() if hasattr(block, "toarray") else block

        with ThreadPoolExecutor(1) as pool:  # the next one is made while one is written
            coming = pool.submit(made, parts[0])
            for (rows, columns), following in zip_longest(parts, parts[1:]):
                block = coming.result()
                if following is not None:
                    coming = pool.submit(made, following)
                values[rows, columns.start - first : columns.stop - first] = block
                done()

    def _parts(self, first: int, last: int) -> Iterator[tuple[slice, slice]]:
        """The chunks of some features."""
        row = 0
        for height in self.array.chunks[0]:
            column = 0
            for width in self.array.chunks[1]:
                begin, end = max(column, first), min(column + width, last)
                if begin < end:
                    yield slice(row, row + height), slice(begin, end)
                column += width
            row += height


@dataclass
class ParquetSource(Known):
    """A Parquet file or a folder of them: a line a sample, a column a feature."""

    path: str = ""

    @classmethod
    def of(cls, path: str) -> ParquetSource:
        table = _parquet(path)
        schema = table.schema
        index = [name for name in schema.names if name.startswith("__index_level_")]
        columns = [field for field in schema if field.name not in index]
        bad = [field.name for field in columns if not _is_numeric(field.type)]
        if bad:
            raise TypeError(f"every column of X must be numeric; column {shown(bad[0])!r} is not; drop or encode it")
        n = int(table.count_rows())
        check_matrix((n, len(columns)), np.dtype(float))
        names = None
        if index:
            names = [str(name) for name in table.to_table(columns=index[:1]).column(0).to_pylist()]
        single = all(str(field.type) == "float" for field in columns)
        dtype = np.dtype(np.float32 if single else np.float64)
        return cls((n, len(columns)), dtype, names, [field.name for field in columns], path=path)

    def fill(self, values: NDArray[Any], first: int, last: int, done: Done = nothing) -> None:
        row = 0
        size = max(1, BLOCK_ENTRIES // (last - first))
        for batch in _parquet(self.path).to_batches(columns=list(self.features[first:last]), batch_size=size):
            for at, column in enumerate(batch.columns):
                values[row : row + batch.num_rows, at] = column.to_numpy(zero_copy_only=False)
            row += batch.num_rows
            done()


def _parquet(path: str) -> Any:
    try:
        import pyarrow.dataset
    except ImportError as problem:
        raise needs("a Parquet folder", "pyarrow", "files", problem) from problem
    return pyarrow.dataset.dataset(path, format="parquet")


def _is_numeric(kind: Any) -> bool:
    return str(kind).rstrip("0123456789") in ("float", "double", "halffloat", "int", "uint", "bool")


@dataclass
class AnnDataSource(Known):
    """An AnnData that is backed by a file."""

    path: str = ""

    @classmethod
    def of(cls, X: Any) -> AnnDataSource:
        matrix = matrix_of(X, None)
        check_matrix(matrix.shape, np.dtype(matrix.dtype))
        names = list(map(str, X.obs_names)), list(map(str, X.var_names))
        return cls(tuple(matrix.shape), np.dtype(matrix.dtype), *names, path=str(X.filename))

    def fill(self, values: NDArray[Any], first: int, last: int, done: Done = nothing) -> None:
        try:
            import anndata
        except ImportError as problem:
            raise needs("an AnnData on disk", "anndata", "scverse", problem) from problem
        columns = None
        if (first, last) != (0, self.shape[1]):
            columns = np.zeros(self.shape[1], dtype=bool)
            columns[first:last] = True
        fill(values, anndata.read_h5ad(self.path, backed="r").X, np.arange(self.shape[0]), columns)
