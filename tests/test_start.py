"""Starting points: exact where they claim to be, repeatable, finite, and different from each other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor import start as starts_module
from sparsefactor.data import as_data
from sparsefactor.engine import build_engine
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.start import MADE, ROTATIONS, Leading, Start, StartMaker, leading_vectors, own_start


def matrix(G: int, N: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((G, 5)) @ rng.standard_normal((5, N)) + 0.1 * rng.standard_normal((G, N))


def engine_for(X: np.ndarray, K: int = 3, **prior):
    data = as_data(X)
    return ReferenceEngine(data, sf.Prior(n_factors=K, **prior))


def vectors(engine, rank: int):
    """Left and right singular vectors with the values in the former, of the data as they are."""
    matrix = engine.start_matrix()
    s, V = leading_vectors(engine, matrix, rank, np.random.default_rng(0))
    return matrix.scale * s, matrix.scale * matrix.times(V), V


@pytest.mark.parametrize(("G", "N"), [(50, 20), (20, 50), (30, 30)])
@pytest.mark.parametrize("limit", [1500, 5])
def test_leading_vectors_are_those_of_the_svd(G, N, limit, monkeypatch):
    monkeypatch.setattr(starts_module, "EXACT_SIDE", limit)  # 5: the randomised way
    monkeypatch.setattr("sparsefactor.data.matrix.CHUNK_ENTRIES", 7 * N)
    Y = matrix(G, N)
    s, US, V = vectors(engine_for(Y.T), 4)
    u, exact, vt = np.linalg.svd(Y, full_matrices=False)
    assert np.allclose(s, exact[:4], rtol=1e-6)
    assert np.allclose(US @ V.T, (u[:, :4] * exact[:4]) @ vt[:4], atol=1e-4)


@pytest.mark.parametrize("limit", [1500, 5])
def test_a_lost_singular_value_has_no_loadings(limit, monkeypatch):
    monkeypatch.setattr(starts_module, "EXACT_SIDE", limit)
    engine = engine_for(np.outer(np.arange(1.0, 9.0), np.arange(1.0, 8.0)))
    assert np.all(vectors(engine, 3)[0][1:] == 0)
    made = StartMaker(engine, 0).leading
    assert np.all(made.L[:, 1:] == 0)
    assert np.any(made.L[:, 0] != 0)


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_starts_are_repeatable_and_finite(name, missing):
    sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.3] * 3, snr=5, missing=missing, seed=0)
    first, again, other = (StartMaker(engine_for(sim.X), seed).make(name, 7) for seed in (0, 0, 1))
    assert first.L.shape == (40, 3)
    assert first.F.shape == (3, 30)
    assert np.array_equal(first.L, again.L)
    assert np.all(np.isfinite(first.L))
    assert np.all(np.isfinite(first.F))
    if name in ("rotation", "random"):
        assert not np.allclose(first.L, other.L)


@pytest.mark.parametrize("name", ["varimax", "ica"])
def test_rotations_find_sparse_loadings_again(name):
    rng = np.random.default_rng(0)
    L = rng.standard_normal((400, 4)) * (rng.random((400, 4)) < 0.2)
    mixed = L @ starts_module.random_rotation(4, rng)
    R = ROTATIONS[name](Leading(engine_for(np.eye(400), 4), mixed, np.zeros((4, 400))), rng, True)
    assert np.allclose(R.T @ R, np.eye(4), atol=1e-10)
    similarity = np.abs(np.corrcoef((mixed @ R).T, L.T)[:4, 4:])
    assert similarity.max(axis=0).min() > 0.95
    assert np.abs(np.corrcoef(mixed.T, L.T)[:4, 4:]).max(axis=0).min() < 0.9  # negative control: before rotating


def test_completion_recovers_a_low_rank_matrix():
    X = matrix(60, 40).T
    holes = np.random.default_rng(1).random(X.shape) < 0.2
    start = StartMaker(engine_for(np.where(holes, np.nan, X), 5), 0).make("varimax", 0)
    error = np.linalg.norm((start.L @ start.F).T[holes] - X[holes]) / np.linalg.norm(X[holes])
    assert error < 0.4  # zeros would be 1


def test_more_factors_than_rank_are_padded():
    start = StartMaker(engine_for(matrix(6, 4).T, 9), 0).make("varimax", 0)
    assert start.L.shape == (6, 9)
    assert start.F.shape == (9, 4)


def test_a_start_of_ones_own_must_fit():
    engine = engine_for(matrix(6, 4).T, 2)
    good = Start("mine", np.ones((6, 2)), np.ones((2, 4)))
    assert own_start(good, engine.data, engine.prior).name == "mine"
    with pytest.raises(ValueError, match="L of shape \\(6, 2\\)"):
        own_start(Start("mine", np.ones((2, 6)), np.ones((2, 4))), engine.data, engine.prior)
    with pytest.raises(ValueError, match="must be finite"):
        own_start(good._replace(L=np.full((6, 2), np.nan)), engine.data, engine.prior)


def test_starts_of_data_with_covariates_are_those_of_what_these_leave():
    sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.3] * 3, snr=5, seed=0)
    batch = np.repeat([0.0, 1.0, 3.0], 10)
    X = sim.X + 20.0 * np.outer(batch, np.arange(40.0))
    data = as_data(X, center=True).with_design(batch[:, None], True)
    prior = sf.Prior(n_factors=3)
    made = StartMaker(build_engine(data, prior, "reference"), 0).make("varimax", 0)
    left = data.less(data.regression())
    expected = StartMaker(ReferenceEngine(left, prior), 0).make("varimax", 0)
    assert np.allclose(made.L, expected.L)
    assert np.allclose(made.F, expected.F)
    whole = StartMaker(ReferenceEngine(replace(data, design=None), prior), 0).make("varimax", 0)
    assert np.abs(whole.L).max() > 10 * np.abs(made.L).max()  # negative control


def test_starts_of_ones_own_come_besides_the_others():
    sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.3], snr=4, seed=0)
    own = sf.Start("mine", sim.loadings, sim.activations.T)
    p = sf.fit_vi(sim.X, n_factors=2, init=[own, own._replace(name="again")], n_trials=3)
    assert list(p.trials["start"]) == ["mine", "again", "factor_analysis", "ica", "varimax"]
    assert p.record["settings"]["init"] == ["mine", "again"]
    with pytest.raises(ValueError, match="a Start must have L of shape"):
        sf.fit_vi(sim.X, n_factors=3, init=[own])
    with pytest.raises(ValueError, match="init must be one of"):
        sf.fit_vi(sim.X, n_factors=2, init=[own, "ica"])
