"""Inference watched on the way: `fit_vi` and `sample` with callbacks that measure what trials and chains have found."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np

import sparsefactor as sf

from .watch import Estimate, Gauge, Laps, Means, Trace, Watch

Recipe = Literal["plain", "default"]
Told = Callable[[float], None]  # is told what share of a piece of work is done

FIRST_LAP = 0.2  # of a race
TOLD_EVERY = 50  # sweeps
# What the study watches: the paper's data and its q; on one core, so that a clock of one thread counts all work.
VI: dict[str, Any] = {"center": False, "activations": "independent", "n_threads": 1, "progress": False}
MCMC: dict[str, Any] = {"center": False, "n_jobs": 1, "progress": False}
PLAIN_VI: dict[str, Any] = {"init": "random", "race": False, "accelerate": False}
PLAIN_MCMC: dict[str, Any] = {"init": "random", "moves": (), "temper": False}


def ignore(share: float) -> None:
    """Whom nobody listens to."""


# ---- trials of VI ---------------------------------------------------------------------------------------------------


class Climb:
    """One trial: measured whenever it stands higher than before."""

    def __init__(self) -> None:
        self.watch, self.seconds, self.best = Watch(), 0.0, -np.inf
        self.at: sf.VIProgress | None = None  # where it stood highest
        self.iterations = 0

    def tell(self, now: sf.VIProgress, lap: float, gauge: Gauge) -> None:
        self.seconds += lap
        self.iterations = now.iteration
        if now.elbo >= self.best:
            self.best, self.at = now.elbo, now
            self.watch.look(self.seconds, now.iteration, lambda: self.measured(gauge))

    def estimate(self, gauge: Gauge) -> Estimate:
        assert self.at is not None
        L, F = self.at.loadings, self.at.activations
        return Estimate(L, F, self.at.inclusion_prob, gauge.signal(L, F.T))

    def measured(self, gauge: Gauge) -> dict[str, float]:
        return {**gauge.measure(self.estimate(gauge)), "elbo": self.best}

    def finished(self, record: dict[str, Any], gauge: Gauge) -> Trace:
        n, name = record["iterations"], record["start"]
        self.watch.look(self.seconds, n, lambda: self.measured(gauge), now=True)
        facts = {**record, "seconds": self.seconds}
        return Trace(record["trial"], name, self.watch.points, self.estimate(gauge), n, self.seconds, facts)


class Climbs:
    """A callback of `fit_vi`."""

    def __init__(self, gauge: Gauge, told: Told, share: Callable[[sf.VIProgress], float]) -> None:
        self.gauge, self.told, self.share = gauge, told, share
        self.trials: dict[int, Climb] = {}
        self.laps, self.seconds = Laps(), 0.0

    def __call__(self, now: sf.VIProgress) -> None:
        lap = self.laps.lap()
        self.seconds += lap
        self.look(now, lap)
        self.told(self.share(now))
        self.laps.go_on()

    def look(self, now: sf.VIProgress, lap: float) -> None:
        self.trials.setdefault(now.trial, Climb()).tell(now, lap, self.gauge)


def vi_trials(
    X: Any,
    prior: sf.Prior,
    gauge: Gauge,
    *,
    recipe: Recipe,
    n_trials: int,
    seed: int,
    told: Told = ignore,
    **settings: Any,
) -> tuple[list[Trace], float]:
    """All trials, by the paper's recipe or by the default one; and the seconds of it all.

    settings: max_iter, tol, rtol as of `fit_vi`, whose defaults hold for what is left out.
    """
    most = settings.get("max_iter", 1)

    def share(now: sf.VIProgress) -> float:
        if recipe == "plain":
            return 0.0 if now.phase == "start" else (now.trial + min(now.iteration / most, 1.0)) / n_trials
        return FIRST_LAP * (now.trial + 1) / n_trials if now.phase == "start" else FIRST_LAP

    options = PLAIN_VI if recipe == "plain" else {}
    load_kernels(X, prior)
    watched = Climbs(gauge, told, share)
    p = fitted(X, prior, watched, n_trials=n_trials, seed=seed, **options, **settings)
    return [watched.trials[line["trial"]].finished(line, gauge) for line in p.trial_records], watched.seconds


class MeanClimbs(Climbs):
    """A callback of `fit_vi(average=True)`: the mean prediction of the trials that have ended."""

    def __init__(self, gauge: Gauge, told: Told, n_trials: int) -> None:
        super().__init__(gauge, told, lambda now: (now.trial + 1) / n_trials if now.phase == "climb" else 0.0)
        self.climbing: int | None = None
        self.points: list[dict[str, float]] = []
        self.total: Any = 0.0
        self.n, self.iterations = 0, 0
        self.best: Climb | None = None
        self.mean: Estimate | None = None

    def look(self, now: sf.VIProgress, lap: float) -> None:
        if now.phase == "climb" and now.trial != self.climbing:
            self.end(self.seconds - lap)
            self.climbing = now.trial
        super().look(now, lap)

    def end(self, seconds: float) -> None:
        """The trial that climbs has reached its optimum."""
        if self.climbing is None:
            return
        trial = self.trials[self.climbing]
        self.iterations += trial.iterations
        self.best = trial if self.best is None or trial.best > self.best.best else self.best
        if np.isfinite(trial.best):
            self.total = self.total + trial.estimate(self.gauge).signal
            self.n += 1
        self.mean = replace(self.best.estimate(self.gauge), signal=self.total / max(self.n, 1))
        self.points.append({"seconds": seconds, "sweep": self.iterations, **self.gauge.measure(self.mean)})


def vi_mean(
    X: Any, prior: sf.Prior, gauge: Gauge, *, n_trials: int, seed: int, told: Told = ignore
) -> tuple[list[Trace], float]:
    """The mean prediction of more and more trials, each run to its own optimum."""
    load_kernels(X, prior)
    watched = MeanClimbs(gauge, told, n_trials)
    fitted(X, prior, watched, n_trials=n_trials, seed=seed, average=True)
    watched.end(watched.seconds)
    assert watched.best is not None
    assert watched.mean is not None
    facts = {"elbo": watched.best.best, "status": "averaged", "trials": n_trials}
    return [Trace(0, "auto", watched.points, watched.mean, watched.iterations, watched.seconds, facts)], watched.seconds


def fitted(X: Any, prior: sf.Prior, callback: Climbs, **settings: Any) -> sf.VIPosterior:
    """A fit; one that was interrupted is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.ConvergenceWarning)  # the tables tell it
        callback.laps.go_on()
        p = sf.fit_vi(X, prior, callback=callback, **VI, **settings)
    if p.status is sf.Status.INTERRUPTED:
        raise KeyboardInterrupt
    return p


