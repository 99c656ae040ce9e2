"""What both posteriors have in common: means, tables, files, plots, variance explained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..checks import checked_choice, checked_flag
from ..containers import like_input
from ..explained import FitSums, variance_explained
from ..model import Prior
from .asking import Asking
from .labels import Array, Labels

if TYPE_CHECKING:
    import pandas

    from ..association import Association
    from ..plot.accessor import Plots


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Posterior(Asking):
    """The attributes and methods of both posteriors."""

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
    # Correlations of the factors, (n_factors, n_factors), and their uncertainty; the identity where the prior has none.
    factor_correlation_mean: Array = field(default=None, repr=False)  # type: ignore[arg-type]
    factor_correlation_sd: Array = field(default=None, repr=False)  # type: ignore[arg-type]

    def __post_init__(self) -> None:
        if self.factor_correlation_mean is None:
            object.__setattr__(self, "factor_correlation_mean", np.eye(self.n_factors))
            object.__setattr__(self, "factor_correlation_sd", np.zeros((self.n_factors, self.n_factors)))

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

    @property
    def factor_names(self) -> list[str]:
        """(n_factors,) the names that the prior gives, e.g. of gene sets, or "factor 1" and so on."""
        given = self.prior.factor_names
        return [f"factor {k + 1}" for k in range(self.n_factors)] if given is None else list(given)

    @property
    def covariate_names(self) -> NDArray[Any]:
        """(c,) the names of the known covariates; (0,) where there were none."""
        return self.labels.covariate_names

    @property
    def covariate_loadings_mean(self) -> Array:
        """(n_features, c) the posterior mean of what a feature changes by with each covariate, as that was given."""
        return self.labels.covariate_loadings

    @property
    def covariate_loadings_sd(self) -> Array:
        """(n_features, c) their posterior standard deviation."""
        return self.labels.covariate_loadings_sd

    def signal(self) -> Array:
        """(n_samples, n_features) the posterior mean of what the factors explain, in the units that were fitted."""
        raise NotImplementedError

    def predicted(self, covariates: bool = True) -> Array:
        """(n_samples, n_features) what `reconstruct` returns, as an array whatever X was.

        Parameters
        ----------
        covariates : bool
            As there.

        Returns
        -------
        array (n_samples, n_features)
        """
        signal = self.signal()
        if covariates and len(self.covariate_names):
            signal = signal + self.labels.known()
        return self.labels.restored(signal)

    def reconstruct(self, covariates: bool = True) -> Any:
        """The posterior mean of the signal, in the units of X: its noise taken away, what was missing filled in.

        Parameters
        ----------
        covariates : bool
            Whether to include what known covariates explain; if not, samples are as if these were at their mean.

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
        values = self.predicted(checked_flag("covariates", covariates))
        return like_input(values, labels.container, labels.sample_names, labels.feature_names)

    def to_frame(
        self, what: str, *, standardized: bool = False, sort: bool = False, cutoff: float = 0.0
    ) -> pandas.DataFrame:
        """One of the results as a pandas frame with names.

        Parameters
        ----------
        what : str
            "loadings", "loadings_sd", "inclusion" (features by factors), "sorted_loadings" (standardised, features
            grouped by their strongest factor, NaN below 0.3), "activations", "activations_sd" (samples by factors),
            "reconstruction" (samples by features), "features" (a row per feature), "factor_correlation", "discoveries",
            "summary", and "trials" or "diagnostics".
        standardized : bool
            Loadings in standard deviations of the feature for one of the factor's scores.
        sort : bool
            Loadings of features grouped by their strongest factor, without empty factors.
        cutoff : float
            Loadings smaller than this in absolute value are NaN.

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
        >>> table = p.to_frame("loadings", standardized=True, sort=True, cutoff=0.3)
        """
        from ..frames import to_frame

        return to_frame(self._self(), what, standardized=standardized, sort=sort, cutoff=cutoff)

    def summary(self) -> pandas.DataFrame:
        """A row per factor, numbered from 1.

        Returns
        -------
        pandas.DataFrame
            Columns name (where the prior names factors), features (how many are included), salient (how many have a
            standardised loading of at least 0.3), strongest (the names of those with the largest loadings, "-" before
            negative ones), share_of_variance (see `variance_explained`),
            stability (of variational inference: the share of the other restarts that found the factor) or r_hat (of
            draws: the worst of what belongs to the factor), and, where a few samples have nearly all of a factor,
            dominated_by (their names).

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
        >>> p = sf.fit_vi(sim.X, sf.Prior(n_factors=2), n_trials=2)
        >>> list(p.summary().index)
        [1, 2]
        """
        from ..frames import summary

        return summary(self._self())

    def __repr__(self) -> str:
        from ..words import headline

        return "\n  ".join(headline(self._self()))

    def _repr_html_(self) -> str:
        from ..words import as_html

        return as_html(self._self())

    @property
    def plot(self) -> Plots:
        """The functions of `sf.plot` as methods: `p.plot.loadings()` is `sf.plot.loadings(p)`."""
        from ..plot.accessor import Plots

        return Plots(self._self())

    def report(self, path: str | PathLike[str], *, title: str = "Sparse factor analysis") -> Path:
        """Write a report: one HTML page with tables and figures, which needs no network.

        Parameters
        ----------
        path : path
            Of the file.
        title : str
            Of the page.

        Returns
        -------
        pathlib.Path
            Of the file.

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, seed=0)
        >>> sf.fit_vi(sim.X, n_factors=1).report("report.html").name
        'report.html'
        """
        from ..report import posterior_page, write_page

        write_page(Path(path), posterior_page(self._self(), title=title))
        return Path(path)

    def export(
        self, path: str | PathLike[str], tables: Sequence[str] | str | None = None, *, format: str = "csv"
    ) -> list[Path]:
        """Write the tables of `to_frame`: a formatted workbook, one table in one file, or a folder of files.

        Parameters
        ----------
        path : path
            "results.xlsx" has a sheet for each table, formatted for reading; "loadings.csv" (or .tsv, .parquet) has
            one table; any other path is a folder.
        tables : str or list of str, optional
            As in `to_frame`, and "about": verdict, version, settings. By default all but "reconstruction".
        format : "csv", "tsv" or "parquet"
            Of the files in a folder.

        Returns
        -------
        list of pathlib.Path
            The files.

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, seed=0)
        >>> p = sf.fit_vi(sim.X, n_factors=1)
        >>> [file.name for file in p.export("tables", ["summary", "loadings"])]
        ['summary.csv', 'loadings.csv']
        """
        from ..export import chosen_tables, export

        checked_choice("format", format, ("csv", "tsv", "parquet"))
        return export(self._self(), Path(path), chosen_tables(self._self(), tables), format)

    def associate(self, metadata: Any) -> Association:
        """Test each factor against what else is known of the samples: correlations, and differences between groups.

        The uncertainty of the scores (activations) counts: a factor whose scores are uncertain needs a stronger
        association. Rates of false discovery (Benjamini and Hochberg) are over all tests. Empty factors are left out.

        Parameters
        ----------
        metadata : frame, Series or dict of columns
            A row for each sample, matched by name where both have names; missing values are left out. Numbers are
            correlated with the scores; texts, categories and booleans are groups, whose mean scores are compared.

        Returns
        -------
        Association
            `.table` has a row for each factor and column; `.plot()` shows it.

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, seed=0)
        >>> p = sf.fit_vi(sim.X, n_factors=1)
        >>> found = p.associate({"score": sim.activations[:, 0], "site": ["A", "B", "C"] * 10})
        >>> list(found.significant().column)
        ['score']
        """
        from ..association import associate

        return associate(self._self(), metadata)

    def to_mofa_hdf5(self, path: str | PathLike[str], X: Any = None) -> None:
        """Write the result in the format of MOFA2, for its functions in R (`load_model`) and for mofax in Python.

        Views are the groups of features of the prior (`Prior.groups`), or one view; empty factors are left out.

        Parameters
        ----------
        path : path
            Of the file, e.g. "model.hdf5".
        X : (n_samples, n_features) array or frame, optional
            The data of the fit, which plots of data in these packages need.

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, seed=0)
        >>> sf.fit_vi(sim.X, n_factors=1).to_mofa_hdf5("model.hdf5", sim.X)
        """
        from ..mofa import write_mofa

        write_mofa(self._self(), Path(path), X)

    def variance_explained(self, by: str | None = None, X: Any = None) -> Any:
        """Share of the data's variance that the fit explains: 1 - residual sum of squares / sum of squares.

        Sums run over the observed entries, in the units that were fitted; the sum of squares is around each feature's
        mean.

        Parameters
        ----------
        by : None, "factor", "feature", "group" or "sample"
            None: in total. "factor": the share lost if the factor is removed, the others as they are; shares of
            factors that overlap do not add up to the total. "feature": each feature's own. "group": as "factor",
            of the variance of each group of features that the prior names (`Prior.group_names`). "sample": each
            sample's own, which needs X.
        X : (n_samples, n_features) array or frame, optional
            The data of the fit, for by="sample"; a result does not keep them.

        Returns
        -------
        float, or array of shape (n_factors,), (n_features,), (n_groups, n_factors) or (n_samples,)
            NaN for a feature, or a group, that is constant or varies by less than 1e-150 of the data's root mean
            square, and in total where all features are constant (data that were not centred).

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, seed=0)
        >>> p = sf.fit_vi(sim.X, sf.Prior(n_factors=1), n_trials=2)
        >>> 0.6 < p.variance_explained() < 0.9
        True
        """
        if by == "sample":
            from ..questions.samples import variance_by_sample

            return variance_by_sample(self._self(), X)
        return variance_explained(self._sums(), by, self._weights())

    @property
    def standardized_loadings(self) -> Array:
        """(n_features, n_factors) loadings in standard deviations of the feature for one of the factor's scores."""
        from ..standardized import factor_size, to_standardized

        return to_standardized(self, self.loadings_mean, factor_size(self))

    @property
    def communalities(self) -> Array:
        """(n_features,) the share of each feature's variance that the factors explain, as the model has it."""
        from ..standardized import communalities

        return communalities(self)

    @property
    def uniquenesses(self) -> Array:
        """(n_features,) the share of the noise in each feature's variance: one less its communality."""
        return 1.0 - self.communalities

    @property
    def empty(self) -> NDArray[np.bool_]:
        """(n_factors,) which factors hold next to nothing, by `explained.is_empty`; they come last."""
        return self._sums().empty(self._weights())

    @property
    def empty_by_group(self) -> NDArray[np.bool_]:
        """(n_groups, n_factors) which factors hold no more than 1 % of the variance of which group of features."""
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

        Examples
        --------
        >>> import sparsefactor as sf
        >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=4, seed=0)
        >>> p = sf.fit_vi(sim.X, sf.Prior(n_factors=1), n_trials=2)
        >>> p.save("fit.h5")
        >>> sf.load("fit.h5").elbo == p.elbo
        True
        """
        from ..storage import save

        save(self, path, precision)

    def _coords(self) -> dict[str, Any]:
        groups = {"group": self.prior.group_names} if self.prior.grouped else {}
        return {
            "feature": self.labels.feature_names,
            "observation": self.labels.sample_names,
            "factor": np.arange(self.n_factors),
            **groups,
        }
