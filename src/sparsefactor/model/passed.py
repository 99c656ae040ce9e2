"""The prior of a fit, from what its caller passed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import checked_count
from .prior import Prior


def checked_prior(prior: Any, n_factors: Any, name: str = "n_factors", inclusion: Any = None) -> Prior | None:
    """The prior that was passed, or the default one with n_factors and inclusion; None where n_factors is not known.

    name: what the caller calls n_factors.
    """
    if prior is None:
        return None if n_factors is None else Prior(n_factors=checked_count(name, n_factors), inclusion=inclusion)
    if not isinstance(prior, Prior):
        whole = isinstance(prior, int | np.integer) and not isinstance(prior, bool) and prior >= 1
        count, such = (int(prior), "") if whole else (6, "e.g. ")
        raise TypeError(
            f"prior must be a Prior; got {prior!r}; pass {such}{name}={count}, or sparsefactor.Prior(n_factors={count})"
        )
    if n_factors is not None and n_factors != prior.n_factors:
        raise ValueError(
            f"{name} must come from one place; got {n_factors!r} beside a prior with {prior.n_factors}; leave it out"
        )
    if inclusion is not None:
        raise ValueError(f"inclusion must come from one place; got {inclusion!r} beside a prior; leave it out")
    return prior
