"""Chains of small data on the workers of a cluster: each is a task of its own, a stretch of sweeps at a time.

The client has the chain's state between two stretches, and takes its draws, so that checkpoints, folders and whoever
looks on work as they do here. A sweep is a function of the state, the seed and its number alone, wherever it is made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..data import Data
from ..engine import build_engine
from ..engine.threads import single_blas_thread
from ..executors import Shared
from ..gibbs.moves import moves_for
from ..gibbs.sweep import Gibbs
from ..model import Prior
from ..start import Start
from ..storage.draws import Sink
from ..vi.modules import one_module
from .chain import Chain, Plan
from .clock import Clock, Deadline
from .dispersed import optimum_start, searched_start

STRETCH = 1.0  # seconds that a task takes
MOST = 1000  # sweeps of a task


class RemoteChain(Chain):
    """A chain whose sweeps are made on workers."""

    def __init__(self, number: int, gibbs: Gibbs, plan: Plan, sink: Sink, call: Shared) -> None:
        super().__init__(number, gibbs, plan, sink)
        self.call, self.length = call, 1

    def advance(self) -> None:
        """A stretch of sweeps; keeps their draws."""
        begun = time.monotonic()
        moves = tuple(move.name for move in self.gibbs.moves)
        rest = (self.number, self.plan, self.sweep, self.state, self.tally, self.length)
        self.state, self.tally, self.sweep, self.log_joint, self.active, draws = self.call(
            stretch, self.gibbs.prior, moves, *rest, name=f"chain {self.number}"
        )
        for t, values in draws:
            self.sink.keep(self.number, t, values)
        taken = (time.monotonic() - begun) / self.length
        self.length = max(1, min(2 * self.length, MOST, int(STRETCH / max(taken, 1e-6))))


class Collected:
    """Takes the draws of a stretch."""

    def __init__(self) -> None:
        self.draws: list[tuple[int, dict[str, Any]]] = []

    def keep(self, chain: int, t: int, values: dict[str, Any]) -> None:
        self.draws.append((t, {name: np.array(value) for name, value in values.items()}))


def stretch(
    data: Data,
    prior: Prior,
    moves: tuple[str, ...],
    number: int,
    plan: Plan,
    sweep: int,
    state: Any,
    tally: Any,
    length: int,
) -> tuple[Any, ...]:
    """So many sweeps of a chain, on a worker: where it is then, and the draws on the way."""
    with single_blas_thread():
        engine = build_engine(data, prior, "cpu", 1)
        sink: Any = Collected()
        chain = Chain(number, Gibbs(data, prior, engine, moves_for(engine, moves)), plan, sink)
        chain.state, chain.sweep, chain.tally = state, sweep, np.array(tally)
        for _ in range(length):
            if not chain.done:
                chain.advance()
    return chain.state, chain.tally, chain.sweep, chain.log_joint, chain.active, sink.draws


def start_of(
    data: Data, prior: Prior, init: str, chain: int, seed: int, seconds: float | None = None
) -> tuple[Start, bool]:
    """Where a chain sets out, sought on a worker, and whether the search ended since so many seconds were over."""
    deadline = None if seconds is None else Deadline(seconds)
    sought = searched_start if init == "auto" else optimum_start
    plain = one_module(prior)
    with single_blas_thread():
        start = sought(build_engine(data, plain, "cpu", 1), plain, chain, seed, None, deadline)
    return start, deadline is not None and deadline.passed


def remote_starts(call: Shared, prior: Prior, init: str, n_chains: int, seed: int, clock: Clock) -> Iterator[Start]:
    """Those of all chains, sought at the same time."""
    seconds = clock.for_search(n_chains, call.n_threads)

    futures = [
        call.submit(start_of, prior, init, chain, seed, seconds, name=f"start of chain {chain}")
        for chain in range(n_chains)
    ]
    for start, cut in call.results(futures):
        clock.cut += cut
        yield start
