"""The main job, small: simulate the paper's data, infer by VI and by MCMC, score both, draw the inclusions.

python experiments/demo.py --out demo-output
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sparsefactor as sf
from sparsefactor import plot

MEASURES = {
    "z_accuracy": "Z accuracy",
    "rrmse_loadings": "RRMSE L",
    "rrmse_activations": "RRMSE F",
    "rrmse_signal": "RRMSE LF",
}


def main() -> None:
    arguments = parse_arguments()
    simulation = sf.simulate_paper(snr=arguments.snr, seed=arguments.seed)
    prior = sf.Prior(inclusion=[0.1] * 5 + [0.9])
    print(
        f"Simulated {simulation.n_features} features by {simulation.n_samples} samples, "
        f"{simulation.n_factors} factors, snr {arguments.snr:g}, seed {arguments.seed}"
    )

    print("Fitting by variational inference ...", flush=True)
    vi, vi_seconds = timed(lambda: sf.fit_vi(simulation.X, prior, n_trials=10, seed=arguments.seed))
    print("Sampling by MCMC ...", flush=True)
    mc, mc_seconds = timed(
        lambda: sf.sample(simulation.X, prior, n_chains=2, n_warmup=200, n_draws=300, seed=arguments.seed)
    )

    print()
    print_table(
        {
            "VI": (sf.score(vi, simulation), vi_seconds),
            "MCMC": (sf.score(mc, simulation), mc_seconds),
            "prior mean": (sf.baseline(simulation, prior), None),
        }
    )

    arguments.out.mkdir(parents=True, exist_ok=True)
    path = arguments.out / "inclusion.png"
    panels = {"Truth": simulation.inclusion}
    for title, posterior in (("VI", vi), ("MCMC", mc)):
        panels[title] = sf.match(posterior, simulation).apply(posterior.inclusion_prob, signed=False)
    plot.inclusion_heatmap(panels).savefig(path, dpi=150)
    print(f"\nHeatmaps of inclusion: {path}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Simulate, infer by VI and MCMC, score, plot.")
    parser.add_argument("--out", type=Path, default=Path("demo-output"), help="directory for inclusion.png")
    parser.add_argument("--snr", type=float, default=5.0, help="signal-to-noise ratio (the paper: 1, 5, 25)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def timed(job: Callable[[], Any]) -> tuple[Any, float]:
    """What the job returns, and its seconds."""
    start = time.perf_counter()
    result = job()
    return result, time.perf_counter() - start


def print_table(rows: dict[str, tuple[dict[str, float], float | None]]) -> None:
    """One line per method: the four measures and the seconds taken."""
    header = ["", *MEASURES.values(), "seconds"]
    print(f"{header[0]:<12}" + "".join(f"{title:>12}" for title in header[1:]))
    for name, (scores, seconds) in rows.items():
        cells = [f"{scores[measure]:.4f}" for measure in MEASURES]
        cells.append("-" if seconds is None else f"{seconds:.1f}")
        print(f"{name:<12}" + "".join(f"{cell:>12}" for cell in cells))


if __name__ == "__main__":
    main()
