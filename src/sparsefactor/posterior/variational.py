"""The posterior of variational inference."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from .base import Posterior
from .labels import DIMS, GROUP_DIMS, MODULE_DIMS, NOISE_DIMS, Array

if TYPE_CHECKING:
    import pandas
    import xarray


class Status(enum.Enum):
    """How a run of VI ended, with what to do about it."""

    CONVERGED = "The ELBO's change fell below the tolerance."
    MAX_ITER = "Stopped at max_iter before the ELBO settled; raise max_iter, or loosen tol."
    INTERRUPTED = "Interrupted by the user; the state reached so far is kept; fit again to go on."
    STOPPED = "Stopped by the callback; the best state reached so far is kept; fit again to go on."
    DROPPED = "Dropped while racing: other trials were ahead; pass race=False to run every trial to the end."


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
        agreeing, finalists = told.get("agreeing", 1), told.get("finalists", 1)
        if told.get("hops", 0) <= 1 or agreeing >= finalists:
            text = f"The best optimum was reached from {agreeing} of {finalists} starts that were followed to their end"
            if agreeing > 1:
                return text + "."
            return text + (
                ', so there may be a better one: leave n_trials at "auto", which searches on, or fit again with '
                "another seed and keep the higher elbo."
            )
        again = told.get("recurred", told["returns"])  # results of before it was kept have the returns to any optimum
        times = "once" if again == 0 else f"{again + 1} times"
        text = f"The best optimum was found {times} on {told['hops']} hops away from optima, "
        if told["agreeing"] > 1:
            return text + f"and {told['agreeing']} independent searches ended in it."
        return text + (
            "and by one search of several, so there may be a better one: fit again with another seed and keep the "
            "higher elbo, or lower n_factors; average=True predicts from many optima."
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

    def signal(self) -> Array:
        """(n_samples, n_features) the posterior mean of what the factors explain, in the units that were fitted.

        The mean over all trials where the fit was asked for that (`average=True`), else the best trial's.
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
