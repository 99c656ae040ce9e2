"""Objects of other libraries as a matrix with names: AnnData, MuData, sparse matrices.

Each is known by what it offers, so that no library is imported for it. Zeros of a sparse matrix are data. What is
sparse stays so, read from disk in blocks where it is there; what is dense and on disk is written block by block into
the one matrix that the engine will hold.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .checks import out_of_range
from .hdf5 import check_backed
from .names import shown

logger = logging.getLogger("sparsefactor")

BLOCK_ENTRIES = 5_000_000


class Read(NamedTuple):
    """Values (n_samples, n_features) and the names of both, None where there are none."""

    values: Any
    samples: Any = None
    features: Any = None
    fresh: bool = False  # made here and seen by nobody else: whoever asked may keep and change the values


def is_sparse(matrix: Any) -> bool:
    return hasattr(matrix, "nnz") or getattr(matrix, "format", None) in ("csr", "csc")  # in memory, or on disk


def is_on_disk(matrix: Any) -> bool:
    return type(matrix).__module__.split(".")[0] in ("h5py", "zarr", "anndata")


def in_memory(matrix: Any) -> bool:
    """Whether it is, or simply becomes, a NumPy array."""
    return isinstance(matrix, np.ndarray) or not (
        is_on_disk(matrix) or (is_sparse(matrix) and hasattr(matrix, "tocsc"))
    )


def room_for(rows: int, columns: int, dtype: Any) -> Any:
    """(rows, columns) to be filled, a column's entries side by side, as the engine wants them."""
    return np.empty((columns, rows), dtype=dtype).T


def held(matrix: Any, dtype: Any = np.float64, columns: Any = None) -> tuple[Any, bool]:
    """A matrix in memory, and whether that was made for it: a NumPy array, or a SciPy matrix in columns.

    columns: (columns,) bool, those that are wanted.
    """
    if in_memory(matrix):
        values = np.asarray(matrix)
        return (values, False) if columns is None else (values[:, columns], False)
    if np.dtype(matrix.dtype).kind not in "fiub":
        raise TypeError(f"X must be real and numeric; got dtype {matrix.dtype}; convert it to float")
    if is_sparse(matrix):
        return in_columns(matrix, columns), False
    rows = matrix.shape[0]
    values = room_for(rows, matrix.shape[1] if columns is None else int(np.sum(columns)), dtype)
    fill(values, matrix, np.arange(rows), columns)
    return values, True


def checked(matrix: Any) -> Any:
    """A SciPy matrix whose indices lie inside its shape: compiled code reads wherever they point."""
    if hasattr(matrix, "check_format"):
        try:
            matrix.check_format(full_check=True)
        except ValueError as problem:
            raise ValueError(
                f"indices of a sparse X must lie inside its shape {matrix.shape}; they do not ({problem}); make or "
                "write the matrix again"
            ) from None
    return matrix


