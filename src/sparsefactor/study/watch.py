"""A clock that counts inference only, measurements at geometric times of it, and means over draws as they come."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import sparsefactor as sf

Array = NDArray[np.float64]

FIRST_LOOK = 1e-3  # seconds
RATIO = 1.25  # between two looks


@dataclass(frozen=True)
class Estimate:
    """Posterior means at some moment, with the names that `sf.score` asks for."""

    loadings_mean: Array  # (n_features, n_factors)
    activations_mean: Array  # (n_samples, n_factors)
    inclusion_prob: Array  # (n_features, n_factors)
    signal: Array  # the mean of what Gauge.signal gives

    def reconstruct(self) -> Array:
        return self.signal


class Gauge(Protocol):
    """What is measured of an estimate."""

    def signal(self, L: Array, F: Array) -> Array:
        """The part of the signal whose posterior mean is measured; L: (G, K), F: (K, N)."""
        ...

    def measure(self, estimate: Estimate) -> dict[str, float]: ...


@dataclass
class Trace:
    """One trial or chain: how it went, and where it ended."""

    number: int
    start: str
    points: list[dict[str, float]]
    final: Estimate
    sweeps: int
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)

    def as_facts(self) -> dict[str, Any]:
        """All but its means, as plain values."""
        own = {name: getattr(self, name) for name in ("number", "start", "sweeps", "seconds", "points")}
        return {**self.facts, **own}


class Laps:
    """CPU seconds of a thread between two calls of a callback: other work on the machine does not show in them, nor
    what the callback does itself."""

    def __init__(self) -> None:
        self.go_on()

    def go_on(self) -> None:
        """Inference goes on from here."""
        self.thread, self.since = threading.get_ident(), time.thread_time()

    def lap(self) -> float:
        """Since it last went on; nothing where that was in another thread, whose clock is another."""
        return time.thread_time() - self.since if threading.get_ident() == self.thread else 0.0


class Watch:
    """Takes measurements at geometric times."""

    def __init__(self) -> None:
        self.next = FIRST_LOOK
        self.points: list[dict[str, float]] = []

    def look(self, seconds: float, sweep: int, measure: Callable[[], dict[str, float]], *, now: bool = False) -> None:
        """seconds: of inference so far. now: whatever the time."""
        if not now and seconds < self.next:
            return
        if self.points and self.points[-1]["sweep"] == sweep:
            return
        self.points.append({"seconds": seconds, "sweep": sweep, **measure()})
        self.next = max(self.next, seconds) * RATIO


class Means:
    """Means over the kept draws of one chain, each draw labelled and signed to agree with the mean so far."""

    def __init__(self, gauge: Gauge) -> None:
        self.gauge, self.n = gauge, 0

    def add(self, L: Array, F: Array, Z: NDArray[Any]) -> None:
        """L, Z: (G, K); F: (K, N)."""
        signal = self.gauge.signal(L, F)
        if self.n == 0:
            self.L, self.F, self.Z, self.signal = L.copy(), F.copy(), Z.astype(np.float64), signal.copy()
        else:
            found = sf.match(Estimate(L, F.T, Z, signal), self.estimate())
            self.L += found.apply(L)
            self.F += found.apply(F.T).T
            self.Z += found.apply(Z, signed=False)
            self.signal += signal
        self.n += 1

    def estimate(self) -> Estimate:
        n = self.n
        return Estimate(self.L / n, (self.F / n).T.copy(), self.Z / n, self.signal / n)
