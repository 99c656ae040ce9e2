"""The prior of a fit, from what its caller passed."""

from __future__ import annotations

from typing import Any

from .prior import Prior


def checked_prior(prior: Any, n_factors: Any, default: int | None = None, name: str = "n_factors") -> Prior:
    """The prior that was passed, or the default one with so many factors; anything else is refused.

    default: how many there are where nothing says it; name: what the caller calls their number.
    """
    if prior is None:
        n_factors = default if n_factors is None else n_factors
        if n_factors is None:
            raise TypeError(
                "either prior or n_factors must be given; got neither; pass e.g. n_factors=10: it may be more than "
                "there are, for factors that the data do not support are left empty"
            )
        return Prior(n_factors=n_factors)
    if not isinstance(prior, Prior):
        raise TypeError(
            f"prior must be a Prior; got {prior!r}; pass e.g. n_factors=6, or sparsefactor.Prior(n_factors=6)"
        )
    if n_factors is not None and n_factors != prior.n_factors:
        raise ValueError(
            f"{name} must come from one place; got {n_factors!r} beside a prior with {prior.n_factors}; leave it out"
        )
    return prior
