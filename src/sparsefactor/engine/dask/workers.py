"""Which rows each worker of a cluster gets."""

from __future__ import annotations

from itertools import pairwise

from ...data.tiles import tile_rows
from ..blocks import span_bounds
from ..threads import split


def shard_bounds(G: int, N: int, n_workers: int, masked: bool) -> list[slice]:
    """The rows of each shard: whole tiles, or whole spans of them."""
    tile = tile_rows(G, N)
    n_tiles = -(-G // tile)
    starts = [first for first, _ in span_bounds(n_tiles)] if masked else list(range(n_tiles))
    cuts = [starts[first] for first, _ in split(len(starts), n_workers)] + [n_tiles]
    return [slice(first * tile, min(last * tile, G)) for first, last in pairwise(cuts)]
