"""Whether chains agree: the default start, random starts with tempering, and different optima.

    python -m benchmarks.chains [--init auto random optima] [--seeds 5] [--warmup 2000] [--draws 500] [--out FILE]

Five chains on `simulate_paper` at each snr. Chains agree when all pairs of matched activations correlate above 0.95
for every factor that any chain finds.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import sparsefactor as sf

PRIOR = sf.Prior.paper(inclusion=[0.1] * 5 + [0.9])
AGREE = 0.95


def worst_correlation(mc: sf.MCMCPosterior) -> float:
    """The smallest correlation between chains of a factor's mean activations, over factors and pairs of chains."""
    means = np.asarray(mc.draws["posterior"]["activations"].mean("draw"))
    worst = 1.0
    for a, b in combinations(means, 2):
        cosines = np.sum(a * b, axis=0) / (np.linalg.norm(a, axis=0) * np.linalg.norm(b, axis=0) + 1e-300)
        worst = min(worst, float(np.min(cosines)))
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--init", nargs="*", default=["auto", "random", "optima"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    results: dict[str, Any] = {}
    for init in options.init:
        agree = 0
        for snr in (1, 5, 25):
            for seed in range(options.seeds):
                sim = sf.simulate_paper(snr=snr, seed=seed)
                vi = sf.score(sf.fit_vi(sim.X, PRIOR), sim)
                begin = time.perf_counter()
                mc = sf.sample(
                    sim.X, PRIOR, n_chains=5, n_warmup=options.warmup, n_draws=options.draws, init=init, seed=seed
                )
                seconds = time.perf_counter() - begin
                worst, own = worst_correlation(mc), sf.score(mc, sim)
                agree += worst > AGREE
                results[f"{init} snr={snr} seed={seed}"] = {"worst": worst, "mcmc": own, "vi": vi, "seconds": seconds}
                print(
                    f"{init:7s} snr {snr:2d} seed {seed}: worst correlation {worst:6.3f}, "
                    f"Z accuracy {own['z_accuracy']:.4f} (VI {vi['z_accuracy']:.4f}), "
                    f"signal {own['rrmse_signal']:.4f} (VI {vi['rrmse_signal']:.4f}), {seconds:.1f} s",
                    flush=True,
                )
        for snr in (1, 5, 25):
            for measure in ("z_accuracy", "rrmse_signal"):
                runs = [value for key, value in results.items() if key.startswith(f"{init} snr={snr} ")]
                ahead = np.array([run["mcmc"][measure] - run["vi"][measure] for run in runs])
                error = ahead.std(ddof=1) / np.sqrt(len(ahead)) if len(ahead) > 1 else np.nan
                print(f"{init} snr {snr}: {measure} of MCMC less VI's {ahead.mean():+.5f} (standard error {error:.5f})")
        print(f"{init}: five of five chains agree in {agree} of {3 * options.seeds} data sets", flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
