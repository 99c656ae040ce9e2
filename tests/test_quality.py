"""The measures of benchmarks.quality on loadings whose answer is known, and a cell from a method to its line."""

from __future__ import annotations

import time

import numpy as np
import pytest
from benchmarks.peers.methods import Fitted
from benchmarks.quality import measures, methods, page, run
from benchmarks.quality.tables import Table, simulated

import sparsefactor as sf

SIMPLE = np.kron(np.eye(3), np.full((4, 1), 0.7))  # twelve features, four to a factor


def test_a_permuted_and_reflected_solution_replicates_in_full() -> None:
    other = SIMPLE[:, [2, 0, 1]] * [1, -1, -1]
    assert measures.replication(SIMPLE, other) == {"congruence": pytest.approx(1.0), "replicated": 3.0, "found": 3.0}
    assert measures.recovery(other, SIMPLE) == pytest.approx(1.0)


def test_empty_factors_are_not_matched_but_count_as_not_found() -> None:
    other = SIMPLE * [1, 1, 0.01]
    assert measures.replication(SIMPLE, other) == {"congruence": pytest.approx(1.0), "replicated": 2.0, "found": 2.5}
    assert measures.recovery(other, SIMPLE) == pytest.approx(2 / 3)
    nothing = measures.replication(SIMPLE, 0 * SIMPLE)
    assert nothing["replicated"] == 0
    assert np.isnan(nothing["congruence"])


def test_different_factors_do_not_replicate() -> None:
    rotation = np.array([[2, -1, 2], [2, 2, -1], [-1, 2, 2]]) / 3
    each = measures.replication(SIMPLE, SIMPLE @ rotation)
    assert each == {"congruence": pytest.approx(2 / 3), "replicated": 0.0, "found": 3.0}


def test_adjusted_rand_index() -> None:
    key = np.repeat([0, 1, 2], 4)
    assert measures.adjusted_rand(measures.strongest(SIMPLE[:, ::-1]), key) == 1.0
    # Hubert and Arabie's index of these two partitions of six, by hand: (2 - 4 * 3 / 15) / (3.5 - 4 * 3 / 15)
    assert measures.adjusted_rand(np.array([0, 0, 0, 1, 1, 2]), np.array([5, 5, 6, 7, 7, 6])) == pytest.approx(
        1.2 / 2.7
    )
    shuffled = [measures.adjusted_rand(key, np.random.default_rng(s).permutation(key)) for s in range(300)]
    assert abs(np.mean(shuffled)) < 0.03


def test_complexity_and_salient_features() -> None:
    assert measures.row_complexity(SIMPLE) == pytest.approx(1.0)
    assert measures.row_complexity(np.full((5, 2), 0.5)) == pytest.approx(2.0)
    assert measures.row_complexity(np.vstack([SIMPLE, np.full((9, 3), 1e-6)])) == pytest.approx(1.0)  # rows of nothing
    assert measures.features_per_factor(np.column_stack([SIMPLE, np.zeros(12)])) == 4.0


def test_arguments_of_a_variant() -> None:
    assert methods.parse_arguments("n_trials=1, init=varimax, inclusion=Beta(1, 9)") == {
        "n_trials": 1, "init": "varimax", "inclusion": sf.Beta(1, 9)}  # fmt: skip
    with pytest.raises(ValueError, match="name=value"):
        methods.parse_arguments("10")
    with pytest.raises(ValueError, match="no method 'unheard'"):
        methods.find("unheard")
    assert methods.find("benchmarks.peers.methods:soft_impute").__name__ == "soft_impute"


def return_truth(X: np.ndarray, K: int, seed: int) -> Fitted:
    """The true loadings of the table below, for features of unit variance; predicts the mean."""
    assert np.nanstd(X, axis=0) == pytest.approx(1.0)
    density = lambda values: -0.5 * values**2 - 0.5 * np.log(2 * np.pi)  # noqa: E731
    return Fitted(np.zeros_like(X), simulated("simple").loadings, density=density)


def test_a_cell_has_all_measures_and_a_limit_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(X: np.ndarray, K: int, seed: int) -> Fitted:
        begin = time.process_time()
        while seed and time.process_time() < begin + 60:
            pass
        return return_truth(X, K, seed)

    monkeypatch.setitem(methods.METHODS, "truth", return_truth)
    monkeypatch.setitem(methods.METHODS, "slow", slow)
    monkeypatch.setitem(run.DATA, "simple", simulated("simple"))
    cell = run.measure(("truth", "simple", run.Plan(splits=2, seeds=2, masks=1)))
    assert cell["status"] == "done"
    assert cell["split_replicated"] == cell["split_found"] == [5.0, 5.0]
    assert cell["rand"] == [1.0, 1.0]
    assert cell["recovery"] == pytest.approx([1.0, 1.0])
    assert len(cell["cpu_seconds"]) == 2 + 4 + 1
    assert cell["error"] == pytest.approx([1.0], abs=0.05)
    assert cell["log_density"] == pytest.approx([-0.5 - 0.5 * np.log(2 * np.pi)], abs=0.05)
    stopped = run.measure(("slow", "simple", run.Plan(splits=2, seeds=2, masks=1, limit=0.5)))
    assert stopped["status"] == "stopped after 0.5 CPU seconds"
    assert stopped["rand"] == [1.0]
    lines = page.show([cell, stopped]).splitlines()
    rand = lines.index(page.MEASURES["rand"][0])
    assert lines[rand + 2].split() == ["simple", "300x40", "K", "5", "1.00", "1.00"]
    assert lines[-1] == "slow on simple: stopped after 0.5 CPU seconds"


def test_a_mean_is_over_tables_that_all_methods_have() -> None:
    def cell(method: str, table: str, **values: list[float]) -> dict:
        return {"method": method, "table": table, "shape": [9, 3], "K": 1, "status": "done", **values}

    cells = [cell("a", "t", error=[0.5]), cell("b", "t", error=[0.25, 0.75]), cell("a", "u", error=[9.0])]
    lines = page.show([*cells, cell("b", "u"), cell("c", "t")]).splitlines()
    assert next(line for line in lines if line.startswith("mean of 1")).split()[-3:] == ["0.500", "0.500", "-"]
    assert next(line for line in lines if line.startswith("u ")).split()[-3:] == ["9.000", "-", "-"]


def test_features_constant_in_a_half_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).standard_normal((20, 6))
    X[:, 0] = np.arange(20) == 0
    seen = []
    monkeypatch.setitem(methods.METHODS, "see", lambda X, K, seed: seen.append(X) or Fitted(X, np.eye(X.shape[1])))
    monkeypatch.setitem(run.DATA, "table", Table(X, "none", 2))
    cell = run.measure(("see", "table", run.Plan(splits=1, seeds=0, masks=0)))
    assert cell["status"] == "done"
    assert [half.shape for half in seen] == [(10, 5), (10, 5)]
    assert all(np.isfinite(half).all() for half in seen)
