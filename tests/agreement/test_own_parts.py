"""What belongs to one feature, where entries are missing or there is a design: the compiled draws are the oracle's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.helpers.clusters import client_of
from tests.helpers.problems import prior_for, random_gibbs_state, small_data

from sparsefactor.data.patterns import patterns_of
from sparsefactor.design import Design
from sparsefactor.engine import build_engine
from sparsefactor.engine.dask.engine import DaskEngine
from sparsefactor.engine.own_parts import OwnParts
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.contract import PrecisionNoise
from sparsefactor.kernels.noise import row_stream
from sparsefactor.model import Beta

G, N, K = 18, 13, 3


def data_with(missing: float, directions: int):
    data = small_data(G, N, K, missing=missing)
    if missing:  # samples that share what is missing
        observed = data.observed.copy()
        observed[:, 4:8] = observed[:, 3:4]
        data = replace(data, observed=observed, Y=np.where(observed, data.Y, 0.0))
    if not directions:
        return data
    basis = np.vstack([np.ones(N), np.linspace(-1.0, 1.0, N)])[:directions]
    return replace(data, design=Design(basis, False, None, precision=0.8))


def state_of(data, prior):
    state = random_gibbs_state(data, prior)
    rng = np.random.default_rng(5)
    Z, L = state.rows.Z.copy(), state.rows.L * 0.4
    Z[:, 2], L[:, 2] = 0, 0.0  # a factor that is loose: a row may have it to itself
    Z[7], L[7] = 0, 0.0
    rows = state.rows._replace(Z=Z, L=L)
    if data.design is not None:
        rows = rows._replace(base=rng.standard_normal((G, len(data.design.basis))))
    return state._replace(rows=rows, scale=np.array([0.8, 1.3, 1.0]))


def noise_for(n_rows: int = 15, seed: int = 1):
    rng = np.random.default_rng(seed)
    return PrecisionNoise(start=12, n_rows=n_rows, stream=row_stream(rng), normal=rng.standard_normal((K, N)))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("missing", "directions"), [(0.3, 0), (0.3, 1), (0.7, 1), (0.0, 2), (0.3, 2)])
@pytest.mark.parametrize(
    ("inclusion", "groups"),
    [(0.5, None), (Beta(1.0, 2.0), [0, 1, 2] * 6), (np.full((G, K), 0.4), None)],
)
@pytest.mark.parametrize("correlation", ["none", "learnt"])
def test_compiled_draws_are_the_oracles(missing, directions, inclusion, groups, correlation, seed):
    data = data_with(missing, directions)
    prior = prior_for(K, inclusion=inclusion, groups=groups, correlation=correlation)
    state, draws, results = state_of(data, prior), noise_for(seed=seed), []
    for backend in ("reference", "cpu"):
        engine = build_engine(data, prior, backend, 1)
        assert "noise" in engine.moves
        columns = Gibbs(data, prior, engine).columns(state)
        before = [np.copy(a) for a in (*state.rows, *columns)]
        results.append(engine.gibbs_precisions(state.rows, columns, draws))
        assert all(np.array_equal(a, b) for a, b in zip(before, (*state.rows, *columns), strict=True))
    (expected, F), (actual, F_actual) = results
    assert np.array_equal(actual.Z, expected.Z)
    assert np.allclose(actual.L, expected.L, rtol=1e-7, atol=1e-9)
    assert np.allclose(actual.tau, expected.tau, rtol=1e-7)
    assert np.allclose(F_actual, F, rtol=1e-7, atol=1e-8)
    assert np.array_equal(actual.base, state.rows.base)
    assert np.any(actual.Z[:, 2] != 0)
    assert {i % G for i in range(12, 27)} == set(np.flatnonzero(actual.tau != state.rows.tau))


@pytest.mark.parametrize("directions", [0, 1])
def test_rows_that_are_elsewhere_are_drawn_the_same(directions):
    """On workers and on a device: to the bit, for they come here and go back."""
    pytest.importorskip("jax")
    data, prior = data_with(0.3, directions), prior_for(K, inclusion=0.5)
    state, draws = state_of(data, prior), noise_for()
    engine = build_engine(data, prior, "cpu", 1)
    columns = Gibbs(data, prior, engine).columns(state)
    expected, F = engine.gibbs_precisions(state.rows, columns, draws)
    for other in (build_engine(data, prior, "jax"), DaskEngine(data, prior, client_of(1))):
        assert "noise" in other.moves
        rows, F_other = other.gibbs_precisions(other.gibbs_return(state.rows), columns, draws)
        assert np.array_equal(F_other, F)
        assert all(np.array_equal(a, b) for a, b in zip(other.gibbs_fetch(rows), expected, strict=True))


def test_complete_data_have_the_draws_of_their_own_kernel():
    """And rows enough that inverses are built afresh on the way."""
    data, prior = small_data(100, N, K), prior_for(K, inclusion=0.5, correlation="learnt")
    state, draws = random_gibbs_state(data, prior), noise_for(n_rows=95)
    engine = build_engine(data, prior, "cpu", 1)
    columns = Gibbs(data, prior, engine).columns(state)
    expected, F = engine.gibbs_precisions(state.rows, columns, draws)
    actual, F_actual = OwnParts(data, prior).draw(state.rows, columns, draws)
    assert np.array_equal(actual.Z, expected.Z)
    for one, other in ((actual.L, expected.L), (actual.tau, expected.tau), (F_actual, F)):
        assert np.allclose(one, other, rtol=1e-7, atol=1e-8)


def test_samples_with_the_same_holes_lie_side_by_side():
    order, first, seen = patterns_of(data_with(0.3, 0))
    observed = data_with(0.3, 0).observed
    assert sorted(order) == list(range(N))
    assert np.max(np.diff(first)) >= 5
    assert first[-1] == N
    for p, kind in enumerate(seen):
        for j in order[first[p] : first[p + 1]]:
            assert np.array_equal(observed[:, j], kind)


def test_large_data_and_other_noise_are_left_out(monkeypatch):
    data = data_with(0.3, 1)
    assert "noise" not in build_engine(data, prior_for(K, noise="sample"), "cpu", 1).moves
    # The directions do not count: on workers, where they are out of sight, the same data must be small.
    monkeypatch.setattr("sparsefactor.engine.own_parts.SMALL", G * N * K**2)
    for engine in (build_engine(data, prior_for(K), "cpu", 1), DaskEngine(data, prior_for(K), client_of(1))):
        assert "noise" in engine.moves
    monkeypatch.setattr("sparsefactor.engine.own_parts.SMALL", G * N)
    assert "noise" not in DaskEngine(data, prior_for(K), client_of(1)).moves
    assert "noise" not in build_engine(data, prior_for(K), "cpu", 1).moves
    assert "noise" not in build_engine(data_with(0.3, 0), prior_for(K), "cpu", 1).moves
