"""What a person should be told while they wait: to the log, and to the listener (progress bars, the command line)."""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

logger = logging.getLogger("sparsefactor")

Say = Callable[[str], None]
Progress = Callable[[str, int, int, float], None]  # task, done, total, seconds so far
PROGRESS_SECONDS = 10.0  # between two lines where progress has no display of its own

_unwarned: ContextVar[tuple[type[Warning], ...]] = ContextVar("unwarned", default=())
_logged: set[str] = set()
_listeners: list[tuple[Say, Progress]] = []  # of the whole process: notices come from any of its threads


def announce(text: str) -> None:
    """Tell the log, once, and the listener that came last: bars of a fit stand before the command that made it."""
    if text not in _logged:
        _logged.add(text)
        logger.info("%s", text)
    if _listeners:
        _listeners[-1][0](text)


def report_progress(task: str, done: int, total: int, seconds: float) -> None:
    """Tell the listener that came last how far a task is that the caller did not ask for, such as compilation."""
    if _listeners:
        _listeners[-1][1](task, done, total, seconds)


@contextmanager
def unwarned(*categories: type[Warning]) -> Iterator[None]:
    """Leave warnings of these categories to the log: in this thread alone, which filters of Python's own are not."""
    before = _unwarned.set((*_unwarned.get(), *categories))
    try:
        yield
    finally:
        _unwarned.reset(before)


def warn(text: str, category: type[Warning]) -> None:
    """Warn, at the first line outside this package that led here."""
    if issubclass(category, _unwarned.get()):
        logger.info("%s", text)
        return
    warnings.warn(text, category, stacklevel=_users_level())


def _users_level() -> int:
    """The stacklevel, for a warning of the caller, of the first line outside this package."""
    package = f"{Path(__file__).parent}{os.sep}"
    level, frame = 0, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        level, frame = level + 1, frame.f_back
    return max(level, 1)


@contextmanager
def listening(say: Say | None, progress: Progress | None = None) -> Iterator[None]:
    """Hear each text that is announced meanwhile, once, and progress; say=None listens to nothing.

    progress: without it, progress comes as a line every few seconds.
    """
    if say is None:
        yield
        return
    said: set[str] = set()

    def once(text: str) -> None:
        if text not in said:
            said.add(text)
            say(text)

    listener = (once, progress or progress_as_lines(say))
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def progress_as_lines(say: Say, every: float = PROGRESS_SECONDS) -> Progress:
    last = time.monotonic()

    def progress(task: str, done: int, total: int, seconds: float) -> None:
        nonlocal last
        if time.monotonic() - last >= every:
            last = time.monotonic()
            say(f"{task}: {done} of {total} kernels, {seconds:.0f} s")

    return progress
