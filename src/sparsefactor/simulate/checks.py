"""What may be passed to `simulate`, and the sizes that it agrees on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..checks import checked_count
from ..groups import checked_groups, matched, numbered
from ..model import Prior
from ..model.checks import inclusion_numbers
from .simulation import Array

ROUNDING = 1e-8  # by which entries of a correlation matrix may miss symmetry and ones


def checked_probability(inclusion: ArrayLike) -> Array:
    values = inclusion_numbers(inclusion, "a number, a vector or a matrix")
    inside = (values >= 0) & (values <= 1)
    if not inside.all():
        raise ValueError(f"inclusion must lie between 0 and 1; got {values[~inside].flat[0]:g}; pass probabilities")
    return values


def checked_matrix(name: str, given: ArrayLike, rows: int, rows_name: str) -> Array:
    values = np.array(given, dtype=np.float64)
    if values.ndim != 2 or values.shape[0] != rows or values.shape[1] < 1:
        raise ValueError(
            f"{name} must be ({rows_name}, n_factors); got shape {values.shape} with {rows_name}={rows}; transpose it"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{name} must be finite; got {values[~np.isfinite(values)].flat[0]:g}; replace such entries")
    return values


def checked_correlation(given: ArrayLike, K: int) -> Array:
    """(K, K) of a correlation matrix, or of one number that all pairs of factors have."""
    needed = f"factor_correlation must be a number or a symmetric ({K}, {K}) matrix with ones on its diagonal; "
    remedy = "pass e.g. 0.3, or a correlation matrix such as np.corrcoef(...)"
    try:
        values = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{needed}got {given!r}; {remedy}") from None
    if not np.isfinite(values).all():
        raise ValueError(f"{needed}got an entry of {values[~np.isfinite(values)].flat[0]:g}; {remedy}")
    if values.ndim == 0:
        values = np.where(np.eye(K, dtype=bool), 1.0, values)
    if values.shape != (K, K):
        raise ValueError(f"{needed}got shape {values.shape}; {remedy}")
    if (off := np.abs(np.diagonal(values) - 1.0).max()) > ROUNDING:
        raise ValueError(f"{needed}got a diagonal that is {off:.3g} away from one; {remedy}")
    if (off := np.abs(values - values.T).max()) > ROUNDING:
        raise ValueError(f"{needed}got entries that differ by {off:.3g} from those opposite; {remedy}")
    values = np.where(np.eye(K, dtype=bool), 1.0, (values + values.T) / 2.0)
    least = np.linalg.eigvalsh(values).min()
    if not least > 0:
        raise ValueError(
            f"factor_correlation must be positive definite; got one with an eigenvalue of {least:.3g}; pass smaller "
            "correlations"
        )
    return values


def agreed_n_factors(
    n_factors: int | None, probability: Array | None, prior: Prior | None, L: Array | None, F: Array | None
) -> int:
    claims = {
        "n_factors": None if n_factors is None else checked_count("n_factors", n_factors),
        "inclusion": None if probability is None or probability.ndim == 0 else probability.shape[-1],
        "prior": None if prior is None else prior.K,
        "loadings": None if L is None else L.shape[1],
        "activations": None if F is None else F.shape[1],
    }
    found = {name: K for name, K in claims.items() if K is not None}
    if not found:
        raise ValueError("n_factors must be given when inclusion is a scalar; got None; pass n_factors=...")
    if len(set(found.values())) > 1:
        listed = ", ".join(f"{K} by {name}" for name, K in found.items())
        raise ValueError(f"the number of factors must be one; got {listed}; make them agree")
    return next(iter(found.values()))


def agreed_groups(groups: Any, prior: Prior | None, G: int) -> NDArray[np.str_] | None:
    if groups is not None and prior is not None:
        raise ValueError("groups must come from one place; got groups beside a prior; put them into the prior")
    return matched(checked_groups(groups) if prior is None else prior.groups, np.arange(G))


def by_group(probability: Array, labels: NDArray[np.str_]) -> Array:
    """(n_features, n_factors) of probabilities with a row for each group."""
    names, index = numbered(labels)
    if len(probability) != len(names):
        raise ValueError(
            f"an inclusion matrix must have one row per feature, or per group; got {len(probability)} rows for "
            f"{len(labels)} features in {len(names)} groups; add or drop rows"
        )
    return probability[index]
