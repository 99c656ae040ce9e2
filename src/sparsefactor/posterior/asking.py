"""Methods for new samples, missing entries, densities and discoveries; `questions/` has the code, imported on use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from .labels import Array

if TYPE_CHECKING:
    import pandas

    from .mcmc import MCMCPosterior
    from .variational import VIPosterior


class Asking:
    """Prediction, imputation, densities and discoveries."""

    def transform(self, X: Any, return_sd: bool = False, covariates: Any = None, client: Any = None) -> Any:
        """Activations of new samples, with any pattern of missing entries; for training samples, the fit's own.

        Given the features' posterior the answer is exact: the uncertainty of the loadings counts, the fit's centring
        and scaling are applied, and draws are averaged.

        Parameters
        ----------
        X : (n, n_features) array or frame
            NaN where missing. Named features are matched by name to those of the fit, in any order. Data that are not
            in memory (see `fit_vi`) are read a block of samples at a time.
        return_sd : bool
            Return posterior standard deviations as well.
        covariates : (n, c) array or frame, optional
            Those of the new samples, where the fit had covariates.
        client : dask.distributed.Client, optional
            Its workers compute, each for some samples. The result is the same.

        Returns
        -------
        array (n, n_factors), or a frame or DataArray with names where X is one; or two of them

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, seed=0)
        >>> p = sf.fit_vi(sim.X[:20], sf.Prior(n_factors=1), n_trials=2)
        >>> p.transform(sim.X[20:]).shape
        (10, 1)
        """
        from ..questions import transform

        return transform(self._self(), X, return_sd=return_sd, covariates=covariates, client=client)

    def impute(
        self,
        X: Any = None,
        return_sd: bool = False,
        interval: float | None = None,
        covariates: Any = None,
        client: Any = None,
    ) -> Any:
        """Data with what was missing predicted.

        Parameters
        ----------
        X : (n, n_features) array or frame, or None
            NaN is filled in, given the sample's other entries; the rest is kept. None: predictions of every
            entry of the training data. Data that are not in memory (see `fit_vi`) are read a block of samples at a
            time; an array in a temporary file, mapped into memory, is then returned.
        return_sd : bool
            Return standard deviations of what would be observed there, signal and noise together; 0 where X was
            observed.
        interval : float, optional
            Return the ends of central intervals of this probability, e.g. 0.9.
        covariates : (n, c) array or frame, optional
            Those of the samples in X, where the fit had covariates.
        client : dask.distributed.Client, optional
            Its workers compute, each for some samples. The result is the same.

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
        from ..questions import impute

        return impute(self._self(), X, return_sd=return_sd, interval=interval, covariates=covariates, client=client)

    def log_density(self, X: Any, of: Literal["samples", "entries"] = "samples", covariates: Any = None) -> Array:
        """Log predictive density of new samples, or of entries held out of the training samples.

        Parameters
        ----------
        X : (n, n_features) array or frame
            NaN where missing; for entries, NaN where an entry was not held out.
        of : "samples" or "entries"
            "samples": X are new samples; the density of each one's observed entries together. Under q it is that of
            the Gaussian with q's predictive covariance; with draws, the mean over draws of the exact one.
            "entries": X has the shape of the training data, and is matched by name where it has names; each entry by
            itself, in the order of the fit.
        covariates : (n, c) array or frame, optional
            Those of new samples, where the fit had covariates.

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
        from ..questions import log_density

        return log_density(self._self(), X, of=of, covariates=covariates)

    def covariance(self) -> Array:
        """The posterior mean of the data's covariance: loadings times loadings', and noise.

        Returns
        -------
        array (n_features, n_features)

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, seed=0)
        >>> sf.fit_vi(sim.X, sf.Prior(n_factors=1), n_trials=2).covariance().shape
        (40, 40)
        """
        from ..questions import covariance

        return covariance(self._self())

    @property
    def lfsr(self) -> Array:
        """(n_features, n_factors) local false sign rate: how likely a loading is zero or of the other sign.

        Variational inference is overconfident where a loading is neither clear nor absent: of loadings with a rate of
        about 0.025, some 0.08 to 0.15 are wrong. See `discoveries` for what helps.
        """
        from ..questions import local_false_sign_rate

        return local_false_sign_rate(self._self())

    def discoveries(
        self, fdr: float = 0.05, by: Literal["inclusion", "sign"] = "inclusion", *, min_loading: float = 0.0
    ) -> pandas.DataFrame:
        """The features of each factor at a Bayesian false discovery rate.

        The rate is computed from the posterior. Draws nearly keep it; variational inference is overconfident where
        noise is strong. Then sample, starting at the fit: `sample(X, vi.prior, init=vi).discoveries()`. Figures are in
        docs/results.md. They hold for factors that exist; a list of a factor that does not exist is wrong as a whole.

        Parameters
        ----------
        fdr : float
            The list of a factor is the longest whose mean probability of error is at most this.
        by : "inclusion" or "sign"
            An error is a loading that is zero, or one that is zero or of the other sign.
        min_loading : float
            Take features whose standardised loading exceeds this in absolute value: an error is one that does not. 0.3
            gives short lists where every feature has a loading that is not zero.

        Returns
        -------
        pandas.DataFrame
            Columns factor (from 1), feature, loading, standardized, sd, inclusion_prob, lfsr, and fdr: the rate of the
            list that ends there.

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, seed=0)
        >>> p = sf.fit_vi(sim.X, sf.Prior(n_factors=1), n_trials=2)
        >>> bool(p.discoveries(0.01).fdr.max() <= 0.01)
        True
        """
        from ..questions import discoveries

        return discoveries(self._self(), fdr, by=by, min_loading=min_loading)

    def _self(self) -> VIPosterior | MCMCPosterior:
        return cast("VIPosterior | MCMCPosterior", self)
