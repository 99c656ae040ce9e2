"""One BLAS thread for whoever is fitting, so that no sum depends on the number of threads BLAS would use.

NumPy and SciPy may each bring a BLAS of their own. For some (OpenBLAS with POSIX threads) the number of threads is the
process's: whoever fits first sets it to one, whoever is done last restores it, on whichever thread that is. For others
(MKL, OpenMP) it is each thread's own, and every thread that computes for us sets and restores its own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, NamedTuple


class Library(NamedTuple):
    """A loaded BLAS. per_thread: its number of threads is that of the calling thread, not of the process."""

    get: Callable[[], int]
    set: Callable[[int], Any]
    per_thread: bool


class _Own(threading.local):
    """How deep this thread is inside `single_blas_thread`, and what its own limits were before."""

    depth = 0
    before: Sequence[int] = ()


class BlasLimit:
    """The limits of all libraries, and what is to be restored.

    A setting that somebody else changes meanwhile is theirs: `hold` notes it as what is to be restored, and leaving
    does not overwrite it.
    """

    def __init__(self, find: Callable[[], list[Library]]) -> None:
        self.find = find
        self.lock = threading.RLock()
        self.own = _Own()
        self.inside = 0  # threads
        self.before: list[int] = []
        self.of_process: list[Library] = []
        self.of_thread: list[Library] = []
        self.found = False

    def look(self) -> None:
        """Finding the libraries takes milliseconds, so it is done once."""
        with self.lock:
            if not self.found:
                libraries = self.find()
                self.of_process = [library for library in libraries if not library.per_thread]
                self.of_thread = [library for library in libraries if library.per_thread]
                self.found = True

    def enter(self) -> None:
        if self.own.depth == 0:
            self.look()
            self.own.before = limit(self.of_thread)
            with self.lock:
                if self.inside == 0:
                    self.before = limit(self.of_process)
                self.inside += 1
        self.own.depth += 1

    def leave(self) -> None:
        self.own.depth -= 1
        if self.own.depth == 0:
            restore(self.of_thread, self.own.before)
            with self.lock:
                self.inside -= 1
                if self.inside == 0:
                    restore(self.of_process, self.before)

    def hold(self) -> None:
        """Set the limit again where somebody else has changed it; costs less than a microsecond."""
        if self.inside:
            for index, library in enumerate(self.of_process):
                now = library.get()
                if now != 1:
                    with self.lock:
                        if self.inside:
                            self.before[index] = now
                            library.set(1)

    def keep(self) -> None:
        """Hold the calling thread, one of ours, at one thread for its life."""
        self.look()
        limit(self.of_thread)

    def after_fork(self) -> None:
        """A child has one thread; it is fitting only if that thread was."""
        self.lock = threading.RLock()
        others = self.inside > 0 and self.own.depth == 0
        self.inside = int(self.own.depth > 0)
        if others:
            restore(self.of_process, self.before)


def limit(libraries: Sequence[Library]) -> list[int]:
    """Set all to one thread; returns what they had."""
    before = [library.get() for library in libraries]
    for library, threads in zip(libraries, before, strict=True):
        if threads != 1:
            library.set(1)
    return before


def restore(libraries: Sequence[Library], before: Sequence[int]) -> None:
    for library, threads in zip(libraries, before, strict=True):
        if threads != 1 and library.get() == 1:
            library.set(threads)


def find_libraries() -> list[Library]:
    """Every BLAS of this process, after SciPy has loaded its own."""
    import scipy.linalg.cython_blas  # noqa: F401
    from threadpoolctl import ThreadpoolController

    found = ThreadpoolController().select(user_api="blas").lib_controllers
    return [_library(each) for each in found]


def _library(controller: Any) -> Library:
    """Not always through threadpoolctl: its newer setters for OpenBLAS heed one thread only, the first to use them."""
    openmp = getattr(controller, "threading_layer", None) == "openmp"
    if controller.internal_api == "openblas" and not openmp:
        for prefix, suffix in product(("", "scipy_"), ("", "64_", "_64")):
            names = (f"{prefix}openblas_{verb}_num_threads{suffix}" for verb in ("get", "set"))
            get, set_ = (getattr(controller.dynlib, name, None) for name in names)
            if get is not None and set_ is not None:
                return Library(get, set_, per_thread=False)
    per_thread = openmp or controller.internal_api == "mkl"
    return Library(controller.get_num_threads, controller.set_num_threads, per_thread)


_limit = BlasLimit(find_libraries)
hold_single_blas_thread = _limit.hold
keep_single_blas_thread = _limit.keep


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Hold every BLAS library at one thread, from any thread and nested as one likes.

    Around a fit, not around a sweep. Without it results are right, but BLAS threads and ours compete for cores and
    sums may depend on the number of threads.
    """
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=lambda: _limit.lock.acquire(),
        after_in_parent=lambda: _limit.lock.release(),
        after_in_child=_limit.after_fork,
    )
