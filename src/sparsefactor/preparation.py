"""From what is passed to `fit_vi` and `sample` to what an engine is built for, the same for both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from .data import Data, as_data, is_in_memory
from .model import Prior, checked_prior, refuse_overflow, warn_if_strong
from .parallel_analysis import parallel_analysis


def prepared(
    X: Any,
    prior: Prior | None,
    n_factors: int | None,
    inclusion: Any,
    *,
    center: bool,
    scale: bool,
    covariates: Any,
    covariate_loadings: str,
    dtype: Any = np.float64,
    read: Callable[..., Data] = as_data,
) -> tuple[Data, Prior]:
    """Data at an ordinary size with their design, and the prior matched to them; all checked.

    Without a prior and n_factors, the default prior has as many factors as parallel analysis finds.

    X: what `as_data` takes; a `Data` is taken as it is, its design included. read: in the place of `as_data`.
    """
    given = checked_prior(prior, n_factors, inclusion=inclusion)
    if given is None and not is_in_memory(X):
        raise ValueError(
            "n_factors must be given for data that are not in memory; got None; pass e.g. n_factors=10: factors that "
            "the data do not support are left empty"
        )
    data = read(X, center=center, scale=scale, dtype=dtype)
    if given is not None:
        given.check_fits(data)
    if not isinstance(X, Data):
        data = data.with_design(covariates, center, covariate_loadings)
    matched = (
        given.matched_to(data)
        if given is not None
        else with_chosen_factors(Prior(n_factors=1, inclusion=inclusion), data)
    )
    ordinary = data.at_ordinary_size()
    refuse_overflow(matched, ordinary)
    warn_if_strong(matched, data)
    if not center:
        data.refuse_lost_digits()
    return ordinary, matched


def with_chosen_factors(prior: Prior, data: Data) -> Prior:
    """A prior with as many factors as parallel analysis finds in the data, which it notes."""
    found = parallel_analysis(data)
    return replace(prior, n_factors=found, parallel_analysis=found)
