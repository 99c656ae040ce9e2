"""Sums that workers add up among themselves before they come to the client.

Shards are taken in groups of neighbours, about as many groups as each has shards. The first of a group fetches what the
others hold and adds it to its own; the client gets one sum from each group. Branches of the tree of tiles
(data/tiles.py) are added in the same order whoever does it, so that the bits stay the same.
"""

from __future__ import annotations

import pickle
import time
from typing import Any

from ...data.tiles import Node
from .messages import Key
from .passing import groups_of, others_of
from .places import LEAST_PATIENCE, LOOK, PATIENCE, Shards

ATTEMPTS = 10


def gathered(shards: Shards, key: Key) -> list[list[Node]]:
    """What each group's shards hold under a key, added up as far as they are neighbours."""
    groups = groups_of(len(shards.bounds))
    found: list[Any] = [None] * len(groups)
    patience = max(LEAST_PATIENCE, PATIENCE * shards.slowest)
    for _ in range(ATTEMPTS):
        asked = {number: ask(shards, key, *group, patience) for number, group in enumerate(groups) if not found[number]}
        for number, future in asked.items():
            first = groups[number][0]
            try:
                found[number], missing = answer(future, patience)
            except (OSError, TimeoutError, KeyError, RuntimeError, ValueError) as problem:
                shards.renew(first, str(problem))
                continue
            for place in missing:
                shards.renew(first + 1 + place, "its sums could not be fetched")
        if all(found):
            return found
    raise RuntimeError(
        f"workers must reach one another to add up their sums; they did not in {ATTEMPTS} attempts; look at the "
        "workers' logs and at the network between them, and run again"
    )


def ask(shards: Shards, key: Key, first: int, last: int, patience: float) -> Any:
    """The first of a group, about all of it; None where it is known already that its worker is gone."""
    try:
        return shards.places[first].actor.gathered(key, others_of(shards, first, last), patience)
    except (OSError, RuntimeError, ValueError):
        return None


def answer(future: Any, patience: float) -> tuple[Any, list[int]]:
    """What the first of a group says, who waits for the others for so long."""
    if future is None:
        raise OSError("the worker is gone")
    until = time.monotonic() + patience + 10.0
    while True:
        try:
            nodes, missing = pickle.loads(future.result(timeout=LOOK))
            return nodes, missing
        except TimeoutError:
            if time.monotonic() > until:
                raise
