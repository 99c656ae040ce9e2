"""Who looks on while VI climbs: the caller's function, which may end the search, and a line on standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
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
        "start" (the first iterations of each start), "race", "climb" (finalists to their optima), "hop" and "cross"
        (ways on from there), "polish" (the best, to the tolerance asked for), "complete" (with as many factors as were
        asked for, where fewer were enough for the search), "prune" and "modules" (where asked for).
    trial : int
        The trial that climbs, from 0.
    iteration : int
        Its iterations so far; in a hop, those of the hop.
    elbo : float
        Of its state now. In the race, and until a finalist has climbed, it may be that of a model with more factors, in
        a hop with fewer or more; before "complete" that of one with fewer, as `loadings` and the others show.
    best_trial, best_elbo : int, float
        The best of all trials so far, by that measure; where a search begins again with more factors, of the new ones.
    n_hops : int
        Hops made so far.
    seconds : float
        Since the call began.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> phases = []
    >>> p = sf.fit_vi(sim.X, n_factors=2, callback=lambda now: phases.append(now.phase))
    >>> phases[0], phases[-1]
    ('start', 'polish')
    """

    phase: str
    trial: int
    iteration: int
    elbo: float
    best_trial: int
    best_elbo: float
    n_hops: int
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
    """Told by each trial after each of its iterations, where the caller's function is, and else now and then: climbs
    that nobody follows step by step are faster. `phase` and `n_hops` are kept by the search.

    over: asked now and then, from the first iteration on; True ends the search.
    """

    def __init__(
        self,
        trials: Sequence[Trial],
        unit: float,
        elbo_shift: float,
        callback: Callback | None,
        bars: Bars | None,
        over: Callable[[], bool] | None = None,
    ) -> None:
        self.over, self.halted = over, False  # halted: another thread has met its end
        self.trials, self.unit, self.elbo_shift, self.callback, self.bars = trials, unit, elbo_shift, callback, bars
        self.phase, self.n_hops = "start", 0
        self.begun, self.pace = time.monotonic(), Pace(SHOWN_SECONDS)

    def tell(self, trial: Trial) -> None:
        """Raises Stopped where the callback returns True."""
        if self.callback is not None and not is_replaying(trial) and says_stop(self.callback(self.now(trial))):
            raise Stopped

    def check(self, trial: Trial) -> None:
        """Raises Stopped where it is over."""
        if self.bars is not None and not is_replaying(trial) and self.pace.due():
            self.bars.show("VI", line(self.now(trial)))
        if self.halted or (self.over is not None and self.over()):
            raise Stopped

    def now(self, trial: Trial) -> VIProgress:
        fold = trial.cavi.fold
        best = max(self.trials, key=lambda one: one.elbo, default=trial)
        return VIProgress(
            phase=self.phase,
            trial=trial.number,
            iteration=trial.iterations,
            elbo=trial.elbo + self.elbo_shift,
            best_trial=best.number,
            best_elbo=best.elbo + self.elbo_shift,
            n_hops=self.n_hops,
            seconds=time.monotonic() - self.begun,
        )._holding(trial.state if fold is None else fold.shown(trial.state), trial.cavi.engine.vi_fetch, self.unit)

    def end(self, trial: Trial, status: Status) -> None:
        """The last line that a person sees."""
        if self.bars is not None:
            seconds = time.monotonic() - self.begun
            self.bars.show("VI", f"ELBO {trial.elbo + self.elbo_shift:,.2f}, {status.name.lower()}, {seconds:.1f} s")


def is_replaying(trial: Trial) -> bool:
    """Whether this was told before."""
    return getattr(trial.cavi.engine, "replaying", False)


def line(now: VIProgress) -> str:
    """What a person reads while they wait."""
    at = f"hop {now.n_hops}" if now.phase == "hop" else f"{now.phase}, trial {now.trial}"
    return f"{at}, iteration {now.iteration}, best ELBO {now.best_elbo:,.2f}, {now.seconds:.0f} s"
