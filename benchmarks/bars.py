"""How good the default VI fit is: the bars that the package holds itself to.

    python -m benchmarks.bars              all of them
    python -m benchmarks.bars optimum      whether fit_vi finds the best optimum, its iterations and its time
    python -m benchmarks.bars learnt       accuracy of learnt inclusion, and time
    python -m benchmarks.bars fill-in      error on held-out entries of real data (--data FILE)
    python -m benchmarks.bars fill-in-mcmc the same by short runs of Gibbs sampling, without and with modules
    python -m benchmarks.bars factors      how many factors remain of an upper bound of 15

Figures go to the screen and, with --out, to a JSON file.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine import build_engine
from sparsefactor.gibbs.sweep import Gibbs

SNRS, SEEDS = (1, 5, 25), range(10)
PAPERS_Q: dict[str, Any] = {"center": False, "activations": "independent"}
PAPER_PRIOR = sf.Prior.paper(inclusion=[0.1] * 5 + [0.9])
REFERENCE = Path(__file__).with_name("reference_optima.json")


def timed(fit: Any) -> tuple[Any, float]:
    begin = time.perf_counter()
    result = fit()
    return result, time.perf_counter() - begin


def optimum() -> dict[str, Any]:
    """Bars 1 to 3: the gap to the best known optimum, the winner's iterations, and the time of a default fit."""
    known = json.loads(REFERENCE.read_text())["optima"]
    lines, found, sparsest = [], 0, 0
    for snr in SNRS:
        for seed in SEEDS:
            sim = sf.simulate_paper(snr=snr, seed=seed)
            best = known[f"fixed snr={snr} seed={seed}"]
            _, seconds = timed(lambda sim=sim: sf.fit_vi(sim.X, PAPER_PRIOR))
            vi = sf.fit_vi(sim.X, PAPER_PRIOR, **PAPERS_Q)  # whose ELBO can be compared with the reference's
            gap = best["elbo"] - vi.elbo
            winner = vi.trials[vi.trials["won"]]
            one = sf.match(vi, sim).permutation[0]
            correlation = float(abs(np.corrcoef(vi.activations_mean[:, one], sim.activations[:, 0])[0, 1]))
            found += gap < 0.1
            sparsest += snr == 1 and correlation > 0.9
            lines.append(
                {
                    "snr": snr,
                    "seed": seed,
                    "gap": gap,
                    "iterations": int(winner["iterations"].item()),
                    "seconds": seconds,
                    "sparsest_factor_correlation": correlation,
                    **sf.score(vi, sim),
                }
            )
    for line in lines:
        print(
            f"snr {line['snr']:2d} seed {line['seed']}: gap {line['gap']:8.4f} nats, {line['iterations']:4d} iterations, "
            f"{line['seconds']:.3f} s, Z accuracy {line['z_accuracy']:.4f}"
        )
    seconds = [line["seconds"] for line in lines]
    best_has_it = sum(v["sparsest_factor_correlation"] > 0.9 for k, v in known.items() if "snr=1 " in k)
    print(f"within 0.1 nats of the best known optimum: {found} of {len(lines)}")
    print(f"sparsest factor found at snr 1: {sparsest} of {best_has_it} where the best optimum has it")
    for snr in SNRS:
        own = [line["iterations"] for line in lines if line["snr"] == snr]
        print(f"snr {snr}: winner's iterations {own[0]} at seed 0, median {np.median(own):.0f}, largest {max(own)}")
    print(f"seconds of a default fit: median {np.median(seconds):.3f}, largest {max(seconds):.3f}")
    return {"fits": lines, "found": int(found)}


def knowing_activations(sim: sf.Simulation, sweeps: int = 400) -> float:
    """Z accuracy of the exact posterior of Z when the true activations, slab and inclusion rates are known.

    No method that must infer these from the data, and takes all features for alike, can do better on average.
    """
    data = as_data(sim.X)
    pi = np.clip(sim.inclusion.mean(axis=0), 1e-3, 1 - 1e-3)
    prior = sf.Prior(inclusion=pi)
    gibbs = Gibbs(data, prior, build_engine(data, prior))
    rows = gibbs.start(sim.loadings, np.ascontiguousarray(sim.activations.T))
    message = gibbs.message(rows._replace(alpha=np.ones(len(pi))))
    state, total = rows.rows, np.zeros(sim.inclusion.shape)
    for sweep in range(sweeps):
        state, _ = gibbs.engine.gibbs_row_pass(state, message, gibbs.engine.row_noise((1, 2), sweep))
        total += state.Z
    return float(np.mean((total > sweeps / 2) == sim.inclusion))


MODULES = 8


