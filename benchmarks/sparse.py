"""Sweeps over a matrix held sparse and over the same held dense: python -m benchmarks.sparse [--seconds 2]

For each share of entries that are not zero: milliseconds of a sweep on one core, their ratio, and bytes held.
"""

from __future__ import annotations

import argparse

import numpy as np

import sparsefactor as sf
from benchmarks.speed import median_ms, stepper
from sparsefactor.data import as_data
from sparsefactor.engine.threads import single_blas_thread
from sparsefactor.start import Start

DENSITIES = (0.02, 0.05, 0.1, 0.2, 0.4)


def matrix(G: int, N: int, K: int, density: float, seed: int = 0) -> tuple[np.ndarray, Start]:
    """Expression cut off from below, so that this share of it is not zero; and where sweeps set out from."""
    sim = sf.simulate(n_features=G, n_samples=N, inclusion=[0.1] * K, snr=2, seed=seed)
    X = np.maximum(sim.X - np.quantile(sim.X, 1.0 - density), 0.0)
    return X, Start("truth", sim.loadings, np.ascontiguousarray(sim.activations.T))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", type=int, nargs=3, default=(4000, 3000, 20), metavar=("G", "N", "K"))
    parser.add_argument("--seconds", type=float, default=2.0, help="for each figure")
    options = parser.parse_args()
    from scipy.sparse import csc_array

    G, N, K = options.shape
    prior = sf.Prior(n_factors=K)
    print(f"{G} features, {N} samples, {K} factors; milliseconds a sweep on one core, MB held")
    print(f"{'not zero':>9s} {'method':>7s} {'dense':>9s} {'sparse':>9s} {'ratio':>6s} {'dense':>7s} {'sparse':>7s}")
    for density in DENSITIES:
        X, start = matrix(G, N, K, density)
        data = [as_data(X, center=True), as_data(csc_array(X), center=True)]
        held = [data[0].Y.nbytes, sum(array.nbytes for array in data[1].Y.digest_arrays)]
        for method in ("CAVI", "Gibbs"):
            with single_blas_thread():
                sweeps = [stepper(method, each, prior, start, 1) for each in data]
                turns = np.array([[median_ms(sweep, options.seconds / 4) for sweep in sweeps] for _ in range(4)])
            dense, sparse = turns.min(axis=0)
            print(
                f"{density:9.0%} {method:>7s} {dense:9.1f} {sparse:9.1f} {sparse / dense:6.2f} "
                f"{held[0] / 1e6:7.0f} {held[1] / 1e6:7.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
