"""How the best optimum is looked for: starts that race, and, where they do not agree, ways on from the best of them.

race:    all starts climb together, with a few factors more than there are to be where these are all alike; the worst
         drop out, three finalists climb to their optima and give up the weakest factors
agree:   the best optimum was reached from enough independent starts: that is it
further: otherwise the best finalists leave their optima by rotations and Gibbs sampling, again and again, and those of
         another race, where they do not end in the same one (vi/lineages.py)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..start import PORTFOLIO, Start, given, starts
from .cavi import CAVI, VIState
from .cross import crossed
from .elsewhere import crew_for
from .empty import holds_nothing
from .fold import folded
from .hop import EVERY, SPARE, SWEEPS, Hops
from .lineages import AGREE, LINEAGES, Lineages
from .rehearsal import Rehearsal, try_climb, try_run
from .shear import WORTH
from .together import advance, side_by_side
from .trial import CANDIDATES, FIRST_LOOK, SETTLE, WEAKEST, Tolerance, Trial
from .turn import turned
from .watch import Watcher

# The race: up to so many iterations, then so large a share of the trials goes on.
LAPS = ((12, 0.6), (30, 0.4), (60, 0.3))
COARSE = 1e-3  # nats: while racing, an optimum known this well is known well enough
KICKS = 2  # further directions a finalist tries to leave its optimum by
LEADER_KICKS = 6  # and the winner
SINGLE = 1e-7  # of the ELBO, which sums over data of single precision do not tell apart
TURNS = 2  # hops by a rotation before each by Gibbs sampling
HOP_ITERATIONS = 1000  # of the climb after a hop
SHRINKING = WEAKEST * (FIRST_LOOK + 1) + CANDIDATES * SETTLE  # iterations that it takes to give up a factor


def race(trials: Sequence[Trial], max_iter: int, climb: Callable[[Sequence[Trial], int], None]) -> list[Trial]:
    """Advance all trials together and drop the worst after each lap; the finalists."""
    running = list(trials)
    for lap, share in LAPS:
        climb(running, min(lap, max_iter))
        running.sort(key=lambda trial: trial.elbo, reverse=True)
        keep = max(1, round(share * len(trials)))
        for trial in running[keep:]:
            trial.drop()
        running = running[:keep]
    return running


class Search:
    """The search of one fit. `trials` holds what was found so far, also when it is interrupted.

    jobs: a way to have work done on the workers of a cluster (vi/elsewhere.py).
    """

    def __init__(self, cavi: CAVI, options: Any, trials: Any, watcher: Watcher, jobs: Any | None = None) -> None:
        self.options, self.trials, self.watcher = options, trials, watcher
        self.auto = options.n_trials == "auto"
        self.racing = options.race and not options.average
        self.coarse = Tolerance(max(options.tol, COARSE), options.rtol) if self.racing else options.tolerance
        self.rehearsal = Rehearsal({})
        self.bounded(folded(cavi))
        self.crew = crew_for(self, jobs)

    def bounded(self, cavi: CAVI, *, raisable: bool = False) -> None:
        """From here on with as many factors as these sweeps have; raisable: whether there may be more."""
        self.cavi, self.raisable = cavi, raisable
        self.hops = Hops(cavi, self.options.seed)
        self.told: dict[str, Any] = {"hops": 0, "returns": 0, "bound": cavi.prior.K}
        self.ends: list[float] = []  # ELBOs of the optima that climbs have ended in

    def look(self) -> bool:
        """Look for the best optimum; whether there are factors enough for it, as far as is known."""
        options = self.options
        n_trials = options.n_trials
        if self.auto:  # where some are given, half of the others will do
            n_trials = len(PORTFOLIO) // (2 if given(options.init) else 1)
        cavi = self.racer()
        if cavi is not self.cavi and cavi.engine.compiles and not cavi.engine.one_caller:
            gibbs = self.hops.kit(cavi.prior.K)[1]
            parts = {"climb": partial(try_climb, self.cavi), "hop": partial(try_run, cavi, gibbs, EVERY)}
            self.rehearsal = Rehearsal(parts)
        finalists = self.entered(cavi, starts(self.starting(cavi), options.init, n_trials, options.seed), n_trials)
        self.told["agreeing"] = sum(finalists[0].elbo - trial.elbo < self.near(AGREE, trial) for trial in finalists)
        self.told["finalists"] = len(finalists)
        if not self.racing:
            return True
        if self.is_short(finalists[0]):
            return False
        self.ends = [trial.elbo for trial in finalists]
        leader = finalists[0]
        if self.auto and options.accelerate and len(finalists) >= LINEAGES:
            leader = Lineages(self).best(finalists)
            if self.is_short(leader):
                return False
        leader.status = None
        self.watcher.phase = "polish"
        leader.polish(options.max_iter, options.tolerance, self.rng(leader, 1), kicks=LEADER_KICKS)
        self.told["recurred"] = max(sum(leader.elbo - end < self.near(AGREE, leader) for end in self.ends) - 1, 0)
        return True

    def is_short(self, trial: Trial) -> bool:
        """Whether it leaves none of the factors empty that there are to be, where there may be more."""
        return self.raisable and int(np.sum(~holds_nothing(trial.cavi, trial.state))) >= self.cavi.prior.K

    def starting(self, cavi: CAVI) -> Any:
        """The engine that starts are made with."""
        return cavi.engine if cavi.fold is None else cavi.fold.whole.engine.with_prior(cavi.prior)

    def entered(self, cavi: CAVI, entries: Iterable[Start], n: int) -> list[Trial]:
        """The finalists of a race of n starts at their optima, the best first."""
        options, max_iter, own = self.options, self.options.max_iter, []
        self.watcher.phase = "start"
        for start in entries:
            trial = self.begun(cavi, start)
            own.append(trial)
            if not self.crew.spreads and not side_by_side(cavi, n, trial.tell):  # else all, when they are there
                trial.advance(min(LAPS[0][0], max_iter), self.coarse)
        self.watcher.phase = "race"
        finalists = race(own, max_iter, self.climb) if self.racing else own
        self.watcher.phase = "climb"
        for trial in own:
            if trial not in finalists:
                self.narrowed(trial)
        if not options.accelerate:
            self.climb(finalists, max_iter)
        finalists = list(self.crew.each(self.at_optimum, [(trial,) for trial in finalists]))
        for trial in finalists:
            self.trials[trial.number] = trial
        return sorted(finalists, key=lambda trial: trial.elbo, reverse=True)

    def begun(self, cavi: CAVI, start: Start) -> Trial:
        """A trial that sets out from this start."""
        tell = None if self.watcher.callback is None else self.watcher.tell
        looks = {"accelerate": self.options.accelerate, "tell": tell, "check": self.watcher.check}
        trial = Trial(len(self.trials), start.name, cavi, cavi.start(start.L, start.F), **looks)
        self.trials.append(trial)
        return trial

    def rng(self, trial: Trial, time: int = 0) -> np.random.Generator:
        """Of the directions in which a trial leaves its optimum, for the first time or later."""
        return np.random.default_rng([self.options.seed, trial.number, 4, time])

    def climb(self, trials: Sequence[Trial], until: int) -> None:
        """All of them so far."""
        if not self.crew.spreads:
            advance(trials, until, self.coarse)
            return
        waiting = [trial for trial in trials if trial.status is None and trial.iterations < until]
        for old, new in zip(waiting, self.crew.each(self.advanced, [(trial, until) for trial in waiting]), strict=True):
            vars(old).update(vars(new))

    def advanced(self, trial: Trial, until: int) -> Trial:
        trial.advance(until, self.coarse)
        return trial

    def at_optimum(self, trial: Trial) -> Trial:
        """A finalist at its optimum, with as many factors as there are to be."""
        trial = self.narrowed(trial, climb=True)
        trial.polish(self.options.max_iter, self.coarse, self.rng(trial), kicks=KICKS)
        return trial

    # ---- a race with factors to spare ---------------------------------------------------------------------------

    def racer(self) -> CAVI:
        """The sweeps of the race: where factors are alike, with some to spare, so that none has to make way first."""
        return self.hops.kit(self.cavi.prior.K + SPARE)[0] if self.spares else self.cavi

    @property
    def spares(self) -> bool:
        free = self.auto and self.racing and self.options.accelerate and not given(self.options.init)
        return free and self.hops.exchangeable

    def narrowed(self, trial: Trial, *, climb: bool = False) -> Trial:
        """The trial with as many factors as there are to be: the strongest, or those missed most at its optimum."""
        if trial.cavi is self.cavi or self.is_unfolded(trial):
            return trial
        K, max_iter = self.cavi.prior.K, self.options.max_iter
        self.rehearsal.wait("climb")
        if climb:
            trial.polish(max_iter, self.coarse, self.rng(trial), kicks=0)
            if trial.iterations + (trial.cavi.prior.K - K) * SHRINKING < max_iter:
                trial.shrink(K, self.coarse)
        new = self.moved(trial, self.hops)
        new.status = None if climb else trial.status
        new.begin_trace()
        return new

    def moved(self, trial: Trial, hops: Hops) -> Trial:
        """The trial with the number of factors that these hops are made with, in its place."""
        new = trial.continued(hops.whole, hops.whole_of(trial.cavi, trial.state))
        new.status, new.dropped_at = trial.status, trial.dropped_at
        self.trials[trial.number] = new
        return new

    def is_unfolded(self, trial: Trial) -> bool:
        """Whether it has the data as they were, and all of its factors."""
        return self.cavi.fold is not None and trial.cavi is self.cavi.fold.whole

    def unfold(self) -> None:
        """Every trial as the data as they were have it."""
        for trial in self.trials:
            if trial.cavi.fold is not None:
                trial.unfold(trial.cavi.fold)

    # ---- beyond the race ----------------------------------------------------------------------------------------

    def fresh(self) -> list[Trial]:
        """The finalists of another race, of further starts."""
        n, cavi, init = len(PORTFOLIO), self.racer(), self.options.init
        kind = init if isinstance(init, str) else "auto"  # one's own starts are all in the first race
        return self.entered(cavi, starts(self.starting(cavi), kind, n, self.options.seed, first=n), n)

    def near(self, nats: float, trial: Trial) -> float:
        """So many nats, or what the precision of the data does not resolve of this trial's ELBO."""
        return max(nats, SINGLE * abs(trial.elbo)) if self.cavi.data.is_single else nats

    def excursion(self, lineage: Trial, number: int, sweeps: int) -> tuple[Trial, Trial | None]:
        """Where a hop ends, and, where that is elsewhere but not higher, what the two make together."""
        new = self.arrived(lineage.branch(*self.departed(lineage, number, sweeps)))
        if self.is_better(new, lineage) or self.came_back(new, lineage):
            return new, None
        return new, self.crossing(new if new.elbo > lineage.elbo else lineage, new)

    def departed(self, lineage: Trial, number: int, sweeps: int) -> tuple[CAVI, VIState]:
        """Where a hop leads to before it climbs: a rotation, or a run of Gibbs sampling."""
        state, own = lineage.state, (lineage.number, number)
        if sweeps <= SWEEPS and number % (TURNS + 1) < TURNS:
            self.rehearsal.wait("climb")
            cavi, narrow = self.hops.narrowed(state)
            new = turned(cavi, narrow, np.random.default_rng([self.options.seed, *own, 12]))
            if new is not None:
                return cavi, new
        self.rehearsal.wait("hop")
        return self.hops.from_state(state, own, sweeps)

    def came_back(self, new: Trial, old: Trial) -> bool:
        return abs(new.elbo - old.elbo) < self.near(AGREE, old)

    def is_better(self, new: Trial, old: Trial) -> bool:
        return new.elbo > old.elbo + self.near(WORTH, old)

    def crossing(self, best: Trial, other: Trial) -> Trial | None:
        """The end of the climb from what the best has and, beside it, what only the other has, if it has any."""
        both = crossed(self.hops, best.state, other.state)
        if both is None:
            return None
        self.watcher.phase = "cross"
        return self.arrived(best.branch(*both))

    def arrived(self, new: Trial) -> Trial:
        """The end of the climb from where a hop led to, with as many factors as there are to be."""
        K, limit = self.cavi.prior.K, min(HOP_ITERATIONS, self.options.max_iter)
        new.polish(limit, self.coarse, self.rng(new), kicks=0)
        if new.cavi is self.cavi:
            return new
        more = new.cavi.prior.K > K
        if more:
            new.shrink(K, self.coarse)
        end = new.continued(self.cavi, self.hops.whole_of(new.cavi, new.state))
        end.status = None if more else new.status
        if more:
            end.polish(end.iterations + limit, self.coarse, self.rng(new), kicks=0)
        return end
