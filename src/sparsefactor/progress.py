"""What is shown while a run goes on: bars on standard error, in a terminal or a notebook.

tqdm draws both, without a display of its own for each; where a notebook has no ipywidgets it falls back to text.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from .notices import listening

UNKNOWN_SIZE = (80, 24)
SHOWN_SECONDS = 0.1  # between two looks of a person at the same bar


def is_shown(progress: bool | None) -> bool:
    """None: where a person looks on."""
    return in_terminal() or in_notebook() if progress is None else bool(progress)


def in_terminal() -> bool:
    return bool(sys.stderr is not None and sys.stderr.isatty())


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


def terminal_size() -> tuple[int, int]:
    """Columns and lines; a terminal that does not know them says 0."""
    try:
        size = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError):
        return UNKNOWN_SIZE
    return size.columns or UNKNOWN_SIZE[0], size.lines or UNKNOWN_SIZE[1]


def bar_class() -> Any:
    """The bar that suits where we are; one that starts no thread, for a process may be forked while it is shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no ipywidgets: text will do
        from tqdm.auto import tqdm

    return type("Bar", (tqdm,), {"monitor_interval": 0})


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Where a run stands. Its arrays are fetched from the state it holds only where a callback asks for them."""

    _state: Any = field(init=False, repr=False, compare=False)
    _unit: float = field(init=False, repr=False, compare=False)
    _fetch: Callable[..., Any] = field(init=False, repr=False, compare=False)

    def _holding(self, state: Any, fetch: Callable[..., Any], unit: float) -> Self:
        """With the state that its arrays are read from, by `fetch`; unit: of the data that it is of."""
        for name, value in (("_state", state), ("_fetch", fetch), ("_unit", unit)):
            object.__setattr__(self, name, value)
        return self


class Bars:
    """A bar for each name, or a line where the length of the work is not known; notices stand above them."""

    def __init__(self) -> None:
        self.make = bar_class()
        self.bars: dict[str, Any] = {}
        self.hearing = listening(self.say, self.show_task)

    def __enter__(self) -> Bars:
        self.hearing.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hearing.__exit__(None, None, None)
        for bar in self.bars.values():
            bar.close()

    def show(self, name: str, text: str, done: int = 0, total: int | None = None) -> None:
        """text: what is to be read behind the bar."""
        if name not in self.bars:
            self.bars[name] = self.make(total=total, file=sys.stderr, bar_format="{desc}", position=len(self.bars))
        bar = self.bars[name]
        if in_terminal():
            bar.ncols, bar.nrows = terminal_size()
        if total is None:
            bar.set_description_str(f"{name}: {text}", refresh=False)
        else:
            bar.set_description_str(name, refresh=False)
            bar.bar_format = "{desc} {percentage:3.0f}% |{bar:24}| " + text.replace("{", "{{").replace("}", "}}")
            bar.n, bar.total = done, total
        bar.refresh()

    def show_task(self, task: str, done: int, total: int, seconds: float) -> None:
        """A bar for what goes on before or within the work, such as compilation."""
        self.show(task, f"{done} of {total} kernels, {seconds:.0f} s", done, total)

    def say(self, text: str) -> None:
        self.make.write(text, file=sys.stderr)


class Pace:
    """True at most every so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.last = seconds, -float("inf")

    def due(self) -> bool:
        now = time.monotonic()
        if now - self.last < self.seconds:
            return False
        self.last = now
        return True
