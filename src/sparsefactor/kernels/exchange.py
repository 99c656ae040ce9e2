"""How sums over rows become sums over all rows, wherever these are.

A verb that adds over rows does so by tile (data/tiles.py), and asks its exchange for the sum of everything. Where all
rows are in one place, as here, that is the tree's total. Where rows are dealt out, each holder runs the same verb
on its own, and its exchange asks the others (engine/dask).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ..data.tiles import Node, Tree


class Exchange:
    """Of rows that are all in one place."""

    def total(self, nodes: Sequence[Node], needed: bool = False) -> tuple[Any, ...]:
        """The sums over all tiles, of which these branches are our own.

        needed: the verb goes on with the sums, on its rows. Elsewhere they are only what the verb returns.
        """
        return Tree(nodes).total()

    def gather(self, values: Any) -> Any:
        """All rows' (G, ...), of which these are our own; the verb goes on with them."""
        return values

    def pass_on(self, turn: int, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The values that the holder of rows number `turn` has; the verb goes on with them."""
        return values

    def turns(self, rows: slice) -> list[tuple[int, slice]]:
        """The holders of rows and the rows of each, by number among all; `rows`: our own. One after another."""
        return [(0, rows)]


HERE = Exchange()


def over_tiles(
    tiles: Iterable[slice],
    first: int,
    exchange: Exchange,
    part: Callable[[slice], tuple[Any, ...]],
    needed: bool = False,
) -> tuple[Any, ...]:
    """The sums over all rows of what `part` makes of a tile's, as NumPy's arrays; first: the first tile's number."""
    tree = Tree()
    for number, tile in enumerate(tiles, first):
        tree.add(number, tuple(np.asarray(values) for values in part(tile)))
    return exchange.total(tree.nodes, needed)
