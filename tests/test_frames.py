"""Results as frames with names, frames given back for frames, short reprs, and an HTML view for notebooks."""

from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
import xarray as xr

import sparsefactor as sf
from sparsefactor.words import percent

SIM = sf.simulate(n_features=30, n_samples=20, inclusion=[0.3, 0.6], snr=5, seed=3)
GENES, PEOPLE = [f"gene {i}" for i in range(30)], [f"person {j}" for j in range(20)]
FRAME = pd.DataFrame(SIM.X, index=PEOPLE, columns=GENES)
PRIOR = sf.Prior(n_factors=4, inclusion=sf.Beta(1, 1))


def fit(X):
    return sf.fit_vi(X, PRIOR, n_trials=2)


@pytest.fixture(scope="module")
def vi():
    return fit(FRAME)


@pytest.fixture(scope="module")
def mc():
    return sf.sample(FRAME, PRIOR, n_chains=2, n_warmup=40, n_draws=40, progress=False)


def test_tables_have_names_and_the_numbers(vi) -> None:
    factors = [f"factor {k}" for k in (1, 2, 3, 4)]
    for what, values, index in (
        ("loadings", vi.loadings_mean, GENES),
        ("loadings_sd", vi.loadings_sd, GENES),
        ("inclusion", vi.inclusion_prob, GENES),
        ("activations", vi.activations_mean, PEOPLE),
        ("activations_sd", vi.activations_sd, PEOPLE),
    ):
        frame = vi.to_frame(what)
        assert list(frame.columns) == factors
        assert list(frame.index) == index
        np.testing.assert_array_equal(frame, values)
    filled = vi.to_frame("reconstruction")
    assert list(filled.columns) == GENES
    np.testing.assert_array_equal(filled, vi.reconstruct())
    features = vi.to_frame("features")
    np.testing.assert_array_equal(features["variance_explained"], vi.variance_explained(by="feature"))
    assert features.loc["gene 0", "observed"] == 20
    assert len(vi.to_frame("trials")) == 2


def test_unknown_tables_are_refused(vi, mc) -> None:
    with pytest.raises(ValueError, match=r"what must be one of .*'loadings'.*; got 'loading'"):
        vi.to_frame("loading")
    with pytest.raises(ValueError, match="diagnostics are of draws"):
        vi.to_frame("diagnostics")
    with pytest.raises(ValueError, match="trials are those of variational inference"):
        mc.to_frame("trials")


def test_summary(vi, mc) -> None:
    for p in (vi, mc):
        table = p.summary()
        certainty = "stability" if p is vi else "r_hat"
        assert list(table.columns) == ["features", "salient", "strongest", "share_of_variance", certainty]
        assert (table["salient"] == np.where(p.empty, 0, (np.abs(p.standardized_loadings) >= 0.3).sum(axis=0))).all()
        assert table.index.name == "factor"
        assert list(table.index) == [1, 2, 3, 4]
        np.testing.assert_allclose(table["share_of_variance"], np.where(p.empty, 0, p.variance_explained(by="factor")))
        assert list(table["strongest"] == "empty") == list(p.empty)
        order = np.argsort(-np.abs(p.loadings_mean[:, 0]))[:3]
        signed = [("-" if p.loadings_mean[i, 0] < 0 else "") + GENES[i] for i in order]
        assert table.loc[1, "strongest"] == ", ".join(signed)
        assert table.loc[1, "features"] == (p.inclusion_prob[:, 0] > 0.5).sum()
    assert mc.summary()["r_hat"].iloc[0] > 0.9
    assert mc.diagnostics() is mc.diagnostics()  # looked at once


def test_empty_factors_include_no_features() -> None:
    sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5], snr=5, seed=1)
    p = sf.fit_vi(sim.X, sf.Prior.paper(n_factors=3, inclusion=0.9), n_trials=2)
    assert p.empty[-1]
    assert p.inclusion_prob[:, -1].min() > 0.5  # it rests at its prior
    np.testing.assert_array_equal(p.summary()["features"] == 0, p.empty)


