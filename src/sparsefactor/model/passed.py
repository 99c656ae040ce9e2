"""The prior of a fit, from what its caller passed."""

from __future__ import annotations

from typing import Any

from .prior import Prior


def checked_prior(prior: Any, n_factors: Any, name: str = "n_factors", inclusion: Any = None) -> Prior | None:
    """The prior that was passed, or the default one with n_factors and inclusion; None where n_factors is not known.

    name: what the caller calls n_factors.
    """
    if prior is None:
        return None if n_factors is None else Prior(n_factors=n_factors, inclusion=inclusion)
    if not isinstance(prior, Prior):
        raise TypeError(
            f"prior must be a Prior; got {prior!r}; pass e.g. n_factors=6, or sparsefactor.Prior(n_factors=6)"
        )
    if n_factors is not None and n_factors != prior.n_factors:
        raise ValueError(
            f"{name} must come from one place; got {n_factors!r} beside a prior with {prior.n_factors}; leave it out"
        )
    if inclusion is not None:
        raise ValueError(f"inclusion must come from one place; got {inclusion!r} beside a prior; leave it out")
    return prior
