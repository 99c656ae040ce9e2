"""Samples that dominate a factor are named, with its features, wherever a result is put into words."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sparsefactor as sf
from sparsefactor.cli import app
from sparsefactor.outliers import dominating_samples, outlier_sentence
from sparsefactor.report import posterior_page
from sparsefactor.words import story

BROKEN = ["f03", "f11", "f20"]  # features in which sample "s17" lies ten standard deviations off


def clean(n_samples: int = 80) -> pd.DataFrame:
    sim = sf.simulate(n_features=30, n_samples=n_samples, inclusion=[0.4, 0.4], snr=1.5, seed=2)
    return pd.DataFrame(sim.X, index=[f"s{j:02d}" for j in range(n_samples)], columns=[f"f{i:02d}" for i in range(30)])


def with_outlier(scale: float = 1.0) -> pd.DataFrame:
    X = clean()
    X.loc["s17", BROKEN] += 10 * X[BROKEN].std()
    return scale * X


@cache
def fitted(scale: float = 1.0) -> sf.VIPosterior:
    return sf.fit_vi(with_outlier(scale), n_factors=4, n_trials=5, seed=0)


@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_the_sample_and_the_features_are_named(scale: float) -> None:
    p = fitted(scale)
    ((factor, samples),) = dominating_samples(p).items()
    assert [p.sample_names[j] for j in samples] == ["s17"]
    said = outlier_sentence(p)
    for name in ("s17", *BROKEN, f"Factor {factor + 1}", "scale=True"):
        assert name in said
    assert said in repr(p)
    assert said in story(p)
    assert "s17" in p._repr_html_()
    assert "s17" in posterior_page(p)
    assert p.summary()["dominated_by"].tolist() == ["s17" if k == factor else "" for k in range(p.n_factors)]


def test_draws_name_them() -> None:
    mc = sf.sample(
        with_outlier(), n_factors=3, n_warmup=100, n_draws=100, n_chains=2, init="varimax", seed=0, progress=False
    )
    assert [[mc.sample_names[j] for j in samples] for samples in dominating_samples(mc).values()] == [["s17"]]
    assert outlier_sentence(mc) in repr(mc)


def test_a_few_samples_together_are_named_in_order_of_their_share() -> None:
    X = clean(120)
    X.loc[["s17", "s30", "s44"], BROKEN] += np.outer([12, 9, 10], X[BROKEN].std())
    p = sf.fit_vi(X, n_factors=4, n_trials=5, seed=0)
    ((_, samples),) = dominating_samples(p).items()
    assert [p.sample_names[j] for j in samples] == ["s17", "s44", "s30"]


def test_ordinary_data_are_not_accused() -> None:
    p = sf.fit_vi(clean(), n_factors=4, n_trials=5, seed=0)
    assert dominating_samples(p) == {}
    assert outlier_sentence(p) == ""
    assert "dominated_by" not in p.summary()


def test_a_handful_of_samples_is_too_few_to_tell() -> None:
    X = clean().iloc[:12]
    X.iloc[3] += 10 * X.std()
    assert dominating_samples(sf.fit_vi(X, n_factors=2, n_trials=5, seed=0)) == {}


def test_the_command_line_names_them(tmp_path: Path) -> None:
    table, out = tmp_path / "X.csv", tmp_path / "fit.sf"
    with_outlier().to_csv(table)
    run = CliRunner().invoke(app, ["fit", str(table), "--factors", "4", "--trials", "5", "--out", str(out)])
    assert "s17" in run.output
    assert "--scale" in run.output
    told = CliRunner().invoke(app, ["summary", str(out)]).stdout
    assert "s17" in told
    assert "scale=True" not in told
    facts = json.loads(CliRunner().invoke(app, ["summary", str(out), "--json"]).stdout)
    assert list(facts["dominating_samples"].values()) == [["s17"]]
