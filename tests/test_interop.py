"""Objects of other ecosystems go in by name, and results come out where their users look.

AnnData and MuData are stood in for by objects with the same attributes; test_scverse.py uses the real ones.
"""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Callable
from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import sparsefactor as sf
from sparsefactor import annotated as reading
from sparsefactor.data import as_data

PRIOR = sf.Prior(n_factors=3, inclusion=sf.Beta(1, 1))
QUICK = {"n_trials": 2, "tol": 1e-4}
GENES = [f"gene {i}" for i in range(30)]
CELLS = [f"cell {j}" for j in range(40)]


class Standin(SimpleNamespace):
    """What an AnnData offers, or with `mod` a MuData."""

    def copy(self) -> Standin:
        return deepcopy(self)


Standin.__module__ = "anndata.standin"


class MuStandin(Standin):
    pass


MuStandin.__module__ = "mudata.standin"


def simulated() -> np.ndarray:
    return sf.simulate(n_features=30, n_samples=40, inclusion=[0.6, 0.5], snr=4, seed=1).X


def annotated(X, genes=GENES, cells=CELLS, kind=Standin, **more) -> Standin:
    parts = {"layers": {}, "obsm": {}, "varm": {}, "uns": {}, **more}
    return kind(X=X, obs_names=pd.Index(cells), var_names=pd.Index(genes), var=pd.DataFrame(index=genes), **parts)


def multimodal() -> Standin:
    X = simulated()
    rna = annotated(X[:, :20], GENES[:20])
    protein = annotated(X[5:, 20:], GENES[20:], CELLS[5:])
    return annotated(None, kind=MuStandin, mod={"rna": rna, "protein": protein})


@pytest.fixture(scope="module")
def fitted() -> Standin:
    adata = annotated(simulated())
    assert sf.tl.sparse_factors(adata, prior=PRIOR, **QUICK) is None
    return adata


# ---- in -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_array", "coo_array"])
def test_zeros_of_a_sparse_matrix_are_data(kind, caplog, monkeypatch):
    monkeypatch.setattr(reading, "BLOCK_ENTRIES", 100)  # several blocks of features
    X = np.where(np.abs(simulated()) > 1, simulated(), 0.0)
    with caplog.at_level(logging.INFO, logger="sparsefactor"):
        data = as_data(getattr(sparse, kind)(X))
    assert data.is_sparse
    np.testing.assert_array_equal(data.dense().Y, X.T)
    assert data.is_complete
    assert "zeros count as observed" in caplog.text


def test_counts_and_flags_in_a_sparse_matrix_are_numbers():
    X = sparse.csr_array(np.array([[0, 2, 1], [3, 0, 0]], dtype=np.int64))
    np.testing.assert_array_equal(as_data(X).dense().Y, X.toarray().T.astype(float))


def test_anndata_goes_in_by_name():
    adata = annotated(sparse.csr_array(simulated()))
    p = sf.fit_vi(adata, PRIOR, **QUICK)
    assert list(p.feature_names) == GENES
    assert list(p.sample_names) == CELLS
    q = sf.fit_vi(simulated(), PRIOR, **QUICK)
    np.testing.assert_allclose(p.loadings_mean, q.loadings_mean, atol=1e-6)
    shuffled = annotated(simulated()[:, ::-1], GENES[::-1])
    np.testing.assert_allclose(p.transform(shuffled), p.transform(adata))


class OnDisk:
    """A matrix that gives rows when asked, and counts them."""

    def __init__(self, X: np.ndarray) -> None:
        self.held, self.shape, self.dtype, self.most = X, X.shape, X.dtype, 0

    def __getitem__(self, rows: slice) -> np.ndarray:
        self.most = max(self.most, len(self.held[rows]))
        return self.held[rows]


OnDisk.__module__ = "h5py.standin"


class ColumnsOnDisk(OnDisk):
    """One that is sparse and laid out by columns, and gives these when asked."""

    format = "csc"

    def __getitem__(self, at: tuple[slice, slice]) -> sparse.csc_array:
        assert at[0] == slice(None)
        block = self.held[at]
        self.most = max(self.most, block.shape[1])
        return sparse.csc_array(block)


ColumnsOnDisk.__module__ = "anndata.standin"


def test_a_backed_matrix_is_read_in_blocks_of_rows(monkeypatch):
    monkeypatch.setattr(reading, "BLOCK_ENTRIES", 100)
    stored = OnDisk(simulated())
    np.testing.assert_array_equal(as_data(annotated(stored)).Y, simulated().T)
    assert stored.most == 3


