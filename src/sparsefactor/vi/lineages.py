"""Beyond the race: where the search of a fit goes on from its finalists (docs/math.md, 3.18).

confirm: all finalists are in one optimum: a few rotations are to come back to it, and that is it
round:   otherwise the two best hop, each from the best it has found
widen:   where they end in different optima, further lineages until two agree: the other finalist, and those of another
         race, each after a long run of Gibbs sampling; where none agree, the best of all for another round. From here
         on hops set out from where the last one ended, if that was not much lower than where it began
cross:   what only the others have is put beside what the best one has
on:      the best goes on until hop after hop has found nothing better
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from ..posterior import Status
from ..start import given
from .empty import holds_nothing
from .hop import SWEEPS
from .shear import WORTH
from .trial import Trial

if TYPE_CHECKING:
    from .search import Search

AGREE = 0.1  # nats: optima closer than this are the same
ENOUGH = 3  # finalists that must agree, or else the search goes on
CONFIRMING = 2, 50  # hops, and sweeps of those that have nothing to turn, that confirm what all finalists agree on
LINEAGES = 2  # finalists that go on, and how many must end in the same optimum
ROUND = 40  # hops of a lineage before it is compared with others
SECOND = 3  # lineages that have a second round, where none agree
PATIENCE, LAST_PATIENCE = 18, 60  # hops in a row that find nothing better, of each lineage and of the best at the end
RETURNS = 7  # hops that end where the best was, and nothing better in between: this neighbourhood is known
RETURNING = 0.1  # of all hops, where that is more
MOST_HOPS = 800  # in all
HEAT = 5.0  # nats that a hop may lose, on average, and yet be gone on from
LONG = 4000  # sweeps of the run that a lineage of another race begins with,
LONG_WORK = 4e8  # and the products of a feature, a sample and a factor that they may come to (see CHEAP: never few)
CHEAP = 3e5  # such products of a sweep, beyond which there are no further lineages: the search would take too long


class Lineages:
    """Those of one search, whose trials they are."""

    def __init__(self, search: Search) -> None:
        self.search, self.told = search, search.told
        self.heat = 0.0  # HEAT, once lineages were seen to disagree: before, hops must come back
        self.returned: dict[int, int] = {}  # hops that came back to a lineage's optimum, by its number

    def best(self, finalists: list[Trial]) -> Trial:
        """The lineage that has found most, from these finalists, the best of which comes first.

        Where a start that was given leads, no further lineage is to find better: what it came from was a search.
        """
        search, first = self.search, finalists[0]
        own = search.trials[: len(given(search.options.init))]
        handed = any(first.elbo - trial.elbo < search.near(AGREE, trial) for trial in own)
        if handed or self.told["agreeing"] >= ENOUGH:
            better = self.hop(first, *CONFIRMING)
            single = np.sum(~holds_nothing(search.cavi, first.state)) < 2  # there is nothing to turn
            if not better and (handed or single or self.told["returns"] == self.told["hops"]):
                return first
        if handed:
            self.hop(first, PATIENCE)
            return first
        lineages = finalists[:LINEAGES]
        for lineage in lineages:
            self.hop(lineage, PATIENCE, most=ROUND)
        best = self.agreed(lineages)
        if self.told["agreeing"] < LINEAGES and self.returned[best.number] < RETURNS and self.work <= CHEAP:
            best = self.widened(lineages, finalists[LINEAGES:])
        for other in lineages:
            if best.elbo - other.elbo >= search.near(AGREE, best):
                self.cross(best, other)
        known = self.told["agreeing"] >= LINEAGES and self.told["returns"] >= RETURNS
        if not known and self.hop(best, LAST_PATIENCE):
            self.told["agreeing"] = 1
        for lineage in lineages:
            lineage.status = lineage.status or Status.CONVERGED
        return best

    @property
    def work(self) -> int:
        """Of a sweep."""
        cavi = self.search.cavi
        return cavi.data.n_features * cavi.data.n_samples * cavi.prior.K

    def widened(self, lineages: list[Trial], others: list[Trial]) -> Trial:
        """The best of these and of further ones, which join them until two have ended in the same optimum."""
        self.heat = HEAT
        for lineage in self.further(others):
            if lineage not in others:
                self.hop(lineage, 1, min(LONG, int(LONG_WORK / self.work)), most=1)
            self.hop(lineage, PATIENCE, most=ROUND, goal=max(trial.elbo for trial in lineages))
            lineages.append(lineage)
            best = self.agreed(lineages)
            if self.told["agreeing"] >= LINEAGES:
                return best
        for lineage in sorted(lineages, key=lambda trial: trial.elbo, reverse=True)[:SECOND]:
            self.hop(lineage, PATIENCE, most=ROUND)
        return self.agreed(lineages)

    def further(self, others: list[Trial]) -> Iterator[Trial]:
        """The other finalists, then those of another race."""
        yield from others
        yield from self.search.fresh()

    def agreed(self, lineages: list[Trial]) -> Trial:
        """The best of them; how many ended there is noted."""
        best = max(lineages, key=lambda trial: trial.elbo)
        self.told["agreeing"] = sum(best.elbo - trial.elbo < self.search.near(AGREE, trial) for trial in lineages)
        return best

    def hop(
        self, lineage: Trial, patience: int, sweeps: int = SWEEPS, most: float = np.inf, goal: float = np.inf
    ) -> bool:
        """Hop until so many hops in a row have found nothing better, or some came back; whether any did.

        goal: the ELBO of an optimum that is known from elsewhere; to have come there, too, is enough.
        """
        try:
            return self.hopped(lineage, patience, sweeps, most, goal)
        finally:
            self.search.crew.rest()

    def hopped(self, lineage: Trial, patience: int, sweeps: int, most: float, goal: float) -> bool:
        search, told = self.search, self.told
        failures, returned, before, here = 0, 0, lineage.elbo, lineage
        last = int(min(MOST_HOPS, told["hops"] + most))
        luck = np.random.default_rng([search.options.seed, lineage.number, 13, told["hops"]])
        while failures < patience and returned < self.returns_enough() and told["hops"] < last:
            number, told["hops"] = told["hops"], told["hops"] + 1
            search.watcher.n_hops += 1
            search.watcher.phase = "hop"
            ahead = min(patience - failures, last - number)
            new, both = search.crew.next(search.excursion, here, number, ahead, sweeps)
            end = new if both is None or new.elbo > both.elbo else both
            came_back, better = search.came_back(new, lineage), search.is_better(end, lineage)
            told["returns"] += came_back
            self.succeed(lineage, new)
            if both is not None:
                self.succeed(lineage, both)
            if end.elbo > here.elbo - self.heat * luck.exponential():
                here = end
            failures = 0 if better else failures + 1
            returned = 0 if better else returned + came_back
            if abs(lineage.elbo - goal) < search.near(AGREE, lineage):
                break
        self.returned[lineage.number] = returned
        return lineage.elbo > before + search.near(WORTH, lineage)

    def returns_enough(self) -> int:
        """How many hops must come back: more where the way was long, for such a search is easily held up."""
        return max(RETURNS, int(RETURNING * self.told["hops"]))

    def cross(self, best: Trial, other: Trial) -> None:
        """Give the best what only the other has, where that leads to something better."""
        new = self.search.crossing(best, other)
        if new is not None:
            self.succeed(best, new)

    def succeed(self, lineage: Trial, new: Trial) -> None:
        self.search.ends.append(new.elbo)
        lineage.succeed(new, new.state)
