"""With how many factors a search is made: as few as leave one of them empty (docs/math.md, 3.18).

The number of factors that is asked for is an upper bound. Factors that hold nothing change neither what the others are
nor which optimum is the best, but a race with many more than are needed ends elsewhere than one with a few more, so
that the answer would depend on a number that does not matter. So a search climbs a ladder of bounds, the same one
whatever was asked for, and stays where it is not short of factors.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, takewhile
from typing import TYPE_CHECKING

import numpy as np

from ..posterior import Status
from ..start import starts
from .lineages import CHEAP
from .trial import Trial

if TYPE_CHECKING:
    from .search import Search

LOWEST = 5  # factors of the first rung; data that need fewer are searched soon enough with so many
STEPS = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80)  # of a decade


def rungs() -> Iterator[int]:
    """5, 6, 8, 10, 12, 15, 20 and so on: each a fifth to a third more than the one before."""
    for decade in count():
        yield from (bound for step in STEPS if (bound := step * 10**decade // 10) >= LOWEST)


def ladder(K: int, most: float) -> list[int]:
    """The bounds of a search for up to K factors: those up to `most` below K, then K itself."""
    return [*takewhile(lambda bound: bound < K and bound <= most, rungs()), K]


class Ladder:
    """A search that goes from bound to bound. `trials`, the search's own, are those of the bound it has come to."""

    def __init__(self, search: Search) -> None:
        self.search, self.whole, self.hops = search, search.cavi, search.hops
        self.before: Trial | None = None  # the best of the bounds before, or of a probe, with all factors
        self.done = False

    def run(self) -> None:
        search, whole = self.search, self.whole
        for bound in self.bounds():
            search.bounded(self.hops.kit(bound)[0], raisable=bound < whole.prior.K)
            if search.raisable:
                short = search.is_short(self.probed())
                self.start_over()
                if short:
                    continue
            if search.look():
                break
            self.start_over()
        if search.cavi is not whole:
            search.watcher.phase = "complete"
            self.complete()
            for trial in search.trials:
                if trial.status is Status.CONVERGED:
                    self.end(trial)
        search.unfold()
        self.before, self.done = None, True

    def best(self) -> Trial:
        return max(self.search.trials, key=lambda trial: trial.elbo)

    def bounds(self) -> list[int]:
        """The numbers of factors to search with, one after the other until one is enough."""
        search, data = self.search, self.whole.data
        climbs = search.spares and self.whole.prior.learns_inclusion and not self.whole.engine.compiles
        return ladder(self.whole.prior.K, CHEAP / (data.n_features * data.n_samples) if climbs else 0)

    def probed(self) -> Trial:
        """The first start of a race, at its optimum."""
        search = self.search
        cavi, options = search.racer(), search.options
        (start,) = starts(search.starting(cavi), options.init, 1, options.seed)
        search.watcher.phase = "start"
        trial = search.begun(cavi, start)
        trial.polish(options.max_iter, search.coarse, search.rng(trial), kicks=0)
        return trial

    def start_over(self) -> None:
        """With no trials; what was found is there should the search be interrupted before there are any."""
        best = self.best()
        found = best.continued(self.whole, self.hops.whole_of(best.cavi, best.state))
        if self.before is None or found.elbo > self.before.elbo:
            self.before = found
        self.search.trials.clear()

    def complete(self) -> None:
        """Every trial with as many factors as were asked for: those beyond the bound are empty, which costs a
        constant."""
        for trial in [trial for trial in self.search.trials if not self.is_complete(trial)]:
            new = self.search.moved(trial, self.hops)
            shift = new.elbo - trial.elbo if np.isfinite(trial.elbo) else 0.0
            new.trace = [(n, elbo + shift, seconds) for n, elbo, seconds in trial.trace]

    def is_complete(self, trial: Trial) -> bool:
        return trial.cavi is self.whole or self.search.is_unfolded(trial)

    def end(self, trial: Trial) -> None:
        """The last steps of a climb that has ended with fewer factors: an empty one's best state is not quite empty."""
        options = self.search.options
        status, trial.status = trial.status, None
        trial.advance(options.max_iter, options.tolerance)
        trial.status = trial.status or status

    def settle(self) -> None:
        """After an interruption: every trial at the best state it had, with as many factors as were asked for."""
        search = self.search
        for trial in list(search.trials):
            trial.settle()
            if not self.done and not self.is_complete(trial):
                search.narrowed(trial)
        if self.done:
            return
        if search.cavi is not self.whole:
            self.complete()
        if self.before is not None and not any(trial.elbo >= self.before.elbo for trial in search.trials):
            self.before.number = len(search.trials)
            self.before.begin_trace()
            search.trials.append(self.before)
        search.unfold()
