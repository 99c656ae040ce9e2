"""The time of a run that may take so long: what its searches for starts may take of it, and what sweeps take."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .chain import Chain

# Of max_seconds, for the searches of all chains: from a start that is not the best there is a chain still gets to the
# posterior, but there is none without sweeps.
SEARCHING = 1 / 3


class Deadline:
    """True, and so noted, once so many seconds are over."""

    def __init__(self, seconds: float) -> None:
        self.at, self.passed = time.monotonic() + seconds, False

    def __call__(self) -> bool:
        self.passed = self.passed or time.monotonic() >= self.at
        return self.passed


class Clock:
    """Begins with the call."""

    def __init__(self, max_seconds: float | None) -> None:
        self.begun = self.rested = time.monotonic()
        self.max_seconds = max_seconds
        self.swept, self.sweeps = 0.0, 0.0  # seconds in which sweeps were made, and how many by a chain, on average
        self.cut = 0  # searches that have ended since their time was over

    @property
    def spent(self) -> float:
        return time.monotonic() - self.begun

    @property
    def seconds_a_sweep(self) -> float:
        """Of every chain; zero where this call has made none, since it goes on with a run that was done."""
        return self.swept / self.sweeps if self.sweeps else 0.0

    @property
    def since_sweeps(self) -> float:
        """Seconds since the last of them."""
        return time.monotonic() - self.rested

    def for_search(self, n_left: int, at_once: int = 1) -> float | None:
        """Seconds for each of the next searches, of which so many are left and so many are made at the same time."""
        if self.max_seconds is None:
            return None
        return max(0.0, SEARCHING * self.max_seconds - self.spent) * min(1.0, at_once / n_left)

    @contextmanager
    def sweeping(self, chains: Sequence[Chain]) -> Iterator[None]:
        """While chains run."""
        begun, before = time.monotonic(), sum(chain.sweep for chain in chains)
        yield
        self.rested = time.monotonic()
        self.swept += self.rested - begun
        self.sweeps += (sum(chain.sweep for chain in chains) - before) / len(chains)
