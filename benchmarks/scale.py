"""Data on disk and on workers: time and memory of sweeps.

    python -m benchmarks.scale disk                      # sweeps over a zarr store beside those over the same in memory
    python -m benchmarks.scale disk --features 200000 --samples 2000 --factors 20
    python -m benchmarks.scale overhead                  # what asking 1, 2, 4 workers adds to a sweep over tiny blocks
    python -m benchmarks.scale workers --features 200000 --samples 2000 --factors 20 --workers 2
    python -m benchmarks.scale fit --gigabytes 40        # a matrix made block by block, fitted to the end out of core
    python -m benchmarks.scale linear                    # sweeps over 1, 2, 4, 8 times as many blocks

Prints one JSON object. Memory is what is resident beyond the interpreter with its libraries; pages of a file that the
system may drop at any time count as long as this process has them mapped.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import sparsefactor as sf
from sparsefactor.data import Data, as_data
from sparsefactor.engine import build_engine
from sparsefactor.engine.threads import single_blas_thread
from sparsefactor.kernels.noise import row_stream
from sparsefactor.model import Prior
from sparsefactor.vi.cavi import CAVI

MB = 1e6


class Watch(threading.Thread):
    """The most memory that some processes have had, resident in all (`peak`) and of their own (`anonymous`)."""

    def __init__(self, pids=("self",)) -> None:
        super().__init__(daemon=True)
        self.pids, self.peak, self.anonymous, self.stopped = pids, 0.0, 0.0, threading.Event()
        self.before = self.now()

    def now(self) -> tuple[float, float]:
        total = [0.0, 0.0]
        for pid in self.pids:
            lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            for place, name in enumerate(("VmRSS", "RssAnon")):
                total[place] += float(lines[name].split()[0]) * 1024 / MB
        return total[0], total[1]

    def run(self) -> None:
        while not self.stopped.wait(0.02):
            resident, own = self.now()
            self.peak, self.anonymous = max(self.peak, resident), max(self.anonymous, own)

    def ended(self) -> dict[str, float]:
        self.stopped.set()
        self.join()
        return {"peak_mb": round(self.peak - self.before[0]), "own_mb": round(self.anonymous - self.before[1])}


def write_store(path: str, G: int, N: int, K: int, width: int = 2000) -> None:
    """A zarr store of a simulation with K sparse factors, made a few features at a time."""
    import zarr

    rng = np.random.default_rng(0)
    F = rng.standard_normal((N, K)).astype(np.float32)
    store = zarr.create_array(path, shape=(N, G), chunks=(N, width), dtype="f4", compressors=None)
    for first in range(0, G, width):
        n = min(width, G - first)
        L = (rng.standard_normal((K, n)) * (rng.random((K, n)) < 0.1)).astype(np.float32)
        store[:, first : first + n] = F @ L + 0.5 * rng.standard_normal((N, n), dtype=np.float32)


def sweeps(engine, data, prior, n: int, clock=time.perf_counter) -> float:
    """Seconds of a sweep of VI, the best of n. clock: time.process_time for those of all cores, whoever else is busy."""
    cavi = CAVI(data, prior, engine, joint=True)
    rng = np.random.default_rng(0)
    L = engine.start_normals(prior.K, 0.3, row_stream(rng))
    state = cavi.begin(engine.vi_place(L), rng.standard_normal((prior.K, data.n_samples)))
    taken = []
    for _ in range(n):
        begun = clock()
        state = cavi.sweep(state, rescale=True)
        taken.append(clock() - begun)
    return min(taken)


def disk(args) -> dict:
    """In this order: the watch must not see the matrix in memory."""
    G, N, K = args.features, args.samples, args.factors
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, single_blas_thread():
        path = str(Path(folder) / "x.zarr")
        write_store(path, G, N, K)
        sweeps(*warm(K))
        watch = Watch()
        watch.start()
        begun = time.perf_counter()
        data = as_data(path, center=True, dtype=np.float32)
        read = time.perf_counter() - begun
        prior = Prior(n_factors=K, inclusion=sf.Beta(1, 1)).in_units_of(data)
        on_disk = sweeps(build_engine(data, prior), data, prior, args.sweeps)
        memory = watch.ended()
        found = {
            "gb": 4e-9 * G * N,
            "read_s": read,
            "sweep_s": on_disk,
            "ns_per_entry": 1e9 * on_disk / (G * N),
            **memory,
        }
        if not args.no_memory:
            whole = Data(np.array(data.Y), None, data.offset, data.feature_names, data.sample_names)
            found["in_memory_s"] = sweeps(build_engine(whole, prior), whole, prior, args.sweeps)
            found["ratio"] = on_disk / found["in_memory_s"]
        return found


def linear(args) -> dict:
    """Sweeps over the file at 1, 2, 4, 8 times as many features: rows of one size, so that blocks grow in number."""
    N, K, found = args.samples, args.factors, {}
    sweeps(*warm(K))
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, single_blas_thread():
        for times in (1, 2, 4, 8):
            G, path = times * args.features, str(Path(folder) / f"x{times}.zarr")
            write_store(path, G, N, K)
            data = as_data(path, center=True, dtype=np.float32)
            prior = Prior(n_factors=K, inclusion=sf.Beta(1, 1)).in_units_of(data)
            engine = build_engine(data, prior)
            taken = sweeps(engine, data, prior, args.sweeps)
            of_cores = sweeps(engine, data, prior, args.sweeps, time.process_time)
            found[f"{G} features"] = {
                "blocks": len(engine.blocks),
                "sweep_s": taken,
                "sweep_cpu_s": of_cores,
                "cpu_ns_per_entry": 1e9 * of_cores / (G * N),
            }
    return found


def warm(K: int):
    """A small problem of the same kinds of arrays, so that kernels are compiled before anything is measured."""
    data = as_data(
        np.random.default_rng(0).standard_normal((30, 600)).astype(np.float32), center=True, dtype=np.float32
    )
    prior = Prior(n_factors=K, inclusion=sf.Beta(1, 1)).in_units_of(data)
    return build_engine(data, prior), data, prior, 2


def overhead(args) -> dict:
    """Sweeps over data so small that asking is all there is to do."""
    from distributed import Client, LocalCluster

    from sparsefactor.engine.dask.engine import DaskEngine

    X = np.random.default_rng(0).standard_normal((50, 4 * 448))
    data = as_data(X, center=True)
    prior = Prior(n_factors=5, inclusion=sf.Beta(1, 1)).in_units_of(data)
    found = {}
    with single_blas_thread():
        found["in_memory_ms"] = 1e3 * sweeps(build_engine(data, prior), data, prior, args.sweeps)
        for n in (1, 2, 4):
            with (
                LocalCluster(n_workers=n, threads_per_worker=1, dashboard_address=":0") as cluster,
                Client(cluster) as client,
            ):
                engine = DaskEngine(data, prior, client)  # which such small data would not be given to otherwise
                taken = 1e3 * sweeps(engine, data, prior, args.sweeps)
            found[f"{n}_workers_ms"], found[f"{n}_workers_overhead_ms"] = taken, taken - found["in_memory_ms"]
    return found


def workers(args) -> dict:
    """Sweeps over a zarr store that workers have read."""
    import os

    from distributed import Client, LocalCluster

    from sparsefactor.engine.readers import reader_for

    G, N, K = args.features, args.samples, args.factors
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, single_blas_thread():
        path = str(Path(folder) / "x.zarr")
        write_store(path, G, N, K)
        with (
            LocalCluster(n_workers=args.workers, threads_per_worker=1, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            _, data, prior, n = warm(K)
            sweeps(build_engine(data, prior, client=client), data, prior, n)
            watch = Watch([os.getpid(), *client.run(os.getpid).values()])
            watch.start()
            data = reader_for(client)(path, center=True, dtype=np.float32)
            prior = Prior(n_factors=K, inclusion=sf.Beta(1, 1)).in_units_of(data)
            data = data.at_ordinary_size()
            taken = sweeps(build_engine(data, prior, client=client), data, prior, args.sweeps)
            return {"gb": 4e-9 * G * N, "workers": args.workers, "sweep_s": taken, **watch.ended()}


def fit(args) -> dict:
    """A dask array that is made block by block, as nobody could hold it; fitted to the end by the default tolerances."""
    import dask.array as da

    N, K = args.samples, args.factors
    G = int(args.gigabytes * 1e9 / (4 * N))
    width = max(1, 16_000_000 // N)
    F = np.random.default_rng(0).standard_normal((N, K)).astype(np.float32)

    def block(block_info=None):
        (_, _), (first, last) = block_info[None]["array-location"]
        rng = np.random.default_rng([1, first])
        L = (rng.standard_normal((K, last - first)) * (rng.random((K, last - first)) < 0.1)).astype(np.float32)
        return F @ L + 0.5 * rng.standard_normal((N, last - first), dtype=np.float32)

    sizes = tuple(min(width, G - first) for first in range(0, G, width))
    X = da.map_blocks(block, chunks=((N,), sizes), dtype=np.float32, meta=np.empty((0, 0), np.float32))
    sweeps(*warm(K))
    watch = Watch()
    watch.start()
    begun = time.perf_counter()

    def tell(now) -> None:
        passed = time.perf_counter() - begun
        print(f"{passed:.0f} s: {now.phase} {now.iteration}, ELBO {now.elbo:.6g}, {watch.peak:.0f} MB", file=sys.stderr)

    trials = args.trials if args.trials == "auto" else int(args.trials)
    p = sf.fit_vi(X, n_factors=K, n_trials=trials, dtype=np.float32, progress=False, callback=tell)
    taken = time.perf_counter() - begun
    return {"features": G, "samples": N, "factors": K, "gb": 4e-9 * G * N, "seconds": taken, "iterations": len(p.elbo_trace),
            "converged": bool(p.converged), "variance_explained": p.variance_explained(), **watch.ended()}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("disk", "overhead", "workers", "fit", "linear"))
    parser.add_argument("--features", type=int, default=50_000)
    parser.add_argument("--samples", type=int, default=2_000)
    parser.add_argument("--factors", type=int, default=20)
    parser.add_argument("--sweeps", type=int, default=15)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--gigabytes", type=float, default=40.0)
    parser.add_argument("--trials", default="1", help='fit: starts, or "auto" for the default search')
    parser.add_argument("--folder", help="for the store; that of temporary files by default")
    parser.add_argument("--no-memory", action="store_true", help="disk: leave out the engine in memory")
    args = parser.parse_args()
    tasks = (disk, overhead, workers, fit, linear)
    found = {task.__name__: task for task in tasks}[args.what](args)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