def test_a_backed_matrix_laid_out_by_columns_is_read_in_blocks_of_those(monkeypatch, caplog):
    monkeypatch.setattr(reading, "BLOCK_ENTRIES", 100)
    stored = ColumnsOnDisk(simulated())
    with caplog.at_level(logging.INFO, logger="sparsefactor"):
        np.testing.assert_array_equal(as_data(annotated(stored)).dense().Y, simulated().T)
    assert stored.most == 2
    assert "zeros count as observed" in caplog.text
    some = np.arange(30) % 4 == 1
    values = reading.from_anndata(annotated(stored), columns=some).values
    np.testing.assert_array_equal(values.toarray(), simulated()[:, some])


class RowsOnDisk(OnDisk):
    """One that is sparse and laid out by rows."""

    format = "csr"

    def __getitem__(self, rows: slice) -> sparse.csr_array:
        return sparse.csr_array(super().__getitem__(rows))


RowsOnDisk.__module__ = "anndata.standin"


def test_a_backed_sparse_matrix_laid_out_by_rows_stays_sparse(monkeypatch):
    monkeypatch.setattr(reading, "BLOCK_ENTRIES", 100)
    X = np.where(np.abs(simulated()) > 1, simulated(), 0.0)
    stored = RowsOnDisk(X)
    data = as_data(annotated(stored))
    assert data.is_sparse
    assert stored.most == 3
    np.testing.assert_array_equal(data.dense().Y, X.T)


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_array])
@pytest.mark.parametrize("wrong", [30, 10**9, -1])
def test_indices_outside_a_sparse_matrix_are_refused(kind, wrong):
    """Compiled code would read and write wherever they point."""
    X = kind(np.eye(40, 30))
    X.indices[7] = wrong if wrong != 30 else max(X.shape)
    for given in (X, annotated(X)):
        with pytest.raises(ValueError, match="must lie inside its shape"):
            as_data(given)


