"""The methods compared: `fit_vi` and `sample` as in the paper and by default, recorded by callbacks."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, Literal

import numpy as np

import sparsefactor as sf

from .measures import FillInMeasure, Measure
from .recording import Estimate, Recorder, RunningMeans, Stopwatch, Trace

Recipe = Literal["plain", "default"]

# The paper's data and q; on one core, so that the clock of one thread counts all work.
VI: dict[str, Any] = {"center": False, "activations": "independent", "n_threads": 1, "progress": False}
MCMC: dict[str, Any] = {"center": False, "n_jobs": 1, "progress": False}
PLAIN_VI: dict[str, Any] = {"init": "random", "race": False, "accelerate": False}
PLAIN_MCMC: dict[str, Any] = {"init": "random", "moves": (), "temper": False}


class RestartRecord:
    """One restart of VI, measured whenever its ELBO is the highest so far."""

    def __init__(self) -> None:
        self.recorder, self.seconds, self.elbo = Recorder(), 0.0, -np.inf
        self.best: sf.VIProgress | None = None

    def update(self, now: sf.VIProgress, seconds: float, measure: Measure) -> None:
        self.seconds += seconds
        if now.elbo >= self.elbo:
            self.elbo, self.best = now.elbo, now
            self.recorder.record(self.seconds, now.iteration, lambda: self.measurements(measure))

    def estimate(self, measure: Measure) -> Estimate:
        assert self.best is not None
        L, F = self.best.loadings, self.best.activations
        return Estimate(L, F, self.best.inclusion_prob, measure.signal(L, F.T))

    def measurements(self, measure: Measure) -> dict[str, float]:
        return {**measure(self.estimate(measure)), "elbo": self.elbo}

    def trace(self, record: dict[str, Any], measure: Measure) -> Trace:
        n = record["iterations"]
        self.recorder.record(self.seconds, n, lambda: self.measurements(measure), final=True)
        facts = {**record, "seconds": self.seconds}
        points = self.recorder.points
        return Trace(record["trial"], record["start"], points, self.estimate(measure), n, self.seconds, facts)


class FitRecord:
    """A callback of `fit_vi` that records every restart."""

    def __init__(self, measure: Measure) -> None:
        self.measure = measure
        self.restarts: dict[int, RestartRecord] = {}
        self.stopwatch, self.seconds = Stopwatch(), 0.0

    def __call__(self, now: sf.VIProgress) -> None:
        seconds = self.stopwatch.elapsed()
        self.seconds += seconds
        self.restarts.setdefault(now.trial, RestartRecord()).update(now, seconds, self.measure)
        self.stopwatch.restart()


def run_vi(
    X: Any, prior: sf.Prior, measure: Measure, *, recipe: Recipe, n_trials: int, seed: int, **settings: Any
) -> tuple[list[Trace], float]:
    """Run all restarts by the paper's recipe or by default; return their traces and the seconds of all.

    settings: max_iter, tol, rtol of `fit_vi`, whose defaults hold where they are left out.
    """
    load_kernels(X, prior)
    record = FitRecord(measure)
    record.stopwatch.restart()
    options = PLAIN_VI if recipe == "plain" else {}
    p = _fit(X, prior, callback=record, n_trials=n_trials, seed=seed, **options, **settings)
    return [record.restarts[line["trial"]].trace(line, measure) for line in p.trial_records], record.seconds


def run_vi_mean(
    X: Any, prior: sf.Prior, measure: FillInMeasure, *, n_trials: int, seed: int
) -> tuple[list[Trace], float]:
    """Run `fit_vi(average=True)`: the mean prediction of all restarts, measured at its end."""
    load_kernels(X, prior)
    stopwatch = Stopwatch()
    p = _fit(X, prior, n_trials=n_trials, seed=seed, average=True)
    seconds = stopwatch.elapsed()
    signal = p.reconstruct()[measure.samples, measure.features]
    final = Estimate(p.loadings_mean, p.activations_mean, p.inclusion_prob, signal)
    sweeps = sum(line["iterations"] for line in p.trial_records)
    points = [{"seconds": seconds, "sweep": sweeps, **measure(final)}]
    facts = {"elbo": p.elbo, "status": "averaged", "trials": n_trials}
    return [Trace(0, "auto", points, final, sweeps, seconds, facts)], seconds


def _fit(X: Any, prior: sf.Prior, **settings: Any) -> sf.VIPosterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.ConvergenceWarning)  # the tables report it
        p = sf.fit_vi(X, prior, **VI, **settings)
    if p.status is sf.Status.INTERRUPTED:
        raise KeyboardInterrupt
    return p


class ChainRecord:
    """One chain, measured by the means over its draws; before the first one, by the current state."""

    def __init__(self, measure: Measure) -> None:
        self.measure, self.means, self.recorder, self.seconds = measure, RunningMeans(measure), Recorder(), 0.0
        self.last: sf.MCMCProgress | None = None

    def update(self, now: sf.MCMCProgress, seconds: float, n_warmup: int, thin: int) -> None:
        self.seconds += seconds
        if now.phase == "start":
            return
        self.last = now
        if now.sweep > n_warmup and (now.sweep - n_warmup) % thin == 0:
            self.means.add(now.loadings, now.activations.T, now.inclusion)
        self.recorder.record(self.seconds, now.sweep, self.measurements)

    def estimate(self) -> Estimate:
        assert self.last is not None
        means = self.means
        if not means.n:
            means = RunningMeans(self.measure)
            means.add(self.last.loadings, self.last.activations.T, self.last.inclusion)
        return means.estimate()

    def measurements(self) -> dict[str, float]:
        return self.measure(self.estimate())

    def trace(self, number: int, recipe: Recipe, moves: list[str]) -> Trace:
        assert self.last is not None
        self.recorder.record(self.seconds, self.last.sweep, self.measurements, final=True)
        facts = {"log_joint": self.last.log_joint, "moves": moves, "kept": self.means.n}
        start = "random" if recipe == "plain" else "vi"
        return Trace(number, start, self.recorder.points, self.estimate(), self.last.sweep, self.seconds, facts)


def run_chains(
    X: Any,
    prior: sf.Prior,
    measure: Measure,
    *,
    recipe: Recipe,
    n_chains: int,
    seed: int,
    n_warmup: int,
    n_draws: int,
    thin: int,
) -> list[Trace]:
    """Run plain Gibbs sampling from random starts, or the default sampler; its time includes the search for a start."""
    load_kernels(X, prior)
    chains = [ChainRecord(measure) for _ in range(n_chains)]
    stopwatch = Stopwatch()

    def callback(now: sf.MCMCProgress) -> None:
        chains[now.chain].update(now, stopwatch.elapsed(), n_warmup, thin)
        stopwatch.restart()

    # The callback averages the draws, so the sampler itself keeps one.
    lengths: dict[str, Any] = {"n_chains": n_chains, "n_warmup": n_warmup, "n_draws": 1, "thin": n_draws * thin}
    mc = _sample(X, prior, seed=seed, callback=callback, **lengths, **(PLAIN_MCMC if recipe == "plain" else {}))
    moves = list(mc.record["settings"]["moves"])
    return [chain.trace(number, recipe, moves) for number, chain in enumerate(chains)]


def _sample(X: Any, prior: sf.Prior, **settings: Any) -> sf.MCMCPosterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.SamplingWarning)  # about the single draw it keeps
        return sf.sample(X, prior, **MCMC, **settings)


def load_kernels(X: Any, prior: sf.Prior) -> None:
    """Run a little of each method, so that no clock counts the loading or compilation of kernels."""
    _fit(X, prior, callback=lambda now: None, n_trials=1, max_iter=2)
    _sample(X, prior, n_chains=1, n_warmup=0, n_draws=1, thin=3, init="random")


def recipe_of(method: str) -> Recipe:
    return "plain" if method.endswith("plain") else "default"


def defaults_in_key(method: str) -> dict[str, Any]:
    """The package's defaults that a method uses, so that a changed default makes another unit of the study."""
    if method in ("vi_default", "vi_mean"):
        return {"defaults": _defaults(sf.fit_vi, "max_iter", "tol", "rtol")}
    return {"defaults": _defaults(sf.sample, "moves")} if method == "mcmc_default" else {}


def _defaults(function: Any, *names: str) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters
    return {name: parameters[name].default for name in names}
