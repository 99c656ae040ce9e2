"""From what is passed to `fit_vi` and `sample` to what an engine is built for, the same for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .data import Data, as_data
from .model import Prior, checked_prior, refuse_overflow, warn_if_strong


def prepared(
    X: Any,
    prior: Prior | None,
    n_factors: int | None,
    *,
    center: bool,
    scale: bool,
    covariates: Any,
    covariate_loadings: str,
    dtype: Any = np.float64,
    read: Callable[..., Data] = as_data,
) -> tuple[Data, Prior]:
    """Data at an ordinary size with their design, and the prior matched to them; all checked.

    X: what `as_data` takes; a `Data` is taken as it is, its design included. read: in the place of `as_data`.
    """
    checked = checked_prior(prior, n_factors)
    data = read(X, center=center, scale=scale, dtype=dtype)
    checked.check_fits(data)
    if not isinstance(X, Data):
        data = data.with_design(covariates, center, covariate_loadings)
    matched = checked.matched_to(data)
    ordinary = data.at_ordinary_size()
    refuse_overflow(matched, ordinary)
    warn_if_strong(matched, data)
    if not center:
        data.refuse_lost_digits()
    return ordinary, matched
