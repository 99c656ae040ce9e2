"""Rows in blocks of whole tiles: who has which rows, and what of a row's arrays belongs to a block.

Tiles are those of the whole data set, whatever the blocks; their sums are added in the order of the tiles. So every
split of the rows into blocks gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ..data import Data
from ..kernels.cpu.tiles import Problem, build_problem
from ..model import Prior
from .threads import available_cores, split

# What samples add to Gram matrices of masked data has the size of N K^2: too much to keep for each tile. So many spans
# of tiles at most are added up apart, each of so many tiles at least, so that as many workers can do it.
SPANS, TILES_OF_A_SPAN = 64, 8


# Of data on disk, what a round of a pass holds in memory, or a tile for every core up to so much more; as much again is
# read ahead.
ROUND_BYTES, MOST_ROUND_BYTES = 2**26, 2**29


class Part(NamedTuple):
    """Some tiles of one block, numbered within it."""

    block: int
    first: int
    last: int


class Round(NamedTuple):
    """What is done together: some tiles, and the parts that they are shared out in."""

    tiles: slice
    parts: list[Part]


class Blocks:
    """The blocks of one data set, or of a part of it.

    cuts: the tiles at which a block ends and the next begins; none for one block. Of data that are not in memory there
    is one for each round of a pass, small enough to be there.
    """

    def __init__(self, data: Data, prior: Prior, cuts: Sequence[int] = ()) -> None:
        G = data.n_features
        self.data, self.tile, self.first_tile = data, data.tile, data.first_tile
        self.n_tiles = -(-G // self.tile)
        self.all_tiles = self.n_tiles if data.n_rows is None else -(-data.n_rows // self.tile)
        self.by_round = data.spool is not None
        if self.by_round and not cuts:
            cuts = range(0, self.n_tiles, tiles_of_a_round(self.tile * data.n_samples * data.Y.itemsize))[1:]
        self.tiles = [slice(*pair) for pair in pairwise([0, *cuts, self.n_tiles])] if self.n_tiles else []
        self.rows = [slice(part.start * self.tile, min(part.stop * self.tile, G)) for part in self.tiles]
        self.problems: list[Problem] = [self._built(prior, rows) for rows in self.rows]
        self._spans: list[tuple[int, list[Part]]] | None = None

    def _built(self, prior: Prior, rows: slice) -> Problem:
        problem = build_problem(self.data, prior, rows, self.tile)
        if self.data.spool is None:
            return problem
        self.data.release(rows)
        lists = ("columns", "by_sample", "listed")
        return problem._replace(**{name: self.data.spool.kept(getattr(problem, name)) for name in lists})

    def __len__(self) -> int:
        return len(self.problems)

    def rounds(self, n_threads: int) -> list[Round]:
        """The tiles shared out over threads, a round after another; a part ends where a block does."""
        bounds = self.tiles if self.by_round else [slice(0, self.n_tiles)] if self.n_tiles else []
        found = []
        for own in bounds:
            shared = [(own.start + first, own.start + last) for first, last in split(own.stop - own.start, n_threads)]
            parts = [part for first, last in shared for part in self._overlaps(first, last)]
            found.append(Round(own, parts))
        return found

    def spans(self) -> list[tuple[int, list[Part]]]:
        """Tiles in SPANS groups or fewer, whose sums can be made apart: numbered, as the parts of blocks of each."""
        if self._spans is None:
            self._spans = self._found_spans()
        return self._spans

    def _found_spans(self) -> list[tuple[int, list[Part]]]:
        mine = range(self.first_tile, self.first_tile + self.n_tiles)
        found = []
        for number, (first, last) in enumerate(span_bounds(self.all_tiles)):
            parts = self._overlaps(first - mine.start, last - mine.start)
            if parts:
                assert first in mine and last - 1 in mine, "rows of masked data are dealt out by span"  # noqa: PT018
                found.append((number, parts))
        return found

    def ahead(self, parts: Sequence[Part]) -> None:
        """What a round is going to read."""
        if self.by_round:
            for block in {part.block for part in parts}:
                self.data.ahead(self.rows[block])
                for name in ("by_sample", "listed", "columns"):
                    self.data.spool.ahead(getattr(self.problems[block], name))

    def release(self, parts: Sequence[Part]) -> None:
        """What a round has read may leave memory."""
        if self.by_round:
            for block in {part.block for part in parts}:
                self.data.release(self.rows[block])
                for name in ("by_sample", "listed", "columns"):
                    self.data.spool.release(getattr(self.problems[block], name))

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

    def of_tiles(self, sums: Any, block: int, own: slice) -> Any:
        """A block's part of a named tuple of arrays whose first axis is the tiles of a round, `own`."""
        tiles = slice(self.tiles[block].start - own.start, self.tiles[block].stop - own.start)
        return type(sums)(*(array[tiles] for array in sums))


def tiles_of_a_round(tile_bytes: int) -> int:
    """So many that every core has as much to do as the others."""
    cores = min(available_cores(), max(1, MOST_ROUND_BYTES // tile_bytes))
    return -(-max(1, ROUND_BYTES // tile_bytes) // cores) * cores


def span_bounds(n_tiles: int) -> list[tuple[int, int]]:
    """The first tile of each span, and the one after its last."""
    return split(n_tiles, max(1, min(SPANS, n_tiles // TILES_OF_A_SPAN)))


def by_rows(array: Any, rows: slice) -> Any:
    """What belongs to some rows of an array that has one entry for all rows, or one each, or none."""
    return array[rows] if len(array) > 1 else array
