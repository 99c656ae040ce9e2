"""Futures of blocks of rows, and of what functions make of each; sums over the blocks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...data.tiles import Node, Tree, tile_rows
from ...executors import check_client, constant, gathered, same, sending, submit, workers_of
from ...kernels.contract import GibbsRows, VIRows
from ...kernels.totals import totals_from
from ..blocks import span_bounds
from ..threads import split
from .blocks import Call, Outcome, Slot, added, kept_of, run, sizeof, sums_of

FAN_IN = 8  # blocks whose sums are added up by one task
LARGE = 2**16  # bytes of arguments that all blocks share, beyond which they are sent once
# The client sends a state again after this number of tasks, which Dask would otherwise have to repeat for a lost
# worker and remember until then; but that is to take no more than this share of the time.
LINEAGE, SAVING = 16, 0.05
WEIGHTY = 2**24  # bytes of arguments that count as a further task, since Dask remembers these, too


class Cut(NamedTuple):
    """An argument of which each block gets its own rows."""

    array: Any
    axis: int = 0

    def part(self, rows: slice) -> Any:
        return np.ascontiguousarray(self.array[rows] if self.axis == 0 else self.array[:, rows])


class Parts:
    """What blocks keep of a state: a future of each block's. local: what an engine without rows holds instead."""

    def __init__(self, futures: list[Any], local: Any, tasks: int = 0, since: float | None = None) -> None:
        self.futures, self.local = futures, local
        # Tasks since it was sent by the client, at the longest, and when that was.
        self.tasks, self.since = tasks, time.monotonic() if since is None else since


class Cluster:
    """The blocks of one data set on the workers of a client."""

    def __init__(self, client: Any, shape: tuple[int, int], masked: bool = False) -> None:
        """shape: (G, N). masked: blocks are whole spans of tiles, since samples' Gram matrices are summed so."""
        check_client(client)
        self.client, self.shape = client, shape
        self.bounds = block_bounds(*shape, len(workers_of(client)), masked)
        self.blocks: list[Any] = []  # futures of `Block`
        self.seconds: dict[type, float] = {}  # that saving a state took, by its type

    # ---- tasks for each block -------------------------------------------------------------------------------------

    def map(self, function: Callable[..., Any], *args: Sequence[Any], name: str) -> list[Any]:
        """Futures of function(*own) for each block, from sequences of the blocks' own arguments.

        Dask spreads blocks over its workers, and has tasks follow them. Nothing here names a worker: tasks that prefer
        one are not made again where all workers are lost at once.
        """
        run_id = uuid.uuid4().hex
        keys = [f"{name}-{run_id}-{number}" for number in range(len(self.bounds))]
        with sending(self.client):
            futures: list[Any] = self.client.map(function, *args, key=keys, pure=False)
        return futures

    def each(self, function: Callable[..., Any], *args: Sequence[Any], name: str) -> list[Any]:
        """What function(block, *own) returns for each block."""
        return gathered(self.client, self.map(function, self.blocks, *args, name=name))

    def shared(self, value: Any, name: str) -> list[Any]:
        """An argument of all blocks: itself, or where it is large a future of it."""
        return [value if sizeof(value) < LARGE else constant(self.client, value, name)] * len(self.bounds)

    def fetch_sums(self, outcomes: list[Any]) -> list[list[Node]]:
        """The branches of each sum of a verb."""
        parts = self.map(sums_of, outcomes, name="sums")
        while len(parts) > FAN_IN:
            groups = [parts[first : first + FAN_IN] for first in range(0, len(parts), FAN_IN)]
            parts = [submit(self.client, added, *group, name="added") for group in groups]
        return added(*gathered(self.client, parts))

    # ---- verbs ----------------------------------------------------------------------------------------------------

    def call(
        self,
        settings: Sequence[Any],
        function: Callable[..., Any] | str,
        args: Sequence[Any],
        kinds: str,
        local: Callable[..., Any],
        target: Parts | None = None,
    ) -> tuple[Any, ...]:
        """A verb on all blocks, and `local` on no rows with the totals: by kind, `Parts`, its values, or blocks' own.

        function, kinds: as in `Call`; args: among them `Parts` and `Cut`; target: what is asked, if not the engine.
        """
        parts = [arg for arg in (target, *args) if isinstance(arg, Parts)]
        placed = tuple(Slot(parts.index(arg)) if isinstance(arg, Parts) else arg for arg in args)
        asked = None if target is None else Slot(0)
        name = function if isinstance(function, str) else function.__name__

        def ask(answers: tuple[Any, ...]) -> list[Any]:
            call = Call(function, placed, kinds, asked, answers)
            calls = [part_of(call, rows) for rows in self.bounds] if is_cut(placed) else self.shared(call, "message")
            return self.map(run, self.blocks, settings, calls, *(own.futures for own in parts), name=name)

        totals = CallTotals(self, ask)
        nobodys = [arg.local if isinstance(arg, Parts) else part_of(arg, slice(0, 0)) for arg in args]
        with totals_from(totals):
            found = local(*nobodys)
        out: list[Any] = []
        for kind, value in zip(kinds, found if len(kinds) > 1 else (found,), strict=True):
            if kind == "r":
                tasks = 1 + sizeof(placed) // WEIGHTY + max((own.tasks for own in parts), default=0)
                since = min((own.since for own in parts), default=None)
                out.append(self.saved(Parts(totals.outcomes, value, tasks, since)))
            else:
                out.append([own.sent for own in gathered(self.client, totals.outcomes)] if kind == "g" else value)
        return tuple(out)

    def saved(self, parts: Parts) -> Parts:
        """The same, sent by the client anew where much would have to be made again: Dask forgets how it was made."""
        kind, now = type(parts.local), time.monotonic()
        is_state = isinstance(parts.local, VIRows | GibbsRows | np.ndarray)
        if not is_state or parts.tasks < LINEAGE or SAVING * (now - parts.since) < self.seconds.get(kind, 0.0):
            return parts
        values: list[Outcome] = gathered(self.client, self.map(kept_of, parts.futures, name="fetch"))
        futures = self.map(same, values, name="state")
        self.seconds[kind] = time.monotonic() - now
        return Parts(futures, parts.local)


