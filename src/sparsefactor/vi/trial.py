"""One trial of VI: a start that climbs, step by step, until its ELBO settles."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from ..posterior import Status
from ..start import Start
from .accelerate import Momentum
from .state import CAVI, VIState

# A step may lower the ELBO by rounding alone: the sum of G x N terms, each exact to 1e-16 of its size.
ROUNDING = 1e-12


class Tolerance(NamedTuple):
    """The ELBO has settled when one step changes it by less than `absolute`, or `relative` times its size."""

    absolute: float
    relative: float

    def reached(self, before: float, after: float) -> bool:
        change = abs(after - before)
        return change < self.absolute or change < self.relative * abs(after)


class Trial:
    """A start, its state, and the way it came."""

    def __init__(self, number: int, cavi: CAVI, start: Start, *, accelerate: bool) -> None:
        self.number, self.name, self.cavi = number, start.name, cavi
        self.momentum = Momentum() if accelerate else None
        self.rescale = accelerate
        self.status: Status | None = None
        self.iterations = 0
        self.seconds = 0.0
        begin = time.perf_counter()
        self.state: VIState = cavi.start(start.L, start.F)
        self.state = self.step()  # the start itself has a point mass for F, whose ELBO is minus infinity
        self.seconds += time.perf_counter() - begin
        self.iterations = 1
        self.trace: list[tuple[int, float, float]] = [(1, self.state.elbo, self.seconds)]

    @property
    def elbo(self) -> float:
        return self.state.elbo

    def advance(self, iterations: int, tolerance: Tolerance) -> None:
        """Climb for so many iterations, or until the ELBO settles."""
        stop = self.iterations + iterations
        while self.iterations < stop and self.status is None:
            begin = time.perf_counter()
            before = self.state.elbo
            self.state = self.step()
            self.iterations += 1
            self.seconds += time.perf_counter() - begin
            self.trace.append((self.iterations, self.state.elbo, self.seconds))
            if tolerance.reached(before, self.state.elbo):
                self.status = Status.CONVERGED

    def step(self) -> VIState:
        """One iteration: the column step, perhaps extrapolated, and the row pass."""
        state = self.assigned(self.state)
        columns = self.cavi.column_step(state.columns, state.sums)
        scale = np.ones(len(columns.alpha_rate))
        if self.rescale:
            columns, scale = self.cavi.rescale(columns)
        if self.momentum is not None:
            further = self.momentum.propose(columns.f_mean)
            if further is not None:
                proposal = self.cavi.finish(state.rows, columns._replace(f_mean=further), scale)
                if proposal.elbo >= state.elbo:
                    return proposal
                self.momentum.reset()
                self.momentum.propose(columns.f_mean)
                self.iterations += 1  # the pass that was thrown away counts too
        return self.cavi.finish(state.rows, columns, scale)

    def assigned(self, state: VIState) -> VIState:
        """Give each factor the inclusion prior that suits it best, where priors differ; the ELBO can only rise."""
        if self.momentum is None or self.cavi.n_groups == 1:
            return state
        gain = self.cavi.assignment_gain(state)
        order = linear_sum_assignment(gain.T, maximize=True)[1]  # order[p]: the factor that prior p should have
        own = np.trace(gain)
        if gain[order, np.arange(len(order))].sum() <= own + ROUNDING * abs(own):
            return state
        assert self.momentum is not None
        self.momentum.reset()
        return self.cavi.reordered(state, order)

    def record(self, *, won: bool) -> dict[str, Any]:
        """A line of the table of trials."""
        status = self.status or Status.MAX_ITER
        return {
            "trial": self.number,
            "start": self.name,
            "iterations": self.iterations,
            "elbo": self.elbo,
            "seconds": self.seconds,
            "status": status.name.lower(),
            "won": won,
        }
