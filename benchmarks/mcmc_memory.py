"""Peak memory and disk of a run whose draws go to disk.

    python -m benchmarks.mcmc_memory                                  # the paper's run, a hundredth of its draws
    python -m benchmarks.mcmc_memory --draws 20000 --warmup 2000      # the paper's run itself
    python -m benchmarks.mcmc_memory --features 16069 --samples 44 --factors 26 --draws 100
    python -m benchmarks.mcmc_memory --data zscores.csv.gz --factors 26 --chains 4 --warmup 500 --draws 1000 --thin 1

Prints one JSON object. Disk is proportional to the draws; `disk_gb_at` says what --at draws per chain would take.
`saved_file_mb` is the size of the same draws in one file (p.save), `dense_mb` that of every draw in double precision.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import threading
import time
from pathlib import Path

import pandas as pd

import sparsefactor as sf


class MemoryWatch(threading.Thread):
    """The largest resident memory of this process while it runs, looked at every 50 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self.stopped = threading.Event()

    def run(self) -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        while not self.stopped.wait(0.05):
            self.peak = max(self.peak, int(Path("/proc/self/statm").read_text().split()[1]) * page)


def folder_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=int, help="with --samples and --factors: a simulation of that size")
    parser.add_argument("--data", help="a table of features by samples, as the GTEx z-scores are; learnt inclusion")
    parser.add_argument("--samples", type=int, default=44)
    parser.add_argument("--factors", type=int, default=26)
    parser.add_argument("--chains", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--thin", type=int, default=10)
    parser.add_argument("--at", type=int, default=20_000, help="draws per chain for which to extrapolate")
    parser.add_argument("--precision", choices=("single", "double"), default="single")
    parser.add_argument("--path", help="where to put the run; a temporary folder by default")
    args = parser.parse_args()
    if args.data is not None:
        X = pd.read_csv(args.data, index_col=0).to_numpy().T
        prior = sf.Prior(n_factors=args.factors, inclusion=sf.Beta(1, 9))
    elif args.features is None:
        X, prior = sf.simulate_paper(snr=5, seed=0).X, sf.Prior.paper(inclusion=[0.1] * 5 + [0.9])
    else:
        inclusion = [0.1] * args.factors
        X = sf.simulate(n_features=args.features, n_samples=args.samples, inclusion=inclusion, snr=5, seed=0).X
        prior = sf.Prior(n_factors=args.factors, inclusion=0.1)
    watch = MemoryWatch()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(args.path or f"{folder}/run")
        watch.start()
        start = time.perf_counter()
        mc = sf.sample(
            X,
            prior,
            n_chains=args.chains,
            n_warmup=args.warmup,
            n_draws=args.draws,
            thin=args.thin,
            path=path,
            precision=args.precision,
        )
        seconds = time.perf_counter() - start
        watch.stopped.set()
        draws = folder_bytes(path / "sampler")
        rest = folder_bytes(path) - draws
        mc.save(Path(folder) / "saved.sf")
        saved = (Path(folder) / "saved.sf").stat().st_size
        dense = sum(variable.size * 8 for variable in mc.draws["posterior"].data_vars.values())
    per_draw = draws / (args.chains * args.draws)
    print(
        json.dumps(
            {
                "size": [mc.loadings_mean.shape[0], mc.activations_mean.shape[0], mc.n_factors],
                "chains": args.chains,
                "draws_per_chain": args.draws,
                "precision": args.precision,
                "seconds": round(seconds, 1),
                "peak_memory_gb": round(
                    max(watch.peak, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024) / 1e9, 3
                ),
                "disk_gb": round((draws + rest) / 1e9, 4),
                "included": round(float(mc.inclusion_prob.mean()), 3),
                "dense_mb": round(dense / 1e6, 1),
                "saved_file_mb": round(saved / 1e6, 1),
                "bytes_per_draw": round(per_draw),
                "disk_gb_at": {str(args.at): round((per_draw * args.chains * args.at + rest) / 1e9, 3)},
            }
        )
    )


if __name__ == "__main__":
    main()
