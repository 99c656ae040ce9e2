"""How often a factor that is active in one view only is found as such: python -m benchmarks.views [--seeds 10] [--mcmc]

Two counts. Whether every factor is in the views that it was made in and in no other; and whether besides no factor to
spare holds anything in any view. The second depends on chance: of some 40,000 pairs of features the largest correlation
of the noise alone is 0.4 to 0.5 with 80 samples, and a posterior may explain that by a factor of two or three features.
"""

from __future__ import annotations

import argparse

import numpy as np

import sparsefactor as sf

# Factors 1 and 2 are in both views, 3 in the first alone, 4 in the second alone.
IN_VIEW = np.array([[0.4, 0.2, 0.3, 0.0], [0.4, 0.3, 0.0, 0.4]])
VIEWS = np.repeat(["rna", "protein"], [200, 80])
UNITS = np.where(VIEWS == "protein", 20.0, 1.0)  # views come in units of their own
SPARE = 3  # factors that the fit may have beyond those


def found(p: sf.VIPosterior | sf.MCMCPosterior, sim: sf.Simulation) -> tuple[bool, bool, np.ndarray]:
    """Whether each factor is in the views that it should be in and no other; whether no other factor is in any view.

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
    right = len(set(match)) == K and bool(np.array_equal(~p.empty_by_group[:, match], IN_VIEW > 0))
    return right, bool(p.empty_by_group[:, others].all()), p.variance_explained(by="group")[:, np.append(match, others)]


def run(
    seed: int, *, method: str = "vi", snr: float = 2.0, missing: float = 0.0, noise: str = "feature"
) -> tuple[bool, bool, np.ndarray]:
    """One simulation. Noise that all features have alike belongs to views in one unit."""
    sim = sf.simulate(
        n_features=len(VIEWS), n_samples=80, inclusion=IN_VIEW, groups=VIEWS, snr=snr, missing=missing, seed=seed
    )
    prior = sf.Prior(n_factors=IN_VIEW.shape[1] + SPARE, groups=VIEWS, noise=noise)
    X = sim.X * UNITS
    if noise != "feature":
        rng = np.random.default_rng(seed)
        level = np.exp(rng.normal(0.0, 0.5, (80, 1))) if noise == "sample" else 1.0
        signal = sim.activations @ sim.loadings.T
        X = signal + level * signal.std() / np.sqrt(snr) * rng.standard_normal(X.shape)
        X[np.isnan(sim.X)] = np.nan
    p = sf.fit_vi(X, prior, seed=seed) if method == "vi" else sf.sample(X, prior, n_chains=2, seed=seed, progress=False)
    return found(p, sim)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--mcmc", action="store_true", help="sample as well, which takes minutes")
    parser.add_argument("--noise", nargs="*", default=["feature"], choices=["feature", "shared", "sample"])
    options = parser.parse_args()
    true = IN_VIEW > 0
    for method in ("vi", "mcmc") if options.mcmc else ("vi",):
        for noise in options.noise:
            for missing in (0.0, 0.1):
                runs = [run(seed, method=method, missing=missing, noise=noise) for seed in range(options.seeds)]
                shares = np.array([share for *_, share in runs])
                there, absent, spare = shares[:, :, :4][:, true], shares[:, :, :4][:, ~true], shares[:, :, 4:]
                print(
                    f"{method}, noise by {noise}, {missing:.0%} missing: every factor in its views and no other in "
                    f"{sum(right for right, *_ in runs)} of {options.seeds}, no other factor in any view in "
                    f"{sum(alone for _, alone, _ in runs)}; shares of a view's variance: where a factor is at least "
                    f"{there.min():.2%}, where it is not at most {absent.max():.2%}, of others at most {spare.max():.2%}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
