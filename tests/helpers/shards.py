"""A cluster without processes: shards as objects of this one, for what does not depend on how messages travel."""

from __future__ import annotations

import asyncio


class Future:
    def __init__(self, value):
        self.value = value

    def result(self, timeout=None):
        return self.value() if callable(self.value) else self.value

    def done(self):
        return True

    def cancelled(self):
        return False


class Actor:
    def __init__(self, shard):
        self.shard = shard

    def ask(self, seen, message):
        reply = self.shard.ask(seen, message)
        return Future(reply)

    @property
    def key(self):
        return self

    def take_on(self, key, message, others):
        for actor in (self, *(actor for _, actor in others)):
            actor.shard.passed = (key, message)
        return Future(None)

    def gathered(self, key, others, patience):
        found = [asyncio.run(actor.shard.handed(key)) for _, actor in others]
        return Future(self.shard._joined(key, found))


class Here:
    """Stands in for a client with so many workers."""

    def __init__(self, n_workers: int) -> None:
        self.n_workers = n_workers

    @property
    def scheduler(self):
        return self

    def identity(self, n_workers=-1):
        return {"workers": {f"worker {number}": {"nthreads": 1} for number in range(self.n_workers)}}

    def sync(self, function, **settings):
        return function(**settings)

    def run(self, question, workers, on_error):
        return dict.fromkeys(workers, 0)

    def submit(self, make, *args, **settings):
        return Future(Actor(make(*args)))
