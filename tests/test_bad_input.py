"""The same errors at every door: what the core refuses, the shells refuse in the same words."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sparsefactor as sf

PRIOR = sf.Prior(n_factors=2, inclusion=0.5)


def table() -> pd.DataFrame:
    X = sf.simulate(n_features=10, n_samples=20, inclusion=[0.6, 0.5], snr=4, seed=1).X
    return pd.DataFrame(X, index=[f"s{j}" for j in range(20)], columns=[f"f{i}" for i in range(10)])


def annotated(X: pd.DataFrame) -> Any:
    return SimpleNamespace(
        X=X.to_numpy(), obs_names=X.index, var_names=X.columns, var=pd.DataFrame(), layers={}, obsm={}, varm={}, uns={}
    )


DOORS: dict[str, Callable[[pd.DataFrame], Any]] = {
    "fit_vi": lambda X: sf.fit_vi(X, PRIOR, n_trials=1),
    "sample": lambda X: sf.sample(X, PRIOR, n_chains=1, n_warmup=2, n_draws=4),
    "estimator": lambda X: sf.SparseFactorAnalysis(prior=PRIOR, n_init=1).fit(X),
    "tl": lambda X: sf.tl.sparse_factors(annotated(X), prior=PRIOR, n_trials=1),
    "compare": lambda X: sf.compare(X, {"a": PRIOR}, n_masks=2, n_trials=1),
}


def without_sample(X: pd.DataFrame) -> pd.DataFrame:
    return X.where(np.array(X.index != "s4")[:, None] | X.isna())


FAULTS: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str]] = {
    "a feature without entries": (lambda X: X.assign(f3=np.nan), "every feature must have at least one.*f3"),
    "a sample without entries": (without_sample, "every sample must have at least one"),
    "an infinite entry": (lambda X: X.assign(f3=np.inf), "finite|infinity"),
    "repeated features": (lambda X: X.rename(columns={"f1": "f0"}), "'f0' occurs more than once|Duplicate|unique"),
    "repeated samples": (lambda X: X.rename(index={"s1": "s0"}), "'s0' occurs more than once"),
    "data that do not vary": (lambda X: X * 0 + 1.0, "data must vary"),
}
# scikit-learn hands the estimator a matrix, without the samples' names.
NOT_SEEN = {("estimator", "repeated samples")}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("door", DOORS)
def test_bad_data_are_refused_at_every_door(door, fault):
    if (door, fault) in NOT_SEEN:
        pytest.skip("the estimator does not see it")
    spoil, message = FAULTS[fault]
    X = spoil(table())
    with pytest.raises(ValueError, match=message):
        DOORS[door](X)


@pytest.mark.parametrize("door", ["fit_vi", "sample", "tl", "compare"])
def test_text_is_refused(door):
    X = table().assign(f3="text")
    with pytest.raises(TypeError, match="numeric"):
        DOORS[door](X)


def test_text_is_refused_by_the_estimator_as_scikit_learn_does_it():
    X = table().assign(f3="text")
    with pytest.raises(ValueError, match="could not convert string to float"):
        DOORS["estimator"](X)


# ---- what a fit is asked or told beside its data --------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted() -> sf.VIPosterior:
    return sf.fit_vi(table(), PRIOR, n_trials=1)


@pytest.fixture(scope="module")
def model() -> sf.SparseFactorAnalysis:
    return sf.SparseFactorAnalysis(prior=PRIOR, n_init=1, random_state=0).fit(table())


QUESTIONS = ("transform", "impute", "log_density")
OTHERS: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], str]] = {
    "a feature too few": (lambda X: X.drop(columns="f3"), "every feature of the fit; 'f3' is lacking"),
    "a feature too many": (lambda X: X.assign(f10=1.0), "the features of the fit only; 'f10' is unknown"),
    "a sample without entries": (without_sample, "every sample must have at least one"),
    "an infinite entry": (lambda X: X.assign(f3=np.inf), "must be finite"),
    "repeated features": (lambda X: X.rename(columns={"f1": "f0"}), "'f0' occurs more than once"),
}


@pytest.mark.parametrize("fault", OTHERS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_other_features_are_refused_by_name(fitted, question, fault):
    spoil, message = OTHERS[fault]
    X = spoil(table())
    with pytest.raises(ValueError, match=message):
        getattr(fitted, question)(X)


@pytest.mark.parametrize("question", QUESTIONS)
def test_another_order_is_matched_by_name(fitted, question):
    X = table()
    expected = np.asarray(getattr(fitted, question)(X))
    turned = np.asarray(getattr(fitted, question)(X.iloc[:, ::-1]))
    np.testing.assert_array_equal(turned[:, ::-1] if question == "impute" else turned, expected)


@pytest.mark.parametrize("change", [lambda X: X.iloc[:, ::-1], lambda X: X.drop(columns="f3")])
def test_the_estimator_refuses_other_features_as_scikit_learn_does_it(model, change):
    with pytest.raises(ValueError, match="feature names should match"):
        model.transform(change(table()))


def unit(**options: Any) -> Any:
    return sf.tl.sparse_factors(annotated(table()), prior=PRIOR, n_trials=1, **options)


def taken() -> Any:
    adata = annotated(table())
    adata.uns["sfa"] = {}
    return sf.tl.sparse_factors(adata, prior=PRIOR, n_trials=1)


SETS = {"elsewhere": ["x", "y", "z"]}
TOLD: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a missing layer": (lambda: unit(layer="counts"), KeyError, "layer must be one of .*; got 'counts'"),
    "a missing column": (lambda: unit(mask_var="hvg"), KeyError, "must name a column of var; got 'hvg'"),
    "an existing key": (taken, ValueError, r"uns\['sfa'\] must be free.*overwrite=True"),
    "gene sets for the prior": (lambda: sf.annotate(table().columns, SETS), ValueError, "none of 1 has 3 or more"),
    "groups too few": (
        lambda: sf.fit_vi(table(), sf.Prior(n_factors=2, groups=["a", "b"])),
        ValueError,
        "one label per feature; got 2 labels for 10 features",
    ),
    "groups by name too few": (
        lambda: sf.sample(table(), sf.Prior(n_factors=2, groups={"f0": "a", "f1": "b"})),
        ValueError,
        "groups must cover every feature of X; 8 of 10 have none, the first 'f2'",
    ),
    "covariates too few": (
        lambda: sf.fit_vi(table(), PRIOR, covariates=np.ones((3, 1))),
        ValueError,
        "covariates must be",
    ),
}


@pytest.mark.parametrize("case", TOLD)
def test_what_does_not_go_with_the_data_is_refused(case):
    call, error, message = TOLD[case]
    with pytest.raises(error, match=message):
        call()


def test_gene_sets_that_match_nothing_are_refused_after_a_fit_too(fitted):
    with pytest.raises(ValueError, match="none of 1 has 3 or more"):
        sf.enrich(fitted, SETS)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: sf.fit_vi(table(), n_components=3), r"fit_vi\(\) has no argument n_components; .* pass n_factors=3"),
        (lambda: sf.sample(table(), n_components=3), r"sample\(\) has no argument n_components; .* pass n_factors=3"),
        (lambda: sf.Prior(n_components=3), r"Prior\(\) has no argument n_components; .* pass n_factors=3"),
        (lambda: sf.fit_vi(table(), random_state=1), "pass seed=1"),
        (lambda: sf.sample(table(), draws=100), "pass n_draws=100"),
        (lambda: sf.fit_vi(table(), colour=3), "unexpected keyword argument 'colour'"),
    ],
)
def test_names_of_arguments_in_other_packages_get_a_hint(call, said) -> None:
    with pytest.raises(TypeError, match=said):
        call()


def test_a_path_of_a_table_names_read_table(tmp_path) -> None:
    for name in ("x.csv", "absent.csv"):
        (tmp_path / "x.csv").write_text("id,a,b\nx,1,2\n")
        with pytest.raises((ValueError, FileNotFoundError), match=rf"X = sf\.read_table\('.*{name}'\)"):
            sf.fit_vi(str(tmp_path / name))
