"""Beyond the race: where the search of a fit goes on from its finalists (docs/math.md, 3.18).

confirm: all finalists are in one optimum: a few rotations are to come back to it, and that is it
round:   otherwise the best finalist and that of another race hop, each from the best it has found
widen:   where they end in different optima, further lineages until two agree: the second finalist, then the others of
         both races, each after long runs of Gibbs sampling; where none agree, the best of all for another round, after
         such runs. From here on hops set out from where the last one ended, if that was not much lower than where it
         began
cross:   what only the others have is put beside what the best one has
on:      the best goes on until hop after hop has found nothing better

Lineages of one round know nothing of each other, so they may be side by side: what they find is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
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
LINEAGES = 2  # that hop in the first round, and how many must end in the same optimum
ROUND = 40  # hops of a lineage before it is compared with others
JOINING = 2  # further lineages that join at a time, after the first one
SECOND = 3  # lineages that have a second round, where none agree
PATIENCE, LAST_PATIENCE = 18, 60  # hops in a row that find nothing better, of each lineage and of the best at the end
RETURNS = 7  # hops that end where the best was, and nothing better in between: this neighbourhood is known
RETURNING = 0.1  # of all hops, where that is more
MOST_HOPS = 800  # in all
HEAT = 5.0  # nats that a hop may lose, on average, and yet be gone on from
RUNS, LONG = 8, 2000  # runs that a further lineage begins with, and sweeps of each,
LONG_WORK = 2e8  # and the products of a feature, a sample and a factor that they may come to (see CHEAP: never few)
CHEAP = 3e5  # such products of a sweep, beyond which there is no other race, and no further lineage: it takes too long


class Lineage:
    """A trial that hops, and what came of its hops. sweeps: of the long runs that its next round begins with."""

    def __init__(self, search: Search, trial: Trial) -> None:
        self.search, self.trial, self.sweeps = search, trial, 0
        self.hops = 0
        self.returns = 0  # hops that came back to where they set out, or to the best
        self.recent = 0  # such hops since something better was found, in the last round
        self.ends: list[float] = []  # ELBOs that climbs ended at

    @property
    def elbo(self) -> float:
        return self.trial.elbo

    def hop(
        self,
        patience: int,
        sweeps: int = SWEEPS,
        *,
        most: float = np.inf,
        returns: int = RETURNS,
        goal: float = np.inf,
        heat: float = 0.0,
    ) -> bool:
        """Hop until so many hops in a row have found nothing better, or some came back; whether any did.

        goal: the ELBO of an optimum that is known from elsewhere; to have come there, too, is enough.
        heat: nats that a hop may lose, on average, and yet be gone on from.
        """
        try:
            if self.sweeps:  # wherever they lead
                self.hopped(RUNS, self.sweeps, RUNS, RUNS, goal, np.inf)
                self.sweeps = 0
            return self.hopped(patience, sweeps, most, returns, goal, heat)
        finally:
            self.search.crew.rest()

    def hopped(self, patience: int, sweeps: int, most: float, returns: int, goal: float, heat: float) -> bool:
        search, trial = self.search, self.trial
        failures, before, here, last = 0, trial.elbo, trial, self.hops + most
        self.recent = 0
        luck = np.random.default_rng([search.options.seed, trial.number, 13, self.hops])
        while failures < patience and self.recent < returns and self.hops < last:
            number, self.hops = self.hops, self.hops + 1
            search.watcher.n_hops += 1
            search.watcher.phase = "hop"
            ahead = int(min(patience - failures, last - number)) if np.isfinite(heat) else 1
            new, both = search.crew.next(search.excursion, here, number, ahead, sweeps)
            end = new if both is None or new.elbo > both.elbo else both
            came_back, better = search.came_back(new, trial), search.is_better(end, trial)
            self.returns += came_back
            self.succeed(new)
            if both is not None:
                self.succeed(both)
            if end.elbo > here.elbo - heat * luck.exponential():
                here = end
            failures = 0 if better else failures + 1
            self.recent = 0 if better else self.recent + came_back
            if abs(trial.elbo - goal) < search.near(AGREE, trial):
                break
        return trial.elbo > before + search.near(WORTH, trial)

    def cross(self, other: Lineage) -> None:
        """Take what only the other has, where that leads to something better."""
        new = self.search.crossing(self.trial, other.trial)
        if new is not None:
            self.succeed(new)

    def succeed(self, new: Trial) -> None:
        self.ends.append(new.elbo)
        self.trial.succeed(new, new.state)


class Lineages:
    """Those of one search, whose trials they are."""

    def __init__(self, search: Search) -> None:
        self.search, self.told = search, search.told
        self.all: list[Lineage] = []

    def best(self, finalists: list[Trial]) -> Trial:
        """The trial that has found most, from these finalists, the best of which comes first.

        Where a start that was given leads, no further lineage is to find better: what it came from was a search.
        """
        search, first = self.search, finalists[0]
        own = search.trials[: len(given(search.options.init))]
        handed = any(first.elbo - trial.elbo < search.near(AGREE, trial) for trial in own)
        try:
            return self.sought(self.join(finalists), handed).trial
        finally:
            search.ends += [end for lineage in self.all for end in lineage.ends]
            self.told["hops"], self.told["returns"] = self.hops, self.returns

    def sought(self, finalists: list[Lineage], handed: bool) -> Lineage:
        search, first = self.search, finalists[0]
        if handed or self.told["agreeing"] >= ENOUGH:
            better = first.hop(*CONFIRMING)
            single = np.sum(~holds_nothing(search.cavi, first.trial.state)) < 2  # there is nothing to turn
            if not better and (handed or single or self.returns == self.hops):
                return first
        if handed:
            first.hop(PATIENCE)
            return first
        small, others = self.work <= CHEAP, finalists[1:]
        lineages = [first, *(self.join(search.fresh()) if small else others)]
        lineages, others = lineages[:LINEAGES], [*others, *lineages[LINEAGES:]]
        self.round(lineages)
        best = self.agreed(lineages)
        heat = 0.0  # HEAT, once lineages were seen to disagree: before, hops must come back
        if not self.known and small and not search.is_short(best.trial):
            heat = HEAT
            best = self.widened(lineages, others)
        if search.is_short(best.trial):
            return best
        before = best.elbo
        for other in lineages:
            if best.elbo - other.elbo >= search.near(AGREE, best.trial):
                best.cross(other)
        if best.elbo > before + search.near(WORTH, best.trial):
            self.told["agreeing"] = 1  # none but this one has been there
        if not self.known and best.hop(LAST_PATIENCE, most=MOST_HOPS - self.hops, returns=self.enough(), heat=heat):
            self.told["agreeing"] = 1
        for lineage in lineages:
            lineage.trial.status = lineage.trial.status or Status.CONVERGED
        return best

    def widened(self, lineages: list[Lineage], others: list[Lineage]) -> Lineage:
        """The best of these and of others, which join them until the best optimum is known: the first of them as it
        is, the rest after long runs."""
        sweeps = min(LONG, int(LONG_WORK / self.work))
        for lineage in others[1:]:
            lineage.sweeps = sweeps
        for joining in filter(None, [others[:1], *(others[n : n + JOINING] for n in range(1, len(others), JOINING))]):
            self.round(joining, goal=max(lineage.elbo for lineage in lineages), heat=HEAT)
            lineages += joining
            best = self.agreed(lineages)
            if self.known or self.search.is_short(best.trial):
                return best
        again = sorted(lineages, key=lambda lineage: lineage.elbo, reverse=True)[:SECOND]
        for lineage in again:
            lineage.sweeps = sweeps
        self.round(again, heat=HEAT)
        return self.agreed(lineages)

    def join(self, trials: list[Trial]) -> list[Lineage]:
        new = [Lineage(self.search, trial) for trial in trials]
        self.all += new
        return new

    def round(self, lineages: Sequence[Lineage], *, goal: float = np.inf, heat: float = 0.0) -> None:
        """Some hops of each."""
        hop = partial(Lineage.hop, patience=PATIENCE, most=ROUND, returns=self.enough(), goal=goal, heat=heat)
        self.search.crew.together(hop, lineages)

    def enough(self) -> int:
        """How many hops must come back: more where the way was long, for such a search is easily held up."""
        return max(RETURNS, int(RETURNING * self.hops))

    def agreed(self, lineages: list[Lineage]) -> Lineage:
        """The best of them; how many ended there is noted."""
        best = max(lineages, key=lambda lineage: lineage.elbo)
        near = self.search.near
        self.told["agreeing"] = sum(best.elbo - lineage.elbo < near(AGREE, lineage.trial) for lineage in lineages)
        return best

    @property
    def known(self) -> bool:
        """Whether several lineages have ended in the best optimum, and enough hops have come back there."""
        return self.told["agreeing"] >= LINEAGES and self.returns >= RETURNS

    @property
    def hops(self) -> int:
        return sum(lineage.hops for lineage in self.all)

    @property
    def returns(self) -> int:
        return sum(lineage.returns for lineage in self.all)

    @property
    def work(self) -> int:
        """Of a sweep."""
        cavi = self.search.cavi
        return cavi.data.n_features * cavi.data.n_samples * cavi.prior.K
