"""SparseFactorAnalysis: both methods as a scikit-learn estimator. A shell: every answer is the posterior's own."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .checks import checked_choice, checked_count
from .errors import needs
from .mcmc import sample
from .model import Beta, Prior, checked_prior
from .posterior import MCMCPosterior, VIPosterior
from .start import Start
from .vi import fit_vi

try:
    from joblib import effective_n_jobs
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_array, check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as problem:
    raise needs("SparseFactorAnalysis", "scikit-learn", "sklearn", problem) from None

Array = NDArray[np.float64]
ACCEPTED: dict[str, Any] = {"dtype": np.float64, "ensure_all_finite": "allow-nan", "accept_sparse": "csc"}


class SparseFactorAnalysis(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Bayesian sparse factor analysis as a scikit-learn transformer.

    Parameters
    ----------
    n_components : int, optional
        Maximum number of factors; those that the data do not support are removed. None: as many as the prior has,
        or, without a prior, as many as parallel analysis finds.
    inference : "vi" or "mcmc"
        `fit_vi` or `sample`.
    prior : Prior, optional
        Of the model; by default inclusion is learnt.
    inclusion : float or Beta, optional
        Instead of a prior: the probability that a feature is in a factor; see `fit_vi`.
    center, scale : bool
        Subtract each feature's mean; divide by its standard deviation.
    search : "fast" or "thorough"
        Of variational inference; see `fit_vi`.
    max_seconds : float, optional
        End the search of variational inference after this time.
    n_init : int or "auto"
        Number of restarts of variational inference; see `n_trials` of `fit_vi`.
    tol, max_iter : float or "auto", int
        When a restart of variational inference ends; see `fit_vi`.
    n_warmup, n_draws, n_chains : int
        Of Gibbs sampling.
    random_state : int, RandomState or None
        Where randomness comes from.
    n_jobs : int, optional
        Threads of a fit, or chains at the same time; -1 for every core. The result does not depend on it.
    warm_start : bool
        Begin the next fit where this one ended.
    verbose : int
        Show the progress of the fit.
    covariate_loadings : "flat" or "slab"
        What is assumed of the loadings of covariates that `fit` is given; see `fit_vi`.

    Attributes
    ----------
    components_ : (n_components_, n_features) loadings, strongest factor first, in units of scale_
    components_sd_, inclusion_prob_, lfsr_ : of the same shape
    factor_correlation_ : (n_components_, n_components_) correlations of the factors
    noise_variance_ : (n_features,), () or (n_samples,), as the prior's noise has it, in units of scale_
    mean_, scale_ : (n_features,) what was subtracted, and divided by
    explained_variance_ratio_ : (n_components_,) share of the variance that leaving the factor out would cost
    n_components_, n_iter_, converged_, lower_bound_ : int, int, bool, float
        lower_bound_ is the ELBO; NaN with mcmc.
    posterior_ : VIPosterior or MCMCPosterior
        All that is known of the fit.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.5], snr=4, seed=0)
    >>> model = sf.SparseFactorAnalysis(n_components=5, n_init=3, random_state=0).fit(sim.X)
    >>> model.transform(sim.X).shape == (30, model.n_components_)
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        inference: Literal["vi", "mcmc"] = "vi",
        prior: Prior | None = None,
        inclusion: float | Beta | None = None,
        center: bool = True,
        scale: bool = False,
        search: Literal["fast", "thorough"] = "fast",
        max_seconds: float | None = None,
        n_init: int | Literal["auto"] = "auto",
        tol: float | Literal["auto"] = "auto",
        max_iter: int = 5000,
        n_warmup: int = 500,
        n_draws: int = 1000,
        n_chains: int = 4,
        random_state: Any = None,
        n_jobs: int | None = None,
        warm_start: bool = False,
        verbose: int = 0,
        covariate_loadings: str = "flat",
    ) -> None:
        self.posterior_: VIPosterior | MCMCPosterior
        self.n_components = n_components
        self.inference = inference
        self.prior = prior
        self.inclusion = inclusion
        self.center = center
        self.scale = scale
        self.search = search
        self.max_seconds = max_seconds
        self.n_init = n_init
        self.tol = tol
        self.max_iter = max_iter
        self.n_warmup = n_warmup
        self.n_draws = n_draws
        self.n_chains = n_chains
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.warm_start = warm_start
        self.verbose = verbose
        self.covariate_loadings = covariate_loadings

    def fit(self, X: Any, y: Any = None, *, covariates: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : (n_samples, n_features) array, frame or sparse matrix
            NaN where missing; zeros of a sparse matrix are data.
        y : ignored
        covariates : (n_samples, c) array or frame, optional
            Known covariates; `transform` and the like then ask for those of their samples.

        Returns
        -------
        SparseFactorAnalysis
            Itself.
        """
        checked_choice("inference", self.inference, ("vi", "mcmc"))
        if self.n_init != "auto":
            checked_count("n_init", self.n_init)
        before = self.posterior_ if self.warm_start and hasattr(self, "posterior_") else None
        values = validate_data(self, X, ensure_min_samples=2, **ACCEPTED)
        prior = checked_prior(self.prior, self.n_components, "n_components", self.inclusion)
        if prior is None and before is not None:
            prior = Prior(
                n_factors=before.n_factors, inclusion=self.inclusion, parallel_analysis=before.prior.parallel_analysis
            )
        init = "auto" if before is None or prior is None else warm(before, values, prior, covariates)
        self.posterior_ = self._posterior(self._named(values), prior, init, covariates)
        self._keep(self.posterior_)
        return self

    def _posterior(self, X: Any, prior: Prior | None, init: Any, covariates: Any) -> VIPosterior | MCMCPosterior:
        seed = self.random_state
        if not isinstance(seed, int | np.integer):
            seed = check_random_state(seed).randint(2**31 - 1)
        shared: dict[str, Any] = {"center": self.center, "scale": self.scale, "seed": int(seed), "init": init}
        shared |= {"covariates": covariates, "covariate_loadings": self.covariate_loadings}
        shared |= {"inclusion": self.inclusion} if prior is None else {}
        jobs = effective_n_jobs(self.n_jobs)
        if self.inference == "vi":
            ends: dict[str, Any] = {"search": self.search, "max_seconds": self.max_seconds, "n_trials": self.n_init}
            ends |= {"tol": self.tol, "max_iter": self.max_iter, "n_threads": jobs}
            return fit_vi(X, prior, progress=bool(self.verbose), **ends, **shared)
        counts = {"n_chains": self.n_chains, "n_warmup": self.n_warmup, "n_draws": self.n_draws, "n_jobs": jobs}
        return sample(X, prior, progress=bool(self.verbose), **counts, **shared)

    def _keep(self, p: VIPosterior | MCMCPosterior) -> None:
        """What the fit found, under scikit-learn's names."""
        self._kept = np.flatnonzero(~p.empty)
        self.n_components_ = self._n_features_out = len(self._kept)
        self.components_ = p.loadings_mean[:, self._kept].T
        self.components_sd_ = p.loadings_sd[:, self._kept].T
        self.inclusion_prob_ = p.inclusion_prob[:, self._kept].T
        self.lfsr_ = p.lfsr[:, self._kept].T
        self.explained_variance_ratio_ = p.variance_explained(by="factor")[self._kept]
        self.factor_correlation_ = p.factor_correlation_mean[np.ix_(self._kept, self._kept)]
        self.noise_variance_ = 1.0 / p.noise_precision_mean
        self.mean_, self.scale_ = p.labels.offset, p.labels.scale
        if isinstance(p, VIPosterior):
            self.n_iter_ = next(int(trial["iterations"]) for trial in p.trial_records if trial["won"])
            self.converged_, self.lower_bound_ = p.converged, p.elbo
        else:
            self.n_iter_ = self.n_warmup + self.n_draws
            self.converged_, self.lower_bound_ = p.diagnostics().ok, float("nan")

    def transform(self, X: Any, covariates: Any = None) -> Array:
        """The posterior mean of the samples' activations.

        Parameters
        ----------
        X : (n, n_features) array or frame
            NaN where missing.
        covariates : (n, c) array or frame, optional
            Those of the samples, where the fit had covariates.

        Returns
        -------
        array (n, n_components_)
        """
        return np.asarray(self._answering.transform(self._new(X), covariates=covariates))[:, self._kept]

    def inverse_transform(self, Z: Any) -> Array:
        """The signal of samples with these activations.

        Parameters
        ----------
        Z : (n, n_components_) array
            As `transform` returns them.

        Returns
        -------
        array (n, n_features)
        """
        check_is_fitted(self)
        activations = check_array(Z, ensure_min_features=0)  # data without any signal have no factor
        if activations.shape[1] != self.n_components_:
            raise ValueError(
                f"activations must have {self.n_components_} columns, one for each factor; got {activations.shape[1]}; "
                "pass what transform returned"
            )
        return self.posterior_.labels.restored(activations @ self.components_)

    def impute(self, X: Any, covariates: Any = None) -> Array:
        """X with its missing entries predicted.

        Parameters
        ----------
        X : (n, n_features) array or frame
            NaN where missing.
        covariates : (n, c) array or frame, optional
            Those of the samples, where the fit had covariates.

        Returns
        -------
        array (n, n_features)
        """
        return np.asarray(self._answering.impute(self._new(X), covariates=covariates))

    def score_samples(self, X: Any, covariates: Any = None) -> Array:
        """Log predictive density of each sample.

        Parameters
        ----------
        X : (n, n_features) array or frame
            NaN where missing.
        covariates : (n, c) array or frame, optional
            Those of the samples, where the fit had covariates.

        Returns
        -------
        array (n,)
        """
        return self._answering.log_density(self._new(X), covariates=covariates)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log predictive density of the samples.

        Parameters
        ----------
        X : (n, n_features) array or frame
            NaN where missing.
        y : ignored

        Returns
        -------
        float
        """
        return float(np.mean(self.score_samples(X)))

    def get_covariance(self) -> Array:
        """The posterior mean of the data's covariance.

        Returns
        -------
        array (n_features, n_features)
        """
        return self._answering.covariance()

    # ---- between scikit-learn and the posterior ----------------------------------------------------------------------

    @property
    def _answering(self) -> VIPosterior | MCMCPosterior:
        check_is_fitted(self)
        return self.posterior_

    def _new(self, X: Any) -> Any:
        """New samples, checked as scikit-learn does it."""
        return self._named(validate_data(self, X, reset=False, **ACCEPTED))

    def _named(self, values: Any) -> Any:
        """The values with the names that X had, if it had any."""
        names = getattr(self, "feature_names_in_", None)
        return values if names is None else pd.DataFrame(values, columns=names)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags


def warm(p: VIPosterior | MCMCPosterior, X: Array, prior: Prior, covariates: Any = None) -> Start:
    """Where a fit ended, as a start for data with the same features."""
    if X.shape[1] != len(p.loadings_mean) or prior.n_factors != p.n_factors:
        raise ValueError(
            f"a warm start needs the features and factors of the last fit, {len(p.loadings_mean)} and {p.n_factors}; "
            f"got {X.shape[1]} and {prior.n_factors}; pass warm_start=False, or fit a clone"
        )
    known = covariates if len(p.covariate_names) else None
    return Start("warm", p.loadings_mean, np.asarray(p.transform(X, covariates=known)).T)
