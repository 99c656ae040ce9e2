"""Standardised loadings, lists by size, and what is said of dense factors."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

import sparsefactor as sf
from sparsefactor.standardized import dense_sentence, salient


@pytest.fixture(scope="module")
def sim() -> sf.Simulation:
    return sf.simulate(n_features=40, n_samples=120, inclusion=[0.4, 0.4], snr=2, seed=0)


@pytest.fixture(scope="module")
def fit(sim) -> sf.VIPosterior:
    return sf.fit_vi(sim.X, n_factors=2)


def test_standardised_loadings_do_not_depend_on_units(sim, fit) -> None:
    scaled = sf.fit_vi(sim.X * np.linspace(1, 50, 40), n_factors=2, scale=True)
    both = sf.fit_vi(sim.X, n_factors=2, scale=True)
    np.testing.assert_allclose(scaled.standardized_loadings, both.standardized_loadings, atol=1e-6)
    size = np.sqrt(np.mean(fit.activations_mean**2 + fit.activations_sd**2, axis=0))
    expected = fit.loadings_mean * size / sim.X.std(axis=0)[:, None]
    np.testing.assert_allclose(fit.standardized_loadings, expected, rtol=1e-9)
    np.testing.assert_allclose(fit.communalities + fit.uniquenesses, 1.0)
    assert np.corrcoef(fit.communalities, fit.variance_explained(by="feature"))[0, 1] > 0.99


def test_discoveries_by_size_are_those_whose_probability_says_so(sim, fit) -> None:
    table = fit.discoveries(0.05, min_loading=0.3)
    assert 0 < len(table) < len(fit.discoveries(0.05))
    scale = fit.standardized_loadings / np.where(fit.loadings_mean == 0, 1, fit.loadings_mean)
    mu, sd, eta = fit.parameters["mu"], np.sqrt(fit.parameters["s2"]), fit.parameters["eta"]
    with np.errstate(divide="ignore"):
        bound = 0.3 / np.where(scale > 0, scale, np.nan)
    wrong = 1 - eta * (norm.sf((bound - mu) / sd) + norm.cdf((-bound - mu) / sd))
    for k, own in table.groupby("factor"):
        assert own.fdr.iloc[-1] == pytest.approx(wrong[own.feature.to_numpy(int), k - 1].mean(), abs=1e-9)
    draws = sf.sample(sim.X, fit.prior, init=fit, n_chains=1, n_warmup=50, n_draws=100)
    assert 0 < len(draws.discoveries(0.05, min_loading=0.3)) < len(draws.discoveries(0.05))
    with pytest.raises(ValueError, match='goes with by="inclusion"'):
        fit.discoveries(by="sign", min_loading=0.3)


def test_salient_features_are_counted_and_dense_factors_named(fit) -> None:
    expected = (np.abs(fit.standardized_loadings) >= 0.3).sum(axis=0)
    assert salient(fit).tolist() == fit.summary()["salient"].tolist() == expected.tolist()
    assert dense_sentence(fit) == ""
    X = sf.simulate(n_features=40, n_samples=120, inclusion=[1.0], snr=5, seed=0).X
    dense = sf.fit_vi(X, n_factors=1)
    assert dense_sentence(dense).startswith("Factor 1 loads on nearly all features; inclusion does not select here.")
    assert "inclusion does not select here" in repr(dense)


def test_inclusion_goes_without_a_prior(sim) -> None:
    p = sf.fit_vi(sim.X, n_factors=2, inclusion=0.1)
    np.testing.assert_array_equal(p.loadings_mean, sf.fit_vi(sim.X, sf.Prior(n_factors=2, inclusion=0.1)).loadings_mean)
    with pytest.raises(ValueError, match="inclusion must come from one place"):
        sf.fit_vi(sim.X, sf.Prior(n_factors=2), inclusion=0.1)


def test_a_table_of_loadings_is_standardised_sorted_and_cut(fit) -> None:
    table = fit.to_frame("loadings", standardized=True, sort=True, cutoff=0.3)
    values = fit.standardized_loadings
    assert table.notna().sum().tolist() == (np.abs(values) >= 0.3).sum(axis=0).tolist()
    first = int(table.index[0])
    assert np.argmax(np.abs(values[first])) == 0
    with pytest.raises(ValueError, match='are for "loadings"'):
        fit.to_frame("inclusion", cutoff=0.3)
