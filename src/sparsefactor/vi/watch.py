"""Progress of a fit: the user's callback, which may stop the search, the time limit, and a line on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..checks import says_stop
from ..kernels.contract import Array
from ..posterior import Status
from ..progress import SHOWN_SECONDS, Bars, Moment, Pace

if TYPE_CHECKING:
    from .trial import Trial


class Stopped(Exception):  # noqa: N818 - it is no error
    """The callback wants no more, or time is over."""


@dataclass(frozen=True, kw_only=True)
class VIProgress(Moment):
    """Where `fit_vi` stands: what its `callback` is given after each iteration.

    Attributes
    ----------
    phase : str
        "start" (restarts begin), "race" (several restarts climb side by side), "climb" (to their optima), "search"
        (proposals of a thorough search), "polish" (the best of several, to the tolerance), "prune" and "modules" (where
        asked for).
    trial : int
        The restart that climbs, from 0.
    iteration : int
        Its iterations so far; of a proposal, those of the climb from there.
    elbo : float
        Of its state now.
    best_trial, best_elbo : int, float
        The best restart so far, and the best ELBO so far, which never falls.
    n_proposals : int
        Proposals of a thorough search so far.
    seconds : float
        Since the call began.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> phases = []
    >>> p = sf.fit_vi(sim.X, n_factors=2, callback=lambda now: phases.append(now.phase))
    >>> phases[0], phases[-1]
    ('start', 'climb')
    """

    phase: str
    trial: int
    iteration: int
    elbo: float
    best_trial: int
    best_elbo: float
    n_proposals: int
    seconds: float

    @property
    def loadings(self) -> Array:
        """(n_features, n_factors) posterior mean of the loadings, in the order and signs of this trial."""
        rows = self._fetch(self._state.rows)
        return np.asarray(rows.eta * rows.mu * self._unit)

    @property
    def inclusion_prob(self) -> Array:
        """(n_features, n_factors) inclusion probabilities."""
        return np.array(self._fetch(self._state.rows).eta)

    @property
    def activations(self) -> Array:
        """(n_samples, n_factors) posterior mean of the activations."""
        return np.ascontiguousarray(np.asarray(self._state.columns.f_mean).T)


Callback = Callable[[VIProgress], Any]


class Watcher:
    """Called by each trial after each of its iterations where there is a callback, and else now and then: climbs
    without a callback are faster. `phase` and `n_proposals` are kept by the search.

    over: called now and then, from the first iteration on; True ends the search. save: called likewise, to write a
    checkpoint.
    """

    def __init__(
        self,
        trials: list[Trial],
        unit: float,
        elbo_shift: float,
        callback: Callback | None,
        bars: Bars | None,
        over: Callable[[], bool] | None = None,
    ) -> None:
        self.over, self.halted = over, False  # halted: another thread was stopped
        self.save: Callable[[], None] | None = None
        self.best_elbo = -np.inf
        self.trials, self.unit, self.elbo_shift, self.callback, self.bars = trials, unit, elbo_shift, callback, bars
        self.phase, self.n_proposals = "start", 0
        self.begun, self.pace = time.monotonic(), Pace(SHOWN_SECONDS)

    def tell(self, trial: Trial) -> None:
        """Raises Stopped where the callback returns True."""
        if self.callback is not None and says_stop(self.callback(self.now(trial))):
            raise Stopped

    def check(self, trial: Trial) -> None:
        """Raises Stopped where the time is over."""
        if self.save is not None:
            self.save()
        if self.bars is not None and self.pace.due():
            self.bars.show("VI", line(self.now(trial)))
        if self.halted or (self.over is not None and self.over()):
            raise Stopped

    def now(self, trial: Trial) -> VIProgress:
        best = max(self.trials, key=lambda one: one.elbo, default=trial)
        self.best_elbo = max(self.best_elbo, best.elbo)
        return VIProgress(
            phase=self.phase,
            trial=trial.number,
            iteration=trial.iterations,
            elbo=trial.elbo + self.elbo_shift,
            best_trial=best.number,
            best_elbo=self.best_elbo + self.elbo_shift,
            n_proposals=self.n_proposals,
            seconds=time.monotonic() - self.begun,
        )._holding(trial.state, trial.cavi.engine.vi_fetch, self.unit)

    def end(self, trial: Trial, status: Status) -> None:
        """Show the last line."""
        if self.bars is not None:
            seconds = time.monotonic() - self.begun
            self.bars.show("VI", f"ELBO {trial.elbo + self.elbo_shift:,.2f}, {status.name.lower()}, {seconds:.1f} s")


def line(now: VIProgress) -> str:
    """The line that is shown."""
    at = f"proposal {now.n_proposals}" if now.phase == "search" else f"{now.phase}, restart {now.trial + 1}"
    return f"{at}, iteration {now.iteration}, best ELBO {now.best_elbo:,.2f}, {now.seconds:.0f} s"
