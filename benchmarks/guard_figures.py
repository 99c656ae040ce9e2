"""The figures of benchmarks.guard: ratios of two things that are measured in turn in one run.

Work on one thread is measured in CPU time; what waits for a disk or for workers, in elapsed time.
"""

from __future__ import annotations

import itertools
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import numpy as np

import sparsefactor as sf
from benchmarks import scale
from benchmarks.quality.tables import simulated
from benchmarks.speed import problem, products, stepper
from sparsefactor.data import Data, as_data
from sparsefactor.engine import build_engine

LIMIT = 1.3  # times worse than recorded, or between the halves of a measurement: above the noise of a busy machine
SECONDS = 3.0  # of a measurement, unless FEWEST repetitions take longer
FEWEST, MOST = 8, 40  # repetitions
BATCH = 0.02  # seconds of a repetition at least, so that reading the clock does not count
Clock = Callable[[], float]


@dataclass(frozen=True)
class Figure:
    """A ratio of medians; numerators and denominators were measured in turn."""

    numerators: Sequence[float]
    denominators: Sequence[float]
    better: str = "lower"  # or "higher"

    @property
    def value(self) -> float:
        return median(self.numerators) / median(self.denominators)

    @property
    def noisy(self) -> bool:
        """Whether the first and the second half of the repetitions give different values."""
        half = len(self.numerators) // 2
        first = Figure(self.numerators[:half], self.denominators[:half]).value
        second = Figure(self.numerators[half:], self.denominators[half:]).value
        return max(first, second) > LIMIT * min(first, second)

    def times_worse(self, recorded: float) -> float:
        return self.value / recorded if self.better == "lower" else recorded / self.value


def alternate(numerator: Callable[[], Any], denominator: Callable[[], Any], clock: Clock = time.process_time) -> Figure:
    """Time two functions in turn, after calls that compile."""
    for run in (numerator, denominator):
        run()
    sides = [(run, math.ceil(BATCH / seconds(run, 1, time.perf_counter))) for run in (numerator, denominator)]
    times: list[list[float]] = []
    end = time.perf_counter() + SECONDS
    while len(times) < FEWEST or (time.perf_counter() < end and len(times) < MOST):
        times.append([seconds(run, calls, clock) for run, calls in sides])
    return Figure(*zip(*times, strict=True))


def seconds(run: Callable[[], Any], calls: int, clock: Clock) -> float:
    begin = clock()
    for _ in range(calls):
        run()
    return (clock() - begin) / calls


def sweep_over_products(method: str, G: int, N: int, K: int) -> Figure:
    return alternate(stepper(method, *problem(G, N, K, 0.0), 1), products(G, N, K))


def missing_over_complete(method: str, G: int, N: int, K: int) -> Figure:
    return alternate(*(stepper(method, *problem(G, N, K, missing), 1) for missing in (0.1, 0.0)))


def correlated(missing: float = 0.0) -> np.ndarray:
    X = simulated("correlated").X
    return np.where(np.random.default_rng(0).random(X.shape) < missing, np.nan, X)


def fit(X: np.ndarray, K: int, **options: Any) -> None:
    sf.fit_vi(X, n_factors=K, n_threads=1, progress=False, **options)


ONE_RESTART = {"n_trials": 1, "init": "varimax", "race": False}


def default_over_one_restart(table: Callable[[], np.ndarray], K: int) -> Figure:
    X = table()
    return alternate(partial(fit, X, K), partial(fit, X, K, **ONE_RESTART))


def one_restart_over_svd(table: Callable[[], np.ndarray], K: int) -> Figure:
    X = table()
    return alternate(partial(fit, X, K, **ONE_RESTART), partial(np.linalg.svd, X, full_matrices=False))


def callback_over_none() -> Figure:
    X = correlated()
    return alternate(partial(fit, X, 5, callback=lambda now: None), partial(fit, X, 5))


def path_over_none() -> Figure:
    X = correlated()
    with tempfile.TemporaryDirectory() as folder:  # a new path for each fit: one that is done would only be read
        paths = (f"{folder}/{number}" for number in itertools.count())
        return alternate(lambda: fit(X, 5, path=next(paths)), partial(fit, X, 5), time.perf_counter)


def sample(sim: sf.Simulation, n_draws: int, **options: Any) -> sf.MCMCPosterior:
    run = {"n_factors": 6, "n_chains": 1, "n_warmup": 200, "n_draws": n_draws, "n_jobs": 1, "progress": False}
    return sf.sample(sim.X, **run, **options)


