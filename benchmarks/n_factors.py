"""How many factors are found where the truth has six: by entries held out, and by an upper bound.

    python -m benchmarks.n_factors                     the paper's simulation, ten data sets at snr 1, 5 and 25
    python -m benchmarks.n_factors --data FILE.npy     what each way chooses on a matrix (samples by features)
    python -m benchmarks.n_factors --starts            seconds and choices where fits start from one another, and afresh

Figures go to the screen and, with --out, to a JSON file; --path keeps what is done, so that a second call goes on.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import sparsefactor as sf

SNRS, SEEDS, TRUE = (1, 5, 25), range(10), 6
CANDIDATES = range(3, 10)
BOUND = 12


def both_ways(X: Any, candidates: Any, bound: int, path: Path | None, **options: Any) -> dict[str, Any]:
    """The number of factors by entries held out, and that of the factors that are not empty of an upper bound."""
    held_out = sf.choose_n_factors(X, candidates, path=path, n_trials=5, tol=1e-3, **options)
    bounded = sf.fit_vi(X, sf.Prior(n_factors=bound, inclusion=sf.Beta(1, 1)), **options)
    return {"held out": held_out.n_factors, "upper bound": int(np.sum(~bounded.empty)), "table": str(held_out)}


def simulated(path: Path | None) -> dict[str, Any]:
    lines = []
    for snr in SNRS:
        for seed in SEEDS:
            X = sf.simulate_paper(snr=snr, seed=seed).X
            found = both_ways(X, CANDIDATES, BOUND, path)
            lines.append({"snr": snr, "seed": seed, **{way: found[way] for way in ("held out", "upper bound")}})
            print(
                f"snr {snr:>2}  seed {seed}  held out {found['held out']}  upper bound {found['upper bound']}",
                flush=True,
            )
    right = {
        way: {str(snr): sum(line[way] == TRUE for line in lines if line["snr"] == snr) for snr in SNRS}
        for way in ("held out", "upper bound")
    }
    for way, counts in right.items():
        print(f"{way}: six factors in " + ", ".join(f"{n} of {len(SEEDS)} at snr {snr}" for snr, n in counts.items()))
    return {"lines": lines, "right": right}


def starts(n_trials: Any = "auto") -> list[dict[str, Any]]:
    """The same comparisons with and without starts from one another: seconds, and what is chosen."""
    from sklearn.datasets import load_breast_cancer, load_wine

    tables = {f"simulation, snr {snr}": sf.simulate_paper(snr=snr, seed=0).X for snr in SNRS}
    tables |= {"wine": load_wine().data, "breast cancer": load_breast_cancer().data[:300]}
    lines = []
    for name, X in tables.items():
        for warm in (True, False):
            begin = time.perf_counter()
            found = sf.choose_n_factors(
                X, range(2, 8), n_masks=3, n_jobs=1, scale=True, warm_start=warm, n_trials=n_trials
            )
            seconds = time.perf_counter() - begin
            line = {"table": name, "n_trials": n_trials, "warm": warm, "seconds": seconds, "chosen": found.n_factors}
            line["log_density"] = found.table["log_density"].round(4).tolist()
            lines.append(line)
            print(*line.values(), flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a .npy matrix of samples by features")
    parser.add_argument("--starts", action="store_true", help="fits that start from one another, beside fits afresh")
    parser.add_argument("--most", type=int, default=15, help="with --data, the largest number of factors tried")
    parser.add_argument("--path", type=Path, help="a folder that keeps what is done")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    asked = parser.parse_args()
    figures: Any
    if asked.starts:
        figures = [*starts(5), *starts()]
    elif asked.data is None:
        figures = simulated(asked.path)
    else:
        X = np.load(asked.data, allow_pickle=False)
        figures = both_ways(X, range(1, asked.most + 1), asked.most + 5, asked.path)
        print(figures["table"])
        print(f"held out {figures['held out']}, upper bound {figures['upper bound']}")
    if asked.out is not None:
        asked.out.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
