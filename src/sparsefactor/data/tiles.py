"""Rows in fixed tiles, and sums over them in a fixed order.

The size of a tile depends on the shape of the whole matrix alone, and sums over tiles are taken along a binary tree
over their numbers. Whoever holds some neighbouring tiles can add up the branches that lie within them, and the sum of
everything is the same to the bit however the tiles are dealt out to threads, blocks or workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

LANES = 64  # a tile is a multiple of so many rows, which compiled kernels update together
ROWS_PER_TILE = 448  # fewer would cost more in calls to BLAS and in adding tiles than they spread over threads
FEWEST_ROWS = 256  # where there is so much work in a row that many threads should share it
MANY_ENTRIES = 2**17  # of the data in ROWS_PER_TILE rows
MOST_TILES = 80  # enough for 64 threads and more,
MOST_ENTRIES = 2**23  # unless a tile would have more entries than these: blocks of a few tiles must fit into memory


def tile_rows(G: int, N: int) -> int:
    """Rows per tile, a multiple of LANES."""
    fewest = ROWS_PER_TILE if ROWS_PER_TILE * N < MANY_ENTRIES else FEWEST_ROWS
    rows = max(fewest, min(-(-G // MOST_TILES), MOST_ENTRIES // max(N, 1)))
    return -(-rows // LANES) * LANES


def slices(first: int, last: int, step: int) -> Iterator[slice]:
    """first .. last in steps, the last one perhaps shorter."""
    return (slice(begin, min(begin + step, last)) for begin in range(first, last, step))


class Node(NamedTuple):
    """A branch of the tree: the sum of the tiles place * 2^level and on, 2^level of them."""

    level: int
    place: int
    values: tuple[Any, ...]  # arrays


Added = Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]


def added(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(left, right, strict=True))


class Tree:
    """Sums over tiles that come in their order; each is a tuple of arrays of the same shapes.

    added: how two of them are added, which may write over the first.
    """

    def __init__(self, nodes: Iterable[Node] = (), added: Added = added) -> None:
        self.nodes: list[Node] = []
        self.added = added
        for node in nodes:
            self.add_node(node)

    def add(self, tile: int, values: tuple[Any, ...]) -> None:
        """The next tile's, or the first one's; `values` may be written over."""
        self.add_node(Node(0, tile, values))

    def add_node(self, node: Node) -> None:
        """The next branch."""
        while self.nodes and node.place % 2 and self.nodes[-1][:2] == (node.level, node.place - 1):
            left = self.nodes.pop()
            node = Node(node.level + 1, node.place // 2, self.added(left.values, node.values))
        self.nodes.append(node)

    def total(self) -> tuple[Any, ...]:
        """Of all tiles, when they are all there."""
        *rest, last = self.nodes
        total = last.values
        for node in reversed(rest):
            total = self.added(node.values, total)
        return total
