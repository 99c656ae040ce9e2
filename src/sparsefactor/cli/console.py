"""What the command line says: results on standard output, all else on standard error, without control characters."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import typer

from ..notices import listening
from ..reading.names import UNPRINTABLE, shown

DONE, FAILED, NOT_TRUSTED, INTERRUPTED = 0, 1, 3, 130  # 2 is typer's, for a command that cannot be read


@dataclass
class Settings:
    """What every command takes."""

    json: bool = False
    quiet: bool = False
    debug: bool = False
    overwrite: bool = False  # those that write files


settings = Settings()


def clean(text: str) -> str:
    """Text without control characters but line ends: names come from files, and may hold anything."""
    return "\n".join(UNPRINTABLE.sub(lambda found: repr(found[0])[1:-1], line) for line in text.split("\n"))


def note(text: str) -> None:
    """Something to know on the way; left out with --quiet."""
    if not settings.quiet:
        typer.echo(clean(text), err=True)


def warn(text: str) -> None:
    typer.secho(clean(text), err=True, fg="yellow")


def fail(text: str) -> None:
    typer.secho(clean(f"Error: {text}"), err=True, fg="red")


def answer(text: str, facts: Mapping[str, Any]) -> None:
    """The result of a command, for a reader or (--json) for a program."""
    typer.echo(json.dumps(plain(facts), allow_nan=False) if settings.json else clean(text))


def plain(value: Any) -> Any:
    """For JSON: numbers that are not finite become null."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain(inner) for inner in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value if value is None else str(value)


class Spinner:
    """A moving line on a terminal, with the seconds it has taken; elsewhere a line before what takes long."""

    def __init__(self, text: str, long: bool) -> None:
        self.status: Any = None
        self.text = text
        if settings.quiet:
            return
        if not sys.stderr.isatty():
            if long:
                note(f"{text} ...")
            return
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        self.status = Progress(*columns, console=Console(stderr=True), transient=True)
        self.status.add_task(clean(text), total=None)
        self.status.start()

    def say(self, text: str) -> None:
        """Change the line; nothing where there is none."""
        if self.status is not None:
            self.status.update(self.status.task_ids[0], description=clean(text))

    def show_task(self, task: str, done: int, total: int, seconds: float) -> None:
        """Add to the line what goes on within the work, such as compilation."""
        self.say(self.text if done == total else f"{self.text} ({task}: {done} of {total} kernels)")

    def stop(self) -> None:
        if self.status is not None:
            self.status.stop()
            self.status = None


@contextmanager
def working(text: str, long: bool = False) -> Iterator[Spinner]:
    """Say that something takes a while."""
    spinner = Spinner(text, long)
    with listening(note) if spinner.status is None else listening(spinner.say, spinner.show_task):
        try:
            yield spinner
        finally:
            spinner.stop()


@contextmanager
def under_way(text: str) -> Iterator[bool]:
    """Around a fit: whether it is to show its own progress; where it is not, a line before, and one if it compiles."""
    shown = sys.stderr.isatty() and not settings.quiet
    if not shown:
        note(f"{text} ...")
    with listening(None if shown else note):
        yield shown


def seconds_since(begin: float) -> str:
    return f"{time.monotonic() - begin:.1f} s"


def table_text(rows: list[dict[str, Any]], widest: int = 60) -> str:
    """Rows as aligned columns; numbers to the right."""
    if not rows:
        return "(none)"
    names = list(rows[0])
    cells = [[shown(row[name], widest) for name in names] for row in rows]
    widths = [max(len(name), *(len(line[i]) for line in cells)) for i, name in enumerate(names)]
    right = [all(isinstance(row[name], int | float) or _numeric(str(row[name])) for row in rows) for name in names]

    def line(parts: list[str]) -> str:
        return "  ".join(p.rjust(w) if r else p.ljust(w) for p, w, r in zip(parts, widths, right, strict=True)).rstrip()

    return "\n".join([line(names), *(line(parts) for parts in cells)])


def _numeric(text: str) -> bool:
    return text.replace(",", "").replace(".", "").replace("%", "").replace("-", "").strip().isdigit() or not text
