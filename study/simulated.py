"""The study on simulated data (the paper's section 5.1): every method as in the paper and by default."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

import sparsefactor as sf

from .measures import MEASURES, TruthMeasure
from .methods import defaults_in_key, recipe_of, run_chains, run_vi
from .recording import Trace
from .units import Arrays, Cache, Findings, Report, Unit, arrays_of, run_units

SNRS = (1.0, 5.0, 25.0)
FOUND = 0.9  # a true factor is found if its activations correlate this well with those of the matched factor
METHODS = {
    "vi_plain": "VI, as in the paper",
    "vi_default": "VI, default",
    "mcmc_plain": "MCMC, as in the paper",
    "mcmc_default": "MCMC, default",
}


@dataclass(frozen=True)
class Level:
    """How much is run. Iterations are VI's, sweeps the sampler's after its warm-up."""

    name: str
    n_trials: int
    max_iter: int
    n_chains: int
    n_sweeps: int
    thin: int
    warmup_plain: int = 100
    warmup_default: int = 500
    tol: float = 1e-10
    rtol: float = 1e-14
    snrs: tuple[float, ...] = SNRS
    seed: int = 0

    def labels(self) -> str:
        """In words, for figures and reports."""
        return (
            f"{self.name}: {self.n_trials} restarts of up to {self.max_iter:,} iterations, {self.n_chains} chain(s) of "
            f"{self.n_sweeps:,} sweeps thinned by {self.thin}"
        )


LEVELS = {
    "quick": Level("quick", 10, 2_000, 5, 400, 2, warmup_default=150),
    "standard": Level("standard", 10, 50_000, 5, 20_000, 10),
    "full": Level("full, the paper's counts", 10, 100_000, 5, 200_000, 10),
}


@dataclass(frozen=True)
class Run:
    """One restart or chain as the figures and tables see it."""

    snr: float
    method: str
    number: int
    facts: dict[str, Any]
    arrays: Arrays

    @property
    def points(self) -> list[dict[str, float]]:
        return list(self.facts["points"])

    @property
    def last(self) -> dict[str, float]:
        return self.points[-1]

    @property
    def found(self) -> set[int]:
        """The true factors (from 0) it has."""
        return {k for k, c in enumerate(self.facts["correlations"]) if c > FOUND}


def prior() -> sf.Prior:
    return sf.Prior.paper(inclusion=[0.1] * 5 + [0.9])


def plan(level: Level) -> list[Unit]:
    """Every unit of the study."""
    units = []
    for snr in level.snrs:
        for method in METHODS:
            kind, recipe = method.split("_")
            common = {"study": "simulated", "snr": snr, "seed": level.seed, "method": method, **defaults_in_key(method)}
            if kind == "vi" and recipe == "default":
                units.append(_unit(vi_unit, {**common, "n_trials": level.n_trials}, 5))
            elif kind == "vi":
                given = {"max_iter": level.max_iter, "tol": level.tol, "rtol": level.rtol}
                cost = level.n_trials * (1 + _vi(level))
                units.append(_unit(vi_unit, {**common, **given, "n_trials": level.n_trials}, cost))
            else:
                warmup = level.warmup_plain if recipe == "plain" else level.warmup_default
                lengths = {"n_warmup": warmup, "n_draws": level.n_sweeps // level.thin, "thin": level.thin}
                cost = level.n_chains * (1 + (warmup + level.n_sweeps) / (1000 if recipe == "plain" else 700))
                units.append(_unit(chain_unit, {**common, **lengths, "n_chains": level.n_chains}, cost))
    return units


def _vi(level: Level) -> float:
    return min(level.max_iter, 12_000) / 4_000


def _unit(work: Any, settings: dict[str, Any], cost: float) -> Unit:
    return Unit(work, {**settings, "title": f"snr {settings['snr']:g}, {METHODS[settings['method']]}"}, cost=cost)


def vi_unit(settings: dict[str, Any]) -> Findings:
    truth = _dataset(settings)
    measure = TruthMeasure(truth)
    given = {name: settings[name] for name in ("max_iter", "tol", "rtol", "n_trials", "seed") if name in settings}
    traces, seconds = run_vi(truth.X, prior(), measure, recipe=recipe_of(settings["method"]), **given)
    return _findings(traces, measure, seconds)


def chain_unit(settings: dict[str, Any]) -> Findings:
    truth = _dataset(settings)
    measure = TruthMeasure(truth)
    lengths = {name: settings[name] for name in ("n_chains", "seed", "n_warmup", "n_draws", "thin")}
    traces = run_chains(truth.X, prior(), measure, recipe=recipe_of(settings["method"]), **lengths)
    return _findings(traces, measure, sum(trace.seconds for trace in traces))


def _dataset(settings: dict[str, Any]) -> sf.Simulation:
    return sf.simulate_paper(snr=settings["snr"], seed=settings["seed"])


def _findings(traces: list[Trace], measure: TruthMeasure, seconds: float) -> Findings:
    """Facts of every trace, and their means in the truth's order of factors."""
    facts: list[dict[str, Any]] = []
    arrays: Arrays = {}
    for place, trace in enumerate(traces):
        matching = sf.match(trace.final, measure.truth)
        facts.append({**trace.as_facts(), "correlations": measure.correlations(trace.final).tolist()})
        arrays[f"inclusion/{place}"] = matching.apply(trace.final.inclusion_prob, signed=False).astype(np.float32)
        arrays[f"loadings/{place}"] = matching.apply(trace.final.loadings_mean).astype(np.float32)
        arrays[f"activations/{place}"] = matching.apply(trace.final.activations_mean).astype(np.float32)
    return {"traces": facts, "seconds": seconds}, arrays


@dataclass(frozen=True)
class Results:
    """All results of the study."""

    level: Level
    runs: list[Run]
    baselines: dict[float, dict[str, float]]
    fit_seconds: dict[tuple[float, str], float]  # of all restarts of a fit together

    def of(self, snr: float, method: str) -> list[Run]:
        return [run for run in self.runs if run.snr == snr and run.method == method]

    def best(self, snr: float, method: str) -> Run:
        """The restart with the largest ELBO, or the chain with the best accuracy of Z, as the paper chooses them."""
        runs = self.of(snr, method)
        if method.startswith("vi"):
            return max(runs, key=lambda run: run.facts["elbo"])
        return max(runs, key=lambda run: run.last["z_accuracy"])

    def reached(self, run: Run) -> bool:
        """Whether it has every factor that any run has on this dataset."""
        return run.found >= set().union(*(other.found for other in self.runs if other.snr == run.snr))

    def settings(self) -> dict[str, Any]:
        return {**asdict(self.level), "inclusion": [0.1] * 5 + [0.9], "gammas": 1e-3, "measures": list(MEASURES)}


def run(level: Level, cache: Cache, jobs: int, report: Report | None = None) -> Results:
    """Run what is not in the cache, and collect it all."""
    units = plan(level)
    runs: list[Run] = []
    seconds: dict[tuple[float, str], float] = {}
    for unit, (facts, arrays) in zip(units, run_units(units, cache, jobs, report), strict=True):
        snr, method = unit.settings["snr"], unit.settings["method"]
        seconds[snr, method] = seconds.get((snr, method), 0.0) + facts["seconds"]
        for place, trace in enumerate(facts["traces"]):
            runs.append(Run(snr, method, trace["number"], trace, arrays_of(arrays, place)))
    baselines = {snr: sf.baseline(sf.simulate_paper(snr=snr, seed=level.seed), prior()) for snr in level.snrs}
    return Results(level, runs, baselines, seconds)
