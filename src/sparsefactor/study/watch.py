"""A clock that counts inference only, and measurements taken at geometric times of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

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


class Clock:
    """CPU seconds of this thread while inside and not paused: other work on the machine does not show in them."""

    def __init__(self) -> None:
        self.total, self.since, self.depth = 0.0, 0.0, 0

    def __enter__(self) -> Clock:
        if self.depth == 0:
            self.since = time.thread_time()
        self.depth += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.total += time.thread_time() - self.since

    @property
    def seconds(self) -> float:
        return self.total + (time.thread_time() - self.since if self.depth else 0.0)

    @contextmanager
    def paused(self) -> Iterator[None]:
        begin = time.thread_time()
        yield
        self.since += time.thread_time() - begin


class Watch:
    """Takes measurements at geometric times of its first clock; all its clocks stand still meanwhile."""

    def __init__(self, *clocks: Clock) -> None:
        self.clocks, self.next = clocks, FIRST_LOOK
        self.points: list[dict[str, float]] = []

    def look(self, sweep: int, measure: Callable[[], dict[str, float]], *, now: bool = False) -> None:
        seconds = self.clocks[0].seconds
        if not now and seconds < self.next:
            return
        if self.points and self.points[-1]["sweep"] == sweep:
            return
        with ExitStack() as stack:
            for clock in self.clocks:
                stack.enter_context(clock.paused())
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
            order, signs = agreement(self.F, F)
            self.L += L[:, order] * signs
            self.F += F[order] * signs[:, None]
            self.Z += Z[:, order]
            self.signal += signal
        self.n += 1

    def estimate(self) -> Estimate:
        n = self.n
        return Estimate(self.L / n, (self.F / n).T.copy(), self.Z / n, self.signal / n)


def agreement(reference: Array, F: Array) -> tuple[NDArray[np.intp], Array]:
    """The order and signs (K,) in which the factors F (K, N) correlate most with those of a reference."""
    correlation = _unit(reference) @ _unit(F).T
    order = linear_sum_assignment(-np.abs(correlation))[1]
    signs = np.where(correlation[np.arange(len(order)), order] < 0, -1.0, 1.0)
    return np.asarray(order), signs


def _unit(F: Array) -> Array:
    norm = np.linalg.norm(F, axis=1, keepdims=True)
    return np.asarray(F / np.where(norm > 0, norm, 1.0))
