"""Threads that share the tiles of a row pass, and one BLAS thread for each of them.

The library's own threads are few, shared by all fits of the process and idle between passes. A caller always works
on its own share, and takes back whatever the others have not begun, so that many fits at once never wait in line.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from queue import SimpleQueue
from typing import Any


def available_cores() -> int:
    """Cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system has it
        return os.cpu_count() or 1


class _Part:
    """A call that whoever claims it first makes: a worker, or the caller itself."""

    __slots__ = ("args", "claimed", "done", "error", "task")

    def __init__(self, task: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.task, self.args = task, args
        self.error: BaseException | None = None
        self.claimed, self.done = threading.Lock(), threading.Lock()
        self.done.acquire()

    def run_unless_claimed(self) -> None:
        if self.claimed.acquire(blocking=False):
            try:
                self.task(*self.args)
            except BaseException as error:  # the caller raises it
                self.error = error
            self.done.release()


class _Workers:
    """The shared threads, started when first needed and as many as were ever asked for.

    A queue and two locks a part, since a row pass may take less time than a future takes to resolve.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.size = 0
        self.queue: SimpleQueue[_Part] = SimpleQueue()

    def ensure(self, n: int) -> None:
        if self.size < n:
            with self.lock:
                while self.size < n:
                    self.size += 1
                    name = f"sparsefactor-{self.size}"
                    threading.Thread(target=_work, args=(self.queue,), name=name, daemon=True).start()


def _work(queue: SimpleQueue[_Part]) -> None:
    while True:
        part = queue.get()
        part.run_unless_claimed()
        del part  # or it would keep its arrays alive until the next one comes


_workers = _Workers()


def run_parts(task: Callable[..., None], parts: Sequence[tuple[Any, ...]]) -> None:
    """Call task(*part) for every part, the first on the calling thread; returns when all are done."""
    if len(parts) == 1:
        task(*parts[0])
        return
    _workers.ensure(len(parts) - 1)
    waiting = [_Part(task, part) for part in parts[1:]]
    for part in waiting:
        _workers.queue.put(part)
    try:
        task(*parts[0])
    finally:
        for part in waiting:
            part.run_unless_claimed()
        for part in waiting:
            part.done.acquire()
    for part in waiting:
        if part.error is not None:
            raise part.error


def split(n: int, parts: int) -> list[tuple[int, int]]:
    """range(n) as at most `parts` contiguous ranges of nearly equal length."""
    parts = max(1, min(parts, n))
    bounds = [n * p // parts for p in range(parts + 1)]
    return list(pairwise(bounds))


class _BlasLimit:
    """How many are inside `single_blas_thread`, and what to restore when the last one leaves."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.controller: Any = None
        self.limiter: Any = None

    def enter(self) -> None:
        with self.lock:
            if self.inside == 0:
                if self.controller is None:
                    self.controller = _blas_controller()
                self.limiter = self.controller.limit(limits=1, user_api="blas")
            self.inside += 1

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            if self.inside == 0:
                self.limiter.restore_original_limits()
                self.limiter = None


def _blas_controller() -> Any:
    """Finding the BLAS libraries takes milliseconds, so it is done once, after SciPy has loaded its own."""
    import scipy.linalg.cython_blas  # noqa: F401
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


_blas_limit = _BlasLimit()


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Hold every BLAS library at one thread; the first one in sets the limit, the last one out restores it.

    Around a fit, not around a sweep. Without it results are right, but BLAS threads and ours compete for cores and
    sums may depend on the number of threads.
    """
    _blas_limit.enter()
    try:
        yield
    finally:
        _blas_limit.leave()


def _forget_threads() -> None:
    """A forked child has none of its parent's threads, and locks may be held by nobody."""
    _workers.__init__()  # type: ignore[misc]
    _blas_limit.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
