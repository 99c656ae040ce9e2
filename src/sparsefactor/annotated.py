"""Objects of other libraries as a matrix with names: AnnData, MuData, sparse matrices.

Each is known by what it offers, so that no library is imported for it. Zeros of a sparse matrix are data. The engine
holds data dense, so a sparse matrix is made dense a block of features at a time, with no second copy on the way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

logger = logging.getLogger("sparsefactor")

Read = tuple[Any, Any, Any]  # values (n_samples, n_features), sample names, feature names

BLOCK_ENTRIES = 5_000_000


def dense(matrix: Any) -> Any:
    """A matrix held sparse, on disk, or both, as a NumPy array; what is one already, as it is."""
    if isinstance(matrix, np.ndarray):
        return matrix
    on_disk = type(matrix).__module__.split(".")[0] in ("h5py", "zarr", "anndata")
    sparse = hasattr(matrix, "tocsc") and hasattr(matrix, "nnz")
    if not (on_disk or sparse):
        return np.asarray(matrix)
    rows, columns = matrix.shape
    kind = np.dtype(matrix.dtype)
    values = np.empty((rows, columns), dtype=kind if kind.kind == "f" else np.float64, order="F")
    if on_disk:  # files are laid out by rows
        step = max(1, BLOCK_ENTRIES // max(columns, 1))
        for first in range(0, rows, step):
            block = matrix[first : first + step]
            values[first : first + step] = block.toarray() if hasattr(block, "toarray") else block
        return values
    logger.info("X is sparse: its zeros count as observed; it is held dense, %.3g GB", values.nbytes / 1e9)
    by_column = matrix.tocsc()
    step = max(1, BLOCK_ENTRIES // max(rows, 1))
    for first in range(0, columns, step):
        values[:, first : first + step] = by_column[:, first : first + step].toarray()
    return values


def from_sparse(X: Any) -> Read:
    if X.ndim != 2 or not hasattr(X, "tocsc"):
        raise ValueError(
            f"X must be two-dimensional (samples by features); got a {type(X).__name__} of {X.ndim} dimension(s); "
            "reshape it"
        )
    return dense(X), None, None


def from_anndata(X: Any, layer: str | None = None) -> Read:
    """obs by var; `X.X`, or one of the layers."""
    if layer is not None and layer not in X.layers:
        raise KeyError(f"layer must be one of {sorted(X.layers)}; got {layer!r}; name one of them, or leave it out")
    matrix = X.X if layer is None else X.layers[layer]
    if matrix is None:
        raise ValueError(f"X must hold data; its X is None; name one of its layers {sorted(X.layers)}")
    return dense(matrix), list(X.obs_names), list(X.var_names)


def from_mudata(X: Any, layer: str | None = None) -> Read:
    """All modalities side by side; a sample that a modality does not have is missing there."""
    samples = [str(name) for name in X.obs_names]
    place = {name: at for at, name in enumerate(samples)}
    parts, names = [], []
    for modality in X.mod.values():
        values, own, features = from_anndata(modality, layer)
        part = np.full((len(samples), values.shape[1]), np.nan)
        part[[place[str(name)] for name in own]] = values
        parts.append(part)
        names += features
    if names != [str(name) for name in X.var_names]:
        raise ValueError(
            "feature names of the modalities must be those of the whole, in order; they are not; call mdata.update()"
        )
    return np.concatenate(parts, axis=1), samples, names


READERS: dict[str, Callable[[Any], Read]] = {
    "scipy": from_sparse,
    "anndata": from_anndata,
    "mudata": from_mudata,
}
