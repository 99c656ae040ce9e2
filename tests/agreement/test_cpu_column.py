"""The compiled draws of precisions and rates agree with the oracle on the same state and noise."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.problems import prior_for, random_gibbs_state, small_data

from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.contract import ColumnNoise, PrecisionNoise
from sparsefactor.kernels.noise import row_stream
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.model import Beta

G, N, K = 30, 20, 3


@pytest.mark.parametrize("noise", ["feature", "shared", "sample"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("inclusion", [[0.2, 0.5, 0.9], Beta(1.0, 2.0), np.full((30, 3), 0.3)])
@pytest.mark.parametrize("groups", [None, [0, 1, 2] * 10])
def test_columns_agree(engine, noise, missing, inclusion, groups):
    data = small_data(G, N, K, missing=missing)
    prior = prior_for(K, inclusion=inclusion, noise=noise, groups=groups)
    V = 1 if groups is None else 3
    state = random_gibbs_state(data, prior)
    state = state._replace(rows=state.rows._replace(Z=state.rows.Z.copy(), L=state.rows.L.copy()))
    state.rows.Z[:, 2], state.rows.L[:, 2] = 0, 0.0  # an empty factor, which a proposal can change
    rng = np.random.default_rng(0)
    draws = ColumnNoise(
        order=np.array([2, 0, 1, 2]),
        proposal=rng.standard_normal((4, V, 2)) * [3.0, 2.0] + [6.0, 0.0],
        log_uniform=np.log(rng.random((4, V))) - 5.0,
        log_height=np.log(rng.random((4, V, 2))),
        bracket=rng.random((4, V, 2)),
        tries=rng.random((4, V, 2, 60)),
        stream=row_stream(rng),
    )
    results = []
    for kernels in (ReferenceEngine(data, prior), engine(data, prior)):
        gibbs = Gibbs(data, prior, kernels)
        given = (*state.rows, *gibbs.columns(state))
        before = [a.copy() for a in given]
        results.append(kernels.gibbs_columns(state.rows, gibbs.columns(state), draws))
        assert all(np.array_equal(a, b) for a, b in zip(before, given, strict=True))
    (expected, alpha, logit), (actual, alpha_actual, logit_actual) = results
    assert np.array_equal(actual.Z, expected.Z)
    assert np.allclose(actual.L, expected.L, rtol=1e-9, atol=1e-9)
    assert np.allclose(alpha_actual, alpha, rtol=1e-9)
    assert np.allclose(logit_actual, logit, rtol=1e-9)
    assert np.all(alpha != state.alpha)
    assert np.any(logit != gibbs.inclusion.logit(state)) == isinstance(inclusion, Beta)


@pytest.mark.parametrize("groups", [None, [0, 1, 2] * 10])
def test_what_belongs_to_one_feature_agrees(engine, groups):
    data = small_data(G, N, K)
    prior = prior_for(K, inclusion=0.5, groups=groups)
    state = random_gibbs_state(data, prior)
    Z, L = state.rows.Z.copy(), state.rows.L * 0.3
    Z[:, 2], L[:, 2] = 0, 0.0  # a factor that is loose: a row may have it to itself
    Z[25], L[25] = 0, 0.0
    state = state._replace(rows=state.rows._replace(Z=Z, L=L))
    rng = np.random.default_rng(1)
    draws = PrecisionNoise(start=20, n_rows=24, stream=row_stream(rng), normal=rng.standard_normal((K, N)))
    (expected, F), (actual, F_actual) = (
        kernels(data, prior).gibbs_precisions(
            state.rows, Gibbs(data, prior, kernels(data, prior)).columns(state), draws
        )
        for kernels in (ReferenceEngine, engine)
    )
    assert np.array_equal(actual.Z, expected.Z)
    assert np.allclose(actual.L, expected.L, rtol=1e-7, atol=1e-9)
    assert np.allclose(actual.tau, expected.tau, rtol=1e-7)
    assert np.allclose(F_actual, F, rtol=1e-7, atol=1e-8)
    assert np.any(np.asarray(actual.Z)[:, 2] != 0)
    assert {i % G for i in range(20, 44)} == set(np.flatnonzero(np.asarray(actual.tau) != state.rows.tau))
