"""With the real AnnData, MuData and scanpy: `make test-scverse`, which sets them up (they hold pandas below 3)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import sparsefactor as sf

pytest.importorskip("anndata", reason="make test-scverse sets it up")
pytest.importorskip("scanpy", reason="make test-scverse sets it up")
pytest.importorskip("mudata", reason="make test-scverse sets it up")
pytestmark = [pytest.mark.filterwarnings("ignore")]  # of these libraries' own, which are many

GENES = [f"gene {i}" for i in range(30)]
QUICK = {"n_trials": 2, "tol": 1e-3}


def simulated() -> np.ndarray:
    return sf.simulate(n_features=30, n_samples=40, inclusion=[0.6, 0.5], snr=4, seed=1).X


@pytest.fixture
def adata():
    import anndata
    import pandas as pd

    cells = [f"cell {j}" for j in range(40)]
    X = sparse.csr_matrix(np.where(np.abs(simulated()) > 0.3, simulated(), 0.0))
    return anndata.AnnData(X, obs=pd.DataFrame(index=cells), var=pd.DataFrame(index=GENES))


def test_results_survive_a_file_and_a_backed_matrix_gives_the_same(adata, tmp_path: Path):
    import anndata

    adata.write_h5ad(tmp_path / "cells.h5ad")
    sf.tl.sparse_factors(adata, 3, **QUICK)
    adata.write_h5ad(tmp_path / "done.h5ad")
    again = anndata.read_h5ad(tmp_path / "done.h5ad")
    np.testing.assert_array_equal(again.varm["sfa_loadings"], adata.varm["sfa_loadings"])
    assert again.uns["sfa"]["params"]["n_factors"] == 3
    assert again.uns["sfa"]["params"]["held"] == "sparse, float64"
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    p = sf.fit_vi(backed, sf.Prior(n_factors=3, inclusion=sf.Beta(1, 1)), **QUICK)
    np.testing.assert_array_equal(p.loadings_mean[:, ~p.empty], adata.varm["sfa_loadings"])


@pytest.mark.parametrize("layout", ["csr", "csc", "dense"])
def test_a_view_of_a_backed_file_is_the_part_that_it_shows(adata, tmp_path: Path, layout):
    import anndata

    whole = adata.copy()
    whole.X = {"csr": adata.X, "csc": adata.X.tocsc(), "dense": adata.X.toarray()}[layout]
    whole.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    rows, columns = np.arange(39, 9, -1), np.arange(30) % 3 > 0
    for some in (np.s_[rows], np.s_[:, columns], np.s_[10:, columns]):
        p, q = (sf.fit_vi(given[some], n_factors=2, **QUICK) for given in (backed, whole))
        assert list(p.sample_names) == list(backed[some].obs_names)
        assert list(p.feature_names) == list(backed[some].var_names)
        np.testing.assert_allclose(p.loadings_mean, q.loadings_mean, atol=1e-9)
        np.testing.assert_allclose(q.transform(backed[some]), q.transform(whole[some]), atol=1e-9)


@pytest.fixture(scope="module")
def client():
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.parametrize("layout", ["csr", "csc", "dense"])
@pytest.mark.parametrize("where", ["here", "workers", "workers by rows"])
def test_a_backed_file_is_taken_by_every_call(adata, tmp_path: Path, layout, where, client, monkeypatch):
    """As its values in memory; by rows: each worker reads its own features from the file."""
    import anndata

    there = {} if where == "here" else {"client": client}
    values = np.hstack([np.where(np.abs(simulated()) > 0.3, simulated(), 0.0)] * 40)
    X = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix, "dense": np.asarray}[layout](values)
    anndata.AnnData(X).write_h5ad(tmp_path / "cells.h5ad")
    monkeypatch.chdir(tmp_path)
    backed = anndata.read_h5ad("cells.h5ad", backed="r")
    if where == "workers by rows":
        monkeypatch.setattr("sparsefactor.engine.readers.LITTLE", 0)
        monkeypatch.setattr("sparsefactor.engine.cpu.is_small", lambda *_: False)
    p, q = sf.fit_vi(values, n_factors=2, **QUICK), sf.fit_vi(backed, n_factors=2, **QUICK, **there)
    np.testing.assert_allclose(q.loadings_mean, p.loadings_mean, atol=1e-9)
    assert list(q.feature_names) == list(backed.var_names)
    np.testing.assert_allclose(p.transform(backed, **there), p.transform(values), atol=1e-9)
    np.testing.assert_allclose(p.impute(backed, **there), p.impute(values), atol=1e-9)
    draws = {"n_factors": 2, "n_chains": 2, "n_warmup": 2, "n_draws": 3, "init": "varimax"}
    one, other = (sf.sample(given, **draws, **more) for given, more in ((values, {}), (backed, there)))
    np.testing.assert_allclose(other.loadings_mean, one.loadings_mean, atol=1e-6)
    compared = {"priors": {"2": sf.Prior(n_factors=2)}, "n_masks": 2, "n_trials": 1, "tol": 1e-3}
    one, other = (sf.compare(given, **compared, **more) for given, more in ((values, {}), (backed, there)))
    np.testing.assert_allclose(other.runs["error"], one.runs["error"], rtol=1e-9)


def test_a_backed_file_takes_results_in_memory(adata, tmp_path: Path):
    import anndata

    adata.write_h5ad(tmp_path / "cells.h5ad")
    backed = anndata.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    sf.tl.sparse_factors(backed, 3, **QUICK)
    sf.tl.sparse_factors(adata, 3, **QUICK)
    np.testing.assert_allclose(backed.varm["sfa_loadings"], adata.varm["sfa_loadings"], atol=1e-9)
    with pytest.raises(ValueError, match="copy must be False for an object that is backed by a file"):
        sf.tl.sparse_factors(backed, 3, key_added="other", copy=True, **QUICK)


def test_views_and_masks_work(adata):
    adata.var["keep"] = np.arange(30) < 25
    view = adata[:, :28].copy()
    sf.tl.sparse_factors(view, 3, mask_var="keep", **QUICK)
    assert np.isnan(view.varm["sfa_loadings"][25:]).all()
    p = sf.fit_vi(adata[:30], sf.Prior(n_factors=2, inclusion=0.5), **QUICK)
    assert p.transform(adata[30:]).shape == (10, 2)


def test_modalities_are_fitted_together(adata):
    import mudata

    mdata = mudata.MuData({"rna": adata[:, :20].copy(), "protein": adata[5:, 20:].copy()})
    sf.tl.sparse_factors(mdata, 3, **QUICK)
    assert mdata.varm["sfa_loadings"].shape[0] == 30
    assert mdata.obsm["X_sfa"].shape[0] == 40


def test_scanpy_goes_on_from_the_factors_of_real_cells():
    import scanpy as sc

    cells = sc.datasets.pbmc68k_reduced()
    sf.tl.sparse_factors(cells, 10, n_trials=3, tol=1e-2)
    sc.pp.neighbors(cells, use_rep="X_sfa")
    sc.tl.umap(cells)
    assert cells.obsm["X_umap"].shape == (700, 2)
    # The factors tell cell types apart: neighbours are mostly of the same type.
    graph = cells.obsp["connectivities"].tocoo()
    kinds = cells.obs["bulk_labels"].to_numpy()
    same = np.average(kinds[graph.row] == kinds[graph.col], weights=graph.data)
    by_chance = np.sum((np.unique(kinds, return_counts=True)[1] / len(kinds)) ** 2)
    assert same > 3 * by_chance
    assert len(sf.pl.loadings(cells, factors=[1, 2]).axes) == 2


@pytest.mark.parametrize("layout", ["csr", "csc"])
@pytest.mark.parametrize("wrong", ["indices", "indptr", "a link", "raw storage"])
def test_a_crafted_backed_file_is_refused(tmp_path: Path, layout, wrong):
    """Indices that point outside end a process; links and raw storage read other files."""
    import anndata
    import h5py

    values = np.where(np.random.default_rng(0).random((20, 8)) < 0.5, 1.0, 0.0)
    path = tmp_path / "cells.h5ad"
    matrix = values if wrong == "raw storage" else getattr(sparse, f"{layout}_matrix")(values)
    anndata.AnnData(matrix).write_h5ad(path)
    with h5py.File(path, "r+") as file:
        if wrong == "a link":
            with h5py.File(tmp_path / "other.h5", "w") as other:
                file.copy("X", other)
            del file["X"]
            file["X"] = h5py.ExternalLink("other.h5", "/X")
        elif wrong == "raw storage":
            (tmp_path / "raw").write_bytes(values.tobytes())
            attributes = dict(file["X"].attrs)
            del file["X"]
            file.create_dataset("X", (20, 8), float, external=[(str(tmp_path / "raw"), 0, values.nbytes)])
            file["X"].attrs.update(attributes)
        else:
            file["X"][wrong][2] = 99_999_999
    backed = anndata.read_h5ad(path, backed="r")
    for call in (sf.fit_vi, sf.tl.sparse_factors):
        with pytest.raises(ValueError, match=r"must (lie inside|rise from 0|hold its data itself)"):
            call(backed, n_factors=1, **QUICK)
