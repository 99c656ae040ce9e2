"""Factors against what else is known of the samples: found where it is there, not where it is not, in any order."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.stats import f_oneway, kstest, pearsonr

import sparsefactor as sf

SIM = sf.simulate(n_features=40, n_samples=80, inclusion=[0.4, 0.4], snr=4, seed=3)
PEOPLE = [f"person {j}" for j in range(80)]
X = pd.DataFrame(SIM.X, index=PEOPLE)
RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def vi() -> sf.VIPosterior:
    return sf.fit_vi(X, n_factors=3, n_trials=2)


@pytest.fixture(scope="module")
def mc() -> sf.MCMCPosterior:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.SamplingWarning)
        return sf.sample(X, n_factors=2, n_chains=2, n_warmup=100, n_draws=300, progress=False)


@pytest.fixture(scope="module")
def metadata(vi) -> pd.DataFrame:
    f = vi.activations_mean
    group = np.where(f[:, 1] > 0.5, "high", np.where(f[:, 1] < -0.5, "low", "middle"))
    age = 50 + 10 * f[:, 0] + 8 * RNG.normal(size=80)
    columns = {"age": age, "stage": group, "noise": RNG.normal(size=80), "site": RNG.choice(list("ABC"), 80)}
    frame = pd.DataFrame(columns, index=PEOPLE)
    frame.loc["person 3", "age"] = np.nan
    return frame


def certain(vi: sf.VIPosterior) -> sf.VIPosterior:
    """The same scores without uncertainty."""
    from dataclasses import replace

    return replace(vi, activations_sd=np.zeros_like(vi.activations_sd))


def row(found: sf.Association, factor: int, column: str) -> pd.Series:
    table = found.table
    return table[(table.factor == factor) & (table.column == column)].iloc[0]


def test_what_is_there_is_found_by_both_methods(vi, mc, metadata) -> None:
    for p in (vi, mc):
        found = p.associate(metadata)
        assert {(r.factor, r.column) for r in found.significant().itertuples()} == {(1, "age"), (2, "stage")}
        assert len(found.table) == 4 * int((~p.empty).sum())
        assert row(found, 1, "age").n == 79
        assert row(found, 2, "stage").means.startswith("high ")
        assert row(found, 2, "stage").kind == "groups"
        age = row(found, 1, "age")
        assert age.lower < age.effect < age.upper
        assert found.table["p"].is_monotonic_increasing


def test_without_uncertainty_these_are_the_usual_tests(vi, metadata) -> None:
    p = certain(vi)
    found = p.associate(metadata)
    seen = metadata["age"].notna().to_numpy()
    usual = pearsonr(metadata["age"][seen], p.activations_mean[seen, 0])
    mine = row(found, 1, "age")
    assert mine.effect == pytest.approx(usual.statistic)
    assert mine.p == pytest.approx(usual.pvalue, rel=1e-6)
    interval = usual.confidence_interval(0.95)
    assert (mine.lower, mine.upper) == pytest.approx((interval.low, interval.high), abs=0.01)  # Student's t for normal
    for k in (1, 2):
        parts = [p.activations_mean[metadata["site"] == name, k - 1] for name in "ABC"]
        assert row(found, k, "site").p == pytest.approx(f_oneway(*parts).pvalue, rel=1e-6)
        total = sum(((part - p.activations_mean[:, k - 1].mean()) ** 2).sum() for part in parts)
        within = sum(((part - part.mean()) ** 2).sum() for part in parts)
        assert row(found, k, "site").effect == pytest.approx(np.sqrt(1 - within / total))


def test_uncertain_scores_need_stronger_associations(vi, metadata) -> None:
    from dataclasses import replace

    vague = replace(vi, activations_sd=np.full_like(vi.activations_sd, 1.5))
    before, after = (p.associate(metadata) for p in (certain(vi), vague))
    assert abs(row(after, 1, "age").effect) < abs(row(before, 1, "age").effect)
    assert row(after, 1, "age").p > 100 * row(before, 1, "age").p
    assert row(after, 2, "stage").p > 100 * row(before, 2, "stage").p


def test_moments_under_q_are_those_of_draws_from_it(vi, metadata) -> None:
    """The closed form against the same sums over simulated scores."""
    from sparsefactor.association import Column, _residual, moments

    factors = np.flatnonzero(~vi.empty)
    for name in ("age", "site"):
        column = Column.of(metadata[name])
        estimate, between, left, _ = moments(vi, factors, column)
        seen = column.seen
        noise = RNG.normal(size=(20_000, int(seen.sum()), len(factors)))
        F = vi.activations_mean[seen][:, factors] + vi.activations_sd[seen][:, factors] * noise
        each = np.einsum("nq,mnk->mqk", column.basis, F)
        np.testing.assert_allclose(estimate, each.mean(axis=0), atol=0.02)
        np.testing.assert_allclose(between, each.var(axis=0).sum(axis=0), rtol=0.1)
        np.testing.assert_allclose(left, np.mean([_residual(f, column.basis) for f in F[:2000]], axis=0), rtol=0.02)


@pytest.mark.statistical
def test_p_is_not_too_small_where_nothing_is_there(vi) -> None:
    """Uniform where scores are certain, larger where they are not; and a column of the scores themselves is found."""
    rng = np.random.default_rng(1)
    columns = {f"n{i}": rng.normal(size=80) for i in range(150)}
    columns |= {f"g{i}": rng.choice(["a", "b", "c", "d"], 80) for i in range(150)}
    frame = pd.DataFrame(columns, index=PEOPLE)
    known = certain(vi).associate(frame).table
    assert kstest(known["p"][known.factor == 1], "uniform").pvalue > 0.001
    mine = vi.associate(frame).table
    assert (mine["p"] <= 0.05).mean() < 0.08
    frame["self"] = vi.activations_mean[:, 0]
    assert vi.associate(frame).table.iloc[0][["factor", "column"]].tolist() == [1, "self"]


def test_rows_are_matched_by_name(vi, metadata) -> None:
    found = vi.associate(metadata).table
    pd.testing.assert_frame_equal(found, vi.associate(metadata.sample(frac=1, random_state=1)).table)
    pd.testing.assert_frame_equal(found, vi.associate(metadata.reset_index(drop=True)).table)
    more = pd.concat([metadata, metadata.iloc[:2].set_axis(["x", "y"])])
    pd.testing.assert_frame_equal(found, vi.associate(more).table)
    table = pl.DataFrame({name: metadata[name].to_numpy() for name in metadata.columns}, nan_to_null=True)
    assert len(vi.associate(table).table) == len(found)
    assert len(vi.associate(metadata["age"]).table) == int((~vi.empty).sum())
    with pytest.raises(ValueError, match=r"metadata must have a row for every sample; 'person 0' .*metadata\.reindex"):
        vi.associate(metadata.drop(index="person 0"))
    with pytest.raises(ValueError, match="metadata must have one row for each sample; 'person 1' has 2"):
        vi.associate(pd.concat([metadata, metadata.iloc[[1]]]))
    with pytest.raises(ValueError, match="metadata must have a row for each of the 80 samples; got 3"):
        vi.associate({"a": [1, 2, 3]})
    with pytest.raises(ValueError, match="metadata must have at least one column"):
        vi.associate(pd.DataFrame(index=PEOPLE))


def test_columns_that_cannot_be_tested_are_named(vi, metadata) -> None:
    bad = {"same": 1.0, "id": PEOPLE, "gone": np.nan, "one": "a", "far": np.where(np.arange(80) == 3, np.inf, 1.0)}
    with pytest.warns(UserWarning, match="same, id, gone, one and far left out"):
        found = vi.associate(metadata.assign(**bad))
    assert set(found.table.column) == set(metadata.columns)


def test_kinds_of_columns(vi) -> None:
    columns = {
        "flag": np.arange(80) % 2 == 0,
        "whole": np.arange(80),
        "when": pd.date_range("2001-01-01", periods=80),
        "kind": pd.Categorical(["x", "y"] * 40),
        "maybe": pd.array([None, 1, 2, 3] * 20, dtype="Int64"),
    }
    found = vi.associate(pd.DataFrame(columns, index=PEOPLE)).table.drop_duplicates("column").set_index("column")
    assert found["kind"].to_dict() == {
        "flag": "groups", "whole": "correlation", "when": "correlation", "kind": "groups", "maybe": "correlation"
    }  # fmt: skip
    assert found.loc["maybe", "n"] == 60
    assert found.loc["when", "effect"] == pytest.approx(found.loc["whole", "effect"])


def test_the_picture_shows_the_effects(vi, metadata) -> None:
    found = vi.associate(metadata)
    ax = found.plot()
    names = [label.get_text() for label in ax.get_yticklabels()]
    shown = np.asarray(ax.images[0].get_array())
    assert set(names) == set(metadata.columns)
    assert shown[names.index("age"), 0] == pytest.approx(row(found, 1, "age").effect)
    (dots,) = ax.lines
    assert {(int(x) + 1, names[int(y)]) for x, y in zip(*dots.get_data(), strict=True)} == {(1, "age"), (2, "stage")}


def test_nothing_to_associate_with() -> None:
    p = sf.fit_vi(np.random.default_rng(0).normal(size=(20, 15)), sf.Prior(n_factors=2), n_trials=1)
    if not p.empty.all():
        pytest.skip("a factor was found in noise")
    found = p.associate({"a": np.arange(20)})
    assert len(found.table) == 0
    with pytest.raises(ValueError, match="a factor that is not empty"):
        found.plot()
