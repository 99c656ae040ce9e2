"""Who is in a Dask cluster, and jobs there: every worker has the same value, and makes one job after another.

A job is a function of the data and of what it is sent, so that it may be made twice: one whose worker is lost, or has
not answered for long, is made by another, with the same result.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import CancelledError
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from .errors import needs
from .version import __version__

logger = logging.getLogger("sparsefactor")

# A job is late when for so many times what the longest took, and so many seconds at least, none has come back.
PATIENCE, LEAST_PATIENCE = 10.0, 60.0
FIRST_PATIENCE = 300.0  # while no job has come back, and kernels are compiled
LOOK = 0.5  # seconds between looks
ANSWERED = 30.0  # seconds in which a worker answers a question
LOOKS = 5  # after so many times LEAST_PATIENCE data are sent anew


class Jobs:
    """Calls of functions of one value, which every worker is sent once."""

    def __init__(self, client: Any, values: Any) -> None:
        there = check_client(client)
        self.client, self.values = client, values
        known = present(client)
        self.threads = sum(int(known[worker]["nthreads"]) for worker in there if worker in known)
        self.suspects = set(known) - set(there)  # workers that have not answered
        self.shared = self.share()
        self.longest, self.last, self.asked = 0.0, time.monotonic(), 0.0

    def begin(self, function: Callable[..., Any], *args: Any, name: str | None = None) -> Job:
        """A call, which is made while others are waited for; name: of its task, for those who watch the cluster."""
        return Job(self, function, args, name or function.__name__)

    def __call__(self, function: Callable[..., Any], *args: Any, name: str | None = None) -> Any:
        return self.begin(function, *args, name=name).result()

    def submit(self, function: Callable[..., Any], args: tuple[Any, ...], name: str) -> Any:
        where = {"workers": self.others(), "allow_other_workers": True} if self.suspects else {}
        return self.client.submit(called, function, self.shared, *args, key=task_name(name), pure=False, **where)

    def renew(self, lost: Any) -> None:
        """Send the value again, unless another job has done so."""
        if self.shared is lost:
            self.shared = self.share()

    def share(self) -> Any:
        """The value on every worker that answers."""
        others = self.others()
        sending = Aside(self.sent, others)
        for _ in range(LOOKS):
            done = sending.done(LEAST_PATIENCE)
            gone = set(others) - set(answering(self.client)) if not done or sending.problem is not None else set()
            if gone:
                logger.warning("%s did not take the data; others have them", ", ".join(sorted(gone)))
                self.suspects |= gone
                return self.share()
            if done:
                return sending.result()
        return self.share()  # whoever was lost on the way is back

    def sent(self, workers: list[str]) -> Any:
        """The value, once it is on all of these.

        One gets it, and the others from there, by tasks: Dask's own way to send it to all waits for ever, and all who
        ask later wait with it, where one is lost in the middle.
        """
        # Under a name of its own, so that nobody waits for a copy of before, which a lost worker has.
        shared = self.client.scatter(self.values, hash=False, workers=workers[:1])
        own = {"allow_other_workers": False, "pure": False}
        wait = [self.client.submit(taken, shared, workers=[to], key=task_name("data"), **own) for to in workers[1:]]
        for future in wait:
            future.result()
        return shared

    def others(self) -> list[str]:
        """Workers that are not suspected; where all are, those that answer."""
        until = time.monotonic() + ANSWERED
        while not (there := set(present(self.client))) and time.monotonic() < until:
            time.sleep(LOOK)  # those that were lost may come back
        if there <= self.suspects:
            self.suspects = there - set(answering(self.client))
        return sorted(there - self.suspects) or workers_of(self.client)

    def is_late(self, begun: float, attempts: int) -> bool:
        """Twice as much is allowed for each further attempt: it may be the job that takes long."""
        patience = max(LEAST_PATIENCE, PATIENCE * self.longest) if self.longest else FIRST_PATIENCE
        return time.monotonic() - max(begun, self.last) > patience * 2 ** (attempts - 1)

    def is_silent(self, begun: float, future: Any) -> bool:
        """Whether whoever has this task does not answer at all; asked when none has come back for a while."""
        now = time.monotonic()
        if now - max(begun, self.last, self.asked) < LEAST_PATIENCE:
            return False
        self.asked = now
        return not self.holders(future) <= set(answering(self.client))

    def returned(self, begun: float) -> None:
        """A job has, whether or not it is waited for; those that were begun with it may have waited for its worker."""
        now = time.monotonic()
        self.longest = max(self.longest, now - max(begun, self.last))
        self.last = now

    def holders(self, future: Any) -> set[str]:
        """Whoever makes this task, or has what it returns."""
        at = {worker for worker, tasks in self.client.processing().items() if future.key in tasks}
        return at.union(*self.client.who_has([future]).values())

    def suspect(self, future: Any) -> None:
        """Whoever has this task; what is begun from now on does not need them."""
        at = self.holders(future)
        logger.warning(
            "a job has not come back from %s for long; it is made elsewhere", ", ".join(sorted(at)) or "the cluster"
        )
        if not at <= self.suspects:
            self.suspects |= at
            self.shared = self.share()


def taken(value: Any) -> None:
    """Whoever makes this has the value."""


def called(function: Callable[..., Any], *args: Any) -> Any:
    """A worker's part."""
    return function(*map(aligned, args))


