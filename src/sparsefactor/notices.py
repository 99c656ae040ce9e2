"""What a person should be told while they wait: to the log always, and to whoever listens (bars, the command line)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

logger = logging.getLogger("sparsefactor")

Listener = Callable[[str], None]

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
