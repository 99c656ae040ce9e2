"""Threads that share the tiles of a row pass.

The library's own threads are few, shared by all fits of the process and idle between passes. A caller always works
on its own share, and takes back whatever the others have not begun, so that many fits at once never wait in line.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

from .blas import hold_single_blas_thread, keep_single_blas_thread
from .blas import single_blas_thread as single_blas_thread


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
    keep_single_blas_thread()
    while True:
        part = queue.get()
        part.run_unless_claimed()
        del part  # or it would keep its arrays alive until the next one comes


_workers = _Workers()


def run_parts(task: Callable[..., None], parts: Sequence[tuple[Any, ...]]) -> None:
    """Call task(*part) for every part, the first on the calling thread; returns when all are done."""
    hold_single_blas_thread()
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


def _forget_threads() -> None:
    """A forked child has none of its parent's threads, and locks may be held by nobody."""
    _workers.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
