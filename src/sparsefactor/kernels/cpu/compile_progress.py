"""Progress of compilation: before and after each kernel, how many of those that a call needs are compiled."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import CodeType
from typing import Any

from numba.core import event

from ...notices import announce, report_progress

COMPILING = (
    "Compiling kernels for their first use, which takes up to two minutes; later runs load them from disk "
    "(`sparsefactor warmup` compiles all ahead)."
)
TASK = "Compiling"


class CompileProgress(event.Listener):
    """Counts kernels from Numba's events, which come under its compiler lock and hence from one thread at a time."""

    def __init__(self) -> None:
        self.depth, self.done, self.total, self.begin = 0, 0, 0, 0.0

    def on_start(self, compiled: Any) -> None:
        kernel = compiled.data["dispatcher"]
        if not is_kernel(kernel):
            return
        if self.depth == 0:
            self.done, self.total, self.begin = 0, len(called_kernels(kernel)), time.monotonic()
            announce(COMPILING)
        self.depth += 1
        self.report()

    def on_end(self, compiled: Any) -> None:
        if is_kernel(compiled.data["dispatcher"]):
            self.done += 1
            self.depth -= 1
            self.report()

    def count_loaded(self) -> None:
        """Count a kernel that was loaded from disk, where it is needed by one that is being compiled."""
        if self.depth > 0:
            self.done += 1
            self.report()

    def report(self) -> None:
        # Some kernels are compiled for several types; all are done with the outermost, and not before.
        done = min(self.done, self.total - 1) if self.depth else self.total
        report_progress(TASK, done, self.total, time.monotonic() - self.begin)


def is_kernel(value: Any) -> bool:
    """Check for what `compiled.njit` made."""
    return getattr(value, "is_sparsefactor_kernel", False) is True


def called_kernels(kernel: Any) -> set[Any]:
    """A kernel and all kernels that it calls, directly or not."""
    found: set[Any] = set()
    waiting = [kernel]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            function = one.py_func
            cells = (cell.cell_contents for cell in function.__closure__ or ())
            named = (function.__globals__.get(name) for name in names_in(function.__code__))
            waiting.extend(value for value in (*cells, *named) if is_kernel(value))
    return found


def names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


compile_progress = CompileProgress()
event.register("numba:compile", compile_progress)
