"""The compiled shears agree with the oracle on the same state and noise."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.problems import prior_for, random_gibbs_state, small_data

from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.contract import ShearNoise
from sparsefactor.kernels.noise import row_stream
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.model import Beta


@pytest.mark.parametrize("noise", ["feature", "shared", "sample"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("inclusion", [[0.2, 0.5, 0.9], Beta(1.0, 1.0), np.full((30, 3), 0.3)])
@pytest.mark.parametrize("groups", [None, [0, 1, 2] * 10])
@pytest.mark.parametrize("correlation", ["none", "learnt"])
def test_shears_agree(engine, noise, missing, inclusion, groups, correlation):
    G, N, K = 30, 20, 3
    data = small_data(G, N, K, missing=missing)
    prior = prior_for(K, inclusion=inclusion, noise=noise, groups=groups, correlation=correlation)
    state = random_gibbs_state(data, prior)
    rng = np.random.default_rng(0)
    draws = ShearNoise(
        order=np.array([2, 0, 1, 2]),
        step=rng.standard_normal((4, K, 3)) * [0.01, 0.1, 0.5],
        log_uniform=np.log(rng.random((4, K, 3))),
        stream=row_stream(rng),
    )
    results = []
    for kernels in (ReferenceEngine(data, prior), engine(data, prior)):
        gibbs = Gibbs(data, prior, kernels)
        given = (*state.rows, *gibbs.columns(state))
        before = [a.copy() for a in given]
        results.append(kernels.gibbs_shear(state.rows, gibbs.columns(state), draws))
        assert all(np.array_equal(a, b) for a, b in zip(before, given, strict=True))
    (expected, F, phi), (actual, F_actual, phi_actual) = results
    assert np.array_equal(actual.Z, expected.Z)
    assert np.allclose(actual.L, expected.L, rtol=1e-9, atol=1e-9)
    assert np.allclose(F_actual, F, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(phi_actual, phi, rtol=1e-9, atol=1e-9)
    assert correlation == "none" or not np.allclose(phi, state.phi)
    assert not np.allclose(F, state.F)
