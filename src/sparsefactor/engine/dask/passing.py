"""Messages for all shards, which the first of each group passes on to the others: as sums come in, so they go out."""

from __future__ import annotations

import math
import pickle
from concurrent.futures import TimeoutError as Late
from typing import TYPE_CHECKING, Any

from ..threads import split
from . import messages

if TYPE_CHECKING:
    from .places import Shards

PATIENCE = 60.0  # seconds; then whoever lacks the message gets it from the client


def groups_of(n: int) -> list[tuple[int, int]]:
    """Neighbouring shards, about as many groups as each has shards: the first of each, and the one after its last."""
    return split(n, math.isqrt(n - 1) + 1)


def others_of(shards: Shards, first: int, last: int) -> list[tuple[str, str]]:
    """The rest of a group, by worker and actor."""
    return [(place.worker, place.actor.key) for place in shards.places[first + 1 : last]]


def passed_on(shards: Shards, message: bytes) -> bytes | None:
    """Send a message along groups; what each shard is then told instead, None where all are to have it from here."""
    n = len(shards.bounds)
    if n <= messages.FEW or len(message) < messages.MUCH:
        return None
    shards.passings += 1
    asked: list[Any] = []
    for first, last in groups_of(n):
        try:
            taking = shards.places[first].actor.take_on
            asked.append(taking(shards.passings, message, others_of(shards, first, last)))
        except (OSError, RuntimeError, ValueError):
            continue  # its worker is gone, which will be seen when it is asked
    for future in asked:
        try:
            future.result(timeout=PATIENCE)
        except (OSError, RuntimeError, ValueError, TimeoutError, Late):
            continue
    return pickle.dumps(messages.Passed(shards.passings))