def most_held(read: Callable[[], object]) -> int:
    """The most bytes that were held while something was read, beyond those before."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        read()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


def thin(dtype: type = np.float64) -> sparse.csr_array:
    X = sparse.random_array((400, 3000), density=0.02, rng=np.random.default_rng(0), format="csr")
    return sparse.csr_array(X.astype(dtype))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", ["sparse", "backed", "anndata", "mudata", "a modality dense"])
@pytest.mark.parametrize("how", [{}, {"center": True}, {"center": True, "scale": True}])
def test_what_is_sparse_stays_so_and_what_is_on_disk_is_held_once(dtype, kind, how, monkeypatch):
    monkeypatch.setattr(reading, "BLOCK_ENTRIES", 40_000)
    monkeypatch.setattr("sparsefactor.data.matrix.CHUNK_ENTRIES", 40_000)
    monkeypatch.setattr("sparsefactor.data.sparse.CHUNK_ENTRIES", 40_000)
    X = thin()
    cells, genes = [f"c{i}" for i in range(400)], [f"g{i}" for i in range(3000)]
    second = X[:, 2000:].toarray() if kind == "a modality dense" else X[:, 2000:]
    given = {
        "sparse": X,
        "backed": annotated(OnDisk(X.toarray()), genes, cells),
        "anndata": annotated(X, genes, cells),
        "mudata": annotated(
            None,
            genes,
            cells,
            kind=MuStandin,
            mod={"a": annotated(X[:, :2000], genes[:2000], cells), "b": annotated(second, genes[2000:], cells)},
        ),
    }["mudata" if kind == "a modality dense" else kind]
    dense = kind in ("backed", "a modality dense")
    size = 400 * 3000 * np.dtype(dtype).itemsize if dense else 0
    held = most_held(lambda: as_data(given, dtype=dtype, **how))
    # A second copy would make it 2; names, what is read at a time and the sparse turn are the rest.
    assert size < held < 1.4 * size + 2_500_000
    expected = as_data(X.toarray(), dtype=dtype, **how)
    data = as_data(given, dtype=dtype, **how)
    assert data.is_sparse is not dense
    np.testing.assert_allclose(data.dense().Y, expected.Y, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(data.offset, expected.offset, atol=1e-12)
    np.testing.assert_allclose(data.scale, expected.scale, rtol=1e-6)


def test_only_the_features_asked_for_are_read(monkeypatch):
    monkeypatch.setattr(reading, "BLOCK_ENTRIES", 40_000)
    monkeypatch.setattr("sparsefactor.data.matrix.CHUNK_ENTRIES", 40_000)
    cells, genes = [f"c{i}" for i in range(400)], [f"g{i}" for i in range(3000)]
    adata, backed = (annotated(X, genes, cells) for X in (thin(), OnDisk(thin().toarray())))
    few = np.arange(3000) < 100
    assert most_held(lambda: reading.from_anndata(adata, columns=few)) < 2_500_000  # all of them: 9,600,000
    np.testing.assert_array_equal(reading.from_anndata(adata, columns=few).values.toarray(), thin().toarray()[:, :100])
    np.testing.assert_array_equal(reading.from_anndata(backed, columns=few).values, thin().toarray()[:, :100])


def test_a_sparse_entry_out_of_range_is_refused():
    with pytest.raises(ValueError, match="must lie in the range of float32"):
        as_data(sparse.csr_array(np.array([[1e300, 0.0], [0.0, 1.0]])), dtype=np.float32)


def test_holes_of_a_sparse_matrix_are_missing():
    X = np.where(np.abs(simulated()) > 1, simulated(), 0.0)
    X[3, 4] = np.nan
    data = as_data(sparse.csr_array(X))
    assert not data.observed[4, 3]
    assert data.observed.sum() == X.size - 1
    assert data.Y[4, 3] == 0.0


def test_mudata_lays_modalities_side_by_side():
    data = as_data(multimodal())
    assert list(data.feature_names) == GENES
    np.testing.assert_array_equal(data.Y[:, 5:], simulated().T[:, 5:])
    assert not data.observed[20:, :5].any()
    assert data.observed[:20].all()


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (lambda: sparse.csr_array(np.ones(3)), ValueError, "two-dimensional"),
        (lambda: annotated(None), ValueError, "its X is None"),
        (lambda: annotated(simulated(), ["same"] * 30), ValueError, "'same' occurs more than once"),
        (lambda: annotated(np.full((40, 30), "a")), TypeError, "real and numeric"),
    ],
)
def test_what_is_no_matrix_is_refused(X, error, message):
    with pytest.raises(error, match=message):
        as_data(X())


# ---- out ------------------------------------------------------------------------------------------------------------


def test_results_lie_where_scanpy_looks(fitted):
    p = sf.fit_vi(pd.DataFrame(simulated(), CELLS, GENES), PRIOR, **QUICK)
    found = np.flatnonzero(~p.empty)
    assert len(found) == 2
    np.testing.assert_array_equal(fitted.obsm["X_sfa"], p.activations_mean[:, found])
    np.testing.assert_array_equal(fitted.varm["sfa_loadings"], p.loadings_mean[:, found])
    np.testing.assert_array_equal(fitted.varm["sfa_inclusion_prob"], p.inclusion_prob[:, found])
    np.testing.assert_array_equal(fitted.varm["sfa_lfsr"], p.lfsr[:, found])
    np.testing.assert_array_equal(fitted.var["sfa_noise_precision"], p.noise_precision_mean)
    notes = fitted.uns["sfa"]
    assert notes["elbo"] == p.elbo
    assert notes["variance_explained"] == p.variance_explained()
    assert notes["version"] == sf.__version__
    held = {"zeros": "observed", "held": "dense, float64"}
    assert notes["params"] == {"inference": "vi", "n_factors": 3, "noise": "feature", **held}


def test_the_notes_say_what_stayed_sparse():
    X = np.where(np.abs(simulated()) > 1, simulated(), 0.0)
    adata = annotated(sparse.csr_array(X))
    sf.tl.sparse_factors(adata, prior=PRIOR, **QUICK)
    assert adata.uns["sfa"]["params"]["held"] == "sparse, float64"
    dense = annotated(X)
    sf.tl.sparse_factors(dense, prior=PRIOR, **QUICK)
    np.testing.assert_allclose(adata.varm["sfa_loadings"], dense.varm["sfa_loadings"], atol=1e-6)


def test_a_layer_and_some_features_are_fitted():
    adata = annotated(np.zeros((40, 30)), layers={"scaled": simulated()})
    adata.var["variable"] = np.arange(30) < 25
    copy = sf.tl.sparse_factors(
        adata, 3, layer="scaled", mask_var="variable", key_added="few", copy=True, inference="vi", **QUICK
    )
    assert not adata.obsm
    assert not adata.uns
    loadings = copy.varm["few_loadings"]
    assert np.isnan(loadings[25:]).all()
    expected = sf.fit_vi(simulated()[:, :25], PRIOR, **QUICK)
    np.testing.assert_array_equal(loadings[:25], expected.loadings_mean[:, ~expected.empty])
    assert copy.uns["few"]["params"]["layer"] == "scaled"


def test_noise_shared_by_all_goes_with_the_notes():
    adata = annotated(simulated())
    sf.tl.sparse_factors(adata, prior=sf.Prior(n_factors=2, noise="shared", inclusion=0.5), **QUICK)
    assert "sfa_noise_precision" not in adata.var
    assert adata.uns["sfa"]["noise_precision"].shape == ()


def test_mudata_takes_results_for_all_modalities():
    mdata = multimodal()
    sf.tl.sparse_factors(mdata, 3, **QUICK)
    assert mdata.varm["sfa_loadings"].shape == (30, 2)
    assert mdata.obsm["X_sfa"].shape == (40, 2)


def test_draws_are_written_too():
    adata = annotated(simulated())
    prior = sf.Prior(n_factors=2, inclusion=0.5)
    sf.tl.sparse_factors(adata, prior=prior, inference="mcmc", n_chains=2, n_warmup=100, n_draws=200)
    assert adata.obsm["X_sfa"].shape == (40, 2)
    assert "elbo" not in adata.uns["sfa"]


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"layer": "counts"}, KeyError, r"layer must be one of \[\]; got 'counts'"),
        ({"mask_var": "hvg"}, KeyError, "must name a column of var; got 'hvg'"),
        ({"mask_var": [True]}, ValueError, "must be 30 booleans"),
        ({"mask_var": np.zeros(30, bool)}, ValueError, "keep at least one feature"),
        ({"inference": "em"}, ValueError, "inference must be one of"),
        ({"n_factors": 4, "prior": PRIOR}, ValueError, "n_factors must come from one place; got 4"),
    ],
)
def test_settings_that_do_not_fit_the_object_are_refused(settings, error, message):
    adata = annotated(simulated())
    with pytest.raises(error, match=message):
        sf.tl.sparse_factors(adata, **settings)


def test_results_are_overwritten_only_when_asked(fitted):
    adata = fitted.copy()
    with pytest.raises(ValueError, match=r"obsm\['X_sfa'\] must be free"):
        sf.tl.sparse_factors(adata, 3, **QUICK)
    sf.tl.sparse_factors(adata, 1, overwrite=True, **QUICK)
    assert adata.obsm["X_sfa"].shape == (40, 1)


def test_only_annotated_data_take_results():
    with pytest.raises(TypeError, match="must be an AnnData or a MuData; got a ndarray"):
        sf.tl.sparse_factors(simulated(), 3)


# ---- pictures -------------------------------------------------------------------------------------------------------


def test_the_strongest_loadings_are_drawn(fitted):
    figure = sf.pl.loadings(fitted, n_features=5)
    ax = figure.axes[0]
    own = fitted.varm["sfa_loadings"][:, 0]
    top = np.argsort(-np.abs(own))[:5][::-1]
    assert [label.get_text() for label in ax.get_yticklabels()] == [GENES[i] for i in top]
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], own[top])
    assert len(sf.pl.loadings(fitted, factors=[2]).axes) == 1


@pytest.mark.parametrize("factors", [[0], [3], 0, [], [1.5], ["1"], [True]])
def test_factors_that_are_not_there_are_not_drawn(fitted, factors):
    with pytest.raises(ValueError, match="factors must be numbers from 1 to 2"):
        sf.pl.loadings(fitted, factors=factors)


def test_an_object_without_factors_says_so():
    adata = annotated(np.random.default_rng(0).standard_normal((40, 30)))
    sf.tl.sparse_factors(adata, 2, **QUICK)
    assert adata.obsm["X_sfa"].shape == (40, 0)
    with pytest.raises(ValueError, match="the data support none"):
        sf.pl.loadings(adata)
    assert not sf.pl.variance_explained(adata).axes[0].patches


def test_variance_explained_is_drawn(fitted):
    ax = sf.pl.variance_explained(fitted).axes[0]
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights, 100 * fitted.uns["sfa"]["variance_explained_by_factor"])


@pytest.mark.parametrize("draw", [sf.pl.loadings, sf.pl.variance_explained])
def test_a_key_that_was_never_written_is_refused(fitted, draw):
    with pytest.raises(KeyError, match=r"key must be one that tl\.sparse_factors wrote"):
        draw(fitted, key="other")
