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
