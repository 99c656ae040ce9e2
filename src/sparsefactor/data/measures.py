"""What is measured of a matrix, in one reading of it: data on disk are read for all of this once."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .tiles import Node, Tree

if TYPE_CHECKING:
    from .matrix import Data


class Measures(NamedTuple):
    """Of some rows of a matrix."""

    row_sum: NDArray[np.float64]  # (G,)
    row_ss: NDArray[np.float64]  # (G,) sums of squares
    centred_ss: NDArray[np.float64]  # (G,) around the mean; 0 where nothing but rounding is left
    column_ss: list[Node]  # of (N,) sums of squares of each sample: branches of the tree of tiles
    biggest: float  # magnitude


def measures_of(data: Data) -> Measures:
    """A chunk at a time; chunks end where tiles do, so that no split of the rows into tiles changes a bit."""
    G = data.n_features
    total, squares, apart, largest = (np.empty(G) for _ in range(4))
    tree, biggest = Tree(), 0.0
    for number, tile in enumerate(data.tiles(), data.first_tile):
        by_sample = np.zeros(data.n_samples)
        data.ahead(slice(tile.stop, tile.stop + data.tile))
        for rows in data.chunks(tile):
            Y = data.Y[rows]
            squares[rows] = np.einsum("ij,ij->i", Y, Y, dtype=np.float64)
            by_sample += np.einsum("ij,ij->j", Y, Y, dtype=np.float64)
            total[rows] = Y.sum(axis=1, dtype=np.float64)
            left = Y - (total[rows] / data.row_count[rows])[:, None]
            apart[rows] = np.sum(left**2, axis=1, where=True if data.observed is None else data.observed[rows])
            largest[rows] = np.maximum(Y.max(axis=1), -Y.min(axis=1))
        tree.add(number, (by_sample,))
        biggest = max(biggest, float(largest[tile].max()))
    # Means are taken off in double precision whatever Y's is, before Y is scaled.
    mean = np.abs(data.offset) / (data.scale * data.unit)
    rounding = 8 * (np.finfo(data.Y.dtype).eps * largest + np.finfo(np.float64).eps * mean)
    centred = np.where(apart > data.row_count * rounding**2, apart, 0.0)
    return Measures(total, squares, centred, tree.nodes, biggest)
