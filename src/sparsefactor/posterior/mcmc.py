"""The posterior of Gibbs sampling: draws under one labelling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..computed import computed
from .base import Posterior
from .labels import Array

if TYPE_CHECKING:
    import xarray

    from ..diagnostics import Diagnostics
    from .verdict import Verdict


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MCMCPosterior(Posterior):
    """Draws of the posterior under one labelling, and their moments; `sample` returns it.

    Attributes
    ----------
    prior : Prior
        As it was used, its factors in the order of the result.
    labels : Labels
        Names, centring and scaling; see `feature_names` and `sample_names`.
    loadings_mean, loadings_sd : (n_features, n_factors)
        Posterior mean and standard deviation, zeros (where not included) counted in.
    inclusion_prob : (n_features, n_factors)
        Posterior probability that a loading is not zero.
    activations_mean, activations_sd : (n_samples, n_factors)
        Posterior mean and standard deviation.
    noise_precision_mean : (n_features,), () or (n_samples,)
        As `Prior.noise` has it.
    loading_precision_mean : (n_factors,), or (n_groups, n_factors)
        Of the slab; by group where the prior has groups.
    inclusion_rate_mean : (n_factors,), or (n_groups, n_factors)
        Learnt inclusion probabilities; (0,) where inclusion was given.
    factor_correlation_mean, factor_correlation_sd : (n_factors, n_factors)
        Correlations of the factors, and their uncertainty; the identity where the prior has uncorrelated factors.
    fit_sums : FitSums
        What `variance_explained` needs of the data.
    record : dict
        Version, date and settings of the run.
    draws : xarray.DataTree
        Groups posterior and sample_stats, with dims chain and draw; factors have one labelling in all draws.
    signal_mean : (n_samples, n_features)
        Mean of the signal over draws, in the units that were fitted.
    permutations, signs : (chain, draw, factor)
        The sampler's own label and sign of each factor.
    weights : (chain,), optional
        Where chains were combined by weight; None: all draws count the same.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> mc = sf.sample(sim.X, n_factors=2, n_chains=2)
    >>> mc.draws["posterior"]["loadings"].sizes["draw"]
    1000
    """

    draws: xarray.DataTree = field(repr=False)
    signal_mean: Array = field(repr=False)  # (n_samples, n_features): mean over draws of F'L'
    permutations: NDArray[np.intp] = field(repr=False)  # (chain, draw, factor): the sampler's label of each factor
    signs: NDArray[np.int8] = field(repr=False)  # (chain, draw, factor)
    weights: Array | None = None  # (chain,) where chains were combined by weight; None: all draws count the same

    def _weights(self) -> Array | None:
        return self.weights

    @property
    def n_chains(self) -> int:
        """How many chains the draws come from."""
        return self.permutations.shape[0]

    @property
    def chain_numbers(self) -> tuple[int, ...]:
        """The chains' own numbers, which they keep when others are left out."""
        return tuple(int(number) for number in self.draws["posterior"].to_dataset()["chain"].values)

    def signal(self) -> Array:
        """(n_samples, n_features) the mean over draws of what the factors explain, in the units that were fitted."""
        return self.signal_mean

    def to_datatree(self) -> xarray.DataTree:
        """The draws themselves, ready for ArviZ.

        Returns
        -------
        xarray.DataTree
            Groups posterior and sample_stats.
        """
        return self.draws

    def unlabelled_draws(self) -> xarray.DataTree:
        """The draws as the sampler made them, before relabelling, to the bit; read when looked at.

        Returns
        -------
        xarray.DataTree
            As `draws`.
        """
        from ..storage import relabelled_tree

        back = np.argsort(self.permutations, axis=-1)
        return relabelled_tree(self.draws, back, np.take_along_axis(self.signs, back, axis=-1))

    @property
    def verdict(self) -> Verdict:
        """Whether the draws can be used, why or why not, and what to do; see `diagnostics`."""
        return self.diagnostics().verdict

    def diagnostics(self) -> Diagnostics:
        """Have the chains converged, do they agree, and how precise are their means; with the verdict.

        Returns
        -------
        Diagnostics
        """
        return self._diagnosed

    @computed
    def _diagnosed(self) -> Diagnostics:
        from ..diagnostics import diagnose

        return diagnose(self)

    def keep_chains(self, chains: Sequence[int]) -> MCMCPosterior:
        """The posterior of some of the chains, by number, e.g. of one mode; the others' draws are left out.

        Parameters
        ----------
        chains : list of int
            Among `chain_numbers`, as the verdict names them.

        Returns
        -------
        MCMCPosterior

        Examples
        --------
        >>> import sparsefactor as sf
        >>> X = sf.simulate(n_features=20, n_samples=15, inclusion=[0.5], snr=5, seed=0).X
        >>> mc = sf.sample(X, sf.Prior(n_factors=1, inclusion=0.5), n_chains=2, n_warmup=20, n_draws=200)
        >>> mc.keep_chains([1]).chain_numbers
        (1,)
        """
        from ..storage import rearranged, reduced

        numbers = self.chain_numbers
        if np.ndim(chains) != 1 or not all(isinstance(chain, int | np.integer) for chain in chains):
            raise TypeError(f"chains must be a list of whole numbers; got {chains!r}; pass e.g. [{numbers[0]}]")
        if not len(chains) or len(set(chains)) < len(chains) or not set(chains) <= set(numbers):
            raise ValueError(f"chains must be different numbers among {numbers}; got {chains!r}; choose among them")
        chosen = [numbers.index(chain) for chain in chains]
        weights = None if self.weights is None else chain_shares(self.weights[chosen], len(chosen))
        kept = replace(
            self,
            draws=self.draws.isel(chain=chosen),
            permutations=self.permutations[chosen],
            signs=self.signs[chosen],
            weights=weights,
            fit_sums=None if self.fit_sums is None else self.fit_sums.chains(chosen),
            record={name: value for name, value in self.record.items() if name != "trusted"},  # that was of all
        )
        return rearranged(replace(kept, **reduced(kept, chain_shares(weights, len(chosen)))))

    def combine(self, weights: ArrayLike | Literal["stacking"], X: Any = None) -> MCMCPosterior:
        """The mixture of the chains with these weights; `draws` stays as it is, all moments change.

        Parameters
        ----------
        weights : array of shape (chain,), or "stacking"
            "stacking" finds the mixture that predicts entries left out best, where chains sit in several modes.
        X : array of shape (n_samples, n_features), optional
            The data, for "stacking".

        Returns
        -------
        MCMCPosterior
            With `weights` set.

        Examples
        --------
        >>> import sparsefactor as sf
        >>> X = sf.simulate(n_features=20, n_samples=15, inclusion=[0.5], snr=5, seed=0).X
        >>> mc = sf.sample(X, sf.Prior(n_factors=1, inclusion=0.5), n_chains=2, n_warmup=20, n_draws=200)
        >>> float(mc.combine("stacking", X).weights.sum().round(6))
        1.0
        """
        from ..storage import rearranged, reduced

        if isinstance(weights, str) and weights == "stacking":
            from ..questions import stacking_weights

            weights = stacking_weights(self, X)
        shares = chain_shares(weights, self.n_chains)
        return rearranged(replace(self, weights=shares, **reduced(self, shares)))


def chain_shares(weights: ArrayLike | None, n: int) -> Array:
    """(n,) weights that add up to one."""
    try:
        given = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    except (TypeError, ValueError):
        given = np.empty(0)
    if given.shape != (n,) or not np.isfinite(given).all() or given.min() < 0 or given.sum() <= 0:
        raise ValueError(
            f"weights must be {n} numbers, none negative and not all zero; got {weights!r}; pass one for each chain"
        )
    return given / given.sum()
