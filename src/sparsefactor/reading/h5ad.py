"""AnnData's .h5ad: its X with the names of observations and variables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import needs
from ..hdf5 import AGAIN, check_indices, check_indptr, check_layout, member
from . import names
from .limits import check_table, too_large
from .parsed import Parsed, numbers

if TYPE_CHECKING:
    from .table import Choices

LAYOUTS = ("csr_matrix", "csc_matrix")


def read_h5ad(path: Path, choices: Choices) -> Parsed:
    h5py = library(path)
    try:
        with h5py.File(path, "r") as file:
            if not {"X", "obs", "var"} <= file.keys():
                raise ValueError(f"an HDF5 file must be AnnData's; {path.name} has no X, obs and var; export it as CSV")
            X, obs, var = (member(file, name, path.name) for name in ("X", "obs", "var"))
            sparse = isinstance(X, h5py.Group)
            values = _sparse(X, path, choices.limit) if sparse else _dense(X, path, choices.limit)
            rows, columns = (
                _names(group, size, path, choices.limit) for group, size in zip((obs, var), values.shape, strict=True)
            )
    except (OSError, RuntimeError, KeyError, TypeError, AttributeError, UnicodeError) as problem:
        if isinstance(problem, OSError) and problem.errno is not None:
            raise
        raise ValueError(f"an HDF5 file must be whole; {path.name} is not ({problem}); copy it again") from problem
    return Parsed(
        values,
        names.checked(rows, "row", path.name),
        names.checked(columns, "column", path.name),
        "AnnData (X, observations by variables)",
    )


def _dense(X: Any, path: Path, limit: int) -> NDArray[np.float64]:
    if not hasattr(X, "shape") or X.shape is None or len(X.shape) != 2 or X.dtype.kind not in "fiub":
        raise ValueError(
            f"X of an AnnData file must be a matrix of numbers; that of {path.name} is not; {AGAIN}, or export it as "
            "CSV"
        )
    n_rows, n_columns = X.shape
    check_table(n_rows, n_columns, path, limit)
    _check_chunks(X, path, limit)
    return numbers(X[:], path)


def _check_chunks(dataset: Any, path: Path, limit: int) -> None:
    """A compressed chunk is unpacked whole, and may be larger than the dataset."""
    size = int(np.prod(dataset.chunks or (0,), dtype=object)) * dataset.dtype.itemsize
    if size > limit:
        raise too_large(path, f"has chunks of {size:,} bytes in {dataset.name}", limit, size)


def _sparse(X: Any, path: Path, limit: int) -> NDArray[np.float64]:
    """What is not stored is zero, and observed."""
    from scipy import sparse

    layout = str(X.attrs.get("encoding-type", ""))
    if layout not in LAYOUTS:
        raise ValueError(
            f"a sparse X must say that it is one of {' '.join(LAYOUTS)}; that of {path.name} says {layout!r}; {AGAIN}"
        )
    shape = np.asarray(X.attrs["shape"]) if "shape" in X.attrs else np.zeros(0)
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0:
        raise ValueError(f"a sparse X must say its shape, two whole numbers; that of {path.name} does not; {AGAIN}")
    n_rows, n_columns = (int(n) for n in shape)
    check_table(n_rows, n_columns, path, limit)
    parts: list[Any] = [member(X, name, path.name) for name in ("data", "indices", "indptr")]
    if not all(hasattr(part, "shape") for part in parts):
        raise ValueError(f"a sparse X must have arrays of data, indices and indptr; {path.name} has others; {AGAIN}")
    lines, across = (n_rows, n_columns) if layout == "csr_matrix" else (n_columns, n_rows)
    check_layout(parts[0], parts[1], parts[2], lines, path.name)
    for part in parts:
        check_table(part.shape[0], 1, path, limit)
        _check_chunks(part, path, limit)
    data, indices, indptr = (part[:] for part in parts)
    check_indptr(indptr, len(data), path.name)
    check_indices(indices, across, path.name)
    kind = sparse.csr_matrix if layout == "csr_matrix" else sparse.csc_matrix
    return numbers(kind((data, indices, indptr), shape=(n_rows, n_columns)).toarray(), path)


def library(path: Path) -> Any:
    """h5py, where it is installed."""
    try:
        import h5py
    except ImportError as problem:
        raise needs(f"reading {path.name}", "h5py", "files", problem) from problem
    return h5py


def _names(group: Any, size: int, path: Path, limit: int) -> list[str]:
    h5py = library(path)
    key = group.attrs.get("_index", "_index")
    table = isinstance(group, h5py.Group) and isinstance(key, str) and "/" not in key and key in group
    found = member(group, key, path.name) if table else None
    if not isinstance(found, h5py.Dataset) or h5py.check_string_dtype(found.dtype) is None:
        raise ValueError(
            f"names in .h5ad must be a column of text; {path.name} has others; write it by anndata 0.8 or newer"
        )
    if found.shape is not None and len(found.shape) == 1:
        check_table(0, 0, path, limit, n_names=found.shape[0])
        _check_chunks(found, path, limit)
    if found.shape != (size,):
        raise ValueError(
            f"an AnnData file must have a name for each line of X; {path.name} has {found.shape} in {found.name} for "
            f"{size}; {AGAIN}"
        )
    # Many names may be one and the same long text of the file, which takes room only once it is read.
    step = max(1, limit // max(path.stat().st_size, found.dtype.itemsize))
    words: list[str] = []
    for first in range(0, size, step):
        words += [str(name) for name in found.asstr()[first : first + step]]
        longest = max(map(len, words[first:]))
        if longest > names.LONGEST:
            raise ValueError(
                f"names must have at most {names.LONGEST} characters; {path.name} has one of {longest}; shorten it"
            )
    return words
