"""Milliseconds per sweep, beside the time of the bare matrix products, which no implementation can beat.

    python -m benchmarks.speed [--against REF] [--out FILE] [--quick]

With --against, the version REF (a commit, branch or tag) is measured in alternation with this one.

A sweep is everything: row pass, column step, ELBO or log joint, noise. The products are Y F' and (tau L)' Y through
NumPy on as many BLAS threads as cores, interleaved with the sweeps, so that a noisy machine slows both.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sparsefactor as sf
from benchmarks.against import measured, versions
from sparsefactor.data import as_data
from sparsefactor.engine import build_engine
from sparsefactor.engine.threads import available_cores, single_blas_thread
from sparsefactor.gibbs.moves import ScaleMove
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.noise import stream_key
from sparsefactor.start import Start, StartMaker
from sparsefactor.vi.cavi import CAVI

# features, samples, K, share missing, type; milliseconds of the paper's own R/C++ package on such a machine; target.
JOBS = [
    ("CAVI", 800, 100, 6, 0.0, "float64", 2.6, 0.13),
    ("CAVI", 800, 100, 6, 0.1, "float64", 23.0, 0.5),
    ("CAVI", 16069, 44, 26, 0.0, "float64", 166.0, 10.0),
    ("CAVI", 16069, 44, 26, 0.1, "float64", 750.0, 30.0),
    ("Gibbs", 800, 100, 6, 0.0, "float64", 24.0, 0.6),
    ("Gibbs", 800, 100, 6, 0.1, "float64", 29.0, 1.0),
    ("Gibbs", 16069, 44, 26, 0.0, "float64", 1440.0, 30.0),
    ("Gibbs", 16069, 44, 26, 0.1, "float64", 1630.0, 45.0),
    ("CAVI", 20000, 2000, 30, 0.0, "float32", None, None),
    ("CAVI", 20000, 2000, 30, 0.1, "float32", None, None),  # at most five times the one above
    ("Gibbs", 20000, 2000, 30, 0.0, "float32", None, None),
    ("Gibbs", 20000, 2000, 30, 0.1, "float32", None, None),
]
LARGE = 10_000_000  # entries from which sweeps set out from the truth: a start would take longer than all sweeps
SCALING = [("features", n, 50) for n in (2000, 4000, 8000)] + [("samples", 1000, n) for n in (100, 200, 400)]


def problem(G: int, N: int, K: int, missing: float, dtype: str = "float64") -> tuple[Any, sf.Prior, Start | None]:
    """Data, prior, and a start where the data are large."""
    inclusion = [0.1] * (K - 1) + [0.9] if K == 6 else [0.1] * K
    sim = sf.simulate(n_features=G, n_samples=N, inclusion=inclusion, snr=5, missing=missing, seed=0)
    start = Start("truth", sim.loadings, np.ascontiguousarray(sim.activations.T)) if G * N > LARGE else None
    return as_data(sim.X, dtype=dtype), sf.Prior(inclusion=inclusion), start


def stepper(method: str, data: Any, prior: sf.Prior, start: Start | None, n_threads: int | None) -> Callable[[], None]:
    """A function that makes one more sweep each time it is called, from a state that has settled."""
    engine = build_engine(data, prior, n_threads=n_threads)
    warm = 30 if start is None else 3
    start = start or StartMaker(engine, 0).make("ica", 0)
    if method == "CAVI":
        cavi = CAVI(data, prior, engine)
        held = [cavi.start(start.L, start.F)]

        def sweep() -> None:
            held[0] = cavi.sweep(held[0], rescale=True)
    else:
        gibbs = Gibbs(data, prior, engine, [ScaleMove()])
        chain = [gibbs.start(start.L, start.F), 0]
        key = stream_key(0, 0)

        def sweep() -> None:
            chain[0], _ = gibbs.sweep(chain[0], key, chain[1])
            chain[1] += 1

    for _ in range(warm):
        sweep()
    return sweep


def median_ms(run: Callable[[], None], seconds: float) -> float:
    """Median over batches of at least a few milliseconds each."""
    begin = time.perf_counter()
    run()
    batch = max(1, int(0.003 / (time.perf_counter() - begin + 1e-9)))
    times = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        for _ in range(batch):
            run()
        times.append((time.perf_counter() - begin) / batch)
    return 1e3 * float(np.median(times))


def products(G: int, N: int, K: int, dtype: Any = np.float64) -> Callable[[], None]:
    """A function that makes the two products over the data by BLAS each time it is called."""
    rng = np.random.default_rng(0)
    Y, F, L = (rng.random(shape, dtype) for shape in ((G, N), (N, K), (G, K)))
    B, C = np.empty((G, K), dtype), np.empty((K, N), dtype)

    def run() -> None:
        np.dot(Y, F, out=B)
        np.dot(L.T, Y, out=C)

    return run


def products_ms(G: int, N: int, K: int, dtype: Any, seconds: float) -> float:
    """Milliseconds of the two products, by BLAS on all cores."""
    return median_ms(products(G, N, K, dtype), seconds)


def table(seconds: float, against: str | None) -> list[dict[str, Any]]:
    """against: the version, by commit, branch or tag, that this one is measured in alternation with."""
    lines = []
    before = ("1 core", "all", "1 core", "all", "ratio") if against else ("1 core", "all")
    columns = ("R/C++", "target", *before, "BLAS", "ratio")
    if against:
        print(f"{'':62s} {against[:17]:>17s} {'now':>17s} now/then")
    print(f"{'job':44s} " + " ".join(f"{name:>8s}" for name in columns))
    with versions(against) as running:
        for method, G, N, K, missing, dtype, theirs, target in JOBS:
            job = (method, G, N, K, missing, dtype)
            floor = products_ms(G, N, K, np.dtype(dtype), seconds / 2)
            one, every = measured(running, job, 1, seconds), measured(running, job, None, seconds)
            floor = min(floor, products_ms(G, N, K, np.dtype(dtype), seconds / 2))
            name = f"{method} {G} x {N}, K {K}, " + ("complete" if not missing else f"{missing:.0%} missing")
            name += "" if dtype == "float64" else f", {dtype}"
            then = (one[0], every[0], one[-1], every[-1], every[-1] / every[0]) if against else (one[0], every[0])
            figures = (theirs, target, *then, floor, min(one[-1], every[-1]) / floor)
            print(f"{name:44s} " + " ".join("       -" if x is None else f"{x:8.3f}" for x in figures), flush=True)
            line = {"job": name, "r_package_ms": theirs, "target_ms": target, "one_core_ms": one[-1],
                    "all_cores_ms": every[-1], "blas_ms": floor,
                    "reached": None if target is None else every[-1] <= target}  # fmt: skip
            lines.append(line | ({"one_core_before_ms": one[0], "all_cores_before_ms": every[0]} if against else {}))
    return lines


def scaling(seconds: float) -> list[dict[str, Any]]:
    """Cost against features and against samples: milliseconds per thousand entries should not grow."""
    lines = []
    for along, G, N in SCALING:
        row: dict[str, Any] = {"along": along, "features": G, "samples": N}
        for method in ("CAVI", "Gibbs"):
            for missing in (0.0, 0.1):
                data, prior, start = problem(G, N, 10, missing)
                with single_blas_thread():
                    ms = median_ms(stepper(method, data, prior, start, None), seconds)
                row[f"{method}{' masked' if missing else ''}"] = ms
        lines.append(row)
        print("  ".join(f"{k} {v:.3f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items()), flush=True)
    return lines


MEMORY = """
import resource, sys
import numpy as np
import sparsefactor as sf
G, N, K, missing = {G}, {N}, {K}, {missing}
sf.fit_vi(sf.simulate(n_features=60, n_samples=30, inclusion=[.1]*2, snr=5, missing=missing).X, sf.Prior(n_factors=2), n_trials=1, max_iter=2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
X = np.random.default_rng(0).standard_normal((N, G))
if missing:
    X[np.random.default_rng(1).random(X.shape) < missing] = np.nan
sf.fit_vi(X, sf.Prior(n_factors=K), n_trials=1, max_iter=5)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def memory() -> list[dict[str, Any]]:
    """Peak memory of a fit beyond the imports, against the data matrix plus the states (X itself included)."""
    lines = []
    for G, N, K, missing in ((100_000, 200, 10, 0.0), (100_000, 200, 10, 0.1)):
        code = MEMORY.format(G=G, N=N, K=K, missing=missing)
        run = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
        peak = int(run.stdout) / 1024
        data, state = G * N * 8 / 2**20, 3 * G * K * 8 / 2**20
        print(
            f"{G} x {N}, K {K}, {missing:.0%} missing: peak {peak:.0f} MB, data {data:.0f} MB, one state {state:.0f} MB"
        )
        lines.append(
            {"features": G, "samples": N, "missing": missing, "peak_mb": peak, "data_mb": data, "state_mb": state}
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/speed.json"))
    parser.add_argument("--against", metavar="REF", help="a commit, branch or tag to measure in alternation")
    parser.add_argument("--quick", action="store_true", help="a fifth of the time")
    options = parser.parse_args()
    seconds = 0.4 if options.quick else 2.0
    print(
        f"{platform.processor() or platform.machine()}, {available_cores()} cores, Python {platform.python_version()}"
    )
    results = {
        "cores": available_cores(),
        "against": options.against,
        "sweeps": table(seconds, options.against),
        "scaling": scaling(seconds / 2),
        "memory": memory(),
    }
    options.out.write_text(json.dumps(results, indent=1) + "\n")
    print(
        f"written to {options.out}; this process's peak was {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"
    )


if __name__ == "__main__":
    main()
