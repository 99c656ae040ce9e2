"""The order and the signs of a result's factors: strongest first, loadings with a positive sum, empty last."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .explained import FitSums
from .model import Prior


def arrangement(sums: FitSums, loadings: ArrayLike, weights: ArrayLike | None = None) -> tuple[Any, Any]:
    """(n_factors,) which factor comes at each place, and its sign there. loadings: (n_features, n_factors)."""
    order = np.lexsort((-sums.cost(weights), sums.empty(weights)))
    signs = np.where(np.sum(loadings, axis=0) < 0, -1, 1).astype(np.int8)
    return order.astype(np.intp), signs[order]


def arranged_prior(prior: Prior, order: NDArray[np.intp]) -> Prior:
    """The prior whose columns are those of the arranged factors; itself where all factors share one."""
    alike = len(np.unique(prior.factor_groups())) == 1 and prior.factor_names is None
    return prior if alike else prior.take(order)
