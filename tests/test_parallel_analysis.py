"""n_factors left out: parallel analysis chooses it, and the result says so."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import sparsefactor as sf
from sparsefactor.cli import app
from sparsefactor.data import as_data
from sparsefactor.engine.threads import single_blas_thread
from sparsefactor.parallel_analysis import MOST_FACTORS, most_factors, parallel_analysis
from sparsefactor.report import posterior_page

QUICK = {"n_trials": 2, "tol": 1e-3}
FEW_DRAWS = {"n_chains": 2, "n_warmup": 20, "n_draws": 30}


def number(X, center=True, covariates=None) -> int:
    with single_blas_thread():
        return parallel_analysis(as_data(X, center=center).with_design(covariates, center))


def simulated(K: int, G: int, N: int, seed: int) -> np.ndarray:
    """Unit variances; every factor in a quarter of the features, with loadings of about 0.6."""
    rng = np.random.default_rng([K, G, N, seed])
    L = 0.6 * rng.uniform(0.7, 1.3, (G, K)) * rng.choice([-1, 1], (G, K)) * (rng.random((G, K)) < 0.25)
    noise = np.sqrt(np.maximum(1 - np.sum(L**2, axis=1), 0.2))
    return rng.standard_normal((N, K)) @ L.T + noise * rng.standard_normal((N, G))


TABLE = simulated(2, 16, 120, seed=0)
CHOSEN = number(TABLE)
TEXT = f"Number of factors: at most {CHOSEN}, by parallel analysis;"


@pytest.mark.statistical
@pytest.mark.parametrize(("K", "G", "N"), [(3, 24, 300), (5, 40, 300), (5, 200, 60), (8, 400, 100)])
def test_the_number_of_simulated_factors_is_found(K, G, N):
    found = np.array([number(simulated(K, G, N, seed)) for seed in range(10)])
    assert np.sum(found < K) <= 1, found
    assert np.median(found) <= K + 1, found


@pytest.mark.statistical
@pytest.mark.parametrize("shape", [(300, 20), (60, 12), (30, 100), (26, 25)])
def test_noise_has_the_fewest_factors(shape):
    noise = np.random.default_rng(3).standard_normal((20, *shape))
    assert sum(number(X) > 1 for X in noise) <= 4  # a twentieth of them in expectation


@pytest.mark.statistical
def test_a_general_factor_does_not_hide_the_others():
    rng = np.random.default_rng(1)
    L = np.where(np.repeat(np.arange(4), 6)[:, None] == np.arange(4), 0.45, 0.0)
    L = np.hstack([np.full((24, 1), 0.7), L[:, :3]])  # the last six features have the general factor alone
    X = rng.standard_normal((1000, 4)) @ L.T + np.sqrt(1 - np.sum(L**2, axis=1)) * rng.standard_normal((1000, 24))
    above = np.linalg.eigvalsh(np.corrcoef(X.T)) > np.linalg.eigvalsh(np.corrcoef(rng.permuted(X, axis=0).T))
    assert above[::-1].argmin() < 4  # with ones on the diagonal it does
    assert number(X) >= 4


def test_missing_entries_and_units_hardly_change_the_number():
    X = simulated(4, 30, 400, seed=1)
    rng = np.random.default_rng(0)
    holes = np.where(rng.random(X.shape) < 0.15, np.nan, X)
    assert abs(number(holes) - number(X)) <= 1
    assert number(holes) >= 4
    assert number(X * 10.0 ** rng.uniform(-3, 3, X.shape[1]) + 5) == number(X)


def test_entries_missing_together_are_no_factor():
    X = np.random.default_rng(4).standard_normal((200, 20))
    X[:150, 10:] = np.nan
    X[150:, :3] = np.nan
    assert number(X) == 1


def test_the_number_is_limited():
    rng = np.random.default_rng(2)
    pairs = np.repeat(rng.standard_normal((50, 3)), 2, axis=1)
    assert number(pairs) == 3
    assert most_factors(4, 50) == 2
    assert most_factors(9, 50) == 5
    assert most_factors(1000, 1000) == MOST_FACTORS
    assert most_factors(1000, 4) == 3
    assert most_factors(1, 10) == number(np.arange(10.0)[:, None]) == 1
    wide = simulated(2, 12_000, 20, seed=0)  # of which a random part is taken
    assert number(wide) == 2
    assert number(wide.T) >= 2


def test_means_that_are_left_in_are_one_more_factor():
    X = simulated(3, 30, 300, seed=2)
    assert number(X + 4.0, center=False) == number(X) + 1


def test_what_covariates_explain_is_no_factor():
    X = simulated(3, 30, 300, seed=3)
    batch = np.repeat([0.0, 1.0], 150)[:, None]
    shifted = X + 0.8 * batch * np.random.default_rng(0).standard_normal(30)
    assert number(shifted) > number(shifted, covariates=batch) == number(X)


def test_sparse_data_have_the_number_of_dense_ones():
    from scipy.sparse import csr_array

    X = np.where(np.abs(TABLE) < 0.7, 0.0, TABLE)
    assert number(csr_array(X)) == number(X)


def test_a_constant_feature_counts_for_nothing():
    assert number(np.column_stack([TABLE, np.full(len(TABLE), 2.0)])) == CHOSEN


def test_every_entrance_chooses_the_same_number(tmp_path):
    p = sf.fit_vi(TABLE, **QUICK)
    assert p.prior.parallel_analysis == p.prior.n_factors == p.n_factors == CHOSEN
    assert sf.fit_vi(TABLE, seed=5, **QUICK).n_factors == CHOSEN
    assert sf.fit_vi(TABLE, n_factors=CHOSEN, **QUICK).elbo == p.elbo
    assert sf.sample(TABLE, **FEW_DRAWS).prior.parallel_analysis == CHOSEN
    model = sf.SparseFactorAnalysis(n_init=2, tol=1e-3, random_state=0).fit(TABLE)
    assert model.posterior_.prior.parallel_analysis == model.posterior_.n_factors == CHOSEN
    adata = annotated(TABLE)
    sf.tl.sparse_factors(adata, **QUICK)
    assert adata.uns["sfa"]["params"]["n_factors"] == CHOSEN
    assert adata.uns["sfa"]["params"]["n_factors_chosen_by"] == "parallel analysis"


def annotated(X):
    names = [pd.Index([f"{kind} {i}" for i in range(n)]) for kind, n in zip(("cell", "gene"), X.shape, strict=True)]
    frames = {"obs": pd.DataFrame(index=names[0]), "var": pd.DataFrame(index=names[1])}
    return SimpleNamespace(
        X=X, obs_names=names[0], var_names=names[1], shape=X.shape, layers={}, obsm={}, varm={}, uns={}, **frames
    )


def test_the_result_says_how_the_number_was_chosen(tmp_path):
    p = sf.fit_vi(TABLE, **QUICK)
    used = int((~p.empty).sum())
    assert f"{TEXT} {used} {'is' if used == 1 else 'are'} used." in repr(p)
    assert TEXT in p._repr_html_()
    assert TEXT in posterior_page(p)
    p.save(tmp_path / "p.sf")
    assert TEXT in repr(sf.load(tmp_path / "p.sf"))
    assert "parallel analysis" not in repr(sf.fit_vi(TABLE, n_factors=CHOSEN, **QUICK))


def test_a_run_goes_on_with_the_number_given_or_left_out(tmp_path):
    sf.sample(TABLE, path=tmp_path / "run", **FEW_DRAWS)
    assert TEXT in repr(sf.load(tmp_path / "run"))
    more = sf.sample(TABLE, n_factors=CHOSEN, path=tmp_path / "run", **{**FEW_DRAWS, "n_draws": 40})
    assert more.permutations.shape[1] == 40


def test_a_warm_start_keeps_the_number():
    model = sf.SparseFactorAnalysis(n_init=2, tol=1e-3, random_state=0, warm_start=True).fit(TABLE)
    again = model.fit(np.random.default_rng(0).standard_normal(TABLE.shape))
    assert again.posterior_.n_factors == CHOSEN > 1


def test_the_command_line_needs_no_number(tmp_path):
    pd.DataFrame(TABLE, columns=[f"item {i}" for i in range(TABLE.shape[1])]).to_csv(tmp_path / "X.csv", index=False)

    def run(*arguments: object, ok: tuple[int, ...] = (0,)) -> str:
        done = CliRunner().invoke(app, [str(a) for a in arguments])
        assert done.exit_code in ok, done.output
        return done.stdout

    out = tmp_path / "p.sf"
    assert TEXT in run("fit", tmp_path / "X.csv", "--trials", 2, "--out", out)
    assert sf.load(out).n_factors == CHOSEN
    assert TEXT in run("summary", out)
    # With other settings of the prior, too.
    facts = json.loads(
        run("fit", tmp_path / "X.csv", "--trials", 2, "--noise", "shared", "--out", tmp_path / "q.sf", "--json")
    )
    assert facts["parallel_analysis"] == facts["n_factors"] == CHOSEN
    few = ("--chains", 2, "--warmup", 2, "--draws", 3)
    assert TEXT in run("sample", tmp_path / "X.csv", *few, "--out", tmp_path / "d.sf", ok=(0, 3))
    assert "parallel analysis" not in run("fit", tmp_path / "X.csv", "-k", 2, "--trials", 1, "--out", tmp_path / "r.sf")


@pytest.mark.parametrize("call", [sf.fit_vi, sf.sample])
def test_data_out_of_memory_ask_for_a_number(call, tmp_path):
    zarr = pytest.importorskip("zarr")
    zarr.save_array(str(tmp_path / "X.zarr"), TABLE)
    with pytest.raises(
        ValueError, match=r"n_factors must be given .* not in memory; got None; pass e\.g\. n_factors=10"
    ):
        call(str(tmp_path / "X.zarr"))
