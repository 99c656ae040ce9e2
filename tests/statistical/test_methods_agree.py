"""VI and long Gibbs agree where the posterior is nearly Gaussian; both agree with a fully observed mask."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.problems import prior_for, random_gibbs_state, random_vi_state

import sparsefactor as sf
from sparsefactor.data import Data, as_data
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.noise import stream_key
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.vi.cavi import CAVI


@pytest.mark.statistical
def test_vi_and_gibbs_agree_on_a_nearly_gaussian_posterior():
    # One strong factor, many samples: the posterior is concentrated and mean field loses little.
    sim = sf.simulate(n_features=12, n_samples=200, inclusion=[0.7], snr=8, seed=3)
    prior = sf.Prior(n_factors=1, inclusion=0.5)
    vi = sf.fit_vi(sim.X, prior, n_trials=2)
    mc = sf.sample(sim.X, prior, n_chains=2, n_warmup=300, n_draws=1500)
    sign = np.sign(np.sum(vi.activations_mean * mc.activations_mean))
    scale = np.linalg.norm(mc.activations_mean) / np.linalg.norm(vi.activations_mean)
    assert scale == pytest.approx(1.0, abs=0.02)
    assert np.abs(vi.inclusion_prob - mc.inclusion_prob).max() < 0.05
    assert np.abs(sign * vi.loadings_mean - mc.loadings_mean).max() < 0.03
    assert np.abs(sign * vi.activations_mean - mc.activations_mean).max() < 0.05
    assert np.allclose(vi.noise_precision_mean, mc.noise_precision_mean, rtol=0.05)
    assert np.allclose(vi.activations_sd.mean(), mc.activations_sd.mean(), rtol=0.25)
    # Negative control: data of another seed give another answer by far more than these margins.
    other = sf.fit_vi(sf.simulate(n_features=12, n_samples=200, inclusion=[0.7], snr=8, seed=4).X, prior, n_trials=2)
    assert np.abs(np.abs(other.loadings_mean) - np.abs(mc.loadings_mean)).max() > 0.3


@pytest.mark.parametrize("noise", ["feature", "shared", "sample"])
def test_a_fully_observed_mask_is_complete_data(noise):
    complete = as_data(np.random.default_rng(0).standard_normal((5, 6)))
    masked = Data(
        Y=complete.Y,
        observed=np.ones(complete.Y.shape, dtype=bool),
        offset=complete.offset,
        feature_names=complete.feature_names,
        sample_names=complete.sample_names,
    )
    prior = prior_for(2, noise=noise)
    states, draws = [], []
    for data in (complete, masked):
        cavi = CAVI(data, prior, ReferenceEngine(data, prior))
        state = random_vi_state(cavi)
        for _ in range(5):
            state = cavi.sweep(state)
        states.append(state)
        gibbs, draw = Gibbs(data, prior, ReferenceEngine(data, prior)), random_gibbs_state(data, prior)
        for t in range(5):
            draw, _ = gibbs.sweep(draw, stream_key(0, 0), t)
        draws.append(draw)
    assert states[0].elbo == pytest.approx(states[1].elbo, rel=1e-12)
    assert np.allclose(states[0].rows.mu, states[1].rows.mu, rtol=1e-10)
    assert np.allclose(draws[0].F, draws[1].F, rtol=1e-9)
    assert np.array_equal(draws[0].rows.Z, draws[1].rows.Z)
