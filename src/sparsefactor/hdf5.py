"""HDF5 files made by others: nothing outside the file is read, and what it says of sizes and indices is checked.

Compiled code that reads a sparse matrix follows its indices without looking; those in a file may point anywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

AGAIN = "write it again by a current version of anndata"


def member(group: Any, name: str, file: str) -> Any:
    """A dataset or group of the file itself: no link to another place is followed."""
    place = f"{group.name.rstrip('/')}/{name}"
    link = None if "/" in name else group.get(name, getlink=True)
    if link is None:
        raise ValueError(f"an AnnData file must hold {place}; {file} does not; {AGAIN}")
    if type(link).__name__ != "HardLink":
        raise outside(place, file)
    found = group[name]
    check_inside(found, file)
    return found


def check_inside(found: Any, file: str) -> None:
    """Refuse a dataset whose numbers lie in other files."""
    if hasattr(found, "external") and (found.external or found.is_virtual):
        raise outside(found.name, file)


def outside(place: str, file: str) -> ValueError:
    return ValueError(
        f"an HDF5 file must hold its data itself; {place} of {file} is a link, or lies in another file; copy the data "
        "into it"
    )


def check_layout(data: Any, indices: Any, indptr: Any, n_lines: int, file: str) -> None:
    """Refuse arrays on disk, or in memory, whose types and lengths cannot be those of a sparse matrix of n_lines."""
    kinds = [np.dtype(array.dtype).kind for array in (data, indices, indptr)]
    lengths = [tuple(array.shape) for array in (data, indices, indptr)]
    if kinds[0] not in "fiub" or kinds[1] not in "iu" or kinds[2] not in "iu":
        raise ValueError(
            f"a sparse matrix must have numbers as data, whole numbers as indices and indptr; those of {file} are "
            f"{data.dtype}, {indices.dtype} and {indptr.dtype}; {AGAIN}"
        )
    if lengths[0] != lengths[1] or len(lengths[0]) != 1 or lengths[2] != (n_lines + 1,):
        raise ValueError(
            f"a sparse matrix of {n_lines} lines must have as many indices as data, and {n_lines + 1} numbers in "
            f"indptr; {file} has {lengths[1]}, {lengths[0]} and {lengths[2]}; {AGAIN}"
        )


def check_indptr(indptr: NDArray[Any], n_entries: int, file: str) -> None:
    if indptr[0] != 0 or indptr[-1] != n_entries or (indptr[1:] < indptr[:-1]).any():
        raise ValueError(
            f"indptr of a sparse matrix must rise from 0 to the number of entries, {n_entries}; that of {file} does "
            f"not; {AGAIN}"
        )


def check_indices(indices: NDArray[Any], across: int, file: str) -> None:
    if indices.size and not (indices.min() >= 0 and indices.max() < across):
        wrong = indices.min() if indices.min() < 0 else indices.max()
        raise ValueError(
            f"indices of a sparse matrix must lie inside its shape (0 to {across - 1}); {file} has {wrong}; {AGAIN}"
        )


def check_backed(matrix: Any, path: Any) -> None:
    """Refuse the matrix of an AnnData that is backed by a file, where it lies elsewhere or its parts do not agree.

    Its indices are checked block by block, as they are read.
    """
    stored = getattr(matrix, "group", matrix)
    if not type(stored).__module__.startswith("h5py.") or not hasattr(stored, "file"):
        return  # of another library
    file = Path(str(path or stored.file.filename)).name
    if path is not None and Path(stored.file.filename).resolve() != Path(path).resolve():
        raise outside(stored.name, file)
    if stored is matrix:
        check_inside(stored, file)
        return
    data, indices, indptr = (member(stored, name, file) for name in ("data", "indices", "indptr"))
    check_layout(data, indices, indptr, matrix.shape[1 if matrix.format == "csc" else 0], file)
    check_indptr(indptr[:], data.shape[0], file)
