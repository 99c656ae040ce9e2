"""SparseFactorAnalysis keeps scikit-learn's contract, and says what the posterior says."""

from __future__ import annotations

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import sparsefactor as sf

QUICK = {"n_init": 2, "tol": 1e-4, "random_state": 0}


def simulated(missing: float = 0.0, seed: int = 1) -> np.ndarray:
    return sf.simulate(n_features=20, n_samples=40, inclusion=[0.6, 0.5], snr=4, missing=missing, seed=seed).X


def named(X: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"gene {i}" for i in range(X.shape[1])])


# None is exempt. check_array_api_input skips itself unless SCIPY_ARRAY_API is set: NumPy arrays alone are taken.
@parametrize_with_checks([sf.SparseFactorAnalysis(n_components=2, n_init=1, tol=1e-3)])
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def fitted() -> sf.SparseFactorAnalysis:
    return sf.SparseFactorAnalysis(n_components=5, **QUICK).fit(named(simulated(0.1)))


def test_attributes_are_the_posteriors(fitted):
    p = fitted.posterior_
    kept = np.flatnonzero(~p.empty)
    assert fitted.n_components_ == len(kept) == 2
    np.testing.assert_array_equal(fitted.components_, p.loadings_mean[:, kept].T)
    np.testing.assert_array_equal(fitted.components_sd_, p.loadings_sd[:, kept].T)
    np.testing.assert_array_equal(fitted.inclusion_prob_, p.inclusion_prob[:, kept].T)
    np.testing.assert_array_equal(fitted.lfsr_, p.lfsr[:, kept].T)
    np.testing.assert_array_equal(fitted.explained_variance_ratio_, p.variance_explained(by="factor")[kept])
    np.testing.assert_array_equal(fitted.noise_variance_, 1 / p.noise_precision_mean)
    # With holes the means are part of the model, and nearer to those of the whole than means of what is seen.
    whole, seen = simulated().mean(axis=0), np.nanmean(simulated(0.1), axis=0)
    assert np.abs(fitted.mean_ - whole).mean() < 0.8 * np.abs(seen - whole).mean()
    assert fitted.lower_bound_ == p.elbo
    assert fitted.converged_
    assert fitted.n_iter_ >= 1
    assert list(fitted.feature_names_in_) == [f"gene {i}" for i in range(20)]
    assert list(fitted.get_feature_names_out()) == ["sparsefactoranalysis0", "sparsefactoranalysis1"]


def test_the_strongest_factor_comes_first(fitted):
    assert (np.diff(fitted.explained_variance_ratio_) <= 0).all()
    assert fitted.explained_variance_ratio_.min() > 0.05


def test_questions_are_passed_on(fitted):
    X = named(simulated(0.1, seed=2))
    p = fitted.posterior_
    kept = np.flatnonzero(~p.empty)
    np.testing.assert_array_equal(fitted.transform(X), p.transform(X).to_numpy()[:, kept])
    np.testing.assert_array_equal(fitted.impute(X), p.impute(X))
    assert isinstance(fitted.impute(X), np.ndarray)
    np.testing.assert_array_equal(fitted.score_samples(X), p.log_density(X))
    assert fitted.score(X) == pytest.approx(p.log_density(X).mean())
    np.testing.assert_array_equal(fitted.get_covariance(), p.covariance())
    signal = fitted.inverse_transform(fitted.transform(X))
    np.testing.assert_allclose(signal, p.transform(X).to_numpy() @ p.loadings_mean.T + p.labels.offset, atol=1e-6)


def test_frames_come_out_where_asked(fitted):
    frame = clone(fitted).set_output(transform="pandas").fit(named(simulated())).transform(named(simulated()))
    assert list(frame.columns) == ["sparsefactoranalysis0", "sparsefactoranalysis1"]


def test_it_works_in_a_pipeline_and_a_grid():
    search = GridSearchCV(
        make_pipeline(StandardScaler(), sf.SparseFactorAnalysis(**QUICK)),
        {"sparsefactoranalysis__n_components": [1, 2]},
        cv=3,
        error_score="raise",
    )
    search.fit(simulated(0.05))
    assert search.best_params_ == {"sparsefactoranalysis__n_components": 2}


def test_joblib_keeps_it(fitted, tmp_path):
    joblib.dump(fitted, tmp_path / "model.joblib")
    X = named(simulated(seed=2))
    np.testing.assert_array_equal(joblib.load(tmp_path / "model.joblib").transform(X), fitted.transform(X))


def test_clones_and_jobs_give_the_same_bits(fitted):
    again = clone(fitted).set_params(n_jobs=2).fit(named(simulated(0.1)))
    np.testing.assert_array_equal(again.components_, fitted.components_)


