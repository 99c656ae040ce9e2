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


def found(p: sf.VIPosterior | sf.MCMCPosterior, sim: sf.Simulation) -> tuple[bool, np.ndarray]:
    """Whether each factor is in the views that it should be in, and no other factor is in any view.

    And (views, factors) the shares of the views' variance, of the factors as they were made and then of the others.
    """
    K = sim.n_factors
    spread = p.activations_mean.std(axis=0)
    activations = p.activations_mean + np.where(
        spread > 0, 0.0, np.arange(p.activations_mean.size).reshape(-1, p.n_factors)
    )
    cosine = np.abs(np.corrcoef(activations.T, sim.activations.T))[: p.n_factors, p.n_factors :]
    match = cosine.argmax(axis=0)
    others = np.setdiff1d(np.arange(p.n_factors), match)
    order = np.append(match, others)
    wanted = np.hstack([IN_VIEW > 0, np.zeros((2, len(others)), dtype=bool)])
    right = len(set(match)) == K and bool(np.array_equal(~p.empty_by_group[:, order], wanted))
    return right, p.variance_explained(by="group")[:, order]


def run(seed: int, *, method: str = "vi", snr: float = 2.0, missing: float = 0.0) -> tuple[bool, np.ndarray]:
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
            runs = [run(seed, method=method, missing=missing) for seed in range(options.seeds)]
            there = np.concatenate([share[:, : IN_VIEW.shape[1]][IN_VIEW > 0] for _, share in runs])
            absent = np.concatenate(
                [
                    np.append(share[:, : IN_VIEW.shape[1]][IN_VIEW == 0], share[:, IN_VIEW.shape[1] :])
                    for _, share in runs
                ]
            )
            print(
                f"{method}, {missing:.0%} missing: every factor found in its views, and no factor elsewhere, in "
                f"{sum(right for right, _ in runs)} of {options.seeds}; shares of a view's variance are at least "
                f"{there.min():.2%} where a factor is, at most {absent.max():.2%} where it is not",
                flush=True,
            )


if __name__ == "__main__":
    main()
