"""What a person should be told while they wait: to the log always, and to whoever listens (bars, the command line)."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

logger = logging.getLogger("sparsefactor")

Listener = Callable[[str], None]

_unwarned: ContextVar[tuple[type[Warning], ...]] = ContextVar("unwarned", default=())
_logged: set[str] = set()
_listeners: list[Listener] = []  # of the whole process: what is worth telling may happen in any of its threads


def announce(text: str) -> None:
    """Tell the log, once, and the listener that came last: bars of a fit stand before the command that made it."""
    if text not in _logged:
        _logged.add(text)
        logger.info("%s", text)
    if _listeners:
        _listeners[-1](text)


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
def listening(listener: Listener | None) -> Iterator[None]:
    """Hear each text that is announced meanwhile, once; None listens to nothing."""
    if listener is None:
        yield
        return
    said: set[str] = set()

    def once(text: str) -> None:
        if text not in said:
            said.add(text)
            listener(text)

    _listeners.append(once)
    try:
        yield
    finally:
        _listeners.remove(once)