def test_a_warm_start_goes_on():
    X = simulated()
    model = sf.SparseFactorAnalysis(n_components=2, warm_start=True, **QUICK).fit(X)
    before = model.lower_bound_
    model.fit(X)
    assert model.lower_bound_ >= before - 1e-3
    assert list(model.posterior_.trials["start"]) == ["warm"]
    with pytest.raises(ValueError, match="a warm start needs the features and factors of the last fit"):
        model.fit(X[:, :10])


def test_sampling_is_a_setting_away():
    counts = {"n_chains": 2, "n_warmup": 100, "n_draws": 200}
    prior = sf.Prior(n_factors=2, inclusion=0.5)
    model = sf.SparseFactorAnalysis(inference="mcmc", prior=prior, random_state=0, **counts).fit(simulated())
    assert isinstance(model.posterior_, sf.MCMCPosterior)
    assert model.n_iter_ == 300
    assert np.isnan(model.lower_bound_)
    assert model.transform(simulated(seed=2)).shape == (40, 2)


def test_scaling_is_a_setting():
    X = simulated() * np.arange(1, 21)
    model = sf.SparseFactorAnalysis(n_components=2, scale=True, **QUICK).fit(X)
    np.testing.assert_allclose(model.scale_, X.std(axis=0))
    signal = model.posterior_.predicted()
    np.testing.assert_allclose(model.inverse_transform(model.transform(X)), signal, atol=0.05 * np.abs(signal).max())


def test_a_random_state_is_drawn_from():
    X = simulated()
    state = np.random.RandomState(0)
    model = sf.SparseFactorAnalysis(n_components=2, n_init=1, tol=1e-4, random_state=state).fit(X)
    assert model.converged_
    assert state.randint(1000) != np.random.RandomState(0).randint(1000)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"inference": "em"}, ValueError, "inference must be one of \\('vi', 'mcmc'\\); got 'em'"),
        (
            {"n_components": 3, "prior": sf.Prior(n_factors=2)},
            ValueError,
            "n_components must come from one place; got 3",
        ),
        ({"prior": 0.1}, TypeError, "prior must be a Prior; got 0.1; pass e.g. n_components=6"),
        ({"n_components": 0}, ValueError, "n_components must be a whole number of at least 1"),
        ({"n_init": 0}, ValueError, "n_init must be a whole number of at least 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, error, message):
    model = sf.SparseFactorAnalysis(**settings)
    with pytest.raises(error, match=message):
        model.fit(simulated())


def test_features_in_another_order_are_refused(fitted):
    X = named(simulated(seed=2))
    with pytest.raises(ValueError, match="same order"):
        fitted.transform(X.iloc[:, ::-1])


@pytest.mark.parametrize("question", ["transform", "impute", "score_samples", "score", "inverse_transform"])
def test_nothing_is_answered_before_the_fit(question):
    model = sf.SparseFactorAnalysis()
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(model, question)(simulated())


def test_activations_of_other_factors_are_refused(fitted):
    with pytest.raises(ValueError, match="must have 2 columns"):
        fitted.inverse_transform(np.zeros((3, 5)))


def test_data_without_signal_have_no_components():
    noise = np.random.default_rng(0).standard_normal((40, 8))
    model = sf.SparseFactorAnalysis(n_components=3, **QUICK).fit(noise)
    assert model.components_.shape == (0, 8)
    assert model.transform(noise).shape == (40, 0)
    np.testing.assert_allclose(model.inverse_transform(model.transform(noise)), np.tile(model.mean_, (40, 1)))


def test_tags_say_that_entries_may_be_missing():
    from sklearn.utils import get_tags

    assert get_tags(sf.SparseFactorAnalysis()).input_tags.allow_nan


def test_progress_is_shown_where_asked(capsys):
    X = simulated()
    for verbose in (0, 1):
        sf.SparseFactorAnalysis(**{**QUICK, "verbose": verbose}).fit(X)
        assert bool(capsys.readouterr().err) == bool(verbose)


def test_covariates_may_have_slabs():
    known = np.random.default_rng(0).standard_normal((len(simulated()), 1))
    model = sf.SparseFactorAnalysis(**QUICK, covariate_loadings="slab").fit(simulated(), covariates=known)
    assert model.posterior_.labels.covariate_slab


def test_a_sparse_matrix_goes_through():
    from scipy import sparse

    X = np.where(np.abs(simulated()) > 0.8, simulated(), 0.0)
    settings = {"n_components": 3, **QUICK}
    model, dense = (sf.SparseFactorAnalysis(**settings).fit(given) for given in (sparse.csr_array(X), X))
    np.testing.assert_allclose(model.lower_bound_, dense.lower_bound_, rtol=1e-9)
    np.testing.assert_allclose(model.transform(sparse.csr_array(X)), dense.transform(X), atol=1e-6)
    assert model.__sklearn_tags__().input_tags.sparse


def test_what_comes_back_has_the_means_of_the_model(fitted):
    """With holes the means are fitted; activations of zero are a sample at these."""
    np.testing.assert_array_equal(fitted.inverse_transform(np.zeros((1, 2)))[0], fitted.mean_)
