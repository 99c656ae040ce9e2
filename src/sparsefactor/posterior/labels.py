"""What a posterior carries from its data, and what the axes of its arrays are called."""

from __future__ import annotations

from dataclasses import dataclass
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
SIGNED = frozenset({"loadings", "activations"})
MODULE_DIMS = {
    "module_prob": ("feature", "module"),
    "module_rate_mean": ("module", "factor"),
    "module_weight_mean": ("module",),
}
# Where features are in several groups:
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

    def __post_init__(self) -> None:
        if self.scale is None:
            object.__setattr__(self, "scale", np.ones(len(self.feature_names)))

    @staticmethod
    def of(data: Data) -> Labels:
        return Labels(
            feature_names=data.feature_names,
            sample_names=data.sample_names,
            offset=data.offset,
            container=data.container,
            scale=data.scale,
        )

    def restored(self, signal: Array) -> Array:
        """(..., n_features) in the units of X: scaling and centring undone."""
        return np.asarray(signal * self.scale + self.offset)
