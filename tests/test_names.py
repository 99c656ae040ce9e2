"""Names of samples and features: what is refused, and that none reaches a terminal with control characters."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pandas as pd
import polars as pl
import pytest

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.names import LONGEST, checked_names, is_missing, shown

RED = "\x1b[31mred\x1b[0m"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (RED, r"\x1b[31mred\x1b[0m"),
        ("two\nlines\ttab", r"two\nlines\ttab"),
        ("right\u202eleft", r"right\u202eleft"),
        ("x" * 100, "x" * 57 + "..."),
        ("naïve Ω", "naïve Ω"),
        (7, "7"),
    ],
)
def test_names_as_they_are_shown(name, text):
    assert shown(name) == text


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_errors_show_names_without_control_characters(bad):
    X = pd.DataFrame(np.arange(6.0).reshape(3, 2), index=list("abc"), columns=[RED, "x" * 500])
    X[RED] = bad
    with pytest.raises(ValueError, match="red") as told:
        as_data(X)
    assert "\x1b" not in str(told.value)
    assert len(str(told.value)) < 400


def test_names_themselves_are_kept_as_they_are():
    X = pd.DataFrame(np.arange(6.0).reshape(3, 2), columns=[RED, "b"])
    assert as_data(X).feature_names.tolist() == [RED, "b"]


def test_a_name_of_twenty_thousand_characters_is_refused_before_it_costs_memory():
    columns = [f"f{i}" for i in range(20_000)]
    columns[7] = "x" * 20_000
    X = pd.DataFrame(np.arange(40_000.0).reshape(2, 20_000), columns=columns)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"feature names must have at most 1000 characters; that of feature 8.*20000"):
        as_data(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6


def test_the_longest_name_is_saved_and_loaded(tmp_path):
    names = ["y" * LONGEST, *(f"f{i}" for i in range(9))]
    sim = sf.simulate(n_features=10, n_samples=8, inclusion=[0.5], snr=5, seed=0)
    X = pd.DataFrame(sim.X, columns=names)
    vi = sf.fit_vi(X, sf.Prior(n_factors=1, inclusion=0.5), n_trials=1, seed=0)
    vi.save(tmp_path / "fit")
    (found,) = tmp_path.iterdir()
    assert sf.load(found).feature_names.tolist() == names


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_a_missing_name_is_refused(missing):
    assert is_missing(missing)
    X = pd.DataFrame(np.arange(6.0).reshape(3, 2), index=pd.Index(["a", missing, "c"], dtype=object))
    with pytest.raises(ValueError, match="every sample must have a name, or none; sample 2 has none; name it"):
        as_data(X)


def test_the_name_nan_is_a_name():
    X = pd.DataFrame(np.arange(6.0).reshape(3, 2), index=["nan", "NA", "None"])
    assert as_data(X).sample_names.tolist() == ["nan", "NA", "None"]


def test_names_that_an_array_would_make_equal_are_refused():
    with pytest.raises(ValueError, match="sample names must be unique"):
        checked_names(["a", "a\x00"], 2, "sample")


def test_polars_column_names_are_checked_too():
    with pytest.raises(ValueError, match="feature names must have at most"):
        as_data(pl.DataFrame({"a": [1.0, 2.0], "b" * 1001: [2.0, 3.0]}))
