"""Inference watched from inside: the trials and chains that `fit_vi` and `sample` run, measured on the way.

The one place where the study looks behind public names; a test holds it to what the public functions return.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import sparsefactor as sf

from ..data import Data, as_data
from ..engine import build_kernels
from ..engine.threads import single_blas_thread
from ..gibbs.moves import MOVES
from ..gibbs.sweep import Gibbs, GibbsState
from ..kernels.noise import stream_key
from ..mcmc.dispersed import searched_start
from ..start import Start, starts
from ..vi import search
from ..vi.cavi import CAVI
from ..vi.trial import Tolerance, Trial
from .watch import Clock, Estimate, Gauge, Means, Trace, Watch

Recipe = Literal["plain", "default"]
Told = Callable[[float], None]  # is told what share of a piece of work is done


FIRST_LAP = 0.2  # of a race


def ignore(share: float) -> None:
    """Whom nobody listens to."""


class WatchedTrial(Trial):
    """A trial that is measured whenever it stands higher than before."""

    def watched(self, gauge: Gauge, fit_clock: Clock, told: Told = ignore) -> WatchedTrial:
        self.gauge, self.clock, self.best, self.told = gauge, Clock(), -np.inf, told
        self.watch = Watch(self.clock, fit_clock)
        return self

    def advance(self, until: int, tolerance: Tolerance) -> None:
        with self.clock:
            while self.iterations < until and self.status is None:
                super().advance(self.iterations + 1, tolerance)
                self.told(self.iterations / until)
                if self.elbo >= self.best:
                    self.best = self.elbo
                    self.watch.look(self.iterations, self.measured)

    def polish(self, *args: Any, **options: Any) -> None:
        with self.clock:
            super().polish(*args, **options)

    def measured(self) -> dict[str, float]:
        return {**self.gauge.measure(self.estimate()), "elbo": self.elbo}

    def estimate(self) -> Estimate:
        return estimate_of(self, self.gauge)

    def finished(self) -> Trace:
        with self.clock:
            self.watch.look(self.iterations, self.measured, now=True)
        facts = {**self.record(won=False), "seconds": self.clock.seconds}
        return Trace(
            self.number, self.name, self.watch.points, self.estimate(), self.iterations, self.clock.seconds, facts
        )


def vi_trials(
    X: Any,
    prior: sf.Prior,
    gauge: Gauge,
    *,
    recipe: Recipe,
    number: int,
    n_trials: int,
    seed: int,
    told: Told = ignore,
    **settings: Any,
) -> tuple[list[Trace], float]:
    """Trial `number` of the paper's recipe, or all raced trials of the default one; and the seconds of it all.

    settings: max_iter, tol, rtol as of `fit_vi`, whose defaults hold for what is left out.
    """
    settings = {**defaults_of(sf.fit_vi, "max_iter", "tol", "rtol"), **settings}
    tolerance = Tolerance(settings["tol"], settings["rtol"])
    data = as_data(X)
    clock = Clock()
    trials: list[WatchedTrial] = []
    load_kernels(data, prior)
    with single_blas_thread():
        cavi = CAVI(data, prior, build_kernels(data, prior, "auto", 1))
        with clock:
            if recipe == "plain":
                start = nth_start(data, prior, "random", number, seed)
                trial = WatchedTrial(number, start.name, cavi, cavi.start(start.L, start.F), accelerate=False)
                trials.append(trial.watched(gauge, clock, told))
                trial.advance(settings["max_iter"], tolerance)
            else:
                run_race(cavi, gauge, clock, trials, n_trials, seed, settings["max_iter"], tolerance, told)
        seconds = clock.seconds
        return [trial.finished() for trial in trials], seconds


def vi_mean(
    X: Any, prior: sf.Prior, gauge: Gauge, *, n_trials: int, seed: int, told: Told = ignore
) -> tuple[list[Trace], float]:
    """The mean prediction of more and more trials, each run to its own optimum, as `fit_vi(average=True)` does it."""
    settings = defaults_of(sf.fit_vi, "max_iter", "tol", "rtol")
    tolerance = Tolerance(settings["tol"], settings["rtol"])
    data = as_data(X)
    clock, rng = Clock(), np.random.default_rng([seed, 0, 4])
    points: list[dict[str, float]] = []
    iterations, n, total = 0, 0, np.zeros(1)
    best: Trial | None = None
    load_kernels(data, prior)
    with single_blas_thread():
        cavi = CAVI(data, prior, build_kernels(data, prior, "auto", 1))
        with clock:
            for number, start in enumerate(starts(data, prior, "auto", n_trials, seed)):
                trial = Trial(number, start.name, cavi, cavi.start(start.L, start.F), accelerate=True)
                trial.advance(min(search.LAPS[0][0], settings["max_iter"]), tolerance)
                trial.polish(settings["max_iter"], tolerance, rng, kicks=search.KICKS)
                seconds = clock.seconds
                with clock.paused():
                    iterations += trial.iterations
                    best = trial if best is None or trial.elbo > best.elbo else best
                    if np.isfinite(trial.elbo):
                        total = total + estimate_of(trial, gauge).signal
                        n += 1
                    mean = replace(estimate_of(best, gauge), signal=total / max(n, 1))
                    points.append({"seconds": seconds, "sweep": iterations, **gauge.measure(mean)})
                    told((number + 1) / n_trials)
    assert best is not None
    facts = {"elbo": best.elbo, "status": "averaged", "trials": n_trials}
    return [Trace(0, "auto", points, mean, iterations, clock.seconds, facts)], clock.seconds


def estimate_of(trial: Trial, gauge: Gauge) -> Estimate:
    rows, columns = trial.state.rows, trial.state.columns
    L, F = rows.eta * rows.mu, columns.f_mean
    return Estimate(L, F.T.copy(), rows.eta.copy(), gauge.signal(L, F))


def run_race(
    cavi: CAVI,
    gauge: Gauge,
    clock: Clock,
    trials: list[WatchedTrial],
    n_trials: int,
    seed: int,
    max_iter: int,
    tolerance: Tolerance,
    told: Told,
) -> None:
    """As `fit_vi` does it: the first lap as the starts are made, then the race."""
    rng = np.random.default_rng([seed, 0, 4])
    coarse = Tolerance(max(tolerance.absolute, search.COARSE), tolerance.relative)
    for number, start in enumerate(starts(cavi.data, cavi.prior, "auto", n_trials, seed)):
        trial = WatchedTrial(number, start.name, cavi, cavi.start(start.L, start.F), accelerate=True)
        trials.append(trial.watched(gauge, clock))
        trial.advance(min(search.LAPS[0][0], max_iter), coarse)
        told(FIRST_LAP * (number + 1) / n_trials)
    finalists = search.race(trials, coarse, max_iter)
    for finalist in finalists:
        finalist.polish(max_iter, coarse, rng, kicks=search.KICKS)
    leader = max(finalists, key=lambda trial: trial.elbo)
    leader.status = None
    leader.polish(max_iter, tolerance, rng, kicks=search.LEADER_KICKS)


def chain(
    X: Any,
    prior: sf.Prior,
    gauge: Gauge,
    *,
    recipe: Recipe,
    number: int,
    seed: int,
    n_warmup: int,
    n_draws: int,
    thin: int,
    told: Told = ignore,
) -> Trace:
    """One chain: plain Gibbs from a random start, or the default moves from around the best VI optimum.

    Measured are the means over the draws kept so far; until there is one, the current draw. The default chain's clock
    includes the fit it starts from.
    """
    data = as_data(X)
    clock = Clock()
    watch, means = Watch(clock), Means(gauge)
    names = () if recipe == "plain" else defaults_of(sf.sample, "moves")["moves"]
    key = stream_key(seed, number)
    load_kernels(data, prior)
    with single_blas_thread():
        gibbs = Gibbs(data, prior, build_kernels(data, prior, "auto", 1), [MOVES[name]() for name in names])
        with clock:
            start = chain_start(data, prior, recipe, number, seed)
            state = gibbs.start(start.L, start.F)
            log_joint = float("nan")
            whole = n_warmup + n_draws * thin
            for sweep in range(whole):
                state, info = gibbs.sweep(state, key, sweep)
                log_joint = info.log_joint
                if sweep >= n_warmup and (sweep - n_warmup + 1) % thin == 0:
                    with clock.paused():
                        means.add(state.loadings, state.F, state.rows.Z)
                watch.look(sweep + 1, lambda: gauge.measure(current(means, state, gauge)))  # noqa: B023
                if sweep % 50 == 0:
                    told(sweep / whole)
            final = current(means, state, gauge)
            watch.look(whole, lambda: gauge.measure(final), now=True)
    facts = {"log_joint": log_joint, "moves": list(names), "kept": means.n}
    return Trace(number, start.name, watch.points, final, whole, clock.seconds, facts)


def current(means: Means, state: GibbsState, gauge: Gauge) -> Estimate:
    if means.n:
        return means.estimate()
    alone = Means(gauge)
    alone.add(state.loadings, state.F, state.rows.Z)
    return alone.estimate()


def chain_start(data: Data, prior: sf.Prior, recipe: Recipe, number: int, seed: int) -> Start:
    if recipe == "plain":
        return nth_start(data, prior, "random", number, seed)
    return searched_start(data, prior, number, seed, n_threads=1)


def load_kernels(data: Data, prior: sf.Prior) -> None:
    """One sweep of each method, thrown away, so that no clock counts the loading of compiled code."""
    kernels = build_kernels(data, prior, "auto", 1)
    cavi, gibbs = CAVI(data, prior, kernels), Gibbs(data, prior, kernels)
    start = nth_start(data, prior, "random", 0, 0)
    cavi.sweep(cavi.start(start.L, start.F), rescale=True)
    gibbs.sweep(gibbs.start(start.L, start.F), stream_key(0, 0), 0)


def nth_start(data: Data, prior: sf.Prior, init: str, number: int, seed: int) -> Start:
    """The start that trial or chain `number` of a run of many would have."""
    return list(starts(data, prior, init, number + 1, seed))[number]


def recipe_of(method: str) -> dict[str, Any]:
    """What the package's defaults add to a unit's settings, so that changed defaults make it another unit."""
    if method in ("vi_default", "vi_mean"):
        return {"defaults": defaults_of(sf.fit_vi, "max_iter", "tol", "rtol")}
    if method == "mcmc_default":
        return {"defaults": {"moves": list(defaults_of(sf.sample, "moves")["moves"])}}
    return {}


def defaults_of(function: Any, *names: str) -> dict[str, Any]:
    """The package's own defaults, so that the study follows them."""
    parameters = inspect.signature(function).parameters
    return {name: parameters[name].default for name in names}
