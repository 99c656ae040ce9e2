"""Gene sets as a prior, what became of them, and enrichment."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import fisher_exact, mannwhitneyu

import sparsefactor as sf
from sparsefactor.genesets.enrichment import larger_ranks

GENES = [f"g{i}" for i in range(120)]
# What is true: two factors on genes 0-29 and 40-69.
TRUE = {"first": range(30), "second": range(40, 70)}
# What is known: the first set right, the second with ten genes too few, and one set that the data know nothing of.
KNOWN = {"right": range(30), "short": range(40, 60), "absent": range(90, 115)}


def genes(numbers) -> list[str]:
    return [f"g{i}" for i in numbers]


def simulated() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    L = np.zeros((120, 2))
    for k, own in enumerate(TRUE.values()):
        L[list(own), k] = rng.choice([-1.0, 1.0], 30) * rng.uniform(0.7, 1.5, 30)
    X = rng.standard_normal((80, 2)) @ L.T + rng.standard_normal((80, 120))
    return pd.DataFrame(X, columns=GENES)


def known() -> dict[str, list[str]]:
    return {name: genes(numbers) for name, numbers in KNOWN.items()}


@cache
def annotated_fit() -> tuple[sf.VIPosterior, pd.DataFrame]:
    annotation = sf.annotate(GENES, known(), inside=0.9, outside=0.01)
    return sf.fit_vi(simulated(), sf.Prior(inclusion=annotation), n_trials=4, center=True), annotation


@cache
def free_fit() -> sf.VIPosterior:
    return sf.fit_vi(simulated(), sf.Prior(n_factors=4, inclusion=sf.Beta(1, 1)), n_trials=4, center=True)


# ---- annotation -----------------------------------------------------------------------------------------------------


def test_annotation_is_a_prior_by_name():
    table = sf.annotate(GENES, known(), inside=0.8, outside=0.02, n_free=2, free=0.3)
    assert list(table.columns) == ["right", "short", "absent", "free 1", "free 2"]
    assert (table.loc[genes(range(30)), "right"] == 0.8).all()
    assert (table.loc[genes(range(30, 120)), "right"] == 0.02).all()
    assert (table["free 1"] == 0.3).all()
    assert sf.Prior(inclusion=table).n_factors == 5


def test_gene_sets_come_from_a_file(tmp_path: Path):
    lines = [f"{name}\thttps://example.org\t" + "\t".join(own) for name, own in known().items()]
    (tmp_path / "sets.gmt").write_text("\n".join(lines) + "\n\n")
    assert sf.read_gene_sets(tmp_path / "sets.gmt") == known()
    pd.testing.assert_frame_equal(sf.annotate(GENES, tmp_path / "sets.gmt"), sf.annotate(GENES, known()))


def test_sets_with_few_features_are_left_out(caplog):
    sets = {**known(), "elsewhere": ["x1", "x2", "g1", "g2"]}
    with caplog.at_level("INFO", logger="sparsefactor"):
        assert list(sf.annotate(GENES, sets).columns) == list(KNOWN)
    assert "1 of 4 gene sets have fewer than 3" in caplog.text


@pytest.mark.parametrize(
    ("sets", "settings", "error", "message"),
    [
        ({"a": ["x", "y", "z"]}, {}, ValueError, "none of 1 has 3 or more.*'g0', genes such as 'x'"),
        ({}, {}, TypeError, "dict of names to genes"),
        (["g1", "g2"], {}, TypeError, "dict of names to genes"),
        ({"a": "g1"}, {}, TypeError, "must be a list of names; 'a' is not"),
        (known(), {"inside": 1.0}, ValueError, "inside must lie strictly"),
        (known(), {"inside": 0.01, "outside": 0.9}, ValueError, "inside must be larger than outside"),
        (known(), {"n_free": -1}, ValueError, "n_free must be a whole number of at least 0"),
        ({"free 1": genes(range(9))}, {"n_free": 1}, ValueError, "'free 1' is; rename it"),
        ("nowhere.gmt", {}, FileNotFoundError, "there is no 'nowhere.gmt'"),
    ],
)
def test_sets_that_make_no_prior_are_refused(sets, settings, error, message):
    with pytest.raises(error, match=message):
        sf.annotate(GENES, sets, **settings)


def test_repeated_features_are_refused():
    with pytest.raises(ValueError, match="feature names must be unique"):
        sf.annotate(["g1", "g1"], known())


@pytest.mark.parametrize(
    ("text", "message"),
    [("a\tb\n", "line 1 of .* has no genes"), ("a\t\tx\na\t\ty\n", "'a' is twice"), ("\n", "has none; check")],
)
def test_files_that_hold_no_gene_sets_are_refused(text, message, tmp_path: Path):
    (tmp_path / "sets.gmt").write_text(text)
    with pytest.raises(ValueError, match=message):
        sf.read_gene_sets(tmp_path / "sets.gmt")


# ---- what became of the sets ----------------------------------------------------------------------------------------


def test_sets_are_confirmed_extended_or_emptied():
    p, annotation = annotated_fit()
    table = sf.confirm(p, annotation).set_index("set")
    assert dict(table["verdict"]) == {"right": "confirmed", "short": "extended", "absent": "emptied"}
    assert table.loc["right", "kept"] >= 27
    assert table.loc["right", "kept"] + table.loc["right", "dropped"] == table.loc["right", "size"] == 30
    added = table.loc["short", "added_features"]
    assert len(set(added) & set(genes(range(60, 70)))) >= 7
    assert len(set(added) - set(genes(range(60, 70)))) <= 2
    assert len(table.loc["absent", "dropped_features"]) == 25


def test_free_factors_have_no_set():
    annotation = sf.annotate(GENES, {"right": genes(range(30))}, n_free=1)
    p = sf.fit_vi(simulated(), sf.Prior(inclusion=annotation), n_trials=4, center=True)
    table = sf.confirm(p, annotation).set_index("set")
    assert table.loc["free 1", "verdict"] == "free"
    assert set(genes(range(45, 65))) < set(table.loc["free 1", "added_features"])


def test_another_annotation_is_refused():
    p, annotation = annotated_fit()
    with pytest.raises(ValueError, match="annotation must be the one of the fit"):
        sf.confirm(p, annotation.iloc[:, :2])
    with pytest.raises(ValueError, match="prior inclusions that none of its columns has"):
        sf.confirm(p, annotation * 0.5)
    with pytest.raises(ValueError, match="or other names"):
        sf.confirm(p, annotation.iloc[::-1])


# ---- enrichment -----------------------------------------------------------------------------------------------------


def test_each_factor_finds_its_set():
    p = free_fit()
    table = sf.enrich(p, known()).table
    best = table.groupby("factor").first()
    assert set(best["set"]) == {"right", "short"}
    assert (best["fdr_overlap"] < 1e-8).all()
    assert (best["fdr_rank"] < 1e-8).all()
    significant = sf.enrich(p, known()).significant(0.01)
    assert set(zip(significant["factor"], significant["set"], strict=True)) == set(
        zip(best.index, best["set"], strict=True)
    )
    assert set(best.set_index("set").loc["short", "features"]) <= set(genes(range(40, 60)))


def test_overlap_is_fishers_test():
    p = free_fit()
    line = sf.enrich(p, known()).table.iloc[0]
    a, b = line["overlap"], line["found"] - line["overlap"]
    c = line["size"] - a
    expected = fisher_exact([[a, b], [c, 120 - a - b - c]], alternative="greater").pvalue
    assert line["p_overlap"] == pytest.approx(expected)


def test_ranks_are_mann_and_whitneys_test():
    rng = np.random.default_rng(0)
    values = np.round(rng.standard_normal(60), 1)  # with ties
    inside = rng.random((60, 4)) < 0.3
    expected = [
        mannwhitneyu(values[own], values[~own], alternative="greater", method="asymptotic").pvalue for own in inside.T
    ]
    np.testing.assert_allclose(larger_ranks(values, inside), expected)
    assert larger_ranks(np.ones(5), np.array([[True], [True], [False], [False], [False]])) == [1.0]


def test_false_discovery_rates_hold_under_no_enrichment():
    p = free_fit()
    rng = np.random.default_rng(1)
    sets = {f"set {s}": list(rng.choice(GENES, 20, replace=False)) for s in range(300)}
    table = sf.enrich(p, sets).table
    assert (table["fdr_overlap"] < 0.05).mean() < 0.01
    assert (table["fdr_rank"] < 0.05).mean() < 0.01
    assert 0.02 < (table["p_rank"] < 0.05).mean() < 0.09  # and the test itself is at its level


def test_the_picture_has_a_row_for_each_clear_set():
    figure = sf.enrich(free_fit(), known()).plot()
    assert {label.get_text() for label in figure.axes[0].get_yticklabels()} == {"right", "short"}
    nothing = sf.enrich(free_fit(), {"absent": genes(range(90, 115))}).plot()
    assert "no set" in nothing.axes[0].get_title()


def test_where_no_factor_holds_anything_nothing_is_enriched():
    noise = pd.DataFrame(np.random.default_rng(0).standard_normal((40, 120)), columns=GENES)
    p = sf.fit_vi(noise, n_factors=2, n_trials=2)
    assert p.empty.all()
    found = sf.enrich(p, known())
    assert list(found.table.columns) == list(sf.enrich(free_fit(), known()).table.columns)
    assert found.significant().empty
    assert "no set" in found.plot().axes[0].get_title()


def test_long_names_of_sets_are_cut():
    figure = sf.enrich(free_fit(), {"A" * 200: genes(range(30))}).plot()
    assert len(figure.axes[0].get_yticklabels()[0].get_text()) < 40


def test_factors_carry_the_names_of_their_sets(tmp_path) -> None:
    """Wherever they stand after the fit, and back from a file."""
    names = [f"g{i}" for i in range(60)]
    Z = np.zeros((60, 2), dtype=bool)
    Z[:15, 0], Z[30:50, 1] = True, True
    loadings = np.where(Z, 1.0, 0.0) * [1.0, 3.0]  # the second set is the stronger one
    sim = sf.simulate(n_features=60, n_samples=40, loadings=loadings, snr=5, seed=0)
    table = sf.annotate(names, {"weak": names[:15], "strong": names[30:50]}, n_free=1)
    X = pd.DataFrame(sim.X, columns=names)
    p = sf.fit_vi(X, sf.Prior(inclusion=table), n_trials=3)
    assert p.factor_names[:2] == ["strong", "weak"]
    assert list(p.to_frame("loadings").columns) == p.factor_names
    assert list(p.summary()["name"]) == p.factor_names
    assert np.abs(p.to_frame("loadings")["strong"]).idxmax() in names[30:50]
    assert "Factor 1, strong" in sf.plot.top_loadings(p).get_title()
    p.save(tmp_path / "p.sf")
    assert sf.load(tmp_path / "p.sf").factor_names == p.factor_names
    pruned = sf.fit_vi(X, sf.Prior(inclusion=table), n_trials=3, prune=True)
    assert pruned.factor_names[:2] == ["strong", "weak"]
    with pytest.raises(ValueError, match="one name per factor, 2; got"):
        sf.Prior(n_factors=2, factor_names=["one"])
