"""How often a factor that is active in one view only is found as such: python -m benchmarks.views [--seeds 10]"""

from __future__ import annotations

import argparse

import numpy as np

import sparsefactor as sf

# Factors 1 and 2 are in both views, 3 in the first alone, 4 in the second alone.
IN_VIEW = np.array([[0.4, 0.2, 0.3, 0.0], [0.4, 0.3, 0.0, 0.4]])
VIEWS = np.repeat(["rna", "protein"], [200, 80])
UNITS = np.where(VIEWS == "protein", 20.0, 1.0)  # views come in units of their own
SPARE = 3  # factors that the fit may have beyond those


def found(p: sf.VIPosterior | sf.MCMCPosterior, sim: sf.Simulation) -> bool:
    """Whether as many factors hold something as there are, and each in the views it is in."""
    held = np.flatnonzero(~p.empty)
    if len(held) != sim.n_factors:
        return False
    cosine = np.abs(np.corrcoef(p.activations_mean[:, held].T, sim.activations.T))[: len(held), len(held) :]
    match = cosine.argmax(axis=0)
    in_view = ~p.empty_by_group[:, held[match]]
    return len(set(match)) == len(match) and bool(np.array_equal(in_view, IN_VIEW > 0))


def run(seed: int, *, method: str = "vi", snr: float = 2.0, missing: float = 0.0) -> bool:
    sim = sf.simulate(
        n_features=len(VIEWS), n_samples=80, inclusion=IN_VIEW, groups=VIEWS, snr=snr, missing=missing, seed=seed
    )
    prior = sf.Prior(n_factors=IN_VIEW.shape[1] + SPARE, groups=VIEWS)
    X = sim.X * UNITS
    p = sf.fit_vi(X, prior, seed=seed) if method == "vi" else sf.sample(X, prior, n_chains=2, seed=seed, progress=False)
    return found(p, sim)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--mcmc", action="store_true", help="sample as well, which takes minutes")
    options = parser.parse_args()
    for method in ("vi", "mcmc") if options.mcmc else ("vi",):
        for missing in (0.0, 0.1):
            hits = sum(run(seed, method=method, missing=missing) for seed in range(options.seeds))
            print(
                f"{method}, {missing:.0%} missing: every factor found in its views, and there alone, in {hits} of {options.seeds}"
            )


if __name__ == "__main__":
    main()
