"""Shards on workers: calls of all of them at once, and what is done when a worker is lost or does not answer."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ...data.tiles import Tree, tile_rows
from ...errors import needs
from ...kernels.exchange import Exchange
from ...version import __version__
from ..blocks import span_bounds
from ..threads import split
from .shard import Aborted, Answer, Call, Kept, Key, Reply, Shard, ShardLostError

logger = logging.getLogger("sparsefactor")

# A worker that has not answered is given up after so many times what those took who have (where nobody has, what an
# answer ever took), and so many seconds at least.
PATIENCE, LEAST_PATIENCE = 10.0, 60.0
LOOK = 0.5  # seconds between looks at who has not
FIRST_PATIENCE = 300.0  # while data are read and kernels compiled
PLACE_PATIENCE = 30.0  # with a worker that is to have a shard
# States are saved when so many seconds' work would have to be done again, and so many times what saving takes.
SAVE_AFTER, SAVE_SHARE = 60.0, 20.0


class Cut(NamedTuple):
    """An argument of which each shard gets its own rows."""

    array: Any
    axis: int = 0

    def part(self, rows: slice) -> Any:
        return np.ascontiguousarray(self.array[rows] if self.axis == 0 else self.array[:, rows])


class Handle:
    """What the shards keep; `local`: what the client, who has no rows, has in its place."""

    def __init__(self, cluster: Cluster, key: Key, local: Any) -> None:
        self.cluster, self.key, self.local = cluster, key, local

    def __del__(self) -> None:
        self.cluster.free.append(self.key)


class Place(NamedTuple):
    """Where a shard is."""

    worker: str
    actor: Any


class ClientExchange(Exchange):
    """Of one who has no rows: all sums come from the shards."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def total(self, nodes: Any, needed: bool = False) -> tuple[Any, ...]:
        branches = [node for sent in self.cluster.receive() for node in sent]
        total = Tree(branches).total()
        if needed:
            self.cluster.answer(total)
        return total

    def gather(self, values: Any) -> Any:
        whole = np.concatenate(self.cluster.receive())
        self.cluster.answer(whole)
        return whole

    def pass_on(self, turn: int, values: tuple[Any, ...]) -> tuple[Any, ...]:
        found = self.cluster.receive()[turn]
        self.cluster.answer(found)
        return tuple(np.array(value) for value in found)

    def turns(self, rows: slice) -> list[tuple[int, slice]]:
        return list(enumerate(self.cluster.bounds))


