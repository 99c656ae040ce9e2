"""`simulate` and `benchmark`: data with a known truth, and speed."""

from __future__ import annotations

import time
import warnings
from typing import Annotated, Any

import numpy as np
import typer

import sparsefactor as sf

from .app import command
from .console import answer, working
from .files import check_new, check_out
from .options import Out, Seed


@command(
    "sparsefactor simulate --features 40 --samples 60 --factors 2 --missing 0.05 --out X.csv",
    "sparsefactor simulate --snr 5 --out paper.csv",
)
def simulate(
    out: Out,
    features: Annotated[int | None, typer.Option(min=1, help="Without it, the paper's simulation.")] = None,
    samples: Annotated[int, typer.Option(min=1)] = 100,
    factors: Annotated[int, typer.Option(min=1)] = 6,
    inclusion: Annotated[float, typer.Option(min=0, max=1, help="Share of loadings that are not zero.")] = 0.3,
    missing: Annotated[float, typer.Option(min=0, max=0.99, help="Share of entries left out.")] = 0.0,
    snr: float = 5.0,
    seed: Seed = 0,
) -> None:
    """Write simulated data, samples by features, as CSV; the truth goes beside it as .npz."""
    truth = out.with_suffix(".truth.npz")
    check_out(out)
    check_new(truth)
    if features is None:
        sim = sf.simulate_paper(snr=snr, seed=seed, missing=missing)
    else:
        rates = [inclusion] * factors
        sim = sf.simulate(n_features=features, n_samples=samples, inclusion=rates, snr=snr, missing=missing, seed=seed)
    header = ",".join(["sample", *(f"feature {i + 1}" for i in range(sim.n_features))])
    lines = (
        f"sample {j + 1}," + ",".join("" if np.isnan(v) else f"{v:.10g}" for v in row) for j, row in enumerate(sim.X)
    )
    out.write_text("\n".join([header, *lines]) + "\n")
    np.savez_compressed(truth, loadings=sim.loadings, activations=sim.activations, inclusion=sim.inclusion)
    answer(f"{out} ({sim.n_samples} x {sim.n_features}), truth in {truth}", {"out": out, "truth": truth})


@command("sparsefactor benchmark --features 200 --samples 50 --factors 4 --sweeps 20")
def benchmark(features: int = 800, samples: int = 100, factors: int = 6, sweeps: int = 100) -> None:
    """Time iterations of VI and sweeps of Gibbs sampling on data of a given size."""
    X = sf.simulate(n_features=features, n_samples=samples, inclusion=[0.1] * factors, snr=5, seed=0).X
    prior = sf.Prior(n_factors=factors, inclusion=0.1)

    def vi(n: int) -> None:
        ends: dict[str, Any] = {"max_iter": n, "tol": 0, "rtol": 0}
        sf.fit_vi(X, prior, n_trials=1, init="random", race=False, accelerate=False, progress=False, **ends)

    def gibbs(n: int) -> None:
        sf.sample(X, prior, n_chains=1, n_warmup=0, n_draws=1, thin=n, moves=(), init="random", progress=False)

    taken = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.ConvergenceWarning)
        warnings.simplefilter("ignore", sf.SamplingWarning)
        for name, job in (("VI iteration", vi), ("Gibbs sweep", gibbs)):
            with working(f"Measuring a {name}"):
                job(2)  # compiles
                begin = time.perf_counter()
                job(sweeps)
                taken[name] = 1e3 * (time.perf_counter() - begin) / sweeps
    answer("\n".join(f"{name:<13} {ms:8.3f} ms" for name, ms in taken.items()), taken)
