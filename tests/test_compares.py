"""The page that compares packages holds the figures of the last run, and nothing by hand."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from benchmarks.peers import page
from benchmarks.peers.methods import METHODS, Fitted, path, quietly

import sparsefactor as sf


def made() -> dict:
    """A run as the benchmark writes it, with round numbers."""
    rows = [{"method": m, "snr": 5.0, "seed": s, "seconds": 9.0, "cpu_seconds": 2.0 + s, "rrmse_loadings": 0.25,
             "rrmse_signal": 0.125} for m in ("a", "b") for s in (0, 1)]  # fmt: skip
    rows[0]["z_accuracy"], rows[1]["z_accuracy"] = 0.5, 0.75
    real = [{"method": "a", "table": "wine", "shape": [178, 13], "seed": 0, "cpu_seconds": 1.0, "error": 0.5}]
    machine = {"cores": 2, "processor": "P", "python": "3.11", "versions": {"numpy": "2.0"}}
    return {"machine": machine, "date": "2026-01-01", "seconds": 600.0, "simulation": rows, "real": real,
            "first_call_seconds": {"a": 1.0, "b": 2.0}}  # fmt: skip


def test_tables_are_means_and_leave_out_methods_without_an_answer() -> None:
    parts = page.parts(made())
    assert parts["accuracy of Z"].splitlines()[2:] == ["| a | 0.625 |"]
    assert parts["error of loadings"].splitlines()[2:] == ["| a | 0.250 |", "| b | 0.250 |"]
    assert parts["held-out error"].splitlines()[2:] == ["| a | 0.500 |"]
    assert "2 cores of P" in parts["where"]


def test_the_page_says_what_the_machine_had_to_do_and_whether_it_was_one_run() -> None:
    told = made()
    assert "shared with other work, in runs of 10 minutes together" in page.where(told)
    told |= {"whole": True, "machine": told["machine"] | {"load": 0.2}}
    assert "with little else to do, in one run of 10 minutes" in page.where(told)
    assert page.where(told | {"note": "Half of it is old."}).endswith("Half of it is old.")


def test_a_place_that_nothing_fills_is_an_error() -> None:
    assert page.filled("<!-- accuracy of Z -->\nold\n<!-- end -->", made()).count("old") == 0
    with pytest.raises(KeyError, match="no such"):
        page.filled("<!-- no such -->\n<!-- end -->", made())


def test_the_page_holds_what_was_measured() -> None:
    text, told = page.PAGE.read_text(), json.loads(page.RESULTS.read_text())
    assert page.filled(text, told) == text, "python -m benchmarks.peers page"
    assert set(re.findall(r"<!-- (?!end)(.+?) -->", text)) == set(page.parts(told))
    assert list(told["first_call_seconds"]) == list(METHODS)


@pytest.fixture(scope="module")
def sim() -> sf.Simulation:
    return sf.simulate(n_features=30, n_samples=40, inclusion=[0.5, 0.3], snr=20, seed=0)


def test_scores_are_those_of_the_package(sim) -> None:
    """What a peer is scored by is what `sf.score` says of a posterior."""
    X = sim.X - sim.X.mean(axis=0)
    p = sf.fit_vi(sim.X, n_factors=2, seed=0)
    told = quietly("sparsefactor VI", X, 2, 0).score(sim)
    for name, value in sf.score(p, sim).items():
        assert told[name] == pytest.approx(value, abs=1e-6)
    assert "z_accuracy" not in Fitted(X, p.loadings_mean, p.activations_mean).score(sim)


def test_soft_impute_recovers_a_low_rank_and_its_penalty_shrinks(sim) -> None:
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30))
    holes = rng.random(truth.shape) < 0.1
    X = np.where(holes, np.nan, truth)
    error = np.linalg.norm((quietly("soft-impute", X, 2, 0).predicted - truth)[holes]) / np.linalg.norm(truth[holes])
    assert error < 0.3
    sizes = [np.linalg.norm(Z, "nuc") for Z in path(X, np.array([20.0, 10.0, 1.0]))]
    assert sizes[0] < sizes[1] < sizes[2]


@pytest.mark.parametrize("method", ["FactorAnalysis", "SparsePCA"])
def test_methods_without_gaps_fill_them_in(method, sim) -> None:
    pytest.importorskip("sklearn")
    X = sim.X - sim.X.mean(axis=0)
    holes = np.random.default_rng(1).random(X.shape) < 0.1
    fitted = quietly(method, np.where(holes, np.nan, X), 2, 0)
    error = np.linalg.norm((fitted.predicted - X)[holes]) / np.linalg.norm(X[holes])
    assert error < 0.8
    if fitted.density is not None:
        right, wrong = (np.mean(fitted.density(value)[holes]) for value in (X, X + 3))
        assert right > wrong
