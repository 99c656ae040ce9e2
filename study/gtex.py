"""The fill-in test of the paper's section 5.2: hold out a tenth of the entries, fit, predict them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import sparsefactor as sf

from .matrix import Matrix, baselines, held_out
from .measures import FillInMeasure, rrmse
from .methods import defaults_in_key, recipe_of, run_chains, run_vi, run_vi_mean
from .recording import Trace
from .simulated import METHODS as BOTH_STUDIES
from .units import Arrays, Cache, Findings, Report, Unit, arrays_of, run_units

METHODS = {**BOTH_STUDIES, "vi_mean": "VI, mean of all restarts"}
INCLUSIONS = ("fixed", "learnt")
NOISES = {"feature": "noise by feature", "shared": "shared noise", "sample": "noise by sample"}
RECOMMENDED = ("learnt", "sample")


@dataclass(frozen=True)
class Level:
    """How much is run."""

    name: str
    n_trials: int
    max_iter: int
    n_chains: int
    n_warmup: int
    n_sweeps: int
    thin: int
    n_factors: int = 26
    tol: float = 1e-3
    seed: int = 0

    def labels(self) -> str:
        return (
            f"{self.name}: {self.n_trials} restarts of up to {self.max_iter:,} iterations, {self.n_chains} chain(s) of "
            f"{self.n_warmup:,} + {self.n_sweeps:,} sweeps thinned by {self.thin}, mask seed {self.seed}"
        )


LEVELS = {
    "quick": Level("quick", 3, 300, 1, 100, 200, 2),
    "standard": Level("standard", 10, 5_000, 2, 500, 2_000, 4),
    "full": Level("full, the paper's counts", 10, 50_000, 5, 2_000, 16_000, 10),
}


def level_of(name: str, seed: int = 0) -> Level:
    return replace(LEVELS[name], seed=seed)


@dataclass(frozen=True)
class Run:
    """One restart or chain in one setting."""

    method: str
    inclusion: str
    noise: str
    number: int
    facts: dict[str, Any]
    arrays: Arrays

    @property
    def setting(self) -> tuple[str, str]:
        return self.inclusion, self.noise

    @property
    def points(self) -> list[dict[str, float]]:
        return list(self.facts["points"])

    @property
    def rrmse(self) -> float:
        return self.points[-1]["rrmse"]


def prior(settings: dict[str, Any]) -> sf.Prior:
    inclusion: Any = 0.1 if settings["inclusion"] == "fixed" else sf.Beta(1, 1)
    return sf.Prior.paper(n_factors=settings["n_factors"], inclusion=inclusion, noise=settings["noise"])


def plan(level: Level, matrix: Matrix, file: Path) -> list[Unit]:
    """The paper's recipe in the paper's setting, the package's defaults in every setting."""
    units = []
    inputs = {"file": str(file)}
    for inclusion in INCLUSIONS:
        for noise in NOISES:
            for method in METHODS:
                kind, recipe = method.split("_")
                if recipe == "plain" and (inclusion, noise) != ("fixed", "feature"):
                    continue
                common = {
                    "study": "gtex",
                    "data": matrix.digest,
                    "seed": level.seed,
                    "n_factors": level.n_factors,
                    "inclusion": inclusion,
                    "noise": noise,
                    "method": method,
                    **defaults_in_key(method),
                }
                own: dict[str, Any] = {**common, "title": f"{METHODS[method]}, {inclusion} inclusion, {NOISES[noise]}"}
                if kind == "vi":
                    limits = {"max_iter": level.max_iter, "tol": level.tol} if recipe == "plain" else {}
                    own |= {"n_trials": level.n_trials, **limits}
                    each = min(level.max_iter, 2000) / 4
                    cost = each * {"vi_default": 1, "vi_mean": 2, "vi_plain": level.n_trials}[method]
                    units.append(Unit(vi_unit, own, inputs, cost=cost))
                else:
                    draws = level.n_sweeps // level.thin
                    own |= {
                        "n_chains": level.n_chains,
                        "n_warmup": level.n_warmup,
                        "n_draws": draws,
                        "thin": level.thin,
                    }
                    cost = level.n_chains * (level.n_warmup + level.n_sweeps)
                    units.append(Unit(chain_unit, own, inputs, cost=cost))
    return units


def vi_unit(settings: dict[str, Any], file: str) -> Findings:
    X, measure = _masked(settings, file)
    if settings["method"] == "vi_mean":
        given = {name: settings[name] for name in ("n_trials", "seed")}
        return _findings(*run_vi_mean(X, prior(settings), measure, **given))
    given = {name: settings[name] for name in ("max_iter", "tol", "n_trials", "seed") if name in settings}
    return _findings(*run_vi(X, prior(settings), measure, recipe=recipe_of(settings["method"]), **given))


