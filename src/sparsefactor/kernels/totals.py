"""Totals of sums over rows, wherever the rows are held.

A verb adds over its rows by tile (data/tiles.py) and asks here for the total over all rows. Where an engine has all
rows, that is the total of its own tree. Where rows are in blocks on the workers of a cluster, an engine has some of the
rows, or none, and the caller of the verb says where totals come from (engine/dask).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..data.tiles import Node, Tree

Totals = Callable[[Sequence[Node], bool], tuple[Any, ...]]  # of an engine's own branches of the tree, as in `total`


class _Own(threading.local):
    """Of this thread: a context variable would be copied to every callback that Dask's client begins meanwhile."""

    totals: Totals | None = None


_own = _Own()


@contextmanager
def totals_from(totals: Totals | None) -> Iterator[None]:
    """Within this context, totals come from here; None: from the engine's own rows."""
    before, _own.totals = _own.totals, totals
    try:
        yield
    finally:
        _own.totals = before


def is_whole() -> bool:
    """Whether the engine that runs has all rows."""
    return _own.totals is None


def total(nodes: Sequence[Node], needed: bool = False) -> tuple[Any, ...]:
    """The sums over all tiles, of which these branches are the engine's own.

    needed: the verb uses the sums to change its rows. Otherwise it only returns them.
    """
    totals = _own.totals
    return Tree(nodes).total() if totals is None else totals(nodes, needed)


def over_tiles(
    tiles: Iterable[slice], first: int, part: Callable[[slice], tuple[Any, ...]], needed: bool = False
) -> tuple[Any, ...]:
    """The sums over all rows of what `part` makes of a tile's, as NumPy's arrays; first: the first tile's number."""
    tree = Tree()
    for number, tile in enumerate(tiles, first):
        tree.add(number, tuple(np.asarray(values) for values in part(tile)))
    return total(tree.nodes, needed)
