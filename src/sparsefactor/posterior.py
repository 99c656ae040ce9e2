"""What inference returns: two posteriors that answer the same questions. Imports no inference."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .computed import computed
from .containers import ARRAY, like_input
from .data import Data
from .explained import FitSums, variance_explained
from .model import Prior

if TYPE_CHECKING:
    import pandas
    import xarray

    from .diagnostics import Diagnostics

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


class Status(enum.Enum):
    """How a run of VI ended, with what to do about it."""

    CONVERGED = "The ELBO's change fell below the tolerance."
    MAX_ITER = "Stopped at max_iter before the ELBO settled; raise max_iter, or loosen tol."
    INTERRUPTED = "Interrupted by the user; the state reached so far is kept; fit again to go on."
    STOPPED = "Stopped by the callback; the best state reached so far is kept; fit again to go on."
    DROPPED = "Dropped while racing: other trials were ahead; pass race=False to run every trial to the end."


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


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class _Posterior:
    """The questions both posteriors answer. Shapes: see the table of words in docs/index.md."""

    prior: Prior
    labels: Labels
    loadings_mean: Array  # (n_features, n_factors)
    loadings_sd: Array
    inclusion_prob: Array  # (n_features, n_factors)
    activations_mean: Array  # (n_samples, n_factors)
    activations_sd: Array
    noise_precision_mean: Array  # (n_features,), () or (n_samples,): Prior.noise decides
    loading_precision_mean: Array  # (n_factors,), or (n_groups, n_factors)
    inclusion_rate_mean: Array  # the same, or (0,) where inclusion was given; with modules, over all features
    fit_sums: FitSums | None = field(default=None, repr=False)  # what variance_explained needs of the data
    record: dict[str, Any] = field(default_factory=dict, repr=False)  # version, date and settings

    @property
    def n_factors(self) -> int:
        """How many factors there are, empty ones counted in."""
        return self.loadings_mean.shape[1]

    @property
    def feature_names(self) -> NDArray[Any]:
        """(n_features,) the names that X had, or numbers from 0."""
        return self.labels.feature_names

    @property
    def sample_names(self) -> NDArray[Any]:
        """(n_samples,) the names that X had, or numbers from 0."""
        return self.labels.sample_names

    def transform(self, X: Any, return_sd: bool = False) -> Array | tuple[Array, Array]:
        """Activations of new samples, with any pattern of missing entries; for training samples, the fit's own.

        Given the features' posterior the answer is exact: the uncertainty of the loadings counts, the fit's centring
        and scaling are applied, and draws are averaged.

        Parameters
        ----------
        X : (n, n_features) array or frame
            NaN where missing. Named features are matched by name to those of the fit, in any order.
        return_sd : bool
            Return posterior standard deviations as well.

        Returns
        -------
        array (n, n_factors), or two of them

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, seed=0)
        >>> p = sf.fit_vi(sim.X[:20], sf.Prior(n_factors=1), n_trials=2)
        >>> p.transform(sim.X[20:]).shape
        (10, 1)
        """
        from .questions import transform

        return transform(self._self(), X, return_sd=return_sd)

    def impute(self, X: Any = None, return_sd: bool = False, interval: float | None = None) -> Any:
        """Data with what was missing predicted.

        Parameters
        ----------
        X : (n, n_features) array or frame, or None
            NaN is filled in, given the sample's other entries; the rest is kept. None: predictions of every
            entry of the training data.
        return_sd : bool
            Return standard deviations of what would be observed there, signal and noise together; 0 where X was
            observed.
        interval : float, optional
            Return the ends of central intervals of this probability, e.g. 0.9.

        Returns
        -------
        array (n, n_features), a frame where X was one; or a tuple: values, [sd], [lower, upper]

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, missing=0.1, seed=0)
        >>> p = sf.fit_vi(sim.X, sf.Prior(n_factors=1), n_trials=2)
        >>> values, lower, upper = p.impute(sim.X, interval=0.9)
        """
        from .questions import impute

        return impute(self._self(), X, return_sd=return_sd, interval=interval)

    def log_density(self, X: Any, of: Literal["samples", "entries"] = "samples") -> Array:
        """Log predictive density of new samples, or of entries held out of the training samples.

        Parameters
        ----------
        X : (n, n_features) array or frame
            NaN where missing; for entries, NaN where an entry was not held out.
        of : "samples" or "entries"
            "samples": X are new samples; the density of each one's observed entries together. Under q it is that of
            the Gaussian with q's predictive covariance; with draws, the mean over draws of the exact one.
            "entries": X has the shape of the training data; each entry by itself.

        Returns
        -------
        array (n,), or (n_samples, n_features) with NaN where X has it

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, seed=0)
        >>> p = sf.fit_vi(sim.X[:20], sf.Prior(n_factors=1), n_trials=2)
        >>> p.log_density(sim.X[20:]).shape
        (10,)
        """
        from .questions import log_density

        return log_density(self._self(), X, of=of)

    def covariance(self) -> Array:
        """(n_features, n_features) the posterior mean of the data's covariance: loadings times loadings', and noise."""
        from .questions import covariance

        return covariance(self._self())

    @property
    def lfsr(self) -> Array:
        """(n_features, n_factors) local false sign rate: how likely a loading is zero or of the other sign."""
        from .questions import local_false_sign_rate

        return local_false_sign_rate(self._self())

    def discoveries(self, fdr: float = 0.05, by: Literal["inclusion", "sign"] = "inclusion") -> pandas.DataFrame:
        """The features of each factor at a Bayesian false discovery rate.

        Parameters
        ----------
        fdr : float
            The list of a factor is the longest whose mean probability of error is at most this.
        by : "inclusion" or "sign"
            An error is a loading that is zero, or one that is zero or of the other sign.

        Returns
        -------
        pandas.DataFrame
            Columns factor (from 1), feature, loading, sd, inclusion_prob, lfsr, and fdr: the rate of the list that
            ends there.

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, seed=0)
        >>> p = sf.fit_vi(sim.X, sf.Prior(n_factors=1), n_trials=2)
        >>> bool(p.discoveries(0.01).fdr.max() <= 0.01)
        True
        """
        from .questions import discoveries

        return discoveries(self._self(), fdr, by=by)

    def _self(self) -> VIPosterior | MCMCPosterior:
        assert isinstance(self, VIPosterior | MCMCPosterior)
        return self

    def predicted(self) -> Array:
        raise NotImplementedError

    def reconstruct(self) -> Any:
        """The posterior mean of the signal, in the units of X: its noise taken away, what was missing filled in.

        Returns
        -------
        array (n_samples, n_features), or a frame or DataArray with names where X was one

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, missing=0.1, seed=0)
        >>> p = sf.fit_vi(sim.X, sf.Prior(n_factors=1), n_trials=2)
        >>> p.reconstruct().shape
        (30, 40)
        """
        labels = self.labels
        return like_input(self.predicted(), labels.container, labels.sample_names, labels.feature_names)

    def to_frame(self, what: str) -> pandas.DataFrame:
        """One of the results as a pandas frame with names.

        Parameters
        ----------
        what : str
            "loadings", "loadings_sd", "inclusion" (features by factors), "activations", "activations_sd" (samples by
            factors), "reconstruction" (samples by features), "features" (a line per feature), "summary", and "trials"
            or "diagnostics".

        Returns
        -------
        pandas.DataFrame

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
        >>> p = sf.fit_vi(sim.X, sf.Prior(n_factors=2), n_trials=2)
        >>> list(p.to_frame("loadings").columns)
        ['factor 1', 'factor 2']
        """
        from .frames import to_frame

        return to_frame(self._self(), what)

    def summary(self) -> pandas.DataFrame:
        """A line per factor, numbered from 1.

        Returns
        -------
        pandas.DataFrame
            Columns features (how many are in), strongest (their names), share_of_variance (see `variance_explained`),
            stability (of variational inference: the share of other trials that found it), r_hat (of draws: the worst
            of what belongs to it).

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
        >>> p = sf.fit_vi(sim.X, sf.Prior(n_factors=2), n_trials=2)
        >>> list(p.summary().index)
        [1, 2]
        """
        from .frames import summary

        return summary(self._self())

    def __repr__(self) -> str:
        from .words import headline

        return "\n  ".join(headline(self._self()))

    def _repr_html_(self) -> str:
        from .words import as_html

        return as_html(self._self())

    def variance_explained(self, by: str | None = None) -> Any:
        """Share of the data's variance that the fit explains: 1 - residual sum of squares / sum of squares.

        Sums run over the observed entries, in the units that were fitted; the sum of squares is around each feature's
        mean.

        Parameters
        ----------
        by : None, "factor", "feature" or "group"
            None: in total. "factor": what leaving each factor out would cost, the others as they are; shares of
            factors that overlap do not add up to the total. "feature": each feature's own. "group": as "factor",
            of the variance of each group of features that the prior names (`Prior.group_names`).

        Returns
        -------
        float, or array of shape (n_factors,), (n_features,) or (n_groups, n_factors)
            NaN for a feature, or a group, that is constant.

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, seed=0)
        >>> p = sf.fit_vi(sim.X, sf.Prior(n_factors=1), n_trials=2)
        >>> 0.6 < p.variance_explained() < 0.9
        True
        """
        return variance_explained(self._sums(), by, self._weights())

    @property
    def empty(self) -> NDArray[np.bool_]:
        """(n_factors,) which factors hold next to nothing, by `explained.is_empty`; they come last."""
        return self._sums().empty(self._weights())

    @property
    def empty_by_group(self) -> NDArray[np.bool_]:
        """(n_groups, n_factors) which factors hold next to nothing in which group of features."""
        return self._sums().empty_by_group(self._weights())

    def _sums(self) -> FitSums:
        if self.fit_sums is None:
            raise ValueError(
                "variance explained needs sums that are taken when a fit is done; this result has none, since an "
                "older version wrote it; fit again"
            )
        return self.fit_sums

    def _weights(self) -> Array | None:
        return None

    def save(self, path: str | PathLike[str], precision: str = "single") -> None:
        """Write this posterior to one file, atomically; `sparsefactor.load` reads it back.

        Parameters
        ----------
        path : path
            Of the file.
        precision : "single" or "double"
            Of draws; "double" keeps every bit of them, at twice the size.
        """
        from .storage import save

        save(self, path, precision)

    def _coords(self) -> dict[str, Any]:
        groups = {"group": self.prior.group_names} if self.prior.grouped else {}
        return {
            "feature": self.labels.feature_names,
            "observation": self.labels.sample_names,
            "factor": np.arange(self.n_factors),
            **groups,
        }


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VIPosterior(_Posterior):
    """A variational posterior: q's moments, its ELBO and how it was found; `fit_vi` returns it.

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
    fit_sums : FitSums
        What `variance_explained` needs of the data.
    record : dict
        Version, date and settings of the run.
    elbo : float
        The evidence lower bound of the fit, complete: comparable between fits of the same data.
    elbo_terms : dict of str to float
        Its terms by name.
    elbo_history : dict
        Of the winning trial: iteration, elbo, seconds; as a frame, `elbo_trace`.
    trial_records : list of dict
        What became of each trial; as a frame, `trials`.
    stability : (n_factors,)
        Share of the other converged trials that have the factor; NaN without others.
    status : Status
        How the fit ended, with what to do about it.
    parameters : dict of str to array
        q's own parameters.
    signal_mean : (n_samples, n_features), optional
        The mean signal over trials, where `average=True` asked for it.
    trial_history : dict
        The ELBO of all trials by iteration.
    trial_agreement : (other converged trials, n_factors), optional
        Cosines with the winner's factors.
    module_prob : (n_features, n_modules), optional
        Which module a feature is in, where the prior has modules; the largest module first.
    module_rate_mean : (n_modules, n_factors), optional
        Inclusion probabilities in each module.
    module_weight_mean : (n_modules,), optional
        Share of the features.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> p = sf.fit_vi(sim.X, n_factors=2, n_trials=2)
    >>> p.inclusion_prob.shape, p.converged
    ((40, 2), True)
    """

    elbo: float
    elbo_terms: dict[str, float]
    elbo_history: dict[str, NDArray[Any]]  # iteration, elbo, seconds of the winning trial
    trial_records: list[dict[str, Any]]
    stability: Array  # (n_factors,) share of the other converged trials that have each factor; NaN without others
    status: Status
    parameters: dict[str, Array] = field(repr=False)  # q's own parameters, by the names of kernels.contract
    signal_mean: Array | None = field(default=None, repr=False)  # the mean over trials of F'L', where it was asked for
    trial_history: dict[str, NDArray[Any]] = field(default_factory=dict)  # of all: trial, iteration, elbo, seconds
    trial_agreement: Array | None = None  # (other converged trials, n_factors) cosines with the winner's factors
    # Where the prior has modules, the largest first:
    module_prob: Array | None = field(default=None, repr=False)  # (n_features, n_modules)
    module_rate_mean: Array | None = field(default=None, repr=False)  # (n_modules, n_factors) inclusion in each
    module_weight_mean: Array | None = field(default=None, repr=False)  # (n_modules,) share of the features

    @property
    def converged(self) -> bool:
        """Whether the ELBO had settled."""
        return self.status is Status.CONVERGED

    @property
    def certainty(self) -> str:
        """How often the search came upon the optimum it returned, in words, with advice where that was once."""
        told = self.record.get("search", {})
        if told.get("hops", 0) <= 1:
            text = f"The best optimum was reached from {told.get('agreeing', 1)} of {told.get('finalists', 1)} starts "
            return text + "that were followed to their end."
        text = f"{told['hops']} hops away from optima; {told['returns']} ended where they began. "
        if told["agreeing"] > 1:
            return text + f"{told['agreeing']} independent searches ended in the best optimum."
        return text + (
            "One search of several ended in the best optimum, so there may be a better one: fit again with another "
            "seed and keep the higher elbo, or lower n_factors; average=True predicts from many optima."
        )

    @property
    def elbo_trace(self) -> pandas.DataFrame:
        """The winning trial's ELBO: columns iteration, elbo, seconds."""
        import pandas as pd

        return pd.DataFrame(self.elbo_history)

    @property
    def trials(self) -> pandas.DataFrame:
        """One line per trial: its start, iterations, ELBO, seconds, status, and whether it won.

        Where the prior has modules, the winner's line alone has the ELBO under them (with average=True, every line).
        """
        import pandas as pd

        return pd.DataFrame(self.trial_records)

    def predicted(self) -> Array:
        """(n_samples, n_features) what `reconstruct` returns, as an array whatever X was.

        The mean over all trials where the fit was asked for that (`average=True`), else the best trial's.
        """
        signal = self.activations_mean @ self.loadings_mean.T if self.signal_mean is None else self.signal_mean
        return self.labels.restored(signal)

    def to_datatree(self) -> xarray.DataTree:
        """Moments of q as an xarray DataTree with named dims (feature, observation, factor)."""
        import xarray as xr

        noise = NOISE_DIMS[self.prior.noise]
        posterior = {
            "loadings_mean": (DIMS["loadings"], self.loadings_mean),
            "loadings_sd": (DIMS["loadings"], self.loadings_sd),
            "inclusion_prob": (DIMS["loadings"], self.inclusion_prob),
            "activations_mean": (DIMS["activations"], self.activations_mean),
            "activations_sd": (DIMS["activations"], self.activations_sd),
            "noise_precision_mean": (noise, self.noise_precision_mean),
        }
        own = DIMS | (GROUP_DIMS if self.prior.grouped else {})
        posterior["loading_precision_mean"] = (own["loading_precision"], self.loading_precision_mean)
        if self.prior.learns_inclusion:
            posterior["inclusion_rate_mean"] = (own["inclusion_rate"], self.inclusion_rate_mean)
        for name, dims in MODULE_DIMS.items():
            if getattr(self, name) is not None:
                posterior[name] = (dims, getattr(self, name))
        history = {name: ("step", values) for name, values in self.elbo_history.items()}
        attrs = {"elbo": self.elbo, "status": self.status.name, "inference": "vi"}
        return xr.DataTree.from_dict(
            {
                "variational": xr.Dataset(posterior, coords=self._coords(), attrs=attrs),
                "elbo_trace": xr.Dataset(history),
            }
        )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MCMCPosterior(_Posterior):
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

    def predicted(self) -> Array:
        """(n_samples, n_features) what `reconstruct` returns, as an array whatever X was: a mean over draws."""
        return self.labels.restored(self.signal_mean)

    def to_datatree(self) -> xarray.DataTree:
        """The draws themselves: groups posterior and sample_stats, ready for ArviZ."""
        return self.draws

    def unlabelled_draws(self) -> xarray.DataTree:
        """The draws as the sampler made them, before relabelling, to the bit; read when looked at."""
        from .storage import relabelled_tree

        back = np.argsort(self.permutations, axis=-1)
        return relabelled_tree(self.draws, back, np.take_along_axis(self.signs, back, axis=-1))

    def diagnostics(self) -> Diagnostics:
        """Have the chains converged, do they agree, and how precise are their means; with a verdict in words."""
        return self._diagnosed

    @computed
    def _diagnosed(self) -> Diagnostics:
        from .diagnostics import diagnose

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
        """
        from .storage import rearranged, reduced

        numbers = self.chain_numbers
        if np.ndim(chains) != 1 or not all(isinstance(chain, int | np.integer) for chain in chains):
            raise TypeError(f"chains must be a list of whole numbers; got {chains!r}; pass e.g. [{numbers[0]}]")
        if not len(chains) or len(set(chains)) < len(chains) or not set(chains) <= set(numbers):
            raise ValueError(f"chains must be different numbers among {numbers}; got {chains!r}; choose among them")
        chosen = [numbers.index(chain) for chain in chains]
        weights = None if self.weights is None else _shares(self.weights[chosen], len(chosen))
        kept = replace(
            self,
            draws=self.draws.isel(chain=chosen),
            permutations=self.permutations[chosen],
            signs=self.signs[chosen],
            weights=weights,
            fit_sums=None if self.fit_sums is None else self.fit_sums.chains(chosen),
        )
        return rearranged(replace(kept, **reduced(kept, _shares(weights, len(chosen)))))

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
        from .storage import rearranged, reduced

        if isinstance(weights, str) and weights == "stacking":
            from .questions import stacking_weights

            weights = stacking_weights(self, X)
        shares = _shares(weights, self.n_chains)
        return rearranged(replace(self, weights=shares, **reduced(self, shares)))


def _shares(weights: ArrayLike | None, n: int) -> Array:
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
