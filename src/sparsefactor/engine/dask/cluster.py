"""Calls of all shards at once: a verb, its sums along the way, and what it returns."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...data.tiles import Tree
from ...kernels.exchange import Exchange
from .gathering import gathered
from .messages import Aborted, Answer, Call, Held, Kept, Key
from .places import Shards


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


class ClientExchange(Exchange):
    """Of one who has no rows: all sums come from the shards."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def total(self, nodes: Any, needed: bool = False) -> tuple[Any, ...]:
        sent = self.cluster.receive()
        if isinstance(sent[0], Held):
            sent = gathered(self.cluster, sent[0].key)
        total = Tree(node for own in sent for node in own).total()
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


class Cluster(Shards):
    """The shards of one data set. One verb at a time, whoever asks."""

    def __init__(self, client: Any, shape: tuple[int, int], masked: bool = False) -> None:
        super().__init__(client, shape, masked)
        self.free: deque[Key] = deque()
        self.exchange = ClientExchange(self)

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

    def call(
        self, target: Handle, name: str, args: tuple[Any, ...], kinds: str, local: Callable[..., Any]
    ) -> tuple[Any, ...]:
        """A verb on all shards, and `local` of one who has no rows: by kind, handles, its values, or shards' own."""
        own = [tuple(part_of(arg, rows) for arg in args) for rows in (self.bounds if is_cut(args) else self.bounds[:1])]
        own *= len(self.bounds) // len(own)
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
            one = all(own is args[0] for own in args)  # message for all of them
            each = [
                pickle.dumps(Call(self.number, key, name, own, kinds, free), protocol=5) for own in args[: one or None]
            ]
            messages = each * len(args) if one else each
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
                    found.append(self.ask_one(number, "values", (begin, end))[which])
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


def is_cut(args: Sequence[Any]) -> bool:
    """Whether each shard gets something else."""
    return any(
        isinstance(arg, Cut) or (isinstance(arg, tuple) and any(isinstance(value, Cut) for value in arg))
        for arg in args
    )


def part_of(arg: Any, rows: slice) -> Any:
    """An argument as the holder of some rows is to have it."""
    if isinstance(arg, Handle):
        return Kept(arg.key)
    if isinstance(arg, Cut):
        return arg.part(rows)
    if isinstance(arg, tuple) and hasattr(arg, "_fields") and any(isinstance(value, Cut) for value in arg):
        return type(arg)(*(part_of(value, rows) for value in arg))
    return arg
