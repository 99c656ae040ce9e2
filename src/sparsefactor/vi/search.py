"""The search of a fit: restarts climb to their optima; the thorough search then tries to improve on the best of them.

fast:      one restart, from factor analysis rotated by varimax, which replicates best (docs/results.md)
restarts:  where several are asked for, they climb side by side; the worst are dropped early
thorough:  ten restarts; then rounds of proposals (proposals.py) from the best state, each of which climbs; the best
           result is accepted where it is higher, until several rounds in a row have found nothing better

Each step is a function of states, seed and numbers alone, so that the result does not depend on who does the work, and
a search that was interrupted continues from its checkpoint to the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..start import PORTFOLIO, Start, StartMaker, given, own_start
from .cavi import CAVI
from .factor_analysis import factor_analysis_start
from .proposals import propose
from .shear import WORTH
from .tasks import Tasks
from .trial import Tolerance, Trial
from .watch import Watcher

# Laps of a race: the number of iterations, and the share of the restarts that continues after them.
LAPS = ((12, 0.6), (30, 0.4), (60, 0.3))
RESTARTS = 10  # of a thorough search, and where restarts are averaged
COARSE = 1e-3  # nats: an optimum that others are compared with is known well enough
EARLY = 0.1  # nats a sample in an iteration: where a climb with learnt inclusion stops (docs/results.md),
WIDE = 2.0  # and less, in proportion, where there are fewer samples than this for each feature
TIGHT = 1e-6  # nats an iteration: where other climbs stop
KICKS, BEST_KICKS = 2, 6  # random directions of shears that a restart tries, and the best one in the end
AGREE = 0.1  # nats: optima closer than this are the same
SINGLE = 1e-7  # of the ELBO: differences that sums over data of single precision do not resolve
ROUND = 4  # proposals of a round, which can be made side by side
PATIENCE = 6  # rounds without an improvement, after which a thorough search ends
PROPOSAL_ITERATIONS = 1000  # of the climb after a proposal


class Search:
    """The search of one fit. `trials` holds all restarts so far, also when it is interrupted."""

    def __init__(
        self, cavi: CAVI, options: Any, watcher: Watcher, tasks: Tasks, *, may_stop_early: bool = True
    ) -> None:
        self.cavi, self.options, self.watcher, self.tasks = cavi, options, watcher, tasks
        self.may_stop_early = may_stop_early
        self.save: Callable[[Search], None] | None = None  # called after each round of proposals
        self.trials: list[Trial] = watcher.trials
        self.proposals, self.failures, self.agreeing, self.improved = 0, 0, 0, 0
        self.spent = 0  # iterations of accepted proposals, which do not count for max_iter
        self.polishing: int | None = None  # the trial that is polished at the end
        self.maker = StartMaker(cavi.engine, options.seed)

    # ---- settings that depend on the prior ------------------------------------------------------------------------

    @property
    def thorough(self) -> bool:
        return bool(self.options.search == "thorough")

    @property
    def n_restarts(self) -> int:
        """Restarts besides those that the user gave."""
        options = self.options
        if isinstance(options.init, Start):
            return 0
        if options.n_trials != "auto":
            return int(options.n_trials)
        return RESTARTS if self.thorough or options.average else 1

    @property
    def is_race(self) -> bool:
        return self.options.race and not self.options.average and self.n_restarts + len(given(self.options.init)) > 1

    @property
    def early(self) -> bool:
        """Whether the climb stops early: a single restart under a prior that learns inclusion.

        The last nats of such a climb decide on a sparse pattern that the data hardly determine, and that other
        samples of the same population do not confirm.
        """
        options, n = self.options, self.n_restarts + len(given(self.options.init))
        plain = self.may_stop_early and options.tol == "auto" and options.accelerate and not self.thorough
        return plain and n == 1 and self.cavi.prior.learns_inclusion

    @property
    def tolerance(self) -> Tolerance:
        options, tol = self.options, self.options.tol
        if tol == "auto":
            N, G = self.cavi.data.n_samples, self.cavi.data.n_features
            tol = EARLY * N * min(1.0, N / (WIDE * G)) if self.early else TIGHT
        return Tolerance(tol, options.rtol)

    @property
    def coarse(self) -> Tolerance:
        """While optima are compared."""
        tolerance = self.tolerance
        return Tolerance(max(tolerance.absolute, COARSE), tolerance.relative) if self.is_race else tolerance

    # ---- the search -----------------------------------------------------------------------------------------------

    def run(self) -> Trial:
        """The best trial, at its optimum."""
        if self.polishing is None:
            best = self.find_best()
            if not self.is_race or self.early:
                return best
            best.status, best.finished = None, False
            self.polishing = best.number
        best, options = self.trials[self.polishing], self.options
        self.watcher.phase = "polish"
        seed = [options.seed, best.number, 4, 1]
        best.polish(options.max_iter + self.spent, self.tolerance, seed, kicks=BEST_KICKS)
        return best

    def find_best(self) -> Trial:
        """The best trial of all restarts and, in a thorough search, after all proposals."""
        self.start_all()
        finalists = self.race() if self.is_race else self.trials
        self.watcher.phase = "climb"
        if not self.options.accelerate:
            self.advance_all(finalists, self.options.max_iter)
        self.replace_trials(self.tasks.map(self, "climb", [trial for trial in finalists if not trial.finished]))
        finalists = [self.trials[trial.number] for trial in finalists]
        best = max(finalists, key=lambda trial: trial.elbo)
        if not self.agreeing:
            self.agreeing = sum(best.elbo - trial.elbo < self.near(AGREE, trial) for trial in finalists)
        if self.thorough:
            self.improve(best)
        return best

    def start_all(self) -> None:
        """Begin every restart that has not begun."""
        self.watcher.phase = "start"
        own, cavi = given(self.options.init), self.cavi
        for number in range(len(self.trials), len(own) + self.n_restarts):
            if number < len(own):
                start = own_start(own[number], cavi.data, cavi.prior)
            else:
                start = self.make_start(number - len(own))
            tell = None if self.watcher.callback is None else self.watcher.tell
            state = cavi.start(start.L, start.F)
            accelerate = self.options.accelerate
            trial = Trial(number, start.name, cavi, state, accelerate=accelerate, tell=tell, check=self.watcher.check)
            self.trials.append(trial)
            if not self.tasks.remote:  # so that there is a state to keep from the first restart on
                trial.advance(min(LAPS[0][0], self.options.max_iter), self.coarse)

    def make_start(self, number: int) -> Start:
        init = self.options.init if isinstance(self.options.init, str) else "auto"
        name = PORTFOLIO[number % len(PORTFOLIO)] if init == "auto" else init
        if name == "factor_analysis":
            return factor_analysis_start(self.cavi, self.maker, self.watcher.check)
        return self.maker.make(name, number)

    def race(self) -> list[Trial]:
        """Climb side by side and drop the worst after each lap; the trials that are left."""
        self.watcher.phase = "race"
        running = [trial for trial in self.trials if trial.dropped_at is None]
        for lap, share in LAPS:
            self.advance_all(running, min(lap, self.options.max_iter))
            running = sorted((self.trials[trial.number] for trial in running), key=lambda trial: -trial.elbo)
            keep = max(1, round(share * len(self.trials)))
            for trial in running[keep:]:
                trial.drop()
            running = running[:keep]
        return running

    def advance_all(self, trials: Sequence[Trial], until: int) -> None:
        waiting = [trial for trial in trials if trial.status is None and trial.iterations < until]
        self.replace_trials(self.tasks.map(self, "advance", waiting, until))

    def replace_trials(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            self.trials[trial.number] = trial

    def improve(self, best: Trial) -> None:
        """Proposals from the best state, until PATIENCE rounds in a row have found nothing better."""
        self.watcher.phase = "search"
        while self.failures < PATIENCE:
            numbers = range(self.proposals, self.proposals + ROUND)
            found = self.tasks.map(self, "attempt", [best] * ROUND, *[numbers])
            self.proposals += ROUND
            self.watcher.n_proposals = self.proposals
            top = max(found, key=lambda trial: trial.elbo)
            self.failures += 1
            if top.elbo > best.elbo + self.near(WORTH, best):
                best.state, best.status, best.iterations = top.state, top.status, best.iterations + top.iterations
                self.spent += top.iterations
                best.trace.append((best.iterations, best.elbo, best.seconds))
                self.failures, self.agreeing, self.improved = 0, 1, self.improved + 1
            best.seconds += sum(trial.seconds for trial in found)
            if self.save is not None:
                self.save(self)

    def near(self, nats: float, trial: Trial) -> float:
        """A difference in nats, at least what the precision of the data resolves of this trial's ELBO."""
        return max(nats, SINGLE * abs(trial.elbo)) if self.cavi.data.is_single else nats

    def facts(self, *, ended: str | None = None) -> dict[str, Any]:
        """What the result says about the search."""
        climbed = [trial for trial in self.trials if trial.dropped_at is None]
        return {
            "search": self.options.search,
            "restarts": len(self.trials),
            "finalists": len(climbed),
            "agreeing": max(self.agreeing, 1),
            "proposals": self.proposals,
            "improved": self.improved,
            "failed": self.failures * ROUND,
            "early": self.early,
            "ended": ended or "complete",
        }

    # ---- tasks, each of which an executor may run on a worker ----------------------------------------

    def advance(self, trial: Trial, until: int) -> Trial:
        """Climb up to `until` iterations."""
        trial.advance(until, self.coarse)
        return trial

    def climb(self, trial: Trial) -> Trial:
        """Climb to the optimum."""
        options = self.options
        seed = None if self.early else [options.seed, trial.number, 4, 0]
        trial.polish(options.max_iter, self.coarse, seed, kicks=KICKS if self.is_race else BEST_KICKS)
        return trial

    def attempt(self, best: Trial, number: int) -> Trial:
        """Propose a state from the best one and climb."""
        new = best.branch(self.cavi, propose(self.cavi, best.state, self.options.seed, number))
        limit = min(PROPOSAL_ITERATIONS, self.options.max_iter)
        new.polish(limit, self.coarse, [self.options.seed, number, 6], kicks=0)
        return new
