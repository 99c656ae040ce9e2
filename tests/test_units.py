"""The answer does not depend on units or offsets of the data; numbers given in a prior are taken as they are."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, gamma, norm

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.model import PriorWarning

SIM = sf.simulate(n_features=40, n_samples=30, inclusion=[0.4] * 3, snr=4, seed=3)
HOLES = np.where(np.random.default_rng(1).random(SIM.X.shape) < 0.1, np.nan, SIM.X)
VI = {"n_trials": 3, "tol": 1e-9}
MCMC = {"n_chains": 1, "n_warmup": 5, "n_draws": 10, "init": "varimax", "progress": False, "seed": 4}


def sampled(X, prior):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.SamplingWarning)  # ten draws
        return sf.sample(X, prior, **MCMC)


@pytest.fixture(scope="module", params=["feature", "sample", "shared"])
def prior(request):
    return sf.Prior(n_factors=4, noise=request.param)


@pytest.fixture(scope="module")
def fit(prior):
    return sf.fit_vi(HOLES, prior, **VI)


@settings(deadline=None, max_examples=6)
@given(exponent=st.floats(-100, 100))
def test_a_fit_of_c_times_x_has_c_times_the_loadings(fit, prior, exponent):
    c = 10.0**exponent
    p = sf.fit_vi(c * HOLES, prior, **VI)
    assert p.converged
    np.testing.assert_allclose(p.inclusion_prob, fit.inclusion_prob, atol=1e-4)
    np.testing.assert_allclose(p.loadings_mean / c, fit.loadings_mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(p.loadings_sd / c, fit.loadings_sd, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(p.activations_mean, fit.activations_mean, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(p.noise_precision_mean * c * c, fit.noise_precision_mean, rtol=1e-4)
    np.testing.assert_allclose(p.reconstruct() / c, fit.reconstruct(), rtol=1e-3, atol=1e-3)
    # Densities of the data change by the Jacobian, and by nothing else.
    shift = np.isfinite(HOLES).sum() * np.log(c)
    assert p.elbo + shift == pytest.approx(fit.elbo, rel=1e-9, abs=1e-3)
    assert p.trials["elbo"].max() == pytest.approx(p.elbo)


@pytest.mark.parametrize("exponent", [-320, -33, -3, 3, 40, 320])
def test_draws_of_a_power_of_two_times_x_are_the_same_to_the_bit(prior, exponent):
    """Within the ordinary range nothing is divided; beyond it a power of two is, which loses no digit."""
    far = sampled(HOLES * 2.0 ** (2 * exponent if abs(exponent) < 10 else exponent), prior)
    near = sampled(HOLES, prior)
    assert np.array_equal(far.inclusion_prob, near.inclusion_prob) or abs(exponent) < 10
    np.testing.assert_allclose(far.activations_mean, near.activations_mean, rtol=1e-6, atol=1e-6)


def test_the_log_joint_is_that_of_the_data_as_they_are(prior):
    prior = replace(prior, factor_correlation="none")
    X = HOLES * 1e-6
    mc = sampled(X, prior)
    draws = mc.unlabelled_draws()["posterior"].to_dataset().isel(chain=0, draw=-1)
    data = as_data(X, center=True)
    Z, alpha, pi = (draws[name].values for name in ("inclusion", "loading_precision", "inclusion_rate"))
    # With holes, the features' means are part of the model (1.11).
    means = draws["intercept"].values
    value = sf.model.log_joint(
        data.without(means[:, None], np.ones((1, data.n_samples))),
        prior.in_units_of(data),
        L=draws["loadings"].values,
        F=draws["activations"].values.T,
        Z=Z,
        tau=draws["noise_precision"].values,
        alpha=alpha,
        pi=pi,
    )
    value += np.sum(norm.logpdf(means, scale=data.base_precision**-0.5))
    # The sampler's has alpha and pi integrated out: their densities given the rest are what it lacks (2.14).
    rate = prior.in_units_of(data).loading_rate
    count, l2 = Z.sum(axis=0), np.sum(draws["loadings"].values ** 2, axis=0)
    value -= np.sum(gamma.logpdf(alpha, prior.loading_shape + count / 2, scale=1 / (rate + l2 / 2)))
    value -= np.sum(beta.logpdf(pi, 1 + count, 1 + 40 - count))
    assert mc.draws["sample_stats"]["lp"].values[0, -1] == pytest.approx(value, rel=1e-6)


def test_rates_left_out_are_in_units_of_the_data():
    data = as_data(HOLES, center=True)
    for c in (1e-3, 1.0, 40.0):
        scaled = as_data(c * HOLES, center=True)
        for noise in ("feature", "sample", "shared"):
            one, other = (sf.Prior(n_factors=2, noise=noise).in_units_of(d) for d in (data, scaled))
            np.testing.assert_allclose(other.noise_rate, c**2 * np.asarray(one.noise_rate), rtol=1e-9)
            assert other.loading_rate == pytest.approx(c**2 * one.loading_rate)
    by_feature = sf.Prior(n_factors=2).in_units_of(data).noise_rate
    np.testing.assert_allclose(by_feature, 0.02 * np.nanvar(HOLES, axis=0), rtol=1e-12)


def test_a_feature_that_does_not_vary_has_a_noise_rate_all_the_same():
    X = SIM.X.copy()
    X[:, 3] = 7.0
    assert np.all(sf.Prior(n_factors=2).in_units_of(as_data(X, center=True)).noise_rate > 0)
    p = sf.fit_vi(X, n_factors=3, **VI)
    assert np.all(p.inclusion_prob[3] < 0.5)
    np.testing.assert_allclose(p.reconstruct()[:, 3], 7.0)


def test_numbers_are_taken_as_they_are_with_a_warning_where_they_outweigh_the_data():
    tiny = 1e-4 * SIM.X
    with pytest.warns(PriorWarning, match=r"noise_rate=0\.001 outweighs the data.*leave it out"):
        sf.fit_vi(tiny, sf.Prior(n_factors=3, noise_rate=1e-3), **VI)
    with pytest.warns(PriorWarning, match=r"loading_rate=1 outweighs the data"):
        sf.fit_vi(tiny, sf.Prior(n_factors=3, loading_rate=1.0), **VI)
    sf.fit_vi(SIM.X, sf.Prior.paper(n_factors=3), **VI)  # warns of nothing


def test_the_papers_prior_is_literal():
    prior = sf.Prior.paper(n_factors=5)
    assert (prior.noise_shape, prior.noise_rate, prior.loading_shape, prior.loading_rate) == (1e-3,) * 4
    assert prior.inclusion == 0.1
    np.testing.assert_array_equal(prior.in_units_of(as_data(SIM.X)).noise_rate, np.full(40, 1e-3))
    assert sf.Prior.paper(n_factors=2, noise_rate=0.5).noise_rate == 0.5


def test_a_noise_rate_for_each_feature():
    rates = np.linspace(0.1, 2.0, 40)
    prior = sf.Prior(n_factors=3, noise_rate=rates)
    np.testing.assert_array_equal(prior.in_units_of(as_data(SIM.X)).noise_rate, rates)
    assert sf.fit_vi(SIM.X, prior, **VI).converged
    with pytest.raises(ValueError, match="one for each feature; got 39 for 40"):
        sf.fit_vi(SIM.X, sf.Prior(n_factors=3, noise_rate=rates[1:]), **VI)
    with pytest.raises(ValueError, match="noise_rate must be positive"):
        sf.Prior(n_factors=3, noise_rate=[1.0, -1.0])


@pytest.mark.parametrize("offset", [1e3, 1e6, 1e8])
def test_an_offset_changes_nothing(offset):
    means = offset * np.random.default_rng(0).uniform(-1, 1, SIM.X.shape[1])
    plain, shifted = (sf.fit_vi(X, n_factors=4, **VI) for X in (SIM.X, SIM.X + means))
    digits = max(1e-6, offset * 1e-13)  # what adding it left of X itself
    np.testing.assert_allclose(shifted.inclusion_prob, plain.inclusion_prob, atol=1e-3)
    np.testing.assert_allclose(shifted.loadings_mean, plain.loadings_mean, atol=1e-3)
    assert shifted.elbo == pytest.approx(plain.elbo, abs=0.05)
    np.testing.assert_allclose(shifted.reconstruct() - means, plain.reconstruct(), atol=1e-3 + 10 * digits)


@pytest.mark.parametrize("run", [sf.fit_vi, sf.sample])
@pytest.mark.parametrize("X", [SIM.X, HOLES], ids=["complete", "holes"])
def test_an_offset_that_drowns_the_data_is_refused_when_it_is_to_stay(run, X):
    with pytest.raises(ValueError, match=r"mean must not drown its variation.*pass center=True"):
        run(X + 1e6, n_factors=3, center=False)


def test_ordinary_means_and_constants_may_stay():
    X = SIM.X + 100.0
    X[:, 0] = 5.0
    assert sf.fit_vi(X, n_factors=4, center=False, **VI).converged


def test_scaling_is_undone():
    spread = 10.0 ** np.random.default_rng(2).uniform(-3, 3, SIM.X.shape[1])
    one, other = (sf.fit_vi(X, n_factors=4, scale=True, **VI) for X in (HOLES, HOLES * spread + 3.0))
    np.testing.assert_allclose(other.loadings_mean, one.loadings_mean, atol=1e-5)
    np.testing.assert_allclose(other.labels.scale, np.nanstd(HOLES, axis=0) * spread)
    np.testing.assert_allclose((other.reconstruct() - 3.0) / spread, one.reconstruct(), atol=1e-4)
    np.testing.assert_array_equal(sf.fit_vi(HOLES, n_factors=4, **VI).labels.scale, np.ones(40))


@pytest.mark.parametrize("option", ["center", "scale"])
def test_center_and_scale_are_true_or_false(option):
    with pytest.raises(TypeError, match=f"{option} must be True or False; got 'yes'"):
        sf.fit_vi(SIM.X, n_factors=2, **{option: "yes"})


def test_a_number_of_factors_makes_a_prior():
    assert sf.fit_vi(SIM.X, n_factors=3, **VI).prior.n_factors == 3
    assert isinstance(sf.Prior(n_factors=3).inclusion, sf.Beta)
    with pytest.raises(ValueError, match="n_factors must come from one place"):
        sf.fit_vi(SIM.X, sf.Prior(n_factors=3), n_factors=4)


def test_seeds_as_numpy_users_expect():
    def loadings(seed):
        return sf.fit_vi(SIM.X, n_factors=3, n_trials=1, tol=1e3, init="random", seed=seed).loadings_mean

    np.testing.assert_array_equal(*(loadings(np.random.default_rng(5)) for _ in range(2)))
    assert not np.array_equal(loadings(None), loadings(None))
    for seed in (-1, 1.5, True, "0"):
        with pytest.raises(ValueError, match="seed must be a whole number of at least 0, None or a numpy Generator"):
            loadings(seed)


@pytest.mark.parametrize(
    "call",
    [
        lambda X, prior: sf.fit_vi(X, prior, n_trials=1),
        lambda X, prior: sf.sample(X, prior, n_chains=1, n_warmup=1, n_draws=4),
    ],
)
def test_a_warning_points_at_the_callers_line(call):
    X = np.random.default_rng(0).standard_normal((8, 6))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call(X, sf.Prior(n_factors=1, noise_rate=1e6))
    assert PriorWarning in {one.category for one in caught}
    assert {one.filename for one in caught} == {__file__}
