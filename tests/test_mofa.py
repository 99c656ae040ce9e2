"""Files in the format of MOFA2: their layout, and what mofax reads of them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import sparsefactor as sf

h5py = pytest.importorskip("h5py")

VIEWS = ["rna"] * 25 + ["protein/total"] * 15
SIM = sf.simulate(
    n_features=40, n_samples=50, inclusion=[[0.5, 0.4], [0.5, 0.6]], groups=VIEWS, snr=4, missing=0.05, seed=1
)
GENES, PEOPLE = [f"gene {i}" for i in range(40)], [f"person {j}" for j in range(50)]
X = pd.DataFrame(SIM.X + 10.0, index=PEOPLE, columns=GENES)


@pytest.fixture(scope="module")
def views() -> sf.VIPosterior:
    return sf.fit_vi(X, sf.Prior(n_factors=4, groups=VIEWS), n_trials=2, scale=True)


def test_the_layout_is_that_of_mofapy2(views, tmp_path: Path) -> None:
    views.to_mofa_hdf5(tmp_path / "model.hdf5", X.sample(frac=1, random_state=0))
    found = np.flatnonzero(~views.empty)
    with h5py.File(tmp_path / "model.hdf5") as file:
        assert [name.decode() for name in file["views/views"]] == ["rna", "protein-total"]  # no "/" in HDF5
        assert [name.decode() for name in file["groups/groups"]] == ["group1"]
        assert [name.decode() for name in file["samples/group1"]] == PEOPLE
        assert [name.decode() for name in file["features/rna"]] == GENES[:25]
        np.testing.assert_array_equal(file["expectations/Z/group1"], views.activations_mean[:, found].T)
        np.testing.assert_array_equal(file["expectations/W/protein-total"], views.loadings_mean[25:][:, found].T)
        fitted = ((X - views.labels.offset) / views.labels.scale).to_numpy()
        np.testing.assert_allclose(file["data/rna/group1"], fitted[:, :25])
        np.testing.assert_array_equal(file["intercepts/rna/group1"], views.labels.offset[:25])
        share = file["variance_explained/r2_per_factor/group1"][:]
        np.testing.assert_allclose(share, 100 * views.variance_explained(by="group")[:, found])
        residual = fitted - views.signal()
        for v, rows in enumerate((slice(0, 25), slice(25, 40))):
            total = 1 - np.nansum(residual[:, rows] ** 2) / np.nansum(fitted[:, rows] ** 2)
            assert file["variance_explained/r2_total/group1"][v] == pytest.approx(
                100 * total, rel=2e-3
            )  # around means, not offsets
        assert file["training_opts"].attrs["names"][0] == b"maxiter"
        assert len(file["training_opts"]) == 6
        assert file["model_options/spikeslab_weights"][()] == b"True"
        assert file["model_options/likelihoods"][:].tolist() == [b"gaussian"] * 2
        np.testing.assert_array_equal(file["training_stats/elbo"], views.elbo_history["elbo"])


def test_results_without_names_or_data(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.SamplingWarning)
        mc = sf.sample(SIM.X, n_factors=2, n_chains=2, n_warmup=20, n_draws=20, progress=False)
    mc.to_mofa_hdf5(tmp_path / "draws.hdf5")
    with h5py.File(tmp_path / "draws.hdf5") as file:
        assert "data" not in file
        assert file["samples/group1"][0] == b"sample1"
        assert file["features/view1"][39] == b"feature40"
        np.testing.assert_array_equal(file["expectations/Z/group1"], mc.activations_mean[:, ~mc.empty].T)


def test_refusals(views, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pass the data of the fit"):
        views.to_mofa_hdf5(tmp_path / "model.hdf5", X.iloc[:9])
    nothing = sf.fit_vi(np.random.default_rng(0).normal(size=(20, 15)), sf.Prior(n_factors=2), n_trials=1)
    if nothing.empty.all():
        with pytest.raises(ValueError, match="a MOFA2 model needs a factor that is not empty"):
            nothing.to_mofa_hdf5(tmp_path / "model.hdf5")
    assert not list(tmp_path.iterdir())


READ = """
import warnings; warnings.simplefilter("ignore")
import matplotlib; matplotlib.use("agg")
import mofax, numpy as np
model, known = mofax.mofa_model("model.hdf5"), np.load("known.npz")
assert model.shape == (50, 40) and model.views == ["rna", "protein-total"]
factors, weights = model.get_factors(df=True), model.get_weights(df=True)
assert list(factors.index) == known["people"].tolist() and list(weights.index) == known["genes"].tolist()
np.testing.assert_allclose(factors, known["activations"], rtol=1e-5, atol=1e-7)
np.testing.assert_allclose(weights, known["loadings"], rtol=1e-5, atol=1e-7)
share = model.get_variance_explained().pivot(index="View", columns="Factor", values="R2").loc[model.views]
np.testing.assert_allclose(share, known["share"])
assert list(model.get_top_features(factors=[0], views=["rna"], n_features=1)) == known["top"].tolist()
assert model.calculate_variance_explained()["R2"].between(0, 100).all()  # of its data, weights and factors
for draw in (mofax.plot_weights, mofax.plot_r2, mofax.plot_weights_heatmap):
    assert draw(model) is not None
"""


def test_mofax_reads_it(views, tmp_path: Path) -> None:
    """In a process of its own: mofax imports pyplot."""
    if importlib.util.find_spec("mofax") is None:
        pytest.skip("the extra `test` brings mofax")
    views.to_mofa_hdf5(tmp_path / "model.hdf5", X)
    found = np.flatnonzero(~views.empty)
    np.savez(
        tmp_path / "known.npz",
        people=PEOPLE,
        genes=GENES,
        activations=views.activations_mean[:, found],
        loadings=views.loadings_mean[:, found],
        share=100 * views.variance_explained(by="group")[:, found],
        top=[GENES[int(np.argmax(np.abs(views.loadings_mean[:25, 0])))]],
    )
    subprocess.run([sys.executable, "-c", READ], check=True, cwd=tmp_path)
