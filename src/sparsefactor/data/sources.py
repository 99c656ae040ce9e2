"""Matrices that are read a part at a time: zarr stores, dask arrays, folders of Parquet files, AnnData on disk.

A source says its shape, type and names, and writes any range of its features into a matrix that is held for it. It can
be sent to another process, which opens the same thing for itself.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..annotated import BLOCK_ENTRIES, fill, matrix_of
from ..errors import needs
from ..names import shown
from .known import Done, Known, Source, check_matrix, nothing
from .stores import ZarrSource, opened

logger = logging.getLogger("sparsefactor")


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
            f"X as a path must be a zarr store or a Parquet folder; there is no {str(path)!r}; check it; "
            f"a table such as CSV is read first: X = sf.read_table({str(path)!r})"
        )
    path = path.absolute()  # whoever reads it may work in another folder
    if any((path / name).exists() for name in ("zarr.json", ".zarray", ".zgroup")):
        return ZarrSource.of(opened(str(path)), str(path))
    folder = path.is_dir()
    if (path.suffix == ".parquet" and (folder or path.is_file())) or (folder and any(path.glob("*.parquet"))):
        return ParquetSource.of(str(path))
    raise ValueError(
        f"X as a path must be a zarr store or a folder of Parquet files; {str(path)!r} is neither; read a table "
        f"first: X = sf.read_table({str(path)!r})"
    )


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
        return cls(tuple(matrix.shape), np.dtype(matrix.dtype), *names, path=str(Path(X.filename).absolute()))

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
