"""How often samples are said to dominate a factor, in data without and with outliers: python -m benchmarks.outliers

40 features, three factors in two fifths of them each, six allowed, 20 to 200 samples. Without outliers: how many fits have
a false alarm, by the law of noise and factors. With them: one sample lies ten standard deviations off in some features;
how many fits name it, and how many name another.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

import sparsefactor as sf
from sparsefactor.outliers import dominating_samples

N_FEATURES, N_FACTORS, ALLOWED = 40, 3, 6
N_SAMPLES = (20, 60, 200)
PLANTED_IN = (1, 2, 3, 5, 10)  # features
OFF = 10.0  # standard deviations

Rng = np.random.Generator


def signal(factors: np.ndarray, rng: Rng) -> np.ndarray:
    shape = (N_FEATURES, N_FACTORS)
    return factors @ (rng.standard_normal(shape) * (rng.random(shape) < 0.4)).T


def gaussian(n: int, rng: Rng) -> np.ndarray:
    return signal(rng.standard_normal((n, N_FACTORS)), rng) + rng.standard_normal((n, N_FEATURES))


def exponential_factors(n: int, rng: Rng) -> np.ndarray:
    return signal(rng.exponential(size=(n, N_FACTORS)), rng) + rng.standard_normal((n, N_FEATURES))


CLEAN: dict[str, Callable[[int, Rng], np.ndarray]] = {
    "Gaussian": gaussian,
    "noise alone": lambda n, rng: rng.standard_normal((n, N_FEATURES)),
    "exponential noise": lambda n, rng: (
        signal(rng.standard_normal((n, 3)), rng) + rng.exponential(size=(n, N_FEATURES))
    ),
    "t noise, 4 df": lambda n, rng: signal(rng.standard_normal((n, 3)), rng) + rng.standard_t(4, (n, N_FEATURES)),
    "exponential factors": exponential_factors,
    "log-normal, sigma 0.5": lambda n, rng: np.exp(0.5 * gaussian(n, rng) / np.sqrt(2)),
    "log-normal, sigma 1": lambda n, rng: np.exp(gaussian(n, rng) / np.sqrt(2)),
}


def accused(X: np.ndarray) -> set[int]:
    """The samples that the default prior's fit says dominate a factor."""
    p = sf.fit_vi(X, n_factors=ALLOWED, n_trials=10, seed=0, progress=False)
    return {j for samples in dominating_samples(p).values() for j in samples}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicates", type=int, default=100)
    replicates = parser.parse_args().replicates
    print("false alarms, % of fits: samples", *N_SAMPLES)
    for name, draw in CLEAN.items():
        each = [[bool(accused(draw(n, np.random.default_rng([n, r])))) for r in range(replicates)] for n in N_SAMPLES]
        print(f"  {name}:", *(f"{100 * np.mean(own):.0f}" for own in each), flush=True)
    print("a planted outlier is named (another sample is), % of fits: samples", *N_SAMPLES)
    for m in PLANTED_IN:
        found: list[str] = []
        for n in N_SAMPLES:
            right = wrong = 0
            for r in range(replicates):
                rng = np.random.default_rng([n, r])
                X = gaussian(n, rng)
                X[0, :m] += OFF * X[:, :m].std(axis=0) * rng.choice([-1.0, 1.0], m)
                names = accused(X)
                right, wrong = right + (0 in names), wrong + bool(names - {0})
            found.append(f"{100 * right / replicates:.0f} ({100 * wrong / replicates:.0f})")
        print(f"  {OFF:g} SD in {m} feature{'s' if m > 1 else ''}:", *found, flush=True)


if __name__ == "__main__":
    main()
