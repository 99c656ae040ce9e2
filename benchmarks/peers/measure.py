"""What is measured: the paper's simulation against its truth, real tables by entries held out. Runs inside .venv-peers."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import sparsefactor as sf
from benchmarks.corpus import sets

from .methods import METHODS, Fitted, quietly

SNRS = (1.0, 5.0, 25.0)
TABLES = ("wine", "breast_cancer", "questionnaire", "macro", "gtex")
MOST_SAMPLES = 500  # of a real table, so that a run ends while one waits
FACTORS = 6  # as the simulation has; for the real tables, an upper bound where a method knows one
PACKAGES = ("sparsefactor", "mofapy2", "scikit-learn", "numpyro", "jax", "numpy", "scipy", "numba")


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    return {
        "processor": name,
        "cores": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],  # of other work, before ours begins
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
    }


def timed(method: str, X: np.ndarray, seed: int) -> tuple[Fitted, dict[str, float]]:
    """A fit, its seconds on the clock, and the seconds of all cores together, which other work hardly changes."""
    clock, cpu = time.perf_counter(), sum(os.times()[:4])
    fitted = quietly(method, X, FACTORS, seed)
    return fitted, {"seconds": time.perf_counter() - clock, "cpu_seconds": sum(os.times()[:4]) - cpu}


def simulated(method: str, snr: float, seed: int) -> dict[str, Any]:
    sim = sf.simulate_paper(snr=snr, seed=seed)
    fitted, times = timed(method, sim.X - sim.X.mean(axis=0), seed)
    return {"method": method, "snr": snr, "seed": seed, **times, **fitted.score(sim)}


def table(name: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(training data with NaN, complete data, entries held out), each feature standardised by the training entries."""
    X = sets.load(None, [name])[name][:MOST_SAMPLES]
    held = (np.random.default_rng(seed).random(X.shape) < 0.1) & np.isfinite(X)
    train = np.where(held, np.nan, X)
    keep = np.isfinite(train).any(axis=1)
    mean, sd = np.nanmean(train, axis=0), np.nanstd(train, axis=0)
    return (((train - mean) / sd)[keep], ((X - mean) / sd)[keep], held[keep])


def real(method: str, name: str, seed: int) -> dict[str, Any]:
    train, whole, held = table(name, seed)
    fitted, times = timed(method, train, seed)
    error = float(np.sqrt(np.sum((fitted.predicted - whole)[held] ** 2) / np.sum(whole[held] ** 2)))
    shape = list(train.shape)
    row = {"method": method, "table": name, "shape": shape, "seed": seed, **times, "error": error}
    if fitted.density is not None:
        row["log_density"] = float(np.mean(fitted.density(whole)[held]))
    return row


def warm(method: str) -> float:
    """Seconds of a first call on a tiny table: compilation and imports, which later calls do not pay.

    Some compile other code for data with holes: a second call has these, and is not in the seconds.
    """
    seconds = []
    for missing in (0.0, 0.1):
        X = sf.simulate(n_features=20, n_samples=30, inclusion=[0.5, 0.5], snr=5, missing=missing, seed=0).X
        begin = time.perf_counter()
        quietly(method, X - np.nanmean(X, axis=0), 2, 0)
        seconds.append(time.perf_counter() - begin)
    return seconds[0]


def kept(out: Path, measured: list[str]) -> dict[str, Any]:
    """What an earlier run found of the methods that this one leaves out."""
    told: dict[str, Any] = json.loads(out.read_text()) if out.exists() and measured != list(METHODS) else {}
    rows = {
        kind: [row for row in told.get(kind, []) if row["method"] not in measured] for kind in ("simulation", "real")
    }
    before = {"first_call_seconds": told.get("first_call_seconds", {}), "seconds": told.get("seconds", 0.0)}
    note = {"note": told["note"]} if "note" in told else {}
    return rows | before | {"whole": not told} | note


def main(out: str, seeds: str, *only: str) -> None:
    methods = [m for m in METHODS if not only or m in only]
    file = Path(out)
    told = {"machine": machine(), "date": time.strftime("%Y-%m-%d"), **kept(file, methods)}
    begin, before = time.perf_counter(), told["seconds"]
    found = told["first_call_seconds"] | {method: warm(method) for method in methods}
    told["first_call_seconds"] = {method: found[method] for method in METHODS if method in found}
    jobs = [
        (function, kind, method, of, seed)
        for seed in range(int(seeds))
        for function, kind, sources in ((simulated, "simulation", SNRS), (real, "real", TABLES))
        for of in sources
        for method in methods
    ]
    for function, kind, method, of, seed in jobs:
        row = function(method, of, seed)
        told[kind].append(row)
        numbers = " ".join(f"{k} {v:.3f}" for k, v in row.items() if isinstance(v, float) and k != "snr")
        print(f"{of!s:14s} {seed} {method:18s} {numbers}", flush=True)
        told["seconds"] = before + time.perf_counter() - begin
        file.write_text(json.dumps(told, indent=1) + "\n")  # what there is, should the rest fail
    print(f"{told['seconds']:.0f} s in all; written to {out}")


if __name__ == "__main__":
    main(*sys.argv[1:])
