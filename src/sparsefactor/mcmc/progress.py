"""Progress of the chains: on bars and in the log."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

from ..progress import Bars
from .chain import Chain

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
        return f"chain {self.chain}: {self.sweep} of {self.n_sweeps} sweeps, {_text(self)}"


class Display:
    """Looks at the chains from the main thread, and hands what it sees to bars and to the log."""

    def __init__(self, chains: Sequence[Chain], bars: Bars | None = None) -> None:
        self.chains, self.bars = chains, bars
        self.logged = time.monotonic()
        self.begun = {chain.number: (self.logged, chain.sweep) for chain in chains}
        self.moving: set[int] = set()  # chains past their first sweeps, which may have waited for compilation

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        self.look()

    def look(self) -> None:
        if self.bars is None and not logger.isEnabledFor(logging.INFO):
            return
        reports = [self.report(chain) for chain in self.chains]
        if self.bars is not None:
            for r in reports:
                self.bars.show(f"chain {r.chain}", _text(r), r.sweep, r.n_sweeps)
        if time.monotonic() - self.logged >= LOG_SECONDS:
            self.logged = time.monotonic()
            for report in reports:
                logger.info("%s", report)

    def report(self, chain: Chain) -> ChainProgress:
        """The rate counts from the second look at which the chain moved, and no sweeps of an earlier call."""
        now, sweep, total = time.monotonic(), chain.sweep, chain.plan.n_sweeps
        begun, at = self.begun[chain.number]
        if chain.number not in self.moving:
            if sweep > at:
                self.moving.add(chain.number)
            self.begun[chain.number] = begun, at = now, sweep
        rate = (sweep - at) / (now - begun) if sweep > at and now > begun else float("nan")
        return ChainProgress(
            chain.number, sweep, total, chain.kept, rate, (total - sweep) / rate, chain.active, chain.log_joint
        )


def _text(report: ChainProgress) -> str:
    """Speed, time left and state of a chain, as far as they are known."""
    if math.isnan(report.log_joint):
        return "waiting for its first sweep"
    return f"{_speed(report)}{report.active_loadings} active, log joint {report.log_joint:.1f}"


def _speed(report: ChainProgress) -> str:
    """Empty until a rate is known."""
    rate, left = report.sweeps_per_second, report.seconds_left
    if math.isnan(rate):
        return ""
    minutes, seconds = divmod(round(left), 60)
    time_left = f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}" if minutes >= 60 else f"{minutes}:{seconds:02d}"
    return f"{rate:,.0f} sweeps/s, {time_left} left, "
