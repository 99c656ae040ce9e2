"""The posterior of variational inference."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from .base import Posterior
from .labels import DIMS, GROUP_DIMS, MODULE_DIMS, NOISE_DIMS, Array
from .verdict import Verdict, verdict_of_vi

if TYPE_CHECKING:
    import pandas
    import xarray


class Status(enum.Enum):
    """How a run of VI ended, with what to do about it."""

    CONVERGED = "The fit converged: an iteration changed the ELBO by less than the tolerance."
    MAX_ITER = "It stopped at max_iter; raise max_iter, or pass a larger tol."
    INTERRUPTED = "It was interrupted; the best state so far is kept; fit again, or continue with refine."
    STOPPED = "It was stopped by the callback; the best state so far is kept; fit again, or continue with refine."
    TIME_LIMIT = "It stopped at max_seconds; the best state so far is kept; continue with refine, or allow more time."
    DROPPED = "Dropped early: other restarts had a higher ELBO; pass race=False to run every restart to the end."


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VIPosterior(Posterior):
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
    factor_correlation_mean, factor_correlation_sd : (n_factors, n_factors)
        Correlations of the factors, and their uncertainty; the identity where the prior has uncorrelated factors.
    fit_sums : FitSums
        What `variance_explained` needs of the data.
    record : dict
        Version, date and settings of the run.
    elbo : float
        The evidence lower bound of the fit, complete: comparable between fits of the same data.
    elbo_terms : dict of str to float
        Its terms by name.
    elbo_history : dict
        Of the selected restart: iteration, elbo, seconds; as a frame, `elbo_trace`.
    trial_records : list of dict
        The outcome of each restart; as a frame, `trials`.
    stability : (n_factors,)
        Share of the other restarts that ended near the best ELBO and have the factor; NaN without others.
    status : Status
        How the fit ended, with what to do about it.
    parameters : dict of str to array
        q's own parameters.
    signal_mean : (n_samples, n_features), optional
        The mean signal over restarts, with `average=True`.
    trial_history : dict
        The ELBO of all restarts by iteration.
    trial_agreement : (other restarts near the best, n_factors), optional
        Cosines with the factors of the selected restart.
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
    stability: Array  # (n_factors,) share of the other restarts near the best that have each factor; NaN without others
    status: Status
    parameters: dict[str, Array] = field(repr=False)  # q's own parameters, by the names of kernels.contract
    signal_mean: Array | None = field(default=None, repr=False)  # the mean over trials of F'L', where it was asked for
    trial_history: dict[str, NDArray[Any]] = field(default_factory=dict)  # of all: trial, iteration, elbo, seconds
    trial_agreement: Array | None = None  # (other restarts near the best, n_factors) cosines with the winner's factors
    # Where the prior has modules, the largest first:
    module_prob: Array | None = field(default=None, repr=False)  # (n_features, n_modules)
    module_rate_mean: Array | None = field(default=None, repr=False)  # (n_modules, n_factors) inclusion in each
    module_weight_mean: Array | None = field(default=None, repr=False)  # (n_modules,) share of the features

    @property
    def converged(self) -> bool:
        """Whether the fit converged."""
        return self.status is Status.CONVERGED

    @property
    def verdict(self) -> Verdict:
        """Whether the fit can be used, why or why not, and what to do."""
        return verdict_of_vi(self)

    @property
    def certainty(self) -> str:
        """What was tried to find this solution, and what more could be tried, in words."""
        facts = self.record.get("search", {})
        restarts, agreeing = facts.get("restarts", len(self.trial_records)), facts.get("agreeing", 1)
        finalists, proposals = facts.get("finalists", restarts), facts.get("proposals", 0)
        if facts.get("ended", "complete") != "complete":
            tried = f" and {proposals} attempts to improve it" if proposals else ""
            return (
                f"The search was ended early, after {restarts} restart{'s' * (restarts > 1)}{tried}; refine continues."
            )
        if restarts == 1 and not proposals:
            return (
                "One restart. Check the factors in two halves of the samples or with sample; "
                'search="thorough", or refine, looks for a solution with a higher ELBO.'
            )
        text = f"The best of {restarts} restarts, the rest of which were dropped early"
        if facts.get("improved", 0):
            text = f"This solution improves on those of {restarts} restarts"
        elif finalists > 1:
            text = f"{agreeing} of {finalists} restarts that were not dropped early reached this solution"
        if proposals:
            return f"{text}; the last {facts.get('failed', proposals)} attempts to improve it failed."
        return text + ("." if agreeing > 1 else '; search="thorough", or refine, looks for a better one.')

    @property
    def elbo_trace(self) -> pandas.DataFrame:
        """The ELBO of the selected restart: columns iteration, elbo, seconds."""
        import pandas as pd

        return pd.DataFrame(self.elbo_history)

    @property
    def trials(self) -> pandas.DataFrame:
        """A row per restart: its start, iterations, ELBO, seconds, status, and whether it was selected ("won").

        Where the prior has modules, only the selected row has the ELBO under them (with average=True, every row).
        """
        import pandas as pd

        return pd.DataFrame(self.trial_records)

    def refine(self, X: Any, *, max_seconds: float | None = None, seed: int = 0, **options: Any) -> VIPosterior:
        """Continue from this fit with a thorough search for a solution with a higher ELBO.

        Parameters
        ----------
        X : (n_samples, n_features) array or frame
            The data of this fit.
        max_seconds : float, optional
            End the search after this time; without it, the search ends when several rounds have found nothing better.
        seed : int
            Of the search.
        **options
            Further arguments of `fit_vi`, such as covariates, client or progress.

        Returns
        -------
        VIPosterior
            The better of the two: this fit itself, where nothing better was found.

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
        >>> p = sf.fit_vi(sim.X, n_factors=2)
        >>> p.refine(sim.X, max_seconds=10).elbo >= p.elbo
        True
        """
        from ..vi.refine import refine

        return refine(self, X, max_seconds=max_seconds, seed=seed, **options)

    def signal(self) -> Array:
        """(n_samples, n_features) the posterior mean of what the factors explain, in the units that were fitted.

        The mean over all restarts where the fit was asked for that (`average=True`), else the best one's.
        """
        return self.activations_mean @ self.loadings_mean.T if self.signal_mean is None else self.signal_mean

    def to_datatree(self) -> xarray.DataTree:
        """Moments of q with named dims (feature, observation, factor).

        Returns
        -------
        xarray.DataTree
            Groups variational and elbo_trace.
        """
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