def learnt() -> dict[str, Any]:
    """Bar 4: Z accuracy with Beta(1, 1), features alike or in modules, the ceiling of the former, and time."""
    priors = {n: sf.Prior(n_factors=6, inclusion=sf.Beta(1, 1), n_modules=n) for n in (1, MODULES)}
    sf.fit_vi(sf.simulate_paper(seed=99).X, priors[MODULES], n_trials=1)  # compile
    out: dict[Any, Any] = {}
    for snr in SNRS:
        sims = [sf.simulate_paper(snr=snr, seed=seed) for seed in SEEDS]
        ceiling = float(np.mean([knowing_activations(sim) for sim in sims]))
        out[snr] = {"ceiling of one module": ceiling}
        for n, prior in priors.items():
            accuracy, seconds = [], []
            for sim in sims:
                vi, took = timed(lambda sim=sim, prior=prior: sf.fit_vi(sim.X, prior))
                accuracy.append(sf.score(vi, sim)["z_accuracy"])
                seconds.append(took)
            out[snr][n] = {"z_accuracy": accuracy, "seconds": seconds}
            error = np.std(accuracy, ddof=1) / np.sqrt(len(accuracy))
            print(
                f"snr {snr:2d}, n_modules={n}: mean Z accuracy {np.mean(accuracy):.4f} (standard error {error:.4f}), "
                f"median {np.median(seconds):.3f} s a fit, largest {max(seconds):.3f}"
            )
        print(f"snr {snr:2d}: the exact posterior of one module, knowing activations, slab and rates: {ceiling:.4f}")
    return out


INCLUSIONS: dict[str, tuple[Any, int]] = {
    "fixed 0.1": (0.1, 1),
    "Beta(1, 1)": (sf.Beta(1, 1), 1),
    "Beta(1, 9)": (sf.Beta(1, 9), 1),
    f"Beta(1, 1), {MODULES} modules": (sf.Beta(1, 1), MODULES),
}
FAMILIES: dict[str, dict[str, Any]] = {
    "independent": {},
    "joint": {"activations": "joint"},
    "mean of ten trials": {"average": True},
}


@cache
def held_out(data: Path) -> list[tuple[Any, Any, Any]]:
    """The matrix with a tenth of its entries missing, itself, and which entries those are, for three masks."""
    import pandas as pd

    Y = pd.read_csv(data, index_col=0).to_numpy()
    cases = []
    for seed in range(3):
        held = np.zeros(Y.size, dtype=bool)
        held[np.random.default_rng(seed).choice(Y.size, Y.size // 10, replace=False)] = True
        mask = held.reshape(Y.shape).T
        cases.append((np.where(mask, np.nan, Y.T), Y.T, mask))
    return cases


def errors_of(name: str, fit: Any, data: Path) -> dict[str, Any]:
    """RRMSE on the held-out entries of each mask, and seconds."""
    errors, seconds = [], []
    for X, truth, mask in held_out(data):
        p, took = timed(lambda X=X: fit(X))
        errors.append(sf.fill_in_error(p, truth, mask))
        seconds.append(took)
    shown = " / ".join(f"{e:.4f}" for e in errors)
    print(f"{name:52s} {shown}   {np.median(seconds):.2f} s", flush=True)
    return {"rrmse": errors, "seconds": seconds}


def fill_in(data: Path) -> dict[str, Any]:
    """Bar 5: RRMSE of VI on a tenth of the entries of a real matrix, held out by three masks."""
    out = {}
    for noise in ("feature", "shared", "sample"):
        for label, (inclusion, modules) in INCLUSIONS.items():
            prior = sf.Prior(n_factors=26, inclusion=inclusion, n_modules=modules, noise=noise)
            for family, options in FAMILIES.items():
                name = f"{noise}, {label}, {family}"
                fit = partial(sf.fit_vi, prior=prior, tol=1e-3, **options)
                out[name] = errors_of(name, fit, data)
    return out


def fill_in_mcmc(data: Path) -> dict[str, Any]:
    """The same of two short chains (500 + 1,000 sweeps), with noise by sample, without and with modules."""
    out = {}
    for modules in (1, MODULES):
        prior = sf.Prior(n_factors=26, inclusion=sf.Beta(1, 1), n_modules=modules, noise="sample")
        fit = partial(sf.sample, prior=prior, n_chains=2, n_warmup=500, n_draws=1000, progress=False)
        name = f"MCMC, sample, Beta(1, 1), n_modules={modules}"
        out[name] = errors_of(name, fit, data)
    return out


def factors() -> dict[str, Any]:
    """How many of 15 allowed factors remain where the truth has 6 (snr 5, learnt inclusion, prune=True)."""
    prior = sf.Prior(n_factors=15, inclusion=sf.Beta(1, 1))
    left = []
    for seed in SEEDS:
        sim = sf.simulate_paper(snr=5, seed=seed)
        vi, seconds = timed(lambda sim=sim: sf.fit_vi(sim.X, prior, prune=True))
        left.append(vi.n_factors)
        print(
            f"seed {seed}: {vi.n_factors} factors remain, Z accuracy {sf.score(vi, sim)['z_accuracy']:.4f}, {seconds:.2f} s"
        )
    print(f"6 remain in {left.count(6)} of {len(left)}")
    return {"remaining": left}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bars", nargs="*", default=["optimum", "learnt", "factors", "fill-in"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/gtex_zscores_1000x44.csv.gz"))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore", sf.ConvergenceWarning)
    sf.fit_vi(sf.simulate_paper(seed=99).X, PAPER_PRIOR, n_trials=1)  # compile
    bars = {
        "optimum": optimum,
        "learnt": learnt,
        "factors": factors,
        "fill-in": partial(fill_in, options.data),
        "fill-in-mcmc": partial(fill_in_mcmc, options.data),
    }
    results = {}
    for name in options.bars:
        print(f"--- {name}: {getattr(bars[name], 'func', bars[name]).__doc__.splitlines()[0]}")
        results[name] = bars[name]()
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
