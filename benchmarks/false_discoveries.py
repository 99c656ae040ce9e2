"""Whether `discoveries` and `lfsr` keep their rates: python -m benchmarks.false_discoveries [--replicates 40]

Data with a known truth: 200 features, 60 samples, 4 factors in a tenth to a half of the features, loadings and activations
standard normal, a tenth of the entries missing, three levels of noise, and one factor more in the fit than there are.
With --correlation, the factors are correlated by that much; with --min-loading, a discovery is right where the true
standardised loading exceeds it. Factors are matched to the truth by their activations; the lists of factors that match none (a cosine below 0.7) are
counted apart, since no feature of theirs is right or wrong. Methods:

default fit_vi as it is by default: one restart, which stops early
vi      fit_vi of ten restarts, to convergence
draws   one short chain of `sample` that starts at that fit: what docs/howto/features.md recommends
mcmc    two chains of `sample` with searches of their own, ten times as long (minutes)
"""

from __future__ import annotations

import argparse
import multiprocessing
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import sparsefactor as sf

NOISE_SD = (0.5, 1.5, 3.0)
INCLUSION = (0.1, 0.2, 0.3, 0.5)
SPARE = 1  # factors that the fit may have beyond those
MATCHED = 0.7  # cosine of activations
NOMINAL = 0.05
BINS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5)  # of lfsr


def data(noise_sd: float, seed: int, correlation: float) -> tuple[np.ndarray, sf.Simulation]:
    """X and its truth; the levels of noise share their loadings, activations and missing entries."""
    sim = sf.simulate(
        n_features=200,
        n_samples=60,
        inclusion=INCLUSION,
        factor_correlation=correlation,
        snr=1,
        missing=0.1,
        seed=seed,
    )
    noise = np.random.default_rng([seed, 1]).standard_normal(sim.X.shape)
    return np.where(np.isnan(sim.X), np.nan, sim.signal + noise_sd * noise), sim


def fitted(X: np.ndarray, methods: list[str], seed: int) -> dict[str, Any]:
    options = {"seed": seed, "progress": False}
    vi = sf.fit_vi(X, n_factors=len(INCLUSION) + SPARE, n_trials=10, **options)
    found = {"vi": vi}
    if "default" in methods:
        found["default"] = sf.fit_vi(X, n_factors=len(INCLUSION) + SPARE, **options)
    if "draws" in methods:
        short = {"n_chains": 1, "n_warmup": 100, "n_draws": 200}
        found["draws"] = sf.sample(X, vi.prior, init=vi, **short, **options)
    if "mcmc" in methods:
        found["mcmc"] = sf.sample(X, vi.prior, n_chains=2, n_warmup=500, n_draws=1000, **options)
    return {method: found[method] for method in methods}


def standardized(sim: sf.Simulation, noise_sd: float) -> np.ndarray:
    """(n_features, n_factors) true loadings in standard deviations of the feature for one of the factor."""
    size = np.sqrt(np.mean(sim.activations**2, axis=0))
    return np.abs(sim.loadings) * size / np.sqrt(sim.signal.var(axis=0) + noise_sd**2)[:, None]


def judged(p: Any, sim: sf.Simulation, noise_sd: float, min_loading: float) -> tuple[dict[str, float], pd.DataFrame]:
    """Counts of discoveries, and a line per loading of matched factors: its lfsr, and whether zero or sign is wrong."""
    same = sf.match(p, sim)
    own = [k for k, cosine in enumerate(same.similarity) if cosine >= MATCHED]  # of the truth
    place = np.asarray(same.permutation)[own]
    found = p.discoveries(NOMINAL, min_loading=min_loading)
    truth_holds = standardized(sim, noise_sd) > min_loading if min_loading else sim.inclusion
    mine = found[found.factor.isin(place + 1)]
    truth = pd.Series(dict(zip(place + 1, own, strict=True)))
    right = truth_holds[mine.feature.to_numpy(int), truth.reindex(mine.factor).to_numpy(int)]
    lfsr, sign = p.lfsr[:, place], np.sign(p.loadings_mean[:, place]) * np.asarray(same.signs)[own]
    wrong = sign != np.sign(sim.loadings[:, own])
    counts = {
        "matched factors": len(own),
        "discoveries": len(mine),
        "false": int(np.sum(~right)),
        "possible": int(truth_holds[:, own].sum()),
        "of unmatched factors": len(found) - len(mine),
    }
    return counts, pd.DataFrame({"lfsr": lfsr.ravel(), "wrong": wrong.ravel()})


def pooled_rate(counts: pd.DataFrame) -> tuple[float, float]:
    """False discoveries over discoveries of all data sets, and its standard error: that of a ratio of two means."""
    rate = counts["false"].sum() / max(1, counts["discoveries"].sum())
    left = counts["false"] - rate * counts["discoveries"]
    return rate, float(
        np.sqrt(len(left) * np.sum(left**2) / max(1, len(left) - 1)) / max(1, counts["discoveries"].sum())
    )


def replicate(noise_sd: float, correlation: float, methods: list[str], min_loading: float, seed: int) -> dict[str, Any]:
    """What each method finds in one data set."""
    warnings.simplefilter("ignore", UserWarning)  # verdicts on short chains
    X, sim = data(noise_sd, seed, correlation)
    return {method: judged(p, sim, noise_sd, min_loading) for method, p in fitted(X, methods, seed).items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=40)
    parser.add_argument("--methods", nargs="+", default=["vi", "draws"], choices=["default", "vi", "draws", "mcmc"])
    parser.add_argument("--correlation", type=float, default=0.0, help="of the factors")
    parser.add_argument("--min-loading", type=float, default=0.0, help="of discoveries")
    parser.add_argument("--jobs", type=int, default=1, help="data sets side by side")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)  # verdicts on short chains
    for noise_sd in NOISE_SD:
        task = partial(replicate, noise_sd, options.correlation, options.methods, options.min_loading)
        with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
            each = list(pool.map(task, range(options.replicates)))
        for method in options.methods:
            own = [found[method] for found in each]
            counts = pd.DataFrame([counts for counts, _ in own])
            rate, error = pooled_rate(counts)
            total = counts.sum()
            print(
                f"noise SD {noise_sd}, {method}: FDR {rate:.3f} +- {error:.3f} at {NOMINAL} "
                f"({total['discoveries']:.0f} discoveries of {total['possible']:.0f}, {total['matched factors']:.0f} of "
                f"{len(own) * len(INCLUSION)} factors matched; {total['of unmatched factors']:.0f} discoveries of others)"
            )
            lines = pd.concat([loadings for _, loadings in own])
            bins = lines.groupby(pd.cut(lines.lfsr, BINS, right=False), observed=True)
            for interval, group in bins:
                print(
                    f"    lfsr {interval.left:4.2f} to {interval.right:4.2f}: mean {group.lfsr.mean():.3f}, "
                    f"wrong {group.wrong.mean():.3f} of {len(group)}"
                )
            print(end="", flush=True)


if __name__ == "__main__":
    main()
