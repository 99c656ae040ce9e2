"""Fits of matrices that are held sparse: the same as of dense ones, without anything of their size in memory."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.data.sparse import SparseRows

QUICK = {"n_trials": 2, "seed": 0, "tol": 1e-4}


def thin(n_samples: int = 60, n_features: int = 90) -> np.ndarray:
    """Activity cut off from below: about a quarter of the entries are not zero."""
    sim = sf.simulate(n_features=n_features, n_samples=n_samples, inclusion=[0.4, 0.3, 0.3], snr=4, seed=0)
    return np.maximum(sim.X - 0.8, 0.0)


@pytest.mark.parametrize("noise", ["feature", "shared", "sample"])
@pytest.mark.parametrize("how", [{}, {"center": False}, {"scale": True}])
def test_a_fit_has_the_elbo_of_the_dense_one(noise, how):
    X = thin()
    prior = sf.Prior(n_factors=3, noise=noise)
    p, q = (sf.fit_vi(given, prior, **QUICK, **how) for given in (sparse.csr_array(X), X))
    np.testing.assert_allclose(p.elbo, q.elbo, rtol=1e-9)
    np.testing.assert_allclose(p.loadings_mean, q.loadings_mean, atol=1e-6)
    np.testing.assert_allclose(p.variance_explained(by="feature"), q.variance_explained(by="feature"), atol=1e-7)
    np.testing.assert_allclose(p.reconstruct(), q.reconstruct(), atol=1e-6)


@pytest.mark.parametrize("loadings", ["flat", "slab"])
def test_covariates_are_taken_off_beside_what_is_sparse(loadings):
    X, batch = thin(), np.arange(60) % 2
    p, q = (
        sf.fit_vi(given, n_factors=3, covariates=batch, covariate_loadings=loadings, **QUICK)
        for given in (sparse.csr_array(X), X)
    )
    np.testing.assert_allclose(p.elbo, q.elbo, rtol=1e-9)
    np.testing.assert_allclose(p.labels.covariate_loadings, q.labels.covariate_loadings, atol=1e-6)


def test_draws_are_those_of_the_dense_one():
    X = thin()
    short = {"n_chains": 2, "n_warmup": 20, "n_draws": 20, "init": "varimax", "seed": 0, "progress": False}
    with pytest.warns(sf.SamplingWarning):
        p = sf.sample(sparse.csr_array(X), n_factors=3, **short)
    with pytest.warns(sf.SamplingWarning):
        q = sf.sample(X, n_factors=3, **short)
    np.testing.assert_allclose(p.variance_explained(), q.variance_explained(), atol=1e-6)
    np.testing.assert_allclose(p.reconstruct(), q.reconstruct(), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{"n_modules": 3}, {"groups": np.arange(90) % 2}])
def test_modules_and_groups_read_sparse_rows(settings):
    X = thin()
    p, q = (sf.fit_vi(given, sf.Prior(n_factors=3, **settings), **QUICK) for given in (sparse.csr_array(X), X))
    np.testing.assert_allclose(p.elbo, q.elbo, rtol=1e-9)


@pytest.mark.filterwarnings("ignore::sparsefactor.ConvergenceWarning")
def test_the_oracle_takes_what_is_sparse():
    X = thin(20, 15)
    p, q = (
        sf.fit_vi(sparse.csr_array(X), n_factors=2, backend=backend, max_iter=5, n_trials=1, seed=0)
        for backend in ("reference", "cpu")
    )
    np.testing.assert_allclose(p.elbo, q.elbo, rtol=1e-9)


@pytest.mark.slow
def test_single_precision_stays_sparse():
    p, q = (sf.fit_vi(given, n_factors=3, dtype="float32", **QUICK) for given in (sparse.csr_array(thin()), thin()))
    np.testing.assert_allclose(p.elbo, q.elbo, rtol=1e-4)


@pytest.mark.filterwarnings("ignore::sparsefactor.ConvergenceWarning")
@pytest.mark.parametrize("shape", [(1600, 2000), (4000, 1000)])
def test_nothing_of_the_matrix_size_is_allocated(shape, monkeypatch):
    for place in ("matrix", "sparse"):
        monkeypatch.setattr(f"sparsefactor.data.{place}.CHUNK_ENTRIES", 100_000)
    rng = np.random.default_rng(0)
    X = sparse.csr_array(sparse.random_array(shape, density=0.01, rng=rng, format="csr"))
    settings = {"n_trials": 1, "max_iter": 3, "n_threads": 1, "seed": 0, "progress": False}
    sf.fit_vi(X[:50, :40], n_factors=2, **settings)  # compiled beforehand
    tracemalloc.start()
    try:
        sf.fit_vi(X, n_factors=2, **settings)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 0.8 * 8 * X.shape[0] * X.shape[1]  # float64 entries


def test_a_row_without_zeros_keeps_its_digits():
    """Its mean is taken off where it stands: beside it a large mean would drown what is left."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((30, 4)) < 0.3, rng.standard_normal((30, 4)), 0.0)
    X[:, 2] = 1e9 + rng.standard_normal(30)
    data, dense = (as_data(given, center=True) for given in (sparse.csc_array(X), X))
    np.testing.assert_array_equal(data.Y[2], dense.Y[2])
    assert data.Y.A[2] == 0.0
    np.testing.assert_allclose(data.dense().Y, dense.Y, atol=1e-14)


def test_entries_given_twice_are_added_and_the_matrix_is_left_alone():
    X = sparse.csc_array((np.array([1.0, 2.0, 5.0]), np.array([0, 0, 1]), np.array([0, 2, 3])), shape=(3, 2))
    data = as_data(X)
    np.testing.assert_array_equal(data.dense().Y, [[3, 0, 0], [0, 5, 0]])
    assert X.nnz == 3


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[0.0, np.inf], [1.0, 0.0]], "1 entries are infinite, the first at sample 0, feature 1"),
        ([[0.0, 0.0], [0.0, 0.0]], "every observed entry equals 0"),
        ([[0.0, 1e200], [1.0, 0.0]], "must not exceed"),
        ([[3.0, 0.0], [3.0, 0.0]], "after centring, every observed entry is zero"),
    ],
)
def test_what_cannot_be_fitted_is_refused_as_if_it_were_dense(X, message):
    for given in (np.array(X), sparse.csr_array(np.array(X))):
        with pytest.raises(ValueError, match=message):
            as_data(given, center=True)


def test_pieces_are_read_by_rows_alone():
    data = as_data(sparse.csr_array(thin()))
    assert isinstance(data.Y, SparseRows)
    assert data.Y[5:9].shape == (4, 60)
    assert data.Y.shape == (90, 60)
