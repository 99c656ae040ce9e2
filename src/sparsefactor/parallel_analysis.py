"""An upper bound on the number of factors from the data: Horn's parallel analysis, in its common-factor form.

Eigenvalues of the correlation matrix are compared with those of data whose entries are permuted within each feature,
which leaves no factors; those before the first that is not larger are counted. Where there are more samples than
features, the diagonal holds squared multiple correlations (communalities) instead of ones, for data and permutations
alike: with ones, a strong factor hides weaker ones, and the number was too small for questionnaires with known scales
(abilities 2 instead of 4, SF-36 4 instead of 8). The fit empties what is too many, so an error upwards costs little.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh, eigvalsh

from .data import Data

Array = NDArray[np.float64]

MOST_FACTORS = 30  # more than this are rarely looked at one by one, and take long to fit
PERCENTILE = 95.0  # of the permutations' eigenvalues; with their mean, noise alone gives one or two factors
SEED = 0  # fixed, so that the number depends on the data alone
# Larger tables are represented by a random part: limits of its shorter and its longer side.
SHORTER, LONGER = 1_000, 10_000
# Permuted tables: about PERMUTED_ENTRIES entries in all, between FEWEST and MOST tables; eigenvalues of large ones vary
# less.
PERMUTED_ENTRIES = 4_000_000
FEWEST, MOST = 4, 20
SMALLEST = 1e-8  # eigenvalue of a correlation matrix that is inverted; features may be copies of each other
NO_MEAN = 1e-10  # of a feature's mean square: a squared mean below this is rounding


def parallel_analysis(data: Data) -> int:
    """The number of factors that data in memory seem to have, at least one; what covariates explain is taken off.

    Where the features' means were left in the data, there is one more, for them.
    """
    if data.design is not None:
        data = data.residual()
    rng = np.random.default_rng(SEED)
    Y, seen = part_of(data, rng)
    count = np.full(len(Y), Y.shape[1]) if seen is None else seen.sum(axis=1)
    mean = Y.sum(axis=1) / np.maximum(count, 1)
    has_means = bool(np.any(mean**2 * count > NO_MEAN * np.sum(Y**2, axis=1)))
    Z = Y - mean[:, None] if seen is None else np.where(seen, Y - mean[:, None], 0.0)
    size = np.sqrt(np.sum(Z**2, axis=1))
    varies = size**2 > NO_MEAN * np.sum(Y**2, axis=1)
    Z, seen = Z[varies] / size[varies, None], None if seen is None else seen[varies]
    found = count_above(Z, seen, rng) if len(Z) else 0
    return min(max(1, found + has_means), most_factors(data.n_features, data.n_samples))


def most_factors(n_features: int, n_samples: int) -> int:
    """The largest number that is chosen: below that of samples, and within Ledermann's bound, or two features each.

    Beyond that bound, loadings and noise have no fewer parameters than the covariance matrix of the features.
    """
    ledermann = int((2 * n_features + 1 - np.sqrt(8 * n_features + 1)) / 2)
    return max(1, min(MOST_FACTORS, max(ledermann, n_features // 2), n_samples - 1))


def part_of(data: Data, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_] | None]:
    """(G, N) the data, or a random part of features and samples where there are too many; and which are observed."""
    G, N = data.n_features, data.n_samples
    limits = (SHORTER, LONGER) if G < N else (LONGER, SHORTER)
    rows, columns = (
        np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))
        for n, most in zip((G, N), limits, strict=True)
    )
    Y = np.array([data.Y[int(i)][columns] for i in rows], dtype=np.float64)
    return Y, None if data.observed is None else data.observed[np.ix_(rows, columns)]


def count_above(Z: Array, seen: NDArray[np.bool_] | None, rng: np.random.Generator) -> int:
    """How many eigenvalues exceed those of permuted data before the first that does not; Z: rows of unit length."""
    own = eigenvalues(Z)
    n = int(np.clip(PERMUTED_ENTRIES // Z.size, FEWEST, MOST))
    others = [eigenvalues(permute(Z, seen, rng)) for _ in range(n)]
    limit = np.maximum(np.percentile(others, PERCENTILE, axis=0), 0.0)
    return int(np.argmin(np.append(own > limit, False)))


def permute(Z: Array, seen: NDArray[np.bool_] | None, rng: np.random.Generator) -> Array:
    """Z with the observed entries of each row in random order."""
    if seen is None:
        return rng.permuted(Z, axis=1)
    order = np.argsort(np.where(seen, rng.random(Z.shape), 2.0), axis=1)  # observed entries first
    first = np.arange(Z.shape[1]) < seen.sum(axis=1)[:, None]
    out = np.zeros_like(Z)
    out[seen] = np.take_along_axis(Z, order, axis=1)[first]
    return out


def eigenvalues(Z: Array) -> Array:
    """Those of the correlation matrix Z Z', or of its reduced form, in falling order."""
    G, N = Z.shape
    if G >= N:
        return np.asarray(eigvalsh(Z.T @ Z)[::-1], np.float64)
    R = Z @ Z.T
    values, vectors = eigh(R)
    inverse = np.sum(vectors**2 / np.maximum(values, SMALLEST), axis=1)
    np.fill_diagonal(R, 1.0 - 1.0 / inverse)  # squared multiple correlations
    return np.asarray(eigvalsh(R)[::-1], np.float64)