def in_columns(matrix: Any, columns: Any = None) -> Any:
    """A sparse matrix, in memory or on disk, as a SciPy matrix in columns; one that is that already is returned."""
    if is_on_disk(matrix):
        from scipy.sparse import hstack, vstack

        by_column = matrix.format == "csc"
        wanted = np.arange(matrix.shape[1]) if columns is None else np.flatnonzero(columns)
        lines, across = matrix.shape[::-1] if by_column else matrix.shape
        step = max(1, BLOCK_ENTRIES // max(across, 1))
        parts = [slice(first, min(first + step, lines)) for first in range(0, lines, step)]
        if by_column:
            inside = [wanted[(wanted >= part.start) & (wanted < part.stop)] - part.start for part in parts]
            blocks = [checked(matrix[:, part]).tocsc()[:, own] for part, own in zip(parts, inside, strict=True)]
            return hstack(blocks, format="csc")
        return vstack([checked(matrix[part]).tocsr()[:, wanted] for part in parts], format="csr").tocsc()
    by_column = checked(matrix).tocsc()
    return by_column if columns is None else by_column[:, np.flatnonzero(columns)]


def filled(matrix: Any, dtype: Any) -> Any:
    """A SciPy matrix in columns as a NumPy array."""
    rows, columns = matrix.shape
    values = room_for(rows, columns, dtype)
    fill(values, matrix, np.arange(rows))
    return values


def fill(values: Any, matrix: Any, places: Any, columns: Any = None) -> None:
    """Write a matrix that is sparse, on disk or neither into rows `places` of values, a block at a time."""
    if is_sparse(matrix):
        size = values.dtype.itemsize * len(places) * values.shape[1] / 1e9
        logger.info("X is sparse: its zeros count as observed; it is made dense, %.3g GB of %s", size, values.dtype)
    if is_on_disk(matrix) and getattr(matrix, "format", None) == "csc":  # laid out by columns
        wanted = np.arange(matrix.shape[1]) if columns is None else np.flatnonzero(columns)
        step = max(1, BLOCK_ENTRIES // max(len(places), 1))
        for first in range(0, len(wanted), step):
            own = wanted[first : first + step]
            block = checked(matrix[:, own[0] : own[-1] + 1]).toarray()[:, own - own[0]]
            put(values, places, slice(first, first + step), block)
        return
    if is_on_disk(matrix) or not is_sparse(matrix):  # laid out by rows
        step = max(1, BLOCK_ENTRIES // max(matrix.shape[1], 1))
        for first in range(0, len(places), step):
            block = matrix[first : first + step]
            block = checked(block).toarray() if hasattr(block, "toarray") else np.asarray(block)
            put(values, places[first : first + step], slice(None), block if columns is None else block[:, columns])
        return
    by_column = matrix.tocsc() if columns is None else matrix.tocsc()[:, np.flatnonzero(columns)]
    step = max(1, BLOCK_ENTRIES // max(len(places), 1))
    for first in range(0, values.shape[1], step):
        put(values, places, slice(first, first + step), by_column[:, first : first + step].toarray())


def put(values: Any, rows: Any, columns: slice, block: Any) -> None:
    """Write a block into its place; refuse what the type of values cannot hold."""
    with np.errstate(over="ignore"):
        cast = block.astype(values.dtype, copy=False)
    if cast is not block and np.isinf(cast).any() and not np.isinf(block).any():
        raise out_of_range(values.dtype)
    values[rows, columns] = cast


def from_sparse(X: Any, dtype: Any = np.float64) -> Read:
    if X.ndim != 2 or not hasattr(X, "tocsc"):
        raise ValueError(
            f"X must be two-dimensional (samples by features); got a {type(X).__name__} of {X.ndim} dimension(s); "
            "reshape it"
        )
    values, fresh = held(X, dtype)
    return Read(values, fresh=fresh)


def matrix_of(X: Any, layer: str | None) -> Any:
    """`X.X`, or one of the layers."""
    if layer is not None and layer not in X.layers:
        raise KeyError(f"layer must be one of {sorted(X.layers)}; got {layer!r}; name one of them, or leave it out")
    matrix = X.X if layer is None else X.layers[layer]
    if matrix is None:
        raise ValueError(f"X must hold data; its X is None; name one of its layers {sorted(X.layers)}")
    if is_on_disk(matrix):
        check_backed(matrix, getattr(X, "filename", None))
    return matrix


def from_anndata(X: Any, dtype: Any = np.float64, layer: str | None = None, columns: Any = None) -> Read:
    """obs by var, of the columns wanted."""
    values, fresh = held(matrix_of(X, layer), dtype, columns)
    names = np.asarray(X.var_names, dtype=object)
    return Read(values, list(X.obs_names), list(names if columns is None else names[columns]), fresh)


def from_mudata(X: Any, dtype: Any = np.float64, layer: str | None = None, columns: Any = None) -> Read:
    """All modalities side by side; a sample that a modality does not have is missing there.

    They stay sparse where all are, and all have every sample.
    """
    samples = [str(name) for name in X.obs_names]
    place = {name: at for at, name in enumerate(samples)}
    names = [str(name) for modality in X.mod.values() for name in modality.var_names]
    if names != [str(name) for name in X.var_names]:
        raise ValueError(
            "feature names of the modalities must be those of the whole, in order; they are not; call mdata.update()"
        )
    wanted = np.ones(len(names), dtype=bool) if columns is None else np.asarray(columns)
    kept_names = [name for name, kept in zip(names, wanted, strict=True) if kept]
    matrices = {name: matrix_of(modality, layer) for name, modality in X.mod.items()}
    for name, matrix in matrices.items():
        if np.dtype(matrix.dtype).kind not in "fiub":
            raise TypeError(
                f"X must be real and numeric; {shown(name)!r} has dtype {matrix.dtype}; convert it to float"
            )
    rows = [np.array([place[str(name)] for name in own.obs_names], dtype=np.intp) for own in X.mod.values()]
    ends = np.cumsum([matrix.shape[1] for matrix in matrices.values()])
    owns = np.split(wanted, ends[:-1])
    if all(is_sparse(matrix) for matrix in matrices.values()) and all(len(own) == len(samples) for own in rows):
        from scipy.sparse import hstack

        parts = zip(matrices.values(), owns, rows, strict=True)
        return Read(hstack([in_columns(m, own)[np.argsort(row)] for m, own, row in parts], "csc"), samples, kept_names)
    values = room_for(len(samples), int(wanted.sum()), dtype)
    values[:] = np.nan
    at = 0
    for matrix, own, row in zip(matrices.values(), owns, rows, strict=True):
        fill(values[:, at : at + int(own.sum())], matrix, row, own)
        at += int(own.sum())
    return Read(values, samples, kept_names, fresh=True)


READERS: dict[str, Callable[..., Read]] = {
    "scipy": from_sparse,
    "anndata": from_anndata,
    "mudata": from_mudata,
}
