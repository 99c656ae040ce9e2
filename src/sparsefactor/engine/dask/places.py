"""Shards on workers: what each was asked, and how one that is lost is made again elsewhere."""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, NamedTuple

import numpy as np

from ...data.spool import Scratch
from ...jobs import answering, present, task_name
from .keeping import pieces_of
from .messages import Call, Key, NotPassedOnError, Reply, ShardLostError
from .passing import passed_on
from .shard import Shard
from .workers import shard_bounds

logger = logging.getLogger("sparsefactor")

# A worker that has not answered is given up after so many times what those took who have (where nobody has, what an
# answer ever took), and so many seconds at least.
PATIENCE, LEAST_PATIENCE = 10.0, 60.0
LOOK = 0.5  # seconds between looks at who has not
FIRST_PATIENCE = 300.0  # while data are read and kernels compiled
PLACE_PATIENCE = 30.0  # with a worker that is to have a shard
ATTEMPTS = 5  # to find a worker for a shard
COMING = 120.0  # with a cluster that has lost all of them
# States are saved when so many seconds' work would have to be done again, and so many times what saving takes.
SAVE_AFTER, SAVE_SHARE = 60.0, 20.0
PIECE = 2**23  # bytes of them that are on their way at a time


class Place(NamedTuple):
    """Where a shard is."""

    worker: str
    actor: Any