def sample_over_sweeps(n_draws: int = 300, **options: Any) -> Figure:
    """All that `sample` does, its search for a start apart, over bare sweeps with the scale move alone."""
    sim = sf.simulate_paper()
    start = sf.Start("truth", sim.loadings, np.ascontiguousarray(sim.activations.T))
    sweep = stepper("Gibbs", as_data(sim.X), sf.Prior(n_factors=6), start, 1)
    return alternate(
        partial(sample, sim, n_draws, init=start, **options), lambda: [sweep() for _ in range(200 + n_draws)]
    )


def effective_draws(snr: float, chains: int = 4, n_draws: int = 1000) -> Figure:
    """The tenth percentile over activations: of one chain, it varies by a tenth from seed to seed."""
    runs = [sample(sf.simulate_paper(snr), n_draws, seed=seed) for seed in range(chains)]
    found = [run.diagnostics().parameters["activations"].sel(measure="ess_bulk") for run in runs]
    return Figure([float(np.nanquantile(ess, 0.1)) for ess in found], [n_draws] * chains, "higher")


def disk_over_memory(G: int = 20_000, N: int = 500, K: int = 10) -> Figure:
    with tempfile.TemporaryDirectory() as folder:
        scale.write_store(f"{folder}/x.zarr", G, N, K)
        data = as_data(f"{folder}/x.zarr", center=True, dtype=np.float32)
        whole = Data(np.array(data.Y), None, data.offset, data.feature_names, data.sample_names)
        prior = sf.Prior(n_factors=K).in_units_of(data)
        sides = [(build_engine(each, prior, n_threads=1), each, prior, 3, time.process_time) for each in (data, whole)]
        return alternate_sweeps(*sides)


def worker_over_memory() -> Figure:
    """Sweeps over data so small that they show what asking a worker takes."""
    from distributed import Client, LocalCluster

    from sparsefactor.engine.dask.engine import DaskEngine

    engine, data, prior, _ = scale.warm(5)
    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:
        return alternate_sweeps(*((each, data, prior, 10) for each in (DaskEngine(data, prior, client), engine)))


def alternate_sweeps(*sides: tuple[Any, ...]) -> Figure:
    """Two sides, each the arguments of scale.sweeps; the first pair compiles."""
    times = [[scale.sweeps(*side) for side in sides] for _ in range(1 + FEWEST)]
    return Figure(*zip(*times[1:], strict=True))


def import_over_numpy() -> Figure:
    def cpu_of_children() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    commands = ([sys.executable, "-c", f"import {names}"] for names in ("sparsefactor", "numpy, scipy"))
    return alternate(*(partial(subprocess.run, command, check=True) for command in commands), cpu_of_children)


SMALL, TALL, WIDE = (800, 100, 6), (16069, 44, 26), (3000, 1000, 20)  # features, samples, factors
SWEEPS = {
    f"{name} {shape[0]} x {shape[1]}, K {shape[2]}": (method, *shape)
    for name, method in (("VI", "CAVI"), ("Gibbs", "Gibbs"))
    for shape in (SMALL, TALL, WIDE)
}
TABLES: dict[str, tuple[Callable[[], np.ndarray], int]] = {
    "the paper's simulation": (lambda: sf.simulate_paper().X, 6),
    "300 x 40, correlated factors": (correlated, 5),
    "300 x 40, 10 % missing": (partial(correlated, 0.1), 5),
    "400 x 100, K 10": (lambda: sf.simulate(n_features=100, n_samples=400, inclusion=[0.2] * 10, snr=1).X, 10),
}
COMPLETE = ("the paper's simulation", "300 x 40, correlated factors")
FIGURES: dict[str, Callable[[], Figure]] = {
    **{f"sweep / BLAS products: {name}": partial(sweep_over_products, *job) for name, job in SWEEPS.items()},
    **{f"sweep, 10 % missing / complete: {name}": partial(missing_over_complete, *job) for name, job in SWEEPS.items()},
    **{
        f"default fit / one restart: {name}": partial(default_over_one_restart, *table)
        for name, table in TABLES.items()
    },
    **{f"one restart / SVD: {name}": partial(one_restart_over_svd, *TABLES[name]) for name in COMPLETE},
    "fit with callback / without": callback_over_none,
    "fit with path / without": path_over_none,
    "sample, scale move alone / bare sweeps": partial(sample_over_sweeps, moves=("scale",)),
    "sample, default moves / bare sweeps": sample_over_sweeps,
    "effective draws / draws: SNR 5": partial(effective_draws, 5),
    "effective draws / draws: SNR 25": partial(effective_draws, 25),
    "VI sweep on disk / in memory": disk_over_memory,
    "VI sweep on a Dask worker / in memory": worker_over_memory,
    "import sparsefactor / import numpy, scipy": import_over_numpy,
}
