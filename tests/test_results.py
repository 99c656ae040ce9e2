"""Methods of a result: its verdict, report, tables in files, plots, and scores of new samples."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pytest
import xarray as xr
from typer.testing import CliRunner

import sparsefactor as sf
from sparsefactor.cli import app
from sparsefactor.cli.spelling import as_options, spelt
from sparsefactor.frames import sorted_loadings
from sparsefactor.report import posterior_page
from sparsefactor.table_files import number_format

SIM = sf.simulate(n_features=30, n_samples=40, inclusion=[0.4, 0.4], snr=5, missing=0.05, seed=2)
GENES, PEOPLE = [f"gene {i}" for i in range(30)], [f"person {j}" for j in range(40)]
X = pd.DataFrame(SIM.X, index=PEOPLE, columns=GENES)
PRIOR = sf.Prior(n_factors=3, inclusion=sf.Beta(1, 1))


@pytest.fixture(scope="module")
def vi() -> sf.VIPosterior:
    return sf.fit_vi(X, PRIOR, n_trials=2)


@pytest.fixture(scope="module")
def mc() -> sf.MCMCPosterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.SamplingWarning)
        return sf.sample(X, PRIOR, n_chains=2, n_warmup=30, n_draws=30, progress=False)


# ---- verdict --------------------------------------------------------------------------------------------------------


def test_a_verdict_is_a_level_a_sentence_reasons_and_remedies(vi, mc) -> None:
    stopped = replace(vi, status=sf.Status.MAX_ITER).verdict
    assert (stopped.level, stopped.sentence) == ("bad", "Not reliable yet: the fit has not converged.")
    assert stopped.reasons[0] == "It stopped at max_iter."
    assert stopped.remedies == ("raise max_iter, or pass a larger tol",)
    assert str(stopped).endswith("Remedy: raise max_iter, or pass a larger tol.")
    assert mc.verdict.level == "bad"
    assert mc.verdict.sentence.startswith("Not reliable yet: ")
    assert any("run longer" in remedy for remedy in mc.verdict.remedies)
    assert mc.verdict is mc.diagnostics().verdict
    for status in sf.Status:
        verdict = replace(vi, status=status).verdict
        assert (verdict.level == "bad") == (status is not sf.Status.CONVERGED)
        assert str(verdict).count("..") == 0


def test_python_report_and_command_line_say_the_same(vi, mc, tmp_path: Path) -> None:
    for p, name in ((replace(vi, status=sf.Status.MAX_ITER), "vi"), (mc, "mc")):
        page = posterior_page(p)
        data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
        box = data["sections"][0]
        assert f"{box['label']} {box['text']}" == str(p.verdict)
        assert box["level"] == p.verdict.level
        p.save(tmp_path / f"{name}.sf")
        said = CliRunner().invoke(app, ["summary", str(tmp_path / f"{name}.sf")]).stdout.splitlines()[0]
        expected = as_options(str(p.verdict)) if name == "vi" else spelt(p.verdict, 30)
        assert said == expected
        assert ("--max-iter" if name == "vi" else "--draws 60") in said


# ---- tables ---------------------------------------------------------------------------------------------------------


def test_standardised_loadings_are_correlations_with_the_factors() -> None:
    """In data of independent factors, in any units."""
    sim = sf.simulate(n_features=20, n_samples=4000, inclusion=[0.5, 0.5], snr=3, seed=0)
    for scale, units in ((True, 10.0 ** np.arange(-10, 10)), (False, np.geomspace(0.2, 5, 20)), (False, 1e6)):
        p = sf.fit_vi(sim.X * units, n_factors=2, n_trials=1, scale=scale)
        correlation = np.corrcoef((sim.X * units).T, p.activations_mean.T)[:20, 20:]
        shown = p.standardized_loadings
        assert np.abs(shown).max() <= 1.0
        np.testing.assert_allclose(shown, correlation, atol=0.06)


def test_sorted_loadings_are_grouped_and_blank_below_the_cutoff(vi) -> None:
    values = pd.DataFrame(vi.standardized_loadings, index=GENES, columns=vi.factor_names)
    frame = sorted_loadings(vi, cutoff=0.5)
    assert list(frame.columns) == [name for name, empty in zip(vi.factor_names, vi.empty, strict=True) if not empty]
    own = values.loc[frame.index, frame.columns]
    np.testing.assert_array_equal(frame.isna(), own.abs() < 0.5)
    np.testing.assert_array_equal(frame.fillna(0.0), own.where(own.abs() >= 0.5, 0.0))
    salient = frame.dropna(how="all")
    assert list(frame.index[: len(salient)]) == list(salient.index)  # the others come last
    groups = own.loc[salient.index].abs().to_numpy().argmax(axis=1)
    assert np.all(np.diff(groups) >= 0)
    for k in np.unique(groups):
        assert np.all(np.diff(own.loc[salient.index].abs().to_numpy()[groups == k, k]) <= 0)
    raw = sorted_loadings(vi, standardized=False, cutoff=0.0)
    np.testing.assert_array_equal(raw.loc[GENES], vi.loadings_mean[:, ~vi.empty])
    with pytest.raises(ValueError, match=r'are for "loadings"; got .sorted_loadings.; pass "loadings"'):
        vi.to_frame("sorted_loadings", cutoff=0.4)
    nothing = sf.fit_vi(np.random.default_rng(0).normal(size=(20, 12)), PRIOR, n_trials=1)
    assert sorted_loadings(nothing).shape == (12, int((~nothing.empty).sum()))


def test_a_workbook_is_formatted(vi, mc, tmp_path: Path) -> None:
    for p in (vi, mc):
        assert p.export(tmp_path / "all.xlsx") == [tmp_path / "all.xlsx"]
        book = openpyxl.load_workbook(tmp_path / "all.xlsx")
        assert {"about", "summary", "sorted_loadings", "loadings", "discoveries", "activations"} <= set(book.sheetnames)
        assert "reconstruction" not in book.sheetnames
        assert ("trials" in book.sheetnames) == (p is vi)
        assert book["about"]["B2"].value == str(p.verdict)
        sheet = book["loadings"]
        assert sheet.freeze_panes == "B2"
        assert sheet["B2"].value == pytest.approx(p.loadings_mean[0, 0], rel=1e-14)  # all digits are kept
        assert sheet["B2"].number_format == number_format(p.to_frame("loadings")["factor 1"])
        assert 8 <= sheet.column_dimensions["A"].width <= 14  # "gene 29"
        assert book["about"].column_dimensions["B"].width == 50
        assert book["sorted_loadings"].conditional_formatting


@pytest.mark.parametrize(
    ("values", "shape"),
    [
        ([0.91, -0.002], "#,##0.000"),
        ([12.345], "#,##0.0"),
        ([-76543.2], "#,##0"),
        ([3, 4000], "#,##0"),
        ([1e-9, 0.0], "0.00E+00"),
        ([0.0, float("nan"), float("inf")], "#,##0"),
        (["a"], "General"),
        ([True], "General"),
    ],
)
def test_digits_of_a_column(values, shape) -> None:
    assert number_format(pd.Series(values)) == shape


def test_tables_in_a_folder_or_one_file(vi, tmp_path: Path) -> None:
    files = vi.export(tmp_path / "tables")
    assert {file.stem for file in files} >= {"about", "summary", "loadings", "trials"}
    np.testing.assert_allclose(pd.read_csv(tmp_path / "tables" / "loadings.csv", index_col=0), vi.loadings_mean)
    assert vi.export(tmp_path / "p", "loadings", format="parquet")[0].name == "loadings.parquet"
    vi.export(tmp_path / "filled.tsv", "reconstruction")
    frame = pd.read_csv(tmp_path / "filled.tsv", sep="\t", index_col=0)
    np.testing.assert_allclose(frame, vi.reconstruct())
    with pytest.raises(ValueError, match=r"one file holds one table; \d+ were asked for"):
        vi.export(tmp_path / "all.csv")
    with pytest.raises(ValueError, match=r"a folder or to a file that ends in one of .*; got 'all.xls'"):
        vi.export(tmp_path / "all.xls")
    assert not (tmp_path / "all.xls").exists()
    with pytest.raises(ValueError, match=r"tables must be one of about, summary, .*; got 'loading'"):
        vi.export(tmp_path / "x", ["loading"])
    with pytest.raises(ValueError, match=r"tables must be one of .*; got 'diagnostics'"):
        vi.export(tmp_path / "x", "diagnostics")
    with pytest.raises(ValueError, match="format must be one of"):
        vi.export(tmp_path / "x", format="doc")


def test_a_report_is_written(vi, tmp_path: Path) -> None:
    assert vi.report(tmp_path / "new" / "x.html", title="Mine & <yours>") == tmp_path / "new" / "x.html"
    page = (tmp_path / "new" / "x.html").read_text()
    assert "<title>Mine &amp; &lt;yours&gt;</title>" in page
    assert page == posterior_page(vi, title="Mine & <yours>")


def test_a_report_leaves_no_figures_open(vi, tmp_path: Path) -> None:
    """Where pyplot is in use a notebook would show them all."""
    vi.save(tmp_path / "fit.sf")
    script = (
        "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as plt, sparsefactor as sf\n"
        "p = sf.load('fit.sf'); p.report('x.html'); assert plt.get_fignums() == []\n"
        "p.plot.heatmap(); assert plt.get_fignums() == [1]\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path)


def sections_of(p: sf.VIPosterior | sf.MCMCPosterior) -> dict[str, dict]:
    data = json.loads(posterior_page(p).partition('id="data">')[2].partition("</script>")[0])
    return {section["title"]: section for section in data["sections"]}


def test_the_report_begins_with_the_sorted_loadings(vi) -> None:
    section = sections_of(vi)["Loadings"]
    frame = sorted_loadings(vi).dropna(how="all")
    assert [row[0] for row in section["rows"]] == list(frame.index)
    assert [column["name"] for column in section["columns"]] == ["feature", *frame.columns]
    for row, values in zip(section["rows"], frame.to_numpy(), strict=True):
        assert [value is None for value in row[1:]] == list(np.isnan(values))
    assert "below 0.3 are blank" in section["note"]


def test_many_loadings_are_cut_by_factor(vi, monkeypatch) -> None:
    from sparsefactor.report import sections

    frame = sorted_loadings(vi).dropna(how="all")
    size = frame.abs().to_numpy()
    groups = np.nanargmax(size, axis=1)
    monkeypatch.setattr(sections, "MOST_ROWS", len(frame) - 1)
    monkeypatch.setattr(sections, "ROWS_OF_A_FACTOR", 2)
    section = sections.loadings("Loadings", frame, 0.3)
    kept = [name for k in np.unique(groups) for name in frame.index[groups == k][:2]]
    assert [row[0] for row in section["rows"]] == kept
    assert "the 2 strongest of each factor are shown" in section["note"]


def test_each_method_has_its_own_columns(vi, mc) -> None:
    stable = replace(vi, stability=np.array([1.0, 2 / 3, np.nan]))
    columns = {c["name"]: n for n, c in enumerate(sections_of(stable)["Factors at a glance"]["columns"])}
    assert "R-hat" not in columns
    assert "features included (p > 0.5)" in columns
    rows = sections_of(stable)["Factors at a glance"]["rows"]
    assert [row[columns["stability"]] for row in rows] == ["100 %", "67 %", ""]
    drawn = [c["name"] for c in sections_of(mc)["Factors at a glance"]["columns"]]
    assert "R-hat" in drawn
    assert "stability" not in drawn
    trials = [c["name"] for c in sections_of(vi)["Restarts"]["columns"]]
    assert {"restart", "ELBO gap", "selected"} <= set(trials)
    assert not {"won", "trial", "below the best"} & set(trials)


def test_inclusion_is_left_out_where_everything_is_included(vi) -> None:
    assert "Probability of inclusion" in sections_of(vi)
    full = replace(vi, inclusion_prob=np.ones_like(vi.inclusion_prob))
    assert "Probability of inclusion" not in sections_of(full)
    assert "Nearly every feature is included" in sections_of(full)["All loadings"]["caption"]


# ---- plots ----------------------------------------------------------------------------------------------------------


def test_plots_are_methods(vi, mc) -> None:
    assert vi.plot.top_loadings(2, n=5).get_title().startswith("Factor 2")
    assert set(dir(vi.plot)) == set(sf.plot.KINDS) | set(sf.plot.DATA_KINDS)
    assert vi.plot.loadings.__doc__ == sf.plot.loadings.__doc__
    assert len(mc.plot.trace(n=1).axes) == 2
    with pytest.raises(AttributeError, match=r"plot must be one of loadings, heatmap, .*; got 'pie'"):
        _ = vi.plot.pie


def test_loadings_of_every_factor(vi) -> None:
    figure = vi.plot.loadings(n=4)
    found = np.flatnonzero(~vi.empty)
    titles = [ax.get_title() for ax in figure.axes if ax.get_title()]
    assert [title.split(" (")[0] for title in titles] == [f"Factor {k + 1}" for k in found]
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        GENES[i] for i in np.argsort(-np.abs(vi.loadings_mean[:, 0]))[:4]
    ]
    for few in (figure, vi.plot.loadings([2])):
        few.canvas.draw()
        for text in [ax.title for ax in few.axes] + [few._supxlabel]:
            extent = text.get_window_extent()
            assert extent.x0 >= 0
            assert extent.x1 <= few.bbox.width
    assert len(vi.plot.loadings([2]).axes) == 1
    with pytest.raises(ValueError, match="factors must name at least one factor"):
        vi.plot.loadings([])
    with pytest.raises(ValueError, match="factor must be a whole number from 1 to 3; got 4"):
        vi.plot.loadings([4])


def test_a_data_heatmap_has_the_strongest_features_and_the_samples_in_order(vi) -> None:
    ax = vi.plot.data_heatmap(X.sample(frac=1, random_state=0), factor=2, n=6)  # matched by name
    L, f = vi.loadings_mean[:, 1], vi.activations_mean[:, 1]
    top = np.argsort(-np.abs(L))[:6]
    top = top[np.argsort(-L[top])]
    values = X.to_numpy()[np.argsort(-f)][:, top].T
    expected = (values - np.nanmean(values, axis=1, keepdims=True)) / np.nanstd(values, axis=1, keepdims=True)
    shown = np.ma.filled(np.ma.asarray(ax.images[0].get_array()), np.nan)
    np.testing.assert_allclose(shown, expected)
    assert [label.get_text() for label in ax.get_yticklabels()] == [("-" if L[i] < 0 else "") + GENES[i] for i in top]
    assert ax.get_xticklabels()[0].get_text() == PEOPLE[int(np.argmax(f))]
    with pytest.raises(ValueError, match="pass the data of the fit"):
        vi.plot.data_heatmap(X.iloc[:5])


def test_data_against_the_scores(vi) -> None:
    figure = vi.plot.data_scatter(X, 1, n=2, color=["a", "b"] * 20)
    first = int(np.argmax(np.abs(vi.loadings_mean[:, 0])))
    seen = X.iloc[:, first].notna()
    r = np.corrcoef(X.iloc[:, first][seen], vi.activations_mean[seen, 0])[0, 1]
    assert figure.axes[0].get_title() == f"{GENES[first]} (r = {r:.2f})"
    assert len(figure.axes) == 2
    assert sum(len(c.get_offsets()) for c in figure.axes[0].collections) == 40
    named = vi.plot.data_scatter(X, 1, features=["gene 7"])
    assert named.axes[0].get_title().startswith("gene 7 (r = ")
    with pytest.raises(ValueError, match="features must be names of features of the fit; got 'gene 99'"):
        vi.plot.data_scatter(X, features=["gene 99"])


def test_variance_explained_by_sample(vi, mc) -> None:
    for p in (vi, mc):
        share = p.variance_explained(by="sample", X=X)
        deviation = np.nansum((SIM.X - p.labels.offset) ** 2, axis=1)
        residual = np.nansum((SIM.X - p.predicted()) ** 2, axis=1)
        np.testing.assert_allclose(share, 1 - residual / deviation)
        ax = p.plot.variance_by_sample(X)
        np.testing.assert_allclose([bar.get_width() for bar in ax.patches], 100 * np.sort(share)[::-1])
    with pytest.raises(ValueError, match=r"needs the data of the fit, which a result does not keep; .* pass X="):
        vi.variance_explained(by="sample")


def test_structure_stacks_what_factors_contribute(vi) -> None:
    ax = vi.plot.structure(groups=["b", "a"] * 20)
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "b"]
    parts = vi.activations_mean * np.sqrt(np.sum(vi.loadings_mean**2, axis=0))
    top = max(path.vertices[:, 1].max() for area in ax.collections for path in area.get_paths() if len(path.vertices))
    low = min(path.vertices[:, 1].min() for area in ax.collections for path in area.get_paths() if len(path.vertices))
    np.testing.assert_allclose(top, np.maximum(parts[:, ~vi.empty], 0).sum(axis=1).max())
    np.testing.assert_allclose(low, np.minimum(parts[:, ~vi.empty], 0).sum(axis=1).min())
    with pytest.raises(ValueError, match=r"groups must have one value per sample \(40\)"):
        vi.plot.structure(groups=["a"])


def test_the_command_line_draws_data(vi, tmp_path: Path) -> None:
    vi.save(tmp_path / "fit.sf")
    X.to_csv(tmp_path / "X.csv")
    for kind, *more in (("loadings", "--factor", 1, "--factor", 2), ("structure",)):
        arguments = ["plot", kind, tmp_path / "fit.sf", "--out", tmp_path / f"{kind}.svg", *more]
        assert CliRunner().invoke(app, [str(a) for a in arguments]).exit_code == 0
        assert "<svg" in (tmp_path / f"{kind}.svg").read_text()
    for kind in sf.plot.DATA_KINDS:
        arguments = ["plot", kind, tmp_path / "fit.sf", "--out", tmp_path / f"{kind}.svg"]
        refused = CliRunner().invoke(app, [str(a) for a in arguments])
        assert f"{kind} needs the table that was fitted" in refused.stderr
        done = CliRunner().invoke(app, [str(a) for a in [*arguments, "--data", tmp_path / "X.csv"]])
        assert done.exit_code == 0, done.output


# ---- scores ---------------------------------------------------------------------------------------------------------


def test_scores_of_a_frame_are_a_frame(vi, mc) -> None:
    new = X.iloc[[5, 3]]
    for p in (vi, mc):
        mean, sd = p.transform(new, return_sd=True)
        bare = p.transform(new.to_numpy())
        assert isinstance(bare, np.ndarray)
        for frame in (mean, sd):
            assert list(frame.index) == ["person 5", "person 3"]
            assert list(frame.columns) == p.factor_names
        np.testing.assert_allclose(mean, bare)
        table = p.transform(pl.DataFrame(new.to_numpy(), schema=GENES))
        assert isinstance(table, pl.DataFrame)
        assert table.columns == p.factor_names
        for dims in (("obs", "var"), ("var", "obs")):
            array = xr.DataArray(new if dims[0] == "obs" else new.T, dims=dims, coords={"obs": new.index, "var": GENES})
            scores = p.transform(array)
            assert scores.dims == ("obs", "factor")
            assert list(scores.indexes["obs"]) == list(new.index)
            np.testing.assert_allclose(scores, bare)
    dated = X.set_axis(pd.date_range("2001-01-31", periods=40, freq="ME"))
    assert vi.transform(dated).index.equals(dated.index)


def test_nothing_but_empty_factors_can_be_reported(tmp_path: Path) -> None:
    p = sf.fit_vi(np.random.default_rng(0).normal(size=(30, 20)), n_factors=2, n_trials=1)
    assert p.empty.all()
    assert sections_of(p)["Loadings"]["rows"] == []
    assert "Left out: 20 features without a loading of 0.3." in sections_of(p)["Loadings"]["note"]
    p.export(tmp_path / "all.xlsx")
    assert openpyxl.load_workbook(tmp_path / "all.xlsx")["loadings"].max_row == 21
