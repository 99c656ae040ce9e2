"""Who takes part in a cluster, and which rows each gets."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from ...data.tiles import tile_rows
from ...errors import needs
from ...version import __version__
from ..blocks import span_bounds
from ..threads import split


def present(client: Any) -> dict[str, Any]:
    """What the scheduler says of each worker.

    Not by `client.scheduler_info`, which returns what the client has noted: now and then that is without workers.
    """
    workers: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return workers


def workers_of(client: Any) -> list[str]:
    """The cluster's workers, in an order of their own."""
    found = sorted(present(client))
    if not found:
        raise RuntimeError(
            "a cluster must have workers; this one has none; start some, or wait: client.wait_for_workers(1)"
        )
    return found


def shard_bounds(G: int, N: int, n_workers: int, masked: bool) -> list[slice]:
    """The rows of each shard: whole tiles, or whole spans of them."""
    tile = tile_rows(G, N)
    n_tiles = -(-G // tile)
    starts = [first for first, _ in span_bounds(n_tiles)] if masked else list(range(n_tiles))
    cuts = [starts[first] for first, _ in split(len(starts), n_workers)] + [n_tiles]
    return [slice(first * tile, min(last * tile, G)) for first, last in pairwise(cuts)]


def check_client(client: Any) -> None:
    """Refuse what is no client, and workers that could not take part."""
    try:
        from distributed import Client
    except ImportError as problem:
        raise needs("client=", "distributed", "dask", problem) from problem
    if not isinstance(client, Client):
        raise TypeError(f"client must be a dask.distributed Client; got a {type(client).__name__}; pass Client(...)")
    if client.status != "running":
        raise RuntimeError(f"the client must be connected to its scheduler; it is {client.status}; make a new one")
    workers_of(client)

    def version_here() -> str | None:  # in here, so that it is sent as it stands to workers that lack the package
        from importlib import import_module

        try:
            return str(import_module("sparsefactor").__version__)
        except ImportError:
            return None

    found = client.run(version_here)
    for worker, version in found.items():
        if version != __version__:
            what = "has none" if version is None else f"has version {version}"
            raise RuntimeError(
                f"every worker must have sparsefactor {__version__}, as this process has; {worker} {what}; install the "
                "same version there"
            )
