"""How far the chains have come: for whoever looks on, and for the log. Nothing goes to standard output."""

from __future__ import annotations

import logging
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
        return (
            f"chain {self.chain}: {self.sweep} of {self.n_sweeps} sweeps, {_rate(self)}, {_left(self)}, "
            f"{self.active_loadings} active loadings, log joint {self.log_joint:.1f}"
        )


class Display:
    """Looks at the chains from the main thread, and hands what it sees to bars and to the log."""

    def __init__(self, chains: Sequence[Chain], bars: Bars | None = None) -> None:
        self.chains, self.bars = chains, bars
        self.logged = time.monotonic()
        self.begun = {chain.number: (self.logged, chain.sweep) for chain in chains}

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
                text = f"{_rate(r)} {_left(r)}  {r.active_loadings} active  log joint {r.log_joint:.1f}"
                self.bars.show(f"chain {r.chain}", text, r.sweep, r.n_sweeps)
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
