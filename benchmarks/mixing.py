"""Effective samples per sweep and per second, without and with the sampler's moves.

    python -m benchmarks.mixing [--sweeps 2500] [--snr 1 5 25] [--out FILE]

One chain from the VI optimum, 500 sweeps of warm-up. Reported: the smallest effective sample size over factors of
|f_k|^2, of |l_k|^2, of the number of active loadings and of the cosines between activations, and that of the
signal's norm |LF|^2.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from arviz_stats.base import array_stats

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine import build_engine
from sparsefactor.engine.threads import single_blas_thread
from sparsefactor.gibbs.moves import MOVES, moves_for
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.noise import stream_key
from sparsefactor.mcmc.dispersed import searched_start

SETS = {"plain": (), "scale": ("scale",), "all": tuple(MOVES)}
PRIOR = sf.Prior.paper(inclusion=[0.1] * 5 + [0.9])


def ess(draws: np.ndarray) -> float:
    """The smallest bulk effective sample size over the columns of (draw, quantity)."""
    return float(min(array_stats.ess(column[None, :], chain_axis=0, draw_axis=1) for column in draws.T))


def chain(sim: sf.Simulation, moves: tuple[str, ...], sweeps: int, warmup: int = 500) -> dict[str, Any]:
    data = as_data(sim.X)
    key = stream_key(1, 0)
    kept: dict[str, list[np.ndarray]] = {"f2": [], "l2": [], "active": [], "cosines": [], "signal": []}
    with single_blas_thread():
        engine = build_engine(data, PRIOR)
        start = searched_start(engine, PRIOR, 0, 0, None)
        gibbs = Gibbs(data, PRIOR, engine, moves_for(engine, moves))
        state = gibbs.start(start.L, start.F)
        seconds = 0.0
        for sweep in range(warmup + sweeps):
            begin = time.perf_counter()
            state, _ = gibbs.sweep(state, key, sweep)
            seconds += (time.perf_counter() - begin) * (sweep >= warmup)
            if sweep >= warmup:
                L = state.rows.L * state.scale
                kept["f2"].append(np.sum(state.F**2, axis=1))
                kept["l2"].append(np.sum(L**2, axis=0))
                kept["active"].append(state.rows.Z.sum(axis=0))
                norms = np.linalg.norm(state.F, axis=1)
                cosines = (state.F @ state.F.T) / np.outer(norms, norms)
                kept["cosines"].append(cosines[np.triu_indices(len(norms), 1)])
                kept["signal"].append(np.array([np.sum((L.T @ L) * (state.F @ state.F.T))]))
    sizes = {name: ess(np.array(values, dtype=float)) for name, values in kept.items()}
    return {"ess": sizes, "seconds": seconds, "sweeps": sweeps}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sweeps", type=int, default=2500)
    parser.add_argument("--snr", type=float, nargs="*", default=[1, 5, 25])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    results: dict[str, Any] = {}
    print(
        f"{'snr':>4s} {'moves':>6s} {'ms/sweep':>9s}   ESS of |f|^2, |l|^2, active, cosines, signal   the same per second"
    )
    for snr in options.snr:
        for name, moves in SETS.items():
            found = chain(sf.simulate_paper(snr=snr, seed=0), moves, options.sweeps)
            results[f"snr={snr} {name}"] = found
            sizes = list(found["ess"].values())
            rates = [size / found["seconds"] for size in sizes]
            print(
                f"{snr:4g} {name:>6s} {1e3 * found['seconds'] / options.sweeps:9.3f}   "
                + " ".join(f"{size:8.0f}" for size in sizes)
                + "   "
                + " ".join(f"{rate:8.1f}" for rate in rates),
                flush=True,
            )
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
