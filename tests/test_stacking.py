"""Stacking: chains are weighted by how well each predicts entries left out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import sparsefactor as sf
from sparsefactor.questions.stacking import entry_density, mixture_weights, without_itself


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("by_sample", [False, True])
def test_an_entry_given_the_others_of_its_sample(missing, by_sample):
    rng = np.random.default_rng(0)
    G, N, K = 6, 4, 2
    L, Y = rng.normal(size=(G, K)), rng.normal(size=(N, G))
    precision = rng.gamma(3, size=(N, 1) if by_sample else (1, G))
    if missing:
        Y[0, 1] = Y[2, 3] = Y[2, 4] = np.nan
    found = entry_density(L, precision, Y)
    for j in range(N):
        own = np.broadcast_to(precision, Y.shape)[j]
        covariance = L @ L.T + np.diag(1 / own)
        for i in range(G):
            if np.isnan(Y[j, i]):
                assert np.isnan(found[j, i])
                continue
            others = np.flatnonzero((np.arange(G) != i) & ~np.isnan(Y[j]))
            gain = np.linalg.solve(covariance[np.ix_(others, others)], covariance[others, i])
            variance = covariance[i, i] - gain @ covariance[others, i]
            wanted = stats.norm.logpdf(Y[j, i], gain @ Y[j, others], np.sqrt(variance))
            assert found[j, i] == pytest.approx(wanted, rel=1e-9)


def test_leaving_one_out_by_importance_is_the_exact_density():
    """A normal mean under a flat prior: the predictive density of one number given the others is known."""
    rng = np.random.default_rng(1)
    y = rng.normal(size=30)
    draws = rng.normal(y.mean(), 1 / np.sqrt(len(y)), size=20_000)
    found = without_itself(stats.norm.logpdf(y, draws[:, None]))
    for i, value in enumerate(y):
        rest = np.delete(y, i)
        exact = stats.norm.logpdf(value, rest.mean(), np.sqrt(1 + 1 / len(rest)))
        assert found[i] == pytest.approx(exact, abs=0.02)
    naive = np.log(np.mean(stats.norm.pdf(y, draws[:, None]), axis=0))
    assert naive.sum() > found.sum() + 0.5  # an entry that is judged by draws that saw it looks better than it is


def test_weights_are_the_best_mixture():
    rng = np.random.default_rng(2)
    log_p = rng.normal(size=(4, 500)) * [[1.0], [1.5], [0.5], [1.0]] - [[0.0], [0.3], [0.0], [4.0]]
    w = mixture_weights(log_p)
    p = np.exp(log_p)
    gradient = np.mean(p / (w @ p), axis=1)  # one wherever a weight is positive, and nowhere more: the optimum
    assert np.all(gradient < 1 + 1e-6)
    np.testing.assert_allclose(gradient[w > 1e-4], 1.0, atol=1e-5)
    assert w[3] < 1e-3


@pytest.fixture(scope="module")
def run():
    X = sf.simulate(n_features=30, n_samples=40, inclusion=[0.5, 0.5], snr=5, seed=1).X + 3.0
    prior = sf.Prior(n_factors=2, inclusion=0.5)
    return X, sf.sample(X, prior, n_chains=3, n_warmup=100, n_draws=150, center=True)


def test_a_chain_that_predicts_badly_loses_its_weight(run):
    X, mc = run
    worse = mc.draws.copy(deep=True)
    worse["posterior"]["loadings"].values[1, ..., 1] = 0.0  # a mode without the second factor
    spoilt = sf.MCMCPosterior(**{**vars_of(mc), "draws": worse})
    stacked = spoilt.combine("stacking", X)
    assert stacked.weights[1] < 0.05
    assert stacked.weights.sum() == pytest.approx(1.0)
    assert not np.allclose(stacked.loadings_mean, spoilt.loadings_mean)
    again = spoilt.combine(stacked.weights)
    np.testing.assert_array_equal(again.loadings_mean, stacked.loadings_mean)


def vars_of(mc):
    from dataclasses import fields

    return {field.name: getattr(mc, field.name) for field in fields(mc) if field.init}


def test_stacking_needs_the_data(run):
    X, mc = run
    with pytest.raises(ValueError, match=r'pass combine\("stacking", X\)'):
        mc.combine("stacking")
    with pytest.raises(ValueError, match=r"shape of the training data, \(40, 30\); got \(30, 40\)"):
        mc.combine("stacking", X.T)
    with pytest.raises(ValueError, match="weights must be 3 numbers"):
        mc.combine("averaging")
