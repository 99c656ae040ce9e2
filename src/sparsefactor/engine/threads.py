"""Threads that share the tiles of a row pass, and one BLAS thread for each of them.

The library's own threads are few, shared by all fits of the process and idle between passes. A caller always works
on its own share, and takes back whatever the others have not begun, so that many fits at once never wait in line.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any


def available_cores() -> int:
    """Cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system has it
        return os.cpu_count() or 1


class _Pool:
    """The shared worker threads, started when first needed and as many as were ever asked for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.size = 0
        self.executor: ThreadPoolExecutor | None = None

    def workers(self, n: int) -> ThreadPoolExecutor:
        if self.executor is None or self.size < n:
            with self.lock:
                if self.executor is None or self.size < n:
                    old = self.executor
                    self.executor = ThreadPoolExecutor(n, thread_name_prefix="sparsefactor")
                    self.size = n
                    if old is not None:
                        old.shutdown(wait=False)
        return self.executor


_pool = _Pool()


def run_parts(task: Callable[..., None], parts: Sequence[tuple[Any, ...]]) -> None:
    """Call task(*part) for every part, the first on the calling thread; returns when all are done."""
    if len(parts) == 1:
        task(*parts[0])
        return
    submit = _pool.workers(len(parts) - 1).submit
    waiting = [(submit(task, *part), part) for part in parts[1:]]
    try:
        task(*parts[0])
        for future, part in waiting:
            if future.cancel():
                task(*part)
    finally:
        wait([future for future, _ in waiting])
    for future, _ in waiting:
        if not future.cancelled():
            future.result()


def split(n: int, parts: int) -> list[tuple[int, int]]:
    """range(n) as at most `parts` contiguous ranges of nearly equal length."""
    parts = max(1, min(parts, n))
    bounds = [n * p // parts for p in range(parts + 1)]
    return list(zip(bounds[:-1], bounds[1:], strict=True))


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
    _pool.__init__()  # type: ignore[misc]
    _blas_limit.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
