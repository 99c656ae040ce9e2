"""What a posterior carries from its data, and what the axes of its arrays are called."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..containers import ARRAY
from ..data import Data

Array = NDArray[np.float64]

# The model's sample axis is called "observation": ArviZ reserves "sample" for stacked chains and draws.
DIMS = {
    "loadings": ("feature", "factor"),
    "inclusion": ("feature", "factor"),
    "activations": ("observation", "factor"),
    "loading_precision": ("factor",),
    "inclusion_rate": ("factor",),
}
# Variables whose entries change sign with their factor; all others with a factor axis are only permuted.
SIGNED = frozenset({"loadings", "activations", "factor_correlation"})
# Variables with two axes of factors, of which the other is named so; where factors are correlated:
OTHER_FACTOR = "other_factor"
CORRELATION_DIMS = {"factor_correlation": (OTHER_FACTOR, "factor")}
MODULE_DIMS = {
    "module_prob": ("feature", "module"),
    "module_rate_mean": ("module", "factor"),
    "module_weight_mean": ("module",),
}
# Where features are in several groups:
COVARIATE_DIMS: dict[str, tuple[str, ...]] = {"covariate_loadings": ("feature", "covariate")}
GROUP_DIMS = {"loading_precision": ("group", "factor"), "inclusion_rate": ("group", "factor")}
NOISE_DIMS = {"feature": ("feature",), "shared": (), "sample": ("observation",)}


@dataclass(frozen=True, kw_only=True, eq=False)
class Labels:
    """The names, the centring and the scaling that a posterior carries from its data."""

    feature_names: NDArray[Any]
    sample_names: NDArray[Any]
    offset: Array  # (n_features,) what was subtracted
    container: tuple[str, ...] = ARRAY  # what X came as, and so what `reconstruct` returns
    scale: Any = None  # (n_features,) what it was divided by then; None: nothing, and filled with ones
    # Known covariates: (n_samples, c) as given, their (c,) names, what is subtracted from them, and the posterior mean
    # of their loadings, (n_features, c), in the units that were fitted. c is 0 where there are none.
    covariates: Any = None
    covariate_names: Any = None
    covariate_mean: Any = None
    covariate_into: Any = None  # (c, d) from covariates less their mean to the directions of the model
    covariate_loadings: Any = None
    covariate_loadings_sd: Any = None  # and their standard deviation; NaN in results of before it was kept
    covariate_slab: Any = False  # whether they were shrunk by a slab
    intercept: Any = False  # whether each feature's mean was part of the model; `offset` has its posterior mean then

    def __post_init__(self) -> None:
        if self.scale is None:
            object.__setattr__(self, "scale", np.ones(len(self.feature_names)))
        if self.covariates is None:
            features = dict.fromkeys(("covariate_loadings", "covariate_loadings_sd"), len(self.feature_names))
            none = {"covariates": len(self.sample_names), **features}
            for name, rows in none.items():
                object.__setattr__(self, name, np.zeros((rows, 0)))
            object.__setattr__(self, "covariate_names", np.zeros(0, dtype=str))
            object.__setattr__(self, "covariate_mean", np.zeros(0))
            object.__setattr__(self, "covariate_into", np.zeros((0, 0)))
        if self.covariate_loadings_sd is None:
            object.__setattr__(self, "covariate_loadings_sd", np.full(np.shape(self.covariate_loadings), np.nan))

    @staticmethod
    def of(data: Data) -> Labels:
        return Labels(
            feature_names=data.feature_names,
            sample_names=data.sample_names,
            offset=data.offset,
            container=data.container,
            scale=data.scale,
            **_known(data),
        )

    def with_base(self, intercept: Array, loadings: Array, sd: Array) -> Labels:
        """With what the posterior says of a design's loadings, in the units that were fitted."""
        offset = self.offset + intercept * self.scale
        return replace(self, offset=offset, covariate_loadings=loadings, covariate_loadings_sd=sd)

    def known(self, covariates: Array | None = None) -> Array:
        """(n, n_features) what covariates explain, of the training samples or others, in the units that were fitted."""
        values = self.covariates if covariates is None else covariates
        return np.asarray((values - self.covariate_mean) @ self.covariate_loadings.T)

    def directions(self, n: int, covariates: Array | None = None) -> Array:
        """(n, d) where new samples lie along the directions that the model holds fixed; the intercept's is one."""
        ones = [np.ones((n, 1))] if self.intercept else []
        own = [] if covariates is None else [(covariates - self.covariate_mean) @ self.covariate_into]
        return np.hstack([*ones, *own]) if ones or own else np.zeros((n, 0))

    def restored(self, signal: Array) -> Array:
        """(..., n_features) in the units of X: scaling and centring undone."""
        return np.asarray(signal * self.scale + self.offset)


def _known(data: Data) -> dict[str, Any]:
    if data.design is None:
        return {}
    given = data.design.covariates
    if given is None:
        return {"intercept": data.design.intercept}
    return {
        "intercept": data.design.intercept,
        "covariates": given.values,
        "covariate_names": given.names,
        "covariate_mean": given.mean,
        "covariate_into": given.into,
        "covariate_loadings": np.zeros((data.n_features, len(given.names))),
        "covariate_slab": data.design.slab,
    }
