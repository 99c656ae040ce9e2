"""Passes over the rows: rounds of tiles on threads, and the tiles' sums as those of everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from ..data.tiles import Tree
from ..kernels.cpu.tiles import TileSums, add_tiles
from ..kernels.totals import is_whole, total
from .blocks import Blocks, Part, Round
from .threads import run_parts


def room_for(rounds: Sequence[Round]) -> tuple[int, int]:
    """The most tiles and the most parts of a round."""
    tiles = max((own.tiles.stop - own.tiles.start for own in rounds), default=0)
    return tiles, max((len(own.parts) for own in rounds), default=0)


class Passes:
    """Who runs kernels on blocks, and adds up what they leave by tile."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks

    def run(
        self,
        kernel: Any,
        rounds: Sequence[Round],
        args: Callable[[int, int, slice], tuple[Any, ...]],
        sums: Sequence[Any],
        needed: bool = False,
        done: Callable[[Sequence[Part]], None] | None = None,
    ) -> list[tuple[Any, ...]]:
        """kernel(first, last, *args(block, part, tiles of the round)) for every part, and the totals of `sums`.

        sums: named tuples of arrays whose first axis is the tiles of a round, which the kernel fills and which are
        written over. done: told of a round's parts when they are.
        """
        alone = is_whole() and len(rounds) == 1
        tree = Tree()
        for (own, parts), following in zip_longest(rounds, rounds[1:]):
            if following is not None:
                self.blocks.ahead(following.parts)
            run_parts(kernel, [(first, last, *args(b, p, own)) for p, (b, first, last) in enumerate(parts)])
            self.blocks.release(parts)
            if done is not None:
                done(parts)
            if not alone:
                for t in range(own.stop - own.start):
                    values = tuple(array[t].copy() for each in sums for array in each)
                    tree.add(self.blocks.first_tile + own.start + t, values)
        if alone:
            return [tile_total(each) for each in sums]
        totals = iter(total(tree.nodes, needed))
        return [tuple(next(totals) for _ in each) for each in sums]


def tile_total(sums: Any) -> tuple[Any, ...]:
    """The totals of a named tuple of arrays by tile, along the tree of data/tiles.py; they are written over."""
    if isinstance(sums, TileSums):
        (_, K, N), V = sums.LY.shape, sums.l2.shape[2]
        LY, LL, small = np.empty((K, N)), np.empty((K, K)), np.empty(2 * K * V + 3)
        add_tiles(sums, LY, LL, small)
        count, l2 = small[: 2 * K * V].reshape(2, K, V)
        return LY, LL, count, l2, small[2 * K * V :]
    for array in sums:
        step = 1
        while step < len(array):
            array[: len(array) - step : 2 * step] += array[step :: 2 * step]
            step *= 2
    return tuple(array[0].copy() for array in sums)
