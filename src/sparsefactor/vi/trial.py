"""One restart of VI, called a trial: a start that climbs to a local optimum of the ELBO, and tries to improve on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ..kernels.contract import Climber
from ..posterior import Status
from ..relabel import assignment
from .accelerate import KEPT, Momentum
from .assign import assignment_gain, reordered
from .cavi import CAVI, VIState
from .empty import emptied, is_empty_factor
from .shear import WORTH, best_shear, sheared

# Factors are assigned to unequal inclusion priors after so many iterations, and again each time that number doubles.
FIRST_ASSIGNMENT = 4
# Factors are emptied after so many iterations: by then they hold what they will hold, and the slow climb of those on
# their way out is saved.
THIN_AFTER = 200
# After a factor was emptied, the rest may take so many iterations to make up for it, looked at every so often, and is
# given up when at its present rate it would need more than so many further looks.
PATIENCE, LOOK, FORESIGHT = 40, 2, 6
HOPELESS = 0.25  # nats for every row and column of the data: a loss that no rest makes up for
AT_ONCE = 1000  # iterations of one compiled call, which nothing interrupts
FAILURES = 3  # in a row, after which the stronger factors are not tried
WINDOW = 50  # iterations over which gains of the ELBO are compared, to extrapolate them


class Tolerance(NamedTuple):
    """The ELBO has settled when one step changes it by less than `absolute`, or `relative` times its size."""

    absolute: float
    relative: float

    def reached(self, before: float, after: float) -> bool:
        change = abs(after - before)
        return change < self.absolute or change < self.relative * abs(after)


class Trial:
    """A climb: its present state, and the trace of the ELBO.

    tell: called with the trial after each iteration. check: called now and then; it may raise `Stopped`.
    """

    def __init__(
        self,
        number: int,
        name: str,
        cavi: CAVI,
        state: VIState,
        *,
        accelerate: bool,
        tell: Callable[[Trial], None] | None = None,
        check: Callable[[Trial], None] | None = None,
    ) -> None:
        self.number, self.name, self.cavi = number, name, cavi
        self.state, self.tell, self.check = state, tell, check
        self.momentum = Momentum() if accelerate else None
        self.status: Status | None = None
        self.dropped_at: int | None = None
        self.iterations = 0
        self.next_assignment = FIRST_ASSIGNMENT
        self.seconds = 0.0
        self.trace: list[tuple[int, float, float]] = []
        self.thinned = False
        self.fallback: VIState | None = None  # the optimum that a shear is trying to better
        self.sound: VIState | None = None  # a state whose likelihood was checked to be above rounding error
        self.finished = False  # whether `polish` has ended
        self.rounds = 0  # of shears so far
        self.resumable = True  # whether a checkpoint of its present state leads to the same end

    def branch(self, cavi: CAVI, state: VIState) -> Trial:
        """Another climb of this trial, which has made no iteration yet."""
        accelerate = self.momentum is not None
        return Trial(self.number, self.name, cavi, state, accelerate=accelerate, tell=self.tell, check=self.check)

    def continued(self, cavi: CAVI, state: VIState) -> Trial:
        """This trial after one pass that brought it under another model, its way so far included."""
        new = self.branch(cavi, state)
        new.iterations, new.seconds, new.trace = self.iterations + 1, self.seconds, list(self.trace)
        return new

    def begin_trace(self) -> None:
        """Forget the way here: the ELBO before was that of another model."""
        self.trace = [(self.iterations, self.elbo, self.seconds)]

    @contextmanager
    def unsaved(self) -> Iterator[None]:
        """A part of the work that a resumed fit repeats from its beginning."""
        self.resumable = False
        yield
        self.resumable = True

    def report(self, _: Trial | None = None) -> None:
        """Call the user's callback."""
        if self.tell is not None:
            self.tell(self)

    def notify(self) -> None:
        if self.check is not None:
            self.check(self)

    def restore_best(self) -> None:
        """After an interruption: return to the optimum that a shear has not improved on yet."""
        if self.fallback is not None and not self.elbo > self.fallback.elbo:
            self.state = self.fallback
            self.trace = [point for point in self.trace if point[1] <= self.fallback.elbo]

    @property
    def elbo(self) -> float:
        """The state's ELBO; minus infinity where it cannot be computed, so that such a trial never leads."""
        return -np.inf if np.isnan(self.state.elbo) else self.state.elbo

    def drop(self) -> None:
        """Leave the race."""
        if self.status is None:
            self.status = Status.DROPPED
        self.dropped_at = self.iterations

    def advance(self, until: int, tolerance: Tolerance) -> None:
        """Climb up to so many iterations in all, or until the ELBO settles."""
        shortcut = self.cavi.shortcut
        plain = self.tell is None and self.momentum is not None and self.cavi.n_kinds == 1
        at_once = plain and shortcut is not None and shortcut.climbs
        while at_once and self.iterations < until and self.status is None:
            assert shortcut is not None
            begin, next_look = time.perf_counter(), min(until, self.iterations + AT_ONCE)
            after, converged, way = shortcut.climb(self.climber(next_look), tolerance, KEPT)
            self.climbed(after, converged, way, time.perf_counter() - begin)
            self.notify()
        while self.iterations < until and self.status is None:
            begin = time.perf_counter()
            before = self.state.elbo
            if self.iterations >= self.next_assignment:
                self.assign()
                self.next_assignment = 2 * self.iterations
            self.state = self.step()
            self.iterations += 1
            self.seconds += time.perf_counter() - begin
            self.trace.append((self.iterations, self.state.elbo, self.seconds))
            if tolerance.reached(before, self.state.elbo):
                self.status = Status.CONVERGED
            self.report()
            self.notify()

    def climber(self, until: int) -> Climber:
        """This trial as an engine takes it that makes many iterations at once."""
        t, previous = (1.0, None) if self.momentum is None else (self.momentum.t, self.momentum.previous)
        return Climber(self.state, t, previous, self.iterations, until)

    def climbed(self, after: Climber, converged: bool, way: list[tuple[int, float]], seconds: float) -> None:
        """It has, in so many seconds; way: iterations and ELBO after each."""
        self.state, self.iterations = VIState(*after.state), after.iterations
        if self.momentum is not None:
            self.momentum.t, self.momentum.previous = after.t, after.previous
        shares = (self.seconds + seconds * np.arange(1, len(way) + 1) / max(1, len(way))).tolist()
        self.trace += [(n, elbo, at) for (n, elbo), at in zip(way, shares, strict=True)]
        self.seconds += seconds
        if converged:
            self.status = Status.CONVERGED

    def step(self) -> VIState:
        """One iteration: the column step, perhaps extrapolated, and the row pass."""
        state = self.state
        columns, scale = self.cavi.next_columns(state, rescale=self.momentum is not None)
        if self.momentum is None:
            return self.kept(self.cavi.finish(state.rows, columns, scale))
        here = self.cavi.inclusion.coordinates(columns)
        further = self.momentum.propose(here)
        if further is not None:
            proposal = self.cavi.finish(state.rows, self.cavi.inclusion.moved(columns, further), scale)
            if proposal.elbo >= state.elbo:
                return proposal
            self.momentum.reset()
            self.momentum.propose(here)
            self.iterations += 1  # the pass that was thrown away counts too
        return self.kept(self.cavi.finish(state.rows, columns, scale))

    def kept(self, new: VIState) -> VIState:
        """The plain step, which can lower the ELBO by rounding alone; where it does, the climb has ended."""
        return new if new.elbo >= self.state.elbo else self.state

    def assign(self) -> None:
        """Give each factor the inclusion prior that suits it best, where priors differ and that raises the ELBO."""
        if self.momentum is None or self.cavi.n_kinds == 1:
            return
        gain = assignment_gain(self.cavi, self.state)
        order = assignment(-gain.T)[1]  # order[p]: the factor that prior p should have
        if gain[order, np.arange(len(order))].sum() <= np.trace(gain) + WORTH:
            return
        proposal = reordered(self.cavi, self.state, order)
        self.iterations += 1
        if proposal.elbo > self.state.elbo:
            self.state = proposal
            self.momentum.reset()

    def polish(self, max_iter: int, tolerance: Tolerance, seed: Sequence[int] | None, *, kicks: int = 0) -> None:
        """Climb to the optimum, and try to leave it for a higher one: by emptying factors (3.16) and by shears (3.15).

        seed: of the shears; None for none of them. A trial that was saved on the way ends as if it had not been.
        """
        if self.momentum is not None and not self.thinned:
            self.advance(min(max_iter, THIN_AFTER), tolerance)
            with self.unsaved():
                if self.thin(max_iter, tolerance):
                    self.status = None
                self.thinned = True
        self.advance(max_iter, tolerance)
        if self.momentum is None or self.cavi.prior.correlated:  # shears are for uncorrelated factors
            seed = None
        while seed is not None and self.iterations < max_iter and not self.finished:
            with self.unsaved():
                self.finished = not self.shear(max_iter, tolerance, [*seed, self.rounds], kicks)
                self.rounds += 1
        self.finished = True
        self.report()  # the last climb may not have been the best

    def shear(self, max_iter: int, tolerance: Tolerance, seed: Sequence[int], kicks: int) -> bool:
        """Leave the optimum by the most promising shears and climb again; whether that found a higher one."""
        begin = time.perf_counter()
        reached, status = self.state, self.status
        E, promise = best_shear(self.cavi, reached, np.random.default_rng(seed), kicks)
        if promise > WORTH and self.momentum is not None:
            self.fallback = reached
            self.state, self.status = sheared(self.cavi, reached, E), None
            self.iterations += 2
            self.momentum.reset()
        self.seconds += time.perf_counter() - begin
        if promise <= WORTH:
            return False
        length = len(self.trace)
        self.advance(max_iter, tolerance)
        self.fallback = None
        if self.elbo <= reached.elbo:
            self.state, self.status = reached, status
        # The trace shows accepted states only: of the new climb, what lies above the optimum it left.
        self.trace[length:] = [point for point in self.trace[length:] if point[1] > reached.elbo]
        return self.elbo > reached.elbo + WORTH

    @property
    def remaining_gain(self) -> float:
        """What further iterations would add to the ELBO, in nats, if its gains go on falling at the present rate."""
        elbo = np.array([point[1] for point in self.trace[-2 * WINDOW - 1 :: WINDOW]])
        if len(elbo) < 3:
            return np.inf
        before, last = np.diff(elbo)[-2:]
        return float(last**2 / (before - last)) if before > last >= 0 else np.inf if last > 0 else 0.0

    def thin(self, max_iter: int, tolerance: Tolerance) -> bool:
        """Empty factors, the weakest first, where the rest makes up for it; whether any was."""
        begin, found, rising = time.perf_counter(), False, True
        hopeless = HOPELESS * (self.cavi.fixed.n_samples + self.cavi.data.n_features)
        idle: set[int] = set()  # factors that hold nothing, and of which that is known
        while rising:
            rising, failures = False, 0
            strength = self.cavi.strength(self.state)
            bare = is_empty_factor(self.cavi, self.state)
            for k in map(int, np.argsort(strength)):
                left = max_iter - self.iterations - 1
                if k in idle:
                    continue
                if failures == FAILURES or left < 0:
                    break
                attempt = self.branch(self.cavi, emptied(self.cavi, self.state, k))
                if self.tell is not None:
                    attempt.tell = self.report  # this trial stands where it stood until the attempt succeeds
                if bare[k]:
                    idle.add(k)  # there is nothing that the rest could take over: the one pass decides
                elif self.elbo - attempt.elbo > hopeless:
                    failures += 1
                else:
                    attempt.recover(self.elbo + WORTH, tolerance, min(PATIENCE, left))
                    failures += 1
                self.iterations += attempt.iterations + 1
                if attempt.elbo > self.elbo + WORTH:
                    self.state, failures, rising, found = attempt.state, 0, True, True
                    idle.add(k)
                    self.trace.append((self.iterations, self.elbo, self.seconds + time.perf_counter() - begin))
        if found and self.momentum is not None:
            self.momentum.reset()
        self.seconds += time.perf_counter() - begin
        return found

    def recover(self, goal: float, tolerance: Tolerance, patience: int) -> None:
        """Climb until the ELBO is above the goal, or there is no hope of that, or patience (in iterations) ends."""
        while self.elbo <= goal and self.iterations < patience and self.status is None:
            before = self.elbo
            self.advance(min(self.iterations + LOOK, patience), tolerance)
            if goal - self.elbo > FORESIGHT * (self.elbo - before):
                return

    def record(self, *, won: bool) -> dict[str, Any]:
        """A line of the table of trials."""
        return {
            "trial": self.number,
            "start": self.name,
            "iterations": self.iterations,
            "elbo": self.elbo,
            "seconds": self.seconds,
            "status": (self.status or Status.MAX_ITER).name.lower(),
            "dropped_at": self.dropped_at,
            "won": won,
        }