class Cluster:
    """The shards of one data set. One verb at a time, whoever asks."""

    def __init__(self, client: Any, shape: tuple[int, int], masked: bool = False) -> None:
        """shape: (G, N). masked: rows are dealt out by span, since what samples add to Gram matrices is summed so."""
        self.client, self.shape = client, shape
        workers = workers_of(client)
        self.bounds = shard_bounds(*shape, len(workers), masked)
        self.lock = threading.RLock()
        self.free: deque[Key] = deque()
        self.number = 0
        self.exchange = ClientExchange(self)
        # For each shard: where it is, what it was asked since it was last saved, how it is made, and what was saved.
        n = len(self.bounds)
        self.seen = [0] * n  # messages
        self.log: list[list[bytes]] = [[] for _ in range(n)]
        self.made: list[list[bytes]] = [[] for _ in range(n)]  # of data and engines, never forgotten
        self.saved: list[bytes | None] = [None] * n
        self.sent: list[deque[Any]] = [deque() for _ in range(n)]
        self.last: list[Reply | None] = [None] * n
        self.waiting: list[Any] = [None] * n
        self.since, self.cost, self.begun = time.monotonic(), 0.0, 0.0
        self.posted = self.log  # where the last message was noted
        self.suspects: set[str] = set()  # workers that were lost, or did not answer
        self.fresh = True  # nothing has been asked yet
        self.slowest = 0.0  # seconds that an answer took since then
        self.places = [self.placed(number, workers[number % len(workers)]) for number in range(n)]

    # ---- shards ---------------------------------------------------------------------------------------------------

    def placed(self, number: int, worker: str) -> Place:
        """A new shard on a worker."""
        threads = self.client.scheduler_info(n_workers=-1)["workers"].get(worker, {}).get("nthreads")
        future = self.client.submit(
            Shard, number, self.bounds, threads, actor=True, workers=[worker], pure=False, allow_other_workers=False
        )
        rows = self.bounds[number]
        logger.info("features %d to %d are on %s", rows.start + 1, rows.stop, worker)
        return Place(worker, future.result(timeout=PLACE_PATIENCE))

    def replace(self, number: int, why: str) -> None:
        """Another shard in the place of one that is lost, brought up to where that one was."""
        rows, lost = self.bounds[number], self.places[number].worker
        for attempt in range(5):
            self.suspects.add(lost)
            busy = {place.worker for place in self.places}
            others = [worker for worker in workers_of(self.client) if worker not in self.suspects]
            if not others:  # one may come back, or a new one come up
                time.sleep(1.0 + attempt)
                others = workers_of(self.client)
            worker = next((worker for worker in others if worker not in busy), others[(number + attempt) % len(others)])
            logger.warning(
                "features %d to %d: worker %s is lost (%s); they go to %s", rows.start + 1, rows.stop, lost, why, worker
            )
            try:
                self.places[number] = self.placed(number, worker)
                self.seen[number] = 0
                again, last = list(self.made[number]), []
                if self.posted is self.made:
                    again, last = again[:-1], again[-1:]
                if self.saved[number] is not None:
                    again.append(self.request(None, "restore", (self.saved[number],), "v", 0))
                again += self.log[number] + last
                for message in again[:-1]:
                    self.heard(number, self.send(number, message).result(timeout=FIRST_PATIENCE))
                self.waiting[number] = self.send(number, again[-1])
                return
            except (OSError, TimeoutError, ShardLostError, ValueError) as problem:
                lost, why = worker, str(problem)
        raise RuntimeError(
            f"a lost worker's features must find another; features {rows.start + 1} to {rows.stop} did not in five "
            f"attempts ({why}); look at the workers' logs, and run again"
        )

    # ---- messages ----------------------------------------------------------------------------------------------------

    def send(self, number: int, message: bytes) -> Any:
        future = self.places[number].actor.ask(self.seen[number], message)
        self.seen[number] += 1
        return future

    def heard(self, number: int, reply: bytes) -> Reply:
        found: Reply = pickle.loads(reply)
        if isinstance(found.error, ShardLostError):
            raise found.error
        return found

    def request(self, target: Key | None, name: str, args: tuple[Any, ...], kinds: str, number: int) -> bytes:
        return pickle.dumps(Call(number, target, name, args, kinds, ()), protocol=5)

    def post(self, messages: Sequence[bytes], log: list[list[bytes]]) -> None:
        """A message to each shard."""
        self.begun, self.posted = time.monotonic(), log
        for number, message in enumerate(messages):
            log[number].append(message)
            try:
                self.waiting[number] = self.send(number, message)
            except (OSError, ValueError) as problem:  # it is known already that the worker is gone
                self.replace(number, str(problem))

    def hear(self) -> None:
        """What all shards that were written to have to say."""
        taken: list[float] = []  # seconds, of those who have answered
        least = FIRST_PATIENCE if self.fresh else LEAST_PATIENCE
        while pending := [number for number, future in enumerate(self.waiting) if future is not None]:
            for number in pending:
                try:
                    reply = self.heard(number, self.waiting[number].result(timeout=LOOK))
                except TimeoutError:
                    now = time.monotonic() - self.begun
                    usual = float(np.median(taken)) if taken else self.slowest
                    if (taken or not self.fresh) and now > max(least, PATIENCE * usual):
                        self.replace(number, f"no answer for {now:.0f} s")
                        taken.clear()
                    continue
                except (OSError, ShardLostError, ValueError) as problem:
                    self.replace(number, str(problem))
                    continue
                self.waiting[number], self.last[number] = None, reply
                self.sent[number].extend(reply.sent)
                taken.append(time.monotonic() - self.begun)
        if taken and not self.fresh:
            self.slowest = max(self.slowest, *taken)

    def receive(self) -> list[Any]:
        """What the shards' verbs have sent next."""
        if not all(self.sent):
            self.hear()
            self.refuse_errors()
        return [sent.popleft() for sent in self.sent]

    def answer(self, value: Any) -> None:
        """What the verbs wait for."""
        message = pickle.dumps(Answer(value), protocol=5)
        self.post([message] * len(self.bounds), self.log)

    def refuse_errors(self) -> None:
        for reply in self.last:
            if reply is not None and reply.error is not None:
                raise reply.error

    def call(
        self, target: Handle, name: str, args: tuple[Any, ...], kinds: str, local: Callable[..., Any]
    ) -> tuple[Any, ...]:
        """A verb on all shards, and `local` of one who has no rows: by kind, handles, its values, or shards' own."""
        own = [tuple(part_of(arg, rows) for arg in args) for rows in self.bounds]
        nobodys = [arg.local if isinstance(arg, Handle) else part_of(arg, slice(0, 0)) for arg in args]
        return self.call_each(target, name, own, kinds, lambda: local(*nobodys), lasting=False)

    def call_each(
        self,
        target: Handle | None,
        name: str,
        args: Sequence[tuple[Any, ...]],
        kinds: str,
        local: Callable[[], Any],
        lasting: bool = True,
    ) -> tuple[Any, ...]:
        """The same with each shard's own arguments.

        lasting: later calls cannot do without it, and no saved state has it.
        """
        with self.lock:
            self.number += 1
            free = () if lasting else tuple(self.free.popleft() for _ in range(len(self.free)))
            key = None if target is None else target.key
            messages = [pickle.dumps(Call(self.number, key, name, own, kinds, free), protocol=5) for own in args]
            try:
                self.post(messages, self.made if lasting else self.log)
                found = local()
                self.hear()
                self.refuse_errors()
            except BaseException:
                self.give_up()
                raise
            finally:
                for sent in self.sent:
                    sent.clear()
            values = [reply.values if reply is not None else [] for reply in self.last]
            results = self.results(found, kinds, values)
            self.fresh = self.fresh and lasting
            if not lasting:
                self.save_now_and_then()
            return results

    def each(self, name: str, args: Sequence[tuple[Any, ...]], lasting: bool = False) -> list[Any]:
        """What each shard says to a question of its own."""
        with self.lock:
            self.number += 1
            messages = [self.request(None, name, own, "g", self.number) for own in args]
            try:
                self.post(messages, self.made if lasting else self.log)
                self.hear()
                self.refuse_errors()
            except BaseException:
                self.give_up()
                raise
            return [reply.values[0] for reply in self.last if reply is not None]

    def rows(self, first: int, last: int, which: int) -> list[Any]:
        """Values (0) or mask (1) of some rows, from those who have them."""
        with self.lock:
            found = []
            for number, own in enumerate(self.bounds):
                begin, end = max(first, own.start), min(last, own.stop)
                if begin < end:
                    self.number += 1
                    message = self.request(None, "values", (begin, end), "g", self.number)
                    self.log[number].append(message)
                    self.begun, self.posted = time.monotonic(), self.log
                    try:
                        self.waiting[number] = self.send(number, message)
                    except (OSError, ValueError) as problem:
                        self.replace(number, str(problem))
                    self.hear()
                    self.refuse_errors()
                    reply = self.last[number]
                    assert reply is not None
                    self.log[number].pop()  # it changes nothing, and need not be asked again
                    found.append(reply.values[0][which])
            return found

    def results(self, found: Any, kinds: str, values: list[list[Any]]) -> tuple[Any, ...]:
        place, sent = 0, 0
        out: list[Any] = []
        each: Any = found if len(kinds) > 1 else (found,)
        for index, kind in enumerate(kinds):
            result: Any = None if found is None else each[index]
            if kind == "g":
                out.append([own[sent] for own in values])
                sent += 1
            elif kind == "r":
                out.append(Handle(self, (self.number, place), result))
                place += 1
            elif kind == "l":
                out.append([Handle(self, (self.number, place + at), own) for at, own in enumerate(result)])
                place += len(result)
            else:
                out.append(result)
        return tuple(out)

    def give_up(self) -> None:
        """Bring all shards to the end of a verb that has failed, or was interrupted."""
        for _ in range(1000):
            self.hear()
            if all(reply is None or reply.done for reply in self.last):
                return
            message = pickle.dumps(Answer(Aborted("given up")), protocol=5)
            for number, reply in enumerate(self.last):
                if reply is not None and not reply.done:
                    self.log[number].append(message)
                    self.waiting[number] = self.send(number, message)

    # ---- states saved -----------------------------------------------------------------------------------------------

    def save_now_and_then(self) -> None:
        """So that a lost shard has little to do again."""
        now = time.monotonic()
        if now - self.since > max(SAVE_AFTER, SAVE_SHARE * self.cost):
            self.save()

    def save(self) -> None:
        begun = time.monotonic()
        self.number += 1
        message = self.request(None, "save", (), "g", self.number)
        self.post([message] * len(self.bounds), self.log)
        self.hear()
        self.refuse_errors()
        self.saved = [reply.values[0] if reply is not None else None for reply in self.last]
        self.log = [[] for _ in self.bounds]
        self.since = time.monotonic()
        self.cost = self.since - begun


def part_of(arg: Any, rows: slice) -> Any:
    """An argument as the holder of some rows is to have it."""
    if isinstance(arg, Handle):
        return Kept(arg.key)
    if isinstance(arg, Cut):
        return arg.part(rows)
    if isinstance(arg, tuple) and hasattr(arg, "_fields") and any(isinstance(value, Cut) for value in arg):
        return type(arg)(*(part_of(value, rows) for value in arg))
    return arg


def workers_of(client: Any) -> list[str]:
    """The cluster's workers, in an order of their own."""
    found = sorted(client.scheduler_info(n_workers=-1)["workers"])
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
