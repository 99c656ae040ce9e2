"""Rows in blocks of whole tiles: who has which rows, and what of a row's arrays belongs to a block.

Tiles are those of the whole data set, whatever the blocks; their sums are added in the order of the tiles. So every
split of the rows into blocks gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ..data import Data
from ..kernels.cpu.tiles import Problem, build_problem, tile_rows
from ..model import Prior
from .threads import split

# What samples add to Gram matrices of masked data has the size of N K^2: too much to keep for each tile. So many spans
# of tiles at most are added up apart, each of so many tiles at least, so that as many workers can do it.
SPANS, TILES_OF_A_SPAN = 8, 8


class Part(NamedTuple):
    """Some tiles of one block, numbered within it."""

    block: int
    first: int
    last: int


class Blocks:
    """The blocks of one data set. cuts: the tiles at which a block ends and the next begins; none for one block."""

    def __init__(self, data: Data, prior: Prior, cuts: Sequence[int] = ()) -> None:
        G = data.n_features
        self.tile = tile_rows(G, data.n_samples)
        self.n_tiles = -(-G // self.tile)
        self.tiles = [slice(*pair) for pair in pairwise([0, *cuts, self.n_tiles])]
        self.rows = [slice(part.start * self.tile, min(part.stop * self.tile, G)) for part in self.tiles]
        self.problems: list[Problem] = [build_problem(data, prior, rows, self.tile) for rows in self.rows]

    def __len__(self) -> int:
        return len(self.problems)

    def parts(self, n_threads: int) -> list[Part]:
        """The tiles shared out over threads; a part ends where a block does."""
        return [part for first, last in split(self.n_tiles, n_threads) for part in self._overlaps(first, last)]

    def spans(self) -> list[list[Part]]:
        """Tiles in SPANS groups or fewer, whose sums can be made apart: each as the parts of blocks it consists of."""
        count = max(1, min(SPANS, self.n_tiles // TILES_OF_A_SPAN))
        return [self._overlaps(first, last) for first, last in split(self.n_tiles, count)]

    def _overlaps(self, first: int, last: int) -> list[Part]:
        """The parts of blocks that some tiles consist of."""
        found = []
        for number, own in enumerate(self.tiles):
            begin, end = max(first, own.start), min(last, own.stop)
            if begin < end:
                found.append(Part(number, begin - own.start, end - own.start))
        return found

    def of(self, rows: Any, block: int) -> Any:
        """A block's part of a named tuple of arrays whose first axis is the rows; an empty array stays as it is."""
        own = self.rows[block]
        return type(rows)(*(array[own] if len(array) else array for array in rows))

    def of_tiles(self, sums: Any, block: int) -> Any:
        """A block's part of a named tuple of arrays whose first axis is the tiles."""
        return type(sums)(*(array[self.tiles[block]] for array in sums))


def by_rows(array: Any, rows: slice) -> Any:
    """What belongs to some rows of an array that has one entry for all rows, or one each, or none."""
    return array[rows] if len(array) > 1 else array


def joined(parts: list[Any], axis: int = 0) -> Any:
    """The blocks' arrays as one; the array itself where there is one block."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=axis)