class CallTotals:
    """The totals of one call, fetched when the verb asks for them on no rows."""

    def __init__(self, cluster: Cluster, ask: Callable[[tuple[Any, ...]], list[Any]]) -> None:
        self.cluster, self.ask = cluster, ask
        self.outcomes = ask(())
        self.sums: list[list[Node]] | None = None  # of the last time blocks were asked, from the first not yet known
        self.answers: list[Any] = []

    def __call__(self, nodes: Sequence[Node], needed: bool) -> tuple[Any, ...]:
        if self.sums is None:
            self.sums = self.cluster.fetch_sums(self.outcomes)
        total = Tree(self.sums.pop(0)).total()
        self.answers.append(total if needed else None)
        if needed:  # the blocks could not go on without it
            self.outcomes, self.sums = self.ask(tuple(self.answers)), None
        return total


def is_cut(args: Sequence[Any]) -> bool:
    """Whether each block gets something else."""
    return any(isinstance(arg, Cut) or (isinstance(arg, tuple) and is_cut(arg)) for arg in args)


def part_of(arg: Any, rows: slice) -> Any:
    """An argument as the holder of some rows is to have it."""
    if isinstance(arg, Cut):
        return arg.part(rows)
    if isinstance(arg, tuple) and is_cut(arg):
        own = [part_of(value, rows) for value in arg]
        return type(arg)(*own) if hasattr(arg, "_fields") else tuple(own)
    return arg


def block_bounds(G: int, N: int, n_blocks: int, masked: bool) -> list[slice]:
    """The rows of each block: whole tiles, or whole spans of them."""
    tile = tile_rows(G, N)
    n_tiles = -(-G // tile)
    starts = [first for first, _ in span_bounds(n_tiles)] if masked else list(range(n_tiles))
    cuts = [starts[first] for first, _ in split(len(starts), n_blocks)] + [n_tiles]
    return [slice(first * tile, min(last * tile, G)) for first, last in pairwise(cuts)]
