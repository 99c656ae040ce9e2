"""Whatever is called a probability lies in [0, 1] exactly: other libraries refuse 1 + 4e-16."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.modules import started
from tests.helpers.problems import MILD, small_data

import sparsefactor as sf
from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.storage.moments import mixture, posterior_fields
from sparsefactor.vi.cavi import CAVI
from sparsefactor.vi.modules import under_modules


def assert_probabilities(values) -> None:
    values = np.asarray(values)
    assert np.isfinite(values).all()
    assert values.min() >= 0.0
    assert values.max() <= 1.0


@pytest.fixture(scope="module")
def clear() -> sf.Simulation:
    """Loadings of which one can be sure."""
    return sf.simulate(n_features=300, n_samples=60, inclusion=[0.5] * 4, snr=50, seed=0)


def test_variational_inference_with_modules(clear):
    prior = sf.Prior(n_factors=5, inclusion=sf.Beta(1, 1), n_modules=7)
    vi = sf.fit_vi(clear.X, prior, n_trials=2, seed=0)
    assert np.max(vi.inclusion_prob) == 1.0  # or there is nothing to round above one
    for values in (vi.inclusion_prob, vi.module_prob, vi.module_rate_mean, vi.module_weight_mean):
        assert_probabilities(values)
    assert_probabilities(vi.inclusion_rate_mean)
    np.random.default_rng(0).binomial(1, vi.inclusion_prob)


@pytest.mark.parametrize("engine", [ReferenceEngine, CpuEngine])
def test_modules_whose_shares_add_up_to_more_than_one(engine):
    """A prior that is sure of every loading; of 300 rows some have shares that round above one."""
    data = small_data(G=300, N=6)
    prior = sf.Prior(n_factors=2, inclusion=sf.Beta(1.5, 2.5), **MILD)
    plain = CAVI(data, prior, engine(data, prior))
    cavi = under_modules(plain, 7)
    state = started(cavi, plain)
    sure = state.columns._replace(pi_a=np.full((2, 8), 1e20))
    state = cavi.finish(state.rows, sure, np.ones(2))
    assert np.any(state.rows.member.sum(axis=1) > 1.0)
    assert state.rows.eta.max() == 1.0
    assert_probabilities(state.rows.eta)
    assert_probabilities(state.rows.member)


def test_weights_of_chains_that_add_up_to_more_than_one():
    weights = np.full(3, (1 + 1e-15) / 3)
    ones, zeros = np.ones((3, 2, 2)), np.zeros((3, 2, 2))
    names = ("loadings", "inclusion", "activations", "noise_precision", "loading_precision", "inclusion_rate")
    assert np.tensordot(weights, ones, axes=1).max() > 1.0
    fields = posterior_fields(mixture(dict.fromkeys(names, (ones, zeros)), weights))
    assert_probabilities(fields["inclusion_prob"])
    assert_probabilities(fields["inclusion_rate_mean"])


@pytest.mark.parametrize("inclusion", [0.5, sf.Beta(1, 1)])
def test_both_methods_without_modules(clear, inclusion):
    prior = sf.Prior(n_factors=4, inclusion=inclusion)
    vi = sf.fit_vi(clear.X, prior, n_trials=2, seed=0)
    mc = sf.sample(clear.X, prior, n_chains=3, n_warmup=10, n_draws=7, seed=0, progress=False)
    for p in (vi, mc):
        assert_probabilities(p.inclusion_prob)
        if isinstance(inclusion, sf.Beta):
            assert_probabilities(p.inclusion_rate_mean)


def test_similarity_of_a_posterior_with_itself():
    rng = np.random.default_rng(0)
    for _ in range(50):
        sim = sf.simulate(n_features=7, n_samples=5, inclusion=[0.9] * 3, snr=5, seed=int(rng.integers(1000)))
        assert_probabilities(sf.match(sim, sim).similarity)
