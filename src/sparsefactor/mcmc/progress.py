"""How far the chains have come: for a terminal, for a callback, and for the log. Nothing goes to standard output."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .chain import Chain

if TYPE_CHECKING:
    from rich.progress import Progress

logger = logging.getLogger("sparsefactor")

LOG_SECONDS = 30.0


@dataclass(frozen=True)
class ChainProgress:
    """One chain's progress; sweeps_per_second and seconds_left are NaN until the chain moves."""

    chain: int
    sweep: int
    n_sweeps: int
    kept: int
    sweeps_per_second: float
    seconds_left: float
    active_loadings: int
    log_joint: float

    def __str__(self) -> str:
        return (
            f"chain {self.chain}: {self.sweep} of {self.n_sweeps} sweeps, {_rate(self)}, {_left(self)}, "
            f"{self.active_loadings} active loadings, log joint {self.log_joint:.1f}"
        )


Callback = Callable[[list[ChainProgress]], Any]


class View(Protocol):
    """Shows the progress of all chains, again and again."""

    def show(self, reports: list[ChainProgress]) -> None: ...

    def close(self) -> None: ...


class Display:
    """Looks at the chains from the main thread, and hands what it sees to a view and to the log."""

    def __init__(self, chains: Sequence[Chain], progress: bool | Callback | None) -> None:
        self.chains = chains
        self.logged = time.monotonic()
        self.begun = {chain.number: (self.logged, chain.sweep) for chain in chains}
        self.view = _view(progress)

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        self.look()
        if self.view is not None:
            self.view.close()

    def look(self) -> None:
        if self.view is None and not logger.isEnabledFor(logging.INFO):
            return
        reports = [self.report(chain) for chain in self.chains]
        if self.view is not None:
            self.view.show(reports)
        if time.monotonic() - self.logged >= LOG_SECONDS:
            self.logged = time.monotonic()
            for report in reports:
                logger.info("%s", report)

    def report(self, chain: Chain) -> ChainProgress:
        """The rate is that since the chain began to move, and sweeps of an earlier call do not count."""
        now, sweep, total = time.monotonic(), chain.sweep, chain.plan.n_sweeps
        begun, at = self.begun[chain.number]
        if sweep == at:  # still waiting for its turn
            self.begun[chain.number] = (now, sweep)
        rate = (sweep - at) / (now - begun) if sweep > at and now > begun else float("nan")
        return ChainProgress(
            chain.number, sweep, total, chain.kept, rate, (total - sweep) / rate, chain.active, chain.log_joint
        )


def _view(progress: bool | Callback | None) -> View | None:
    if progress is None:
        progress = bool(sys.stderr is not None and sys.stderr.isatty())
    if progress is False:
        return None
    if callable(progress):
        return CallbackView(progress)
    try:
        import rich  # noqa: F401
    except ImportError:
        return PlainView()
    return RichView()


class CallbackView:
    """The caller's own function, given a list of ChainProgress."""

    def __init__(self, callback: Callback) -> None:
        self.callback = callback

    def show(self, reports: list[ChainProgress]) -> None:
        self.callback(reports)

    def close(self) -> None:
        pass


class PlainView:
    """One line of standard error, written over and over."""

    def show(self, reports: list[ChainProgress]) -> None:
        done, total = sum(r.sweep for r in reports), sum(r.n_sweeps for r in reports)
        slowest = max(reports, key=lambda r: (r.n_sweeps - r.sweep, r.chain))
        chains = " | ".join(
            f"{r.chain}: {r.sweep / r.n_sweeps:.0%} {r.active_loadings} active lp {r.log_joint:.0f}" for r in reports
        )
        line = f"sampling {done / total:4.0%} {_rate(slowest)} {_left(slowest)} | {chains}"
        width = shutil.get_terminal_size().columns - 1
        sys.stderr.write("\r" + line[:width].ljust(width))
        sys.stderr.flush()

    def close(self) -> None:
        sys.stderr.write("\n")


class RichView:
    """A bar for each chain, by rich."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self.bars: Progress = Progress(
            TextColumn("chain {task.fields[chain]}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f}% {task.fields[text]}"),
            console=Console(stderr=True),
            auto_refresh=False,
        )
        self.tasks: dict[int, Any] = {}

    def show(self, reports: list[ChainProgress]) -> None:
        if not self.tasks:
            self.bars.start()
        for r in reports:
            if r.chain not in self.tasks:
                self.tasks[r.chain] = self.bars.add_task("", total=r.n_sweeps, chain=r.chain, text="")
            text = f"{_rate(r)} {_left(r)}  {r.active_loadings} active  log joint {r.log_joint:.1f}"
            self.bars.update(self.tasks[r.chain], completed=r.sweep, total=r.n_sweeps, text=text)
        self.bars.refresh()

    def close(self) -> None:
        self.bars.stop()


def _rate(report: ChainProgress) -> str:
    rate = report.sweeps_per_second
    return "waiting" if rate != rate else f"{rate:,.0f} sweeps/s"


def _left(report: ChainProgress) -> str:
    left = report.seconds_left
    if left != left:
        return "-:-- left"
    minutes, seconds = divmod(round(left), 60)
    return (
        f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d} left" if minutes >= 60 else f"{minutes}:{seconds:02d} left"
    )