def chain_unit(settings: dict[str, Any], file: str) -> Findings:
    X, measure = _masked(settings, file)
    lengths = {name: settings[name] for name in ("n_chains", "seed", "n_warmup", "n_draws", "thin")}
    traces = run_chains(X, prior(settings), measure, recipe=recipe_of(settings["method"]), **lengths)
    return _findings(traces, sum(trace.seconds for trace in traces))


def baseline_unit(settings: dict[str, Any], file: str) -> Findings:
    values = np.load(file)["values"]
    return {"levels": baselines(values, held_out(values.shape, settings["seed"]), settings["seed"])}, {}


def _masked(settings: dict[str, Any], file: str) -> tuple[Any, FillInMeasure]:
    """X (n_samples, n_features) with NaN where held out, and the measure of those entries."""
    with np.load(file) as arrays:
        values = arrays["values"]
    held = held_out(values.shape, settings["seed"])
    features, samples = np.divmod(held, values.shape[1])
    X = values.T.copy()
    X[samples, features] = np.nan
    return X, FillInMeasure(features, samples, values.ravel()[held])


def _findings(traces: list[Trace], seconds: float) -> Findings:
    """Facts of every trace; the means and predictions of each chain, and of the best restart."""
    best = max(traces, key=lambda trace: trace.facts.get("elbo", 0.0))
    facts: list[dict[str, Any]] = []
    arrays: Arrays = {}
    for place, trace in enumerate(traces):
        facts.append(trace.as_facts())
        if trace is best or "elbo" not in trace.facts:
            means = {
                "loadings": trace.final.loadings_mean,
                "activations": trace.final.activations_mean,
                "inclusion": trace.final.inclusion_prob,
                "predictions": trace.final.signal,
            }
            arrays |= {f"{name}/{place}": values.astype(np.float32) for name, values in means.items()}
    return {"traces": facts, "seconds": seconds}, arrays


@dataclass(frozen=True)
class Results:
    """All results of the fill-in test."""

    level: Level
    matrix: Matrix
    runs: list[Run]
    levels: dict[str, float]  # RRMSE of the baselines
    fit_seconds: dict[tuple[str, str, str], float]
    held_values: Any

    def of(self, method: str, setting: tuple[str, str]) -> list[Run]:
        return [run for run in self.runs if run.method == method and run.setting == setting]

    def best(self, method: str, setting: tuple[str, str]) -> Run:
        """The restart with the largest ELBO, or the first chain: no held-out entry takes part in the choice."""
        return max(self.of(method, setting), key=lambda run: run.facts.get("elbo", 0.0))

    def pooled(self, method: str, setting: tuple[str, str]) -> float:
        """RRMSE of the chosen restart or of the mean over restarts, or of the mean prediction of all chains."""
        runs = self.of(method, setting)
        if method.startswith("vi"):
            return self.best(method, setting).rrmse
        return rrmse(np.mean([run.arrays["predictions"] for run in runs], axis=0), self.held_values)

    def settings(self) -> dict[str, Any]:
        shape = list(self.matrix.values.shape)
        return {**asdict(self.level), "data": self.matrix.source, "shape": shape, "digest": self.matrix.digest}


def run(level: Level, matrix: Matrix, cache: Cache, jobs: int, report: Report | None = None) -> Results:
    """Run what is not in the cache, and collect it all."""
    file = cache.folder / f"data-{matrix.digest}.npz"
    if not file.exists():
        np.savez_compressed(file, values=matrix.values)
    held = held_out(matrix.values.shape, level.seed)
    plain = {"study": "gtex", "data": matrix.digest, "seed": level.seed, "title": "baselines"}
    units = [Unit(baseline_unit, plain, {"file": str(file)}, cost=50), *plan(level, matrix, file)]
    (base, _), *found = run_units(units, cache, jobs, report)
    runs: list[Run] = []
    seconds: dict[tuple[str, str, str], float] = {}
    for unit, (facts, arrays) in zip(units[1:], found, strict=True):
        s = unit.settings
        key = s["method"], s["inclusion"], s["noise"]
        seconds[key] = seconds.get(key, 0.0) + facts["seconds"]
        for place, trace in enumerate(facts["traces"]):
            own = arrays_of(arrays, place)
            runs.append(Run(s["method"], s["inclusion"], s["noise"], trace["number"], trace, own))
    return Results(level, matrix, runs, base["levels"], seconds, matrix.values.ravel()[held])
