"""All fits of one method on one table (a cell), and many cells in processes."""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import sparsefactor as sf

from . import measures, methods
from .tables import Table

Array = np.ndarray
HELD_OUT = 0.1  # of the entries


@dataclass(frozen=True)
class Plan:
    """How many fits make a cell, and the CPU seconds after which the rest of it is left out."""

    splits: int = 5
    seeds: int = 3
    masks: int = 2
    limit: float = 30.0


DATA: dict[str, Table] = {}  # inherited by the worker processes


class TimeLimitError(Exception):
    """The CPU seconds of a cell are over."""


def standardise(X: Array, by: Array | None = None) -> Array:
    by = X if by is None else by
    return (X - np.nanmean(by, axis=0)) / np.nanstd(by, axis=0)


def varying(*parts: Array) -> Array:
    """The features that have a variance in each part."""
    return np.all([np.nanmax(X, axis=0) > np.nanmin(X, axis=0) for X in parts], axis=0)


def fit(cell: dict[str, Any], X: Array, K: int, seed: int) -> Any:
    begin = time.process_time()
    fitted = methods.fit(cell["method"], X, K, seed)
    cell["cpu_seconds"].append(time.process_time() - begin)
    return fitted


def measure_whole(cell: dict[str, Any], table: Table, plan: Plan) -> Iterator[None]:
    """Fit the whole table by several seeds: structure, sparsity, and agreement with the first seed."""
    X = standardise(table.X)
    first: Array | None = None
    for seed in range(plan.seeds):
        loadings = fit(cell, X, table.K, seed).loadings
        cell["complexity"].append(measures.row_complexity(loadings))
        cell["features"].append(measures.features_per_factor(loadings))
        if table.scales is not None:
            has = table.scales >= 0
            cell["rand"].append(measures.adjusted_rand(measures.strongest(loadings)[has], table.scales[has]))
        if table.loadings is not None:
            cell["recovery"].append(measures.recovery(loadings, table.loadings))
        if first is not None:
            for name, value in measures.replication(first, loadings).items():
                cell[f"seeds_{name}"].append(value)
        first = loadings if first is None else first
        yield


def measure_splits(cell: dict[str, Any], table: Table, plan: Plan) -> Iterator[None]:
    """Fit random halves of the samples."""
    for split in range(plan.splits):
        order = np.random.default_rng([split, 1]).permutation(len(table.X))
        parts = table.X[order[: len(order) // 2]], table.X[order[len(order) // 2 :]]
        keep = varying(*parts)
        loadings = [fit(cell, standardise(part[:, keep]), table.K, split).loadings for part in parts]
        for name, value in measures.replication(*loadings).items():
            cell[f"split_{name}"].append(value)
        yield


def measure_held_out(cell: dict[str, Any], table: Table, plan: Plan) -> Iterator[None]:
    """Predict entries that were held out of the fit."""
    for mask in range(plan.masks):
        held = (np.random.default_rng([mask, 2]).random(table.X.shape) < HELD_OUT) & np.isfinite(table.X)
        train = np.where(held, np.nan, table.X)
        rows = np.isfinite(train).any(axis=1)
        keep = varying(train)
        X, truth = (standardise(part, train)[rows][:, keep] for part in (train, table.X))
        held = held[rows][:, keep]
        fitted = fit(cell, X, table.K, mask)
        cell["error"].append(measures.held_out_error(fitted.predicted, truth, held))
        if fitted.density is not None:
            with np.errstate(divide="ignore", invalid="ignore"):  # of entries that were not held out
                cell["log_density"].append(float(np.mean(fitted.density(truth)[held])))
        yield


def measure(task: tuple[str, str, Plan]) -> dict[str, Any]:
    """A cell: one method on one table. Splits, whole fits and masks take turns, so that a cell cut short has some of each."""
    method, name, plan = task
    table = DATA[name]
    cell: dict[str, Any] = defaultdict(list)
    cell.update(method=method, table=name, field=table.field, shape=list(table.X.shape), K=table.K, status="done")

    def stop(*_: Any) -> None:
        raise TimeLimitError

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, plan.limit)
    try:
        with threadpool_limits(1):
            turns = [part(cell, table, plan) for part in (measure_whole, measure_splits, measure_held_out)]
            while turns:
                turns = [turn for turn in turns if next(turn, turn) is not turn]
    except TimeLimitError:
        cell["status"] = f"stopped after {plan.limit:g} CPU seconds"
    except Exception as problem:  # a failure is a result too
        cell["status"] = f"{type(problem).__name__}: {problem}"[:300]
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {key: without_nan(value) for key, value in cell.items()}


def without_nan(value: Any) -> Any:
    """None instead of NaN, which JSON does not have."""
    return [None if v != v else v for v in value] if isinstance(value, list) else value


def compile_and_check(names: list[str]) -> list[str]:
    """The methods that are installed; each compiles and imports what it needs by fits without and with missing values."""
    usable = []
    for name in names:
        try:
            for missing in (0.0, 0.1):
                X = sf.simulate(n_features=20, n_samples=30, inclusion=[0.5, 0.5], snr=5, missing=missing, seed=0).X
                methods.fit(name, standardise(X), 2, 0)
            usable.append(name)
        except (ImportError, TypeError) as problem:
            print(f"method {name} is left out: {problem}", flush=True)
    return usable


def run(names: list[str], plan: Plan, jobs: int) -> Iterator[dict[str, Any]]:
    """Cells as they are done, the largest tables first."""
    order = sorted(DATA, key=lambda name: -DATA[name].X.size)
    tasks = [(method, name, plan) for name in order for method in names]
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(measure, tasks, chunksize=1)