def aligned(value: Any) -> Any:
    """The same, its arrays where numbers may begin: what comes by the network may lie anywhere, and NumPy's products of
    such arrays round otherwise."""
    if isinstance(value, np.ndarray):
        return np.require(value, requirements="A")
    if is_dataclass(value) and not isinstance(value, type):
        vars(value).update({name: aligned(own) for name, own in vars(value).items()})
    return value


def task_name(words: str) -> str:
    """A task's key that no other has; Dask's dashboard shows its tasks by what is before the last hyphen."""
    return f"{words}-{uuid.uuid4().hex}"


class Job:
    """One call."""

    def __init__(self, jobs: Jobs, function: Callable[..., Any], args: tuple[Any, ...], name: str) -> None:
        self.jobs, self.function, self.args, self.name = jobs, function, args, name
        self.attempts: list[Any] = []
        self.again()

    def again(self) -> None:
        begun = self.begun = time.monotonic()
        self.sent, self.suspects = self.jobs.shared, set(self.jobs.suspects)
        self.attempts.append(self.jobs.submit(self.function, self.args, self.name))
        self.attempts[-1].add_done_callback(
            lambda done: self.jobs.returned(begun) if done.status == "finished" else None
        )

    def result(self) -> Any:
        """What the function returns; the first answer counts."""
        while True:
            for future in list(self.attempts):
                try:
                    found = future.result(timeout=LOOK / len(self.attempts))
                except TimeoutError:
                    continue
                except (CancelledError, UnboundLocalError):  # the second is what a cancelled one ends in, in Dask
                    if not future.cancelled():
                        raise
                    self.attempts.remove(future)  # every worker that had the value is gone
                    self.jobs.renew(self.sent)
                    self.again()
                    continue
                self.cancel()
                return found
            latest = self.attempts[-1]
            if self.jobs.is_late(self.begun, len(self.attempts)) or self.jobs.is_silent(self.begun, latest):
                self.jobs.suspect(latest)
            elif not self.is_with_suspects():
                continue
            self.again()

    def is_with_suspects(self) -> bool:
        """Whether workers that are suspected since it was begun have it."""
        new = self.jobs.suspects - self.suspects
        return bool(new and self.jobs.holders(self.attempts[-1]) & new)

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        for future in self.attempts:
            future.release()


class Aside:
    """A call in a thread of its own, which need not be waited for: nothing ends it that waits for a stopped process."""

    def __init__(self, function: Callable[..., Any], *args: Any, **more: Any) -> None:
        self.found: list[Any] = []
        self.problem: BaseException | None = None
        self.thread = threading.Thread(target=self._run, args=(function, args, more), daemon=True)
        self.thread.start()

    def _run(self, function: Callable[..., Any], args: Any, more: Any) -> None:
        try:
            self.found.append(function(*args, **more))
        except BaseException as problem:
            self.problem = problem

    def done(self, seconds: float) -> bool:
        self.thread.join(max(0.0, seconds))
        return not self.thread.is_alive()

    def result(self) -> Any:
        if self.problem is not None:
            raise self.problem
        return self.found[0]


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


def on_each_worker(client: Any, question: Callable[[], Any]) -> dict[str, Any]:
    """What each worker says to a question; one that is gone by now, or does not answer for long, has no say."""

    def ask(worker: str) -> dict[str, Any]:
        try:
            said: dict[str, Any] = client.run(question, workers=[worker], on_error="return")
        except (OSError, KeyError, ValueError):  # it is gone
            return {}
        return said

    asking = [Aside(ask, worker) for worker in workers_of(client)]
    until = time.monotonic() + ANSWERED
    told: dict[str, Any] = {}
    for one in asking:
        if one.done(until - time.monotonic()):
            told |= one.result()
    for said in told.values():
        if isinstance(said, Exception) and not isinstance(said, OSError):
            raise said
    return {worker: said for worker, said in told.items() if not isinstance(said, OSError)}


def answering(client: Any) -> list[str]:
    """The workers that answer, in an order of their own."""
    return sorted(on_each_worker(client, os.getpid))


def check_client(client: Any) -> list[str]:
    """Refuse what is no client, and workers that could not take part; those that answer."""
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

    found = on_each_worker(client, version_here)
    for worker, version in found.items():
        if version != __version__:
            what = "has none" if version is None else f"has version {version}"
            raise RuntimeError(
                f"every worker must have sparsefactor {__version__}, as this process has; {worker} {what}; install the "
                "same version there"
            )
    if not found:
        raise RuntimeError(f"a worker must answer; none did within {ANSWERED:.0f} s; look at the workers' logs")
    return list(found)