# ---- chains ---------------------------------------------------------------------------------------------------------


class Walk:
    """One chain. Measured are the means over the draws kept so far; until there is one, the current draw."""

    def __init__(self, gauge: Gauge) -> None:
        self.gauge, self.means, self.watch, self.seconds = gauge, Means(gauge), Watch(), 0.0
        self.at: sf.MCMCProgress | None = None

    def tell(self, now: sf.MCMCProgress, lap: float, n_warmup: int, thin: int) -> None:
        self.seconds += lap
        if now.phase == "start":
            return
        self.at = now
        if now.sweep > n_warmup and (now.sweep - n_warmup) % thin == 0:
            self.means.add(now.loadings, now.activations.T, now.inclusion)
        self.watch.look(self.seconds, now.sweep, self.measured)

    def estimate(self) -> Estimate:
        assert self.at is not None
        means = self.means
        if not means.n:
            means = Means(self.gauge)
            means.add(self.at.loadings, self.at.activations.T, self.at.inclusion)
        return means.estimate()

    def measured(self) -> dict[str, float]:
        return self.gauge.measure(self.estimate())

    def finished(self, number: int, recipe: Recipe, moves: list[str]) -> Trace:
        assert self.at is not None
        self.watch.look(self.seconds, self.at.sweep, self.measured, now=True)
        facts = {"log_joint": self.at.log_joint, "moves": moves, "kept": self.means.n}
        name = "random" if recipe == "plain" else "vi"
        return Trace(number, name, self.watch.points, self.estimate(), self.at.sweep, self.seconds, facts)


def chains(
    X: Any,
    prior: sf.Prior,
    gauge: Gauge,
    *,
    recipe: Recipe,
    n_chains: int,
    seed: int,
    n_warmup: int,
    n_draws: int,
    thin: int,
    told: Told = ignore,
) -> list[Trace]:
    """Plain Gibbs from random starts, or the default moves, each chain from around the best optimum of a search of its
    own, which its clock includes."""
    load_kernels(X, prior)
    walks = [Walk(gauge) for _ in range(n_chains)]
    laps, whole = Laps(), n_warmup + n_draws * thin

    def callback(now: sf.MCMCProgress) -> None:
        walks[now.chain].tell(now, laps.lap(), n_warmup, thin)
        if now.sweep % TOLD_EVERY == 0:
            told((now.chain + now.sweep / whole) / n_chains)
        laps.go_on()

    # The draws are added up as they come, so that the sampler itself need not keep them.
    lengths: dict[str, Any] = {"n_chains": n_chains, "n_warmup": n_warmup, "n_draws": 1, "thin": n_draws * thin}
    mc = sampled(X, prior, seed=seed, callback=callback, **lengths, **(PLAIN_MCMC if recipe == "plain" else {}))
    moves = list(mc.record["settings"]["moves"])
    return [walk.finished(number, recipe, moves) for number, walk in enumerate(walks)]


def sampled(X: Any, prior: sf.Prior, **settings: Any) -> sf.MCMCPosterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.SamplingWarning)  # of the few draws it keeps
        return sf.sample(X, prior, **MCMC, **settings)


def load_kernels(X: Any, prior: sf.Prior) -> None:
    """A little of each method, thrown away, so that no clock counts the loading of compiled code."""
    fitted(X, prior, Climbs(_Nothing(), ignore, lambda _: 0.0), n_trials=1, max_iter=2)
    sampled(X, prior, n_chains=1, n_warmup=0, n_draws=1, thin=3, init="random")


class _Nothing:
    """Measures nothing."""

    def signal(self, L: Any, F: Any) -> Any:
        return L[:0, 0]

    def measure(self, estimate: Estimate) -> dict[str, float]:
        return {}


def recipe_of(method: str) -> dict[str, Any]:
    """What the package's defaults add to a unit's settings, so that changed defaults make it another unit."""
    if method in ("vi_default", "vi_mean"):
        return {"defaults": defaults_of(sf.fit_vi, "max_iter", "tol", "rtol")}
    if method == "mcmc_default":
        return {"defaults": defaults_of(sf.sample, "moves")}
    return {}


def defaults_of(function: Any, *names: str) -> dict[str, Any]:
    """The package's own defaults, so that the study follows them."""
    parameters = inspect.signature(function).parameters
    return {name: parameters[name].default for name in names}