def test_frames_in_frames_out(vi, mc) -> None:
    for p in (vi, mc):
        out = p.reconstruct()
        assert isinstance(out, pd.DataFrame)
        assert (FRAME - out).notna().all().all()  # they align
        np.testing.assert_array_equal(out, p.predicted())
    assert isinstance(fit(SIM.X).reconstruct(), np.ndarray)
    table = fit(pl.DataFrame(SIM.X, schema=GENES)).reconstruct()
    assert isinstance(table, pl.DataFrame)
    assert table.columns == GENES


def test_dates_and_years_align(tmp_path) -> None:
    dated = pd.DataFrame(SIM.X, index=pd.date_range("2001-01-31", periods=20, freq="ME"), columns=range(5, 35))
    p = fit(dated)
    p.save(tmp_path / "p.sf")
    for one in (p, sf.load(tmp_path / "p.sf")):
        out = one.reconstruct()
        assert isinstance(out, pd.DataFrame)
        assert (dated - out).notna().all().all()
        assert one.to_frame("activations").index.equals(dated.index)
        assert one.to_frame("loadings").index.equals(pd.Index(dated.columns))
        assert (dated - one.to_frame("reconstruction")).notna().all().all()


@pytest.mark.parametrize("dims", [("obs", "var"), ("sample", "feature"), ("observation", "anything"), ("a", "b")])
@pytest.mark.parametrize("turned", [False, True])
def test_xarray_is_read_by_its_dims(dims, turned, tmp_path) -> None:
    X = xr.DataArray(SIM.X, dims=dims, coords={dims[0]: PEOPLE, dims[1]: GENES})
    if turned:
        if dims == ("a", "b"):
            pytest.skip("names that say nothing cannot turn it")
        X = X.transpose(*dims[::-1])
    p = fit(X)
    assert list(p.feature_names) == GENES
    assert list(p.sample_names) == PEOPLE
    p.save(tmp_path / "p.sf")
    for one in (p, sf.load(tmp_path / "p.sf")):
        out = one.reconstruct()
        assert isinstance(out, xr.DataArray)
        assert out.dims == X.dims
        assert float(((X - out) ** 2).mean()) < float((X**2).mean())
        assert out.sizes == (X - out).sizes  # they align


def test_xarray_refusals() -> None:
    with pytest.raises(ValueError, match="one dim of X must be the samples and one the features; got 'obs' and 'cell'"):
        fit(xr.DataArray(SIM.X, dims=("obs", "cell")))
    with pytest.raises(ValueError, match="got an xarray DataArray with dims"):
        fit(xr.DataArray(SIM.X[None], dims=("x", "obs", "var")))
    with pytest.raises(ValueError, match="got an xarray Dataset"):
        fit(xr.Dataset({"x": (("obs", "var"), SIM.X)}))


def test_reprs_are_short(vi, mc) -> None:
    things = [vi, mc, PRIOR, sf.Prior(inclusion=np.full((500, 6), 0.1)), SIM, mc.diagnostics()]
    for thing in things:
        assert len(repr(thing)) < 700
        assert str(type(thing).__name__) in repr(thing)
        page = thing._repr_html_()
        assert len(page) < 6000
        assert "<" in page
    assert f"20 samples x 30 features, 4 factors ({vi.empty.sum()} empty), {percent(vi.variance_explained())}" in repr(
        vi
    )
    assert f"ELBO {vi.elbo:,.2f}" in repr(vi)
    assert "2 chains of 40 draws, not reliable yet; see p.verdict" in repr(mc)
    assert "not reliable yet" in mc._repr_html_()
    assert "reliable" not in repr(mc.keep_chains([0]))  # of which nothing is known beforehand
    agreeing = replace(mc, record={**mc.record, "trusted": True})
    assert "2 chains of 40 draws, which agree" in repr(agreeing)
    assert "500 x 6" in repr(things[3])


def test_names_stay_text_in_html() -> None:
    X = FRAME.rename(columns={name: f"<script>{name}" for name in GENES})
    page = fit(X)._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;gene" in page


def test_percentages_have_the_digits_they_deserve() -> None:
    shares = [1.0, 0.534, 0.0534, 0.00534, 0.000534, 0.0, np.nan, -0.02]
    assert [percent(share) for share in shares] == [
        "100 %", "53.4 %", "5.3 %", "0.53 %", "0.05 %", "0 %", "–", "-2.0 %"
    ]  # fmt: skip
