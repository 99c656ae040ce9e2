"""Values and names of what a user passes: frames, arrays, sparse and annotated matrices."""

from __future__ import annotations

import logging
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..annotated import READERS, Read, filled, is_sparse, room_for
from ..containers import from_xarray
from ..names import checked_names, shown
from .sources import source_of
from .sparse_making import is_complete

logger = logging.getLogger("sparsefactor")


def read_matrix(X: Any, dtype: Any = np.float64, sparse: bool = False) -> Read:
    """The values of X (n_samples, n_features) as floating-point numbers, and the names of samples and features.

    dtype: of what is made dense; what is dense already keeps its own. sparse: whether what is sparse and complete may
    stay so, as a SciPy matrix in columns.
    """
    given = _values_and_names(X, dtype)
    if is_sparse(given.values):
        if sparse and stays_sparse(given.values):
            values = given.values
            logger.info("X is sparse: its zeros count as observed; it stays sparse, %d entries", values.nnz)
        else:
            values, given = filled(given.values, dtype), given._replace(fresh=True)
        _check_shape(values.shape)
    else:
        values = _as_float_matrix(given.values)
    samples = checked_names(given.samples, values.shape[0], "sample")
    return Read(values, samples, checked_names(given.features, values.shape[1], "feature"), given.fresh)


def stays_sparse(values: Any) -> bool:
    """Whether values as they were read are sparse and are held so: where no entry is missing."""
    return is_sparse(values) and is_complete(values)


def _values_and_names(X: Any, dtype: Any) -> Read:
    """Split a frame into values, sample names and feature names (None where there are none)."""
    if isinstance(X, Read):
        return X
    module = type(X).__module__.split(".")[0]
    if module == "pandas":
        if not hasattr(X, "columns"):
            raise ValueError(
                f"X must be two-dimensional (samples by features); got a {type(X).__name__}; use X.to_frame()"
            )
        bad = [str(name) for name, kind in zip(X.columns, X.dtypes, strict=True) if kind.kind not in "fiub"]
        if bad:
            raise TypeError(f"every column of X must be numeric; column {shown(bad[0])!r} is not; drop or encode it")
        named_rows = not _is_default_index(X.index)
        named_columns = not _is_default_index(X.columns)
        rows = list(X.index) if named_rows else None
        columns = list(X.columns) if named_columns else None
        return Read(X.to_numpy(dtype=np.float64, na_value=np.nan), rows, columns)
    if module == "polars":
        if type(X).__name__ != "DataFrame":
            raise TypeError(
                f"X must be a polars DataFrame; got a {type(X).__name__}; call .collect() or .to_frame() first"
            )
        bad = [name for name, kind in X.schema.items() if not (kind.is_numeric() or str(kind) in ("Boolean", "Null"))]
        if bad:
            raise TypeError(f"every column of X must be numeric; column {shown(bad[0])!r} is not; drop or encode it")
        columns_as_float = [X[name].cast(float).to_numpy() for name in X.columns]
        stacked = np.column_stack(columns_as_float) if columns_as_float else np.empty((X.height, 0))
        return Read(stacked, None, list(X.columns))
    if module == "xarray":
        return Read(*from_xarray(X))
    if module in ("dask", "zarr") or isinstance(X, str | os.PathLike):
        return _read_whole(X, dtype)
    if module in READERS:
        return READERS[module](X, dtype)
    if isinstance(X, np.ma.MaskedArray):
        return Read(np.ma.filled(X.astype(np.float64), np.nan))
    return Read(X)


def _read_whole(X: Any, dtype: Any) -> Read:
    """What is on disk, or made by others, in memory."""
    source = source_of(X)
    assert source is not None
    values = room_for(*source.shape, dtype)
    source.fill(values, 0, source.shape[1])
    return Read(values, source.samples, source.features, fresh=True)


def _is_default_index(index: Any) -> bool:
    return index.dtype.kind in "iu" and bool(np.array_equal(np.asarray(index), np.arange(len(index))))


def _as_float_matrix(values: Any) -> NDArray[np.floating]:
    try:
        array = np.asarray(values)
    except ValueError as problem:
        raise ValueError(f"X must be a rectangular matrix (samples by features); {problem}") from None
    if array.dtype.kind == "O" and array.ndim:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as problem:
            raise TypeError(
                f"X must be numeric; got values of type object ({problem}); convert them to float"
            ) from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"X must be real and numeric; got dtype {array.dtype}; convert it to float")
    if array.ndim != 2:
        raise ValueError(
            f"X must be two-dimensional (samples by features); got {array.ndim} dimension(s), shape {array.shape}; "
            "reshape it, e.g. X.reshape(1, -1) for one sample"
        )
    _check_shape(array.shape)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _check_shape(shape: tuple[int, ...]) -> None:
    if shape[0] < 1 or shape[1] < 1:
        raise ValueError(f"X must have at least one sample and one feature; got shape {shape}; pass some data")
