"""The measures: pure functions of loadings, keys and predictions.

Loadings are standardised, (n_features, n_factors): features and factors have unit variance.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

Array = np.ndarray
EMPTY = 0.1  # a factor is empty if no standardised loading reaches this: one per cent of a feature's variance
SALIENT = 0.3  # the usual threshold above which a loading is reported
REPLICATED = 0.9  # Tucker congruence from which two factors count as the same


def non_empty(loadings: Array) -> Array:
    """The columns of the factors that are not empty."""
    return loadings[:, (np.abs(loadings) >= EMPTY).any(axis=0)]


def congruence(A: Array, B: Array) -> Array:
    """Absolute Tucker congruence of each column of A with each column of B; none may be zero."""
    return np.abs((A / np.linalg.norm(A, axis=0)).T @ (B / np.linalg.norm(B, axis=0)))


def replication(A: Array, B: Array) -> dict[str, float]:
    """Compare the non-empty factors of two fits, matched one to one for the largest sum of congruences.

    `found` is the mean number of non-empty factors of the two, of which `replicated` have a congruent partner.
    """
    A, B = non_empty(A), non_empty(B)
    found = (A.shape[1] + B.shape[1]) / 2
    if A.shape[1] == 0 or B.shape[1] == 0:
        return {"congruence": np.nan, "replicated": 0.0, "found": found}
    each = congruence(A, B)
    matched = each[linear_sum_assignment(-each)]
    replicated = float(np.sum(matched > REPLICATED))
    return {"congruence": float(matched.mean()), "replicated": replicated, "found": found}


def recovery(loadings: Array, truth: Array) -> float:
    """Mean congruence of the true factors with the factors found; a true factor without a partner counts zero."""
    found = non_empty(loadings)
    if found.shape[1] == 0:
        return 0.0
    each = congruence(truth, found)
    return float(each[linear_sum_assignment(-each)].sum() / truth.shape[1])


def strongest(loadings: Array) -> Array:
    """The number of each feature's strongest factor; -1 if it has no loading of at least EMPTY."""
    size = np.abs(loadings)
    return np.where(size.max(axis=1) >= EMPTY, size.argmax(axis=1), -1)


def adjusted_rand(a: Array, b: Array) -> float:
    """Adjusted Rand index of two partitions: 1 for the same, 0 on average by chance."""
    pairs = lambda counts: np.sum(counts * (counts - 1) / 2)  # noqa: E731
    _, a = np.unique(a, return_inverse=True)
    _, b = np.unique(b, return_inverse=True)
    joint = np.zeros((a.max() + 1, b.max() + 1))
    np.add.at(joint, (a, b), 1)
    together, rows, columns = pairs(joint), pairs(joint.sum(axis=1)), pairs(joint.sum(axis=0))
    expected = rows * columns / pairs(np.array(len(a)))
    largest = (rows + columns) / 2
    return 1.0 if largest == expected else float((together - expected) / (largest - expected))


def row_complexity(loadings: Array) -> float:
    """Hofmann's index: the mean number of factors a feature needs, over features with a loading of at least EMPTY."""
    rows = loadings[np.abs(loadings).max(axis=1) >= EMPTY]
    if len(rows) == 0:
        return np.nan
    return float(np.mean(np.sum(rows**2, axis=1) ** 2 / np.sum(rows**4, axis=1)))


def features_per_factor(loadings: Array) -> float:
    """Mean number of salient loadings of the non-empty factors."""
    found = non_empty(loadings)
    return float(np.mean(np.sum(np.abs(found) >= SALIENT, axis=0))) if found.shape[1] else np.nan


def held_out_error(predicted: Array, truth: Array, held: Array) -> float:
    """Root mean square error of held-out entries of standardised features."""
    return float(np.sqrt(np.mean((predicted - truth)[held] ** 2)))
