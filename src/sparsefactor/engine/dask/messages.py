"""What client and shards say to each other, and how a shard's verbs get at sums over all rows."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from ...data.tiles import Node, Tree
from ...kernels.exchange import Exchange

# So many shards send all they have to the client. Where there are more, neighbours add up first what has so many bytes,
# and pass messages on. On paper that is worth it from about ten (docs/scale.md).
FEW, MUCH = 10, 2**15
NOTHING_PASSED = (-1, b"")

Key = tuple[int, int]  # of what is kept: the number of the call that made it, and its place in what that returned


class Kept(NamedTuple):
    """What a shard keeps, as an argument."""

    key: Key


class Call(NamedTuple):
    """What is asked of a shard. target: what to ask, or None for the shard itself; kinds: of what is returned.

    kinds: "r" is kept here, "l" a list of such, "v" is the client's own, "g" is sent.
    """

    number: int
    target: Key | None
    name: str
    args: tuple[Any, ...]
    kinds: str
    free: tuple[Key, ...]


class Answer(NamedTuple):
    """What a verb that waits goes on with."""

    value: Any


class Reply(NamedTuple):
    """What a shard says: what its verb has sent, and whether it waits or is done."""

    sent: list[Any]
    done: bool
    values: list[Any]
    error: BaseException | None = None


class Held(NamedTuple):
    """In the place of branches of the tree that a shard keeps, for others to add up with their own."""

    key: Key  # the number of the call, and of the sum within it


class Passed(NamedTuple):
    """In the place of a message that is passed on among shards."""

    key: int


class NotPassedOnError(Exception):
    """A message that others were to pass on has not come."""


class ShardLostError(Exception):
    """A shard has not seen all that was asked before: it is a new one."""


class Aborted(BaseException):
    """The client has given up on a verb."""


class ShardExchange(Exchange):
    """With the client, who has the shards' sums added up."""

    def __init__(self, number: int, bounds: list[slice]) -> None:
        self.number, self.bounds = number, bounds
        self.sent: list[Any] = []
        self.held: dict[Key, list[Node]] = {}
        self.call = 0  # the number of the one that runs
        self.replies: SimpleQueue[Reply] = SimpleQueue()
        self.answers: SimpleQueue[Any] = SimpleQueue()

    def total(self, nodes: Any, needed: bool = False) -> tuple[Any, ...]:
        self.sent.append(self.kept(list(nodes)))
        return self.ask() if needed else Tree(nodes).total()

    def kept(self, nodes: list[Node]) -> Any:
        """What is sent of branches: themselves, or where there are many shards and much in them, that they are here."""
        if len(self.bounds) <= FEW or sum(np.asarray(values).nbytes for values in nodes[0].values) < MUCH:
            return nodes
        key = self.call, len(self.held)
        self.held[key] = nodes
        return Held(key)

    def begin(self, call: int) -> None:
        """A call; what was held for others during the one before is no longer asked for."""
        self.call = call
        self.held = {}

    def gather(self, values: Any) -> Any:
        self.sent.append(values)
        return self.ask()

    def pass_on(self, turn: int, values: tuple[Any, ...]) -> tuple[Any, ...]:
        self.sent.append(values if turn == self.number else None)
        return tuple(np.array(value) for value in self.ask())  # which may be written to

    def turns(self, rows: slice) -> list[tuple[int, slice]]:
        return list(enumerate(self.bounds))

    def ask(self) -> Any:
        sent, self.sent = self.sent, []
        self.replies.put(Reply(sent, False, []))
        answer = self.answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer
