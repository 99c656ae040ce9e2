"""Simulated data and the truth behind them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Simulation:
    """Simulated data and the truth behind them.

    Attributes
    ----------
    X : (n_samples, n_features)
        The data, NaN where missing.
    X_complete : (n_samples, n_features)
        The same without holes.
    loadings : (n_features, n_factors)
        Zero where not included.
    activations : (n_samples, n_factors)
        As they were drawn or given.
    inclusion : (n_features, n_factors) bool
        Where loadings are not zero.
    noise_precision : (n_features,)
        Or () and (n_samples,) for a prior whose noise is "shared" or "sample".
    loading_precision : (n_factors,)
        Of the slab, NaN where the loadings were given.
    inclusion_rate : (n_factors,)
        As drawn from a Beta, or (0,) where there was none. With modules, the mean over features.
    factor_correlation : (n_factors, n_factors)
        Of the activations, as drawn or given; NaN where these were given.
    groups : (n_features,) labels, or None
        Where features are in known groups; loading_precision and inclusion_rate then have a row for each group.
    module, module_rate, module_weight : (n_features,), (n_modules, n_factors) and (n_modules,), or None
        Where the prior has modules.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, missing=0.1, seed=0)
    >>> sim.signal.shape, int(sim.missing.sum())
    ((30, 40), 120)
    """

    X: Array
    X_complete: Array
    loadings: Array
    activations: Array
    inclusion: NDArray[np.bool_]
    noise_precision: Array
    loading_precision: Array
    inclusion_rate: Array
    factor_correlation: Array
    groups: NDArray[np.str_] | None = None
    module: NDArray[np.intp] | None = None
    module_rate: Array | None = None
    module_weight: Array | None = None

    def __repr__(self) -> str:
        holes = f", {np.isnan(self.X).mean():.1%} missing" if np.isnan(self.X).any() else ""
        return f"Simulation: {self.n_samples} samples x {self.n_features} features, {self.n_factors} factors{holes}"

    def _repr_html_(self) -> str:
        return f"<div>{self!r}</div>"

    @property
    def signal(self) -> Array:
        """(n_samples, n_features): F'L', the data's expectation."""
        return self.activations @ self.loadings.T

    @property
    def missing(self) -> NDArray[np.bool_]:
        """(n_samples, n_features): where X has a hole."""
        return np.isnan(self.X)

    @property
    def n_samples(self) -> int:
        """Rows of X."""
        return self.X.shape[0]

    @property
    def n_features(self) -> int:
        """Columns of X."""
        return self.X.shape[1]

    @property
    def n_factors(self) -> int:
        """Factors of the truth."""
        return self.loadings.shape[1]
