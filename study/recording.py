"""Recording a run: CPU time of inference alone, measurements at geometric times, and means over draws."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sparsefactor as sf

if TYPE_CHECKING:
    from .measures import Measure

Array = NDArray[np.float64]

FIRST_SECONDS = 1e-3  # of the first measurement
RATIO = 1.25  # of the times of two measurements


@dataclass(frozen=True)
class Estimate:
    """Posterior means at some moment, with the names that `sf.score` asks for."""

    loadings_mean: Array  # (n_features, n_factors)
    activations_mean: Array  # (n_samples, n_factors)
    inclusion_prob: Array  # (n_features, n_factors)
    signal: Array  # posterior mean of Measure.signal

    def reconstruct(self) -> Array:
        return self.signal


@dataclass
class Trace:
    """The course of one restart or chain, and its final estimate."""

    number: int
    start: str
    points: list[dict[str, float]]
    final: Estimate
    sweeps: int
    seconds: float
    facts: dict[str, Any] = field(default_factory=dict)

    def as_facts(self) -> dict[str, Any]:
        """All but the final estimate, as plain values."""
        own = {name: getattr(self, name) for name in ("number", "start", "sweeps", "seconds", "points")}
        return {**self.facts, **own}


class Stopwatch:
    """CPU seconds of a thread between two calls of a callback, without the callback and without other processes."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.thread, self.since = threading.get_ident(), time.thread_time()

    def elapsed(self) -> float:
        """Since the restart; 0 if that was in another thread, whose clock differs."""
        return time.thread_time() - self.since if threading.get_ident() == self.thread else 0.0


class Recorder:
    """Takes measurements at geometric times."""

    def __init__(self) -> None:
        self.next = FIRST_SECONDS
        self.points: list[dict[str, float]] = []

    def record(
        self, seconds: float, sweep: int, measure: Callable[[], dict[str, float]], *, final: bool = False
    ) -> None:
        """seconds: of inference so far. final: measure whatever the time."""
        if not final and seconds < self.next:
            return
        if self.points and self.points[-1]["sweep"] == sweep:
            return
        self.points.append({"seconds": seconds, "sweep": sweep, **measure()})
        self.next = max(self.next, seconds) * RATIO


class RunningMeans:
    """Means over the draws of one chain, each draw matched to the mean so far in labels and signs."""

    def __init__(self, measure: Measure) -> None:
        self.measure, self.n = measure, 0

    def add(self, L: Array, F: Array, Z: NDArray[Any]) -> None:
        """L, Z: (G, K); F: (K, N)."""
        signal = self.measure.signal(L, F)
        if self.n == 0:
            self.L, self.F, self.Z, self.signal = L.copy(), F.copy(), Z.astype(np.float64), signal.copy()
        else:
            match = sf.match(Estimate(L, F.T, Z, signal), self.estimate())
            self.L += match.apply(L)
            self.F += match.apply(F.T).T
            self.Z += match.apply(Z, signed=False)
            self.signal += signal
        self.n += 1

    def estimate(self) -> Estimate:
        n = self.n
        return Estimate(self.L / n, (self.F / n).T.copy(), self.Z / n, self.signal / n)
