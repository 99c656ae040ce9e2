"""Starting points: exact where they claim to be, repeatable, finite, and different from each other."""

from __future__ import annotations

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor import start as starts_module
from sparsefactor.data import as_data
from sparsefactor.start import INITS, ROTATIONS, Start, StartMaker, leading_svd, starts


def matrix(G: int, N: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((G, 5)) @ rng.standard_normal((5, N)) + 0.1 * rng.standard_normal((G, N))


@pytest.mark.parametrize(("G", "N"), [(50, 20), (20, 50), (30, 30)])
@pytest.mark.parametrize("limit", [1500, 5])
def test_leading_svd_is_the_svd(G, N, limit, monkeypatch):
    monkeypatch.setattr(starts_module, "EXACT_SIDE", limit)  # 5: the randomised way
    Y = matrix(G, N)
    chunks = [slice(0, 7), slice(7, G)]
    U, s, Vt = leading_svd(Y, 2.0, chunks, 4, np.random.default_rng(0))
    u, exact, vt = np.linalg.svd(Y / 2.0, full_matrices=False)
    assert np.allclose(s, exact[:4], rtol=1e-6)
    assert np.allclose((U * s) @ Vt, (u[:, :4] * exact[:4]) @ vt[:4], atol=1e-4)


def test_a_lost_singular_value_has_no_loadings():
    Y = np.outer(np.arange(1.0, 9.0), np.arange(1.0, 5.0))
    U, s, _ = leading_svd(Y, 1.0, [slice(None)], 3, np.random.default_rng(0))
    assert s[0] > 0
    assert np.all(s[1:] == 0)
    assert np.all(U[:, 1:] == 0)


@pytest.mark.parametrize("name", [name for name in INITS if name != "auto"])
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_starts_are_repeatable_and_finite(name, missing):
    sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.3] * 3, snr=5, missing=missing, seed=0)
    first, again, other = (StartMaker(as_data(sim.X), 3, seed).make(name, 7) for seed in (0, 0, 1))
    assert first.L.shape == (40, 3)
    assert first.F.shape == (3, 30)
    assert np.array_equal(first.L, again.L)
    assert np.all(np.isfinite(first.L))
    assert np.all(np.isfinite(first.F))
    if name == "rotation":
        assert not np.allclose(first.L, other.L)


@pytest.mark.parametrize("name", ["varimax", "ica"])
def test_rotations_find_sparse_loadings_again(name):
    rng = np.random.default_rng(0)
    L = rng.standard_normal((400, 4)) * (rng.random((400, 4)) < 0.2)
    mixed = L @ starts_module.random_rotation(4, rng)
    R = ROTATIONS[name](mixed, rng, True)
    assert np.allclose(R.T @ R, np.eye(4), atol=1e-10)
    similarity = np.abs(np.corrcoef((mixed @ R).T, L.T)[:4, 4:])
    assert similarity.max(axis=0).min() > 0.95
    assert np.abs(np.corrcoef(mixed.T, L.T)[:4, 4:]).max(axis=0).min() < 0.9  # negative control: before rotating


def test_completion_recovers_a_low_rank_matrix():
    X = matrix(60, 40).T
    holes = np.random.default_rng(1).random(X.shape) < 0.2
    data = as_data(np.where(holes, np.nan, X))
    start = StartMaker(data, 5, 0).make("varimax", 0)
    error = np.linalg.norm((start.L @ start.F).T[holes] - X[holes]) / np.linalg.norm(X[holes])
    assert error < 0.4  # zeros would be 1


def test_more_factors_than_rank_are_padded():
    start = StartMaker(as_data(matrix(6, 4).T), 9, 0).make("varimax", 0)
    assert start.L.shape == (6, 9)
    assert start.F.shape == (9, 4)


def test_a_start_of_ones_own_must_fit():
    data, prior = as_data(matrix(6, 4).T), sf.Prior(n_factors=2)
    good = Start("mine", np.ones((6, 2)), np.ones((2, 4)))
    assert [s.name for s in starts(data, prior, good, 10, 0)] == ["mine"]
    with pytest.raises(ValueError, match="L of shape \\(6, 2\\)"):
        list(starts(data, prior, Start("mine", np.ones((2, 6)), np.ones((2, 4))), 1, 0))
    with pytest.raises(ValueError, match="must be finite"):
        list(starts(data, prior, good._replace(L=np.full((6, 2), np.nan)), 1, 0))