class Shards:
    """The shards of one data set, each with a log of what it was asked since it was last saved."""

    def __init__(self, client: Any, shape: tuple[int, int], masked: bool = False) -> None:
        """shape: (G, N). masked: rows are dealt out by span, since what samples add to Gram matrices is summed so."""
        self.client, self.shape = client, shape
        workers = answering(client)
        self.bounds = shard_bounds(*shape, len(workers), masked)
        self.lock = threading.RLock()
        self.number, self.passings = 0, 0  # of the last call, and of the last message that was passed on
        # For each shard: where it is, what it was asked since it was last saved, how it is made, and what was saved.
        n = len(self.bounds)
        self.seen = [0] * n  # messages
        self.log: list[list[bytes]] = [[] for _ in range(n)]
        self.made: list[list[bytes]] = [[] for _ in range(n)]  # of data and engines, never forgotten
        self.saved: list[Scratch | None] = [None] * n
        self.sent: list[deque[Any]] = [deque() for _ in range(n)]
        self.last: list[Reply | None] = [None] * n
        self.waiting: list[Any] = [None] * n
        self.since, self.cost, self.begun, self.asked = time.monotonic(), 0.0, 0.0, 0.0
        self.posted = self.log  # where the last message was noted
        self.suspects: set[str] = set()  # workers that were lost, or did not answer
        self.fresh = True  # nothing has been asked yet
        self.slowest = 0.0  # seconds that an answer took since then
        self.places: list[Place] = []
        for number in range(n):
            self.places.append(self.first_place(number, workers[number % len(workers)]))

    # ---- shards ---------------------------------------------------------------------------------------------------

    def placed(self, number: int, worker: str) -> Place:
        """A new shard on a worker."""
        threads = present(self.client).get(worker, {}).get("nthreads")
        rows = self.bounds[number]
        words = f"features {rows.start + 1} to {rows.stop}"
        own = {"actor": True, "key": task_name(words), "workers": [worker], "pure": False, "allow_other_workers": False}
        future = self.client.submit(Shard, number, self.bounds, threads, **own)
        logger.info("%s are on %s", words, worker)
        begun = time.monotonic()
        while not future.done():
            if time.monotonic() - begun > PLACE_PATIENCE or worker not in present(self.client):
                raise OSError(f"{worker} took no shard")
            time.sleep(LOOK / 50)
        if future.cancelled():
            raise OSError(f"{worker} was lost with its shard")
        actor = future.result(timeout=PLACE_PATIENCE)
        # An actor takes the process's last client for its own; there may be others.
        actor._client, actor._future = self.client, future
        return Place(worker, actor)

    def first_place(self, number: int, worker: str) -> Place:
        """A shard on this worker, or, where that is lost already, on another."""
        for attempt in range(ATTEMPTS):
            try:
                return self.placed(number, worker)
            except (OSError, CancelledError) as problem:
                logger.warning("worker %s is lost (%s) before it has any features", worker, problem)
                self.suspects.add(worker)
                worker = self.another(number + attempt, 1.0 + attempt)
        return self.placed(number, worker)

    def replace(self, number: int, why: str) -> None:
        """Another shard in the place of one that is lost, brought up to where that one was."""
        rows, lost = self.bounds[number], self.places[number].worker
        for attempt in range(ATTEMPTS):
            self.suspects.add(lost)
            worker = self.another(number + attempt, 1.0 + attempt)
            logger.warning(
                "features %d to %d: worker %s is lost (%s); they go to %s", rows.start + 1, rows.stop, lost, why, worker
            )
            try:
                self.places[number] = self.placed(number, worker)
                self.seen[number] = 0
                told = self.told(number)
                message = next(told)
                for following in told:
                    self.heard(number, self.send(number, message).result(timeout=FIRST_PATIENCE))
                    message = following
                self.waiting[number] = self.send(number, message)
                return
            except (OSError, TimeoutError, CancelledError, ShardLostError, ValueError) as problem:
                lost, why = worker, str(problem)
        raise RuntimeError(
            f"a lost worker's features must find another; features {rows.start + 1} to {rows.stop} did not in five "
            f"attempts ({why}); look at the workers' logs, and run again"
        )

    def told(self, number: int) -> Iterator[bytes]:
        """All that a shard has to be told to be where it was."""
        made, last = self.made[number], len(self.made[number]) - (self.posted is self.made)
        yield from made[:last]
        if (scratch := self.saved[number]) is not None:
            for piece in pieces_of(scratch, PIECE):
                yield self.request(None, "restore", piece, "v", 0)
        yield from self.log[number]
        yield from made[last:]

    def another(self, number: int, seconds: float) -> str:
        """A worker that is not known to be lost, for which we wait so long; then any, that may have come back."""
        busy = {place.worker for place in self.places}
        begun = time.monotonic()
        while (waited := time.monotonic() - begun) < COMING:
            there = sorted(present(self.client))
            others = [worker for worker in there if worker not in self.suspects]
            if others or (there and waited > seconds):
                others = others or there
                return next((worker for worker in others if worker not in busy), others[number % len(others)])
            time.sleep(LOOK)
        raise RuntimeError(
            f"a lost worker's features must find another; the cluster has had none for {COMING:.0f} s; start some, and "
            "run again"
        )

    def renew(self, number: int, why: str) -> None:
        """As `replace`, of a shard that has said all that it was to say so far."""
        said = list(self.sent[number])
        self.replace(number, why)
        self.hear()
        self.sent[number] = deque(said)

    # ---- messages ----------------------------------------------------------------------------------------------------

    def send(self, number: int, message: bytes) -> Any:
        try:
            future = self.places[number].actor.ask(self.seen[number], message)
        except RuntimeError as problem:  # how an actor says that its worker is lost
            raise OSError(str(problem)) from problem
        self.seen[number] += 1
        return future

    def heard(self, number: int, reply: bytes) -> Reply:
        found: Reply = pickle.loads(reply)
        if isinstance(found.error, ShardLostError | NotPassedOnError):
            raise found.error
        return found

    def request(self, target: Key | None, name: str, args: tuple[Any, ...], kinds: str, number: int) -> bytes:
        return pickle.dumps(Call(number, target, name, args, kinds, ()), protocol=5)

    def post(self, messages: Sequence[bytes], log: list[list[bytes]]) -> None:
        """A message to each shard; one that is for all is the same object, and may be passed on among them."""
        self.begun, self.posted = time.monotonic(), log
        short = passed_on(self, messages[0]) if all(message is messages[0] for message in messages) else None
        for number, message in enumerate(messages):
            log[number].append(message)
            try:
                self.waiting[number] = self.send(number, short or message)
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
                except TimeoutError as problem:
                    problem.__traceback__ = None  # in a cycle with the frames, whose handles would not be let go
                    now = time.monotonic() - self.begun
                    usual = float(np.median(taken)) if taken else self.slowest
                    late = (taken or not self.fresh) and now > max(least, PATIENCE * usual)
                    if late or self.is_silent(number, now):
                        self.replace(number, f"no answer for {now:.0f} s")
                        taken.clear()
                    continue
                except NotPassedOnError:
                    self.seen[number] -= 1
                    self.waiting[number] = self.send(number, self.posted[number][-1])
                    continue
                except (OSError, ShardLostError, ValueError) as problem:
                    self.replace(number, str(problem))
                    continue
                self.waiting[number], self.last[number] = None, reply
                self.sent[number].extend(reply.sent)
                taken.append(time.monotonic() - self.begun)
        if taken and not self.fresh:
            self.slowest = max(self.slowest, *taken)

    def ask_one(self, number: int, name: str, args: tuple[Any, ...]) -> Any:
        """What one shard says to a question that changes nothing, and need not be asked again."""
        self.number += 1
        message = self.request(None, name, args, "g", self.number)
        self.log[number].append(message)
        self.begun, self.posted = time.monotonic(), self.log
        try:
            self.waiting[number] = self.send(number, message)
        except (OSError, ValueError) as problem:
            self.replace(number, str(problem))
        self.hear()
        self.refuse_errors()
        self.log[number].pop()
        reply = self.last[number]
        assert reply is not None
        return reply.values[0]

    def is_silent(self, number: int, waited: float) -> bool:
        """Whether a shard's worker does not answer at all, whatever it does; asked now and then."""
        now = time.monotonic()
        if min(waited, now - self.asked) < LEAST_PATIENCE:
            return False
        self.asked = now
        return self.places[number].worker not in answering(self.client)

    def refuse_errors(self) -> None:
        for reply in self.last:
            if reply is not None and reply.error is not None:
                raise reply.error

    # ---- states saved -----------------------------------------------------------------------------------------------

    def save_now_and_then(self) -> None:
        """So that a lost shard has little to do again."""
        now = time.monotonic()
        if now - self.since > max(SAVE_AFTER, SAVE_SHARE * self.cost):
            self.save()

    def save(self) -> None:
        begun = time.monotonic()
        self.number += 1
        message = self.request(None, "save", (), "v", self.number)
        self.post([message] * len(self.bounds), self.log)
        self.hear()
        self.refuse_errors()
        self.saved = [self.fetched(number) for number in range(len(self.bounds))]
        self.log = [[] for _ in self.bounds]
        self.since = time.monotonic()
        self.cost = self.since - begun

    def fetched(self, number: int) -> Scratch:
        """What a shard has written down; from the beginning where it is lost, for another may write otherwise."""
        scratch = Scratch()
        file = scratch.file
        place, piece = None, b""
        while place is not self.places[number] or len(piece) == PIECE:
            if place is not self.places[number]:
                place = self.places[number]
                file.seek(0)
                file.truncate()
            piece = self.ask_one(number, "saved_piece", (file.tell(), PIECE))
            file.write(piece)
        return scratch
