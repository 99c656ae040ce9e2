"""The local engine: threads, memory, inputs, and how it is built."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from tests.agreement.cases import (
    assert_close,
    assert_sums_close,
    gibbs_rows,
    make_case,
    make_message,
    same_bits,
    vi_rows,
)

from sparsefactor.engine import build_engine
from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.engine.threads import run_parts, single_blas_thread, split
from sparsefactor.kernels.contract import Sums, VIColumns, VIRows
from sparsefactor.kernels.cpu.tiles import column_lists
from sparsefactor.kernels.reference import ReferenceEngine

# ---- threads ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["several tiles", "several tiles, complete"])
def test_any_number_of_threads_gives_the_same_bits(shape: str) -> None:
    case = make_case(shape, "feature")
    K, N = case.F.shape
    message = make_message(case, np.full((K, N), 0.1))
    columns = VIColumns(case.F, np.zeros((N, K, K)), *(np.zeros(0),) * 6)
    results = []
    for n_threads in (1, 2, 3):
        cpu = CpuEngine(case.data, case.prior, n_threads, _split_small=True)
        assert len(cpu.vi_rounds[0].parts) == n_threads
        rows, sums = cpu.vi_row_pass(vi_rows(case), message)
        draw, draw_sums = cpu.gibbs_row_pass(gibbs_rows(case), message, cpu.row_noise((3, 4), 5))
        F = cpu.gibbs_activations(draw_sums, case.weight, np.eye(K), np.ones((K, N)))
        results.append((*rows, *sums, *draw, *draw_sums, F, *cpu.vi_activations(columns, sums, case.weight)))
    assert same_bits(results[0], results[1])
    assert same_bits(results[0], results[2])


def test_one_engine_serves_several_threads_at_once() -> None:
    case = make_case("several tiles", "feature")
    message = make_message(case, np.full(case.F.shape, 0.1))
    cpu = CpuEngine(case.data, case.prior, 2, _split_small=True)
    states = [vi_rows(case, seed=seed) for seed in range(8)]
    alone = [cpu.vi_row_pass(state, message) for state in states]

    def passes(state: VIRows) -> tuple[VIRows, Sums]:
        for _ in range(20):
            result = cpu.vi_row_pass(state, message)
        return result

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(passes, states))
    for (rows, sums), (expected, expected_sums) in zip(together, alone, strict=True):
        assert same_bits(rows, expected)
        assert same_bits(sums, expected_sums)


def test_an_error_in_a_part_reaches_the_caller() -> None:
    def task(part: int) -> None:
        if part == 2:
            raise ValueError("part two")

    with pytest.raises(ValueError, match="part two"):
        run_parts(task, [(0,), (1,), (2,)])


def test_split_covers_everything_once() -> None:
    assert split(7, 3) == [(0, 2), (2, 4), (4, 7)]
    assert split(2, 5) == [(0, 1), (1, 2)]


def test_blas_limit_is_restored_by_the_last_one_out() -> None:
    from threadpoolctl import threadpool_info

    def blas_threads() -> set[int]:
        return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}

    with single_blas_thread():
        with single_blas_thread():
            assert blas_threads() == {1}
        assert blas_threads() == {1}


# ---- inputs and building ------------------------------------------------------------------------------------------


def test_inputs_are_not_modified() -> None:
    case = make_case("tenth missing", "feature")
    K, N = case.F.shape
    cpu = CpuEngine(case.data, case.prior)
    message, rows, draw = make_message(case, np.full((K, N), 0.1)), vi_rows(case), gibbs_rows(case)
    columns = VIColumns(case.F, np.full((K, N), 0.1), *(np.zeros(0),) * 6)
    factor_major = VIRows(*(np.asfortranarray(array) for array in rows))  # the layout that is read in place
    inputs = [*message, *rows, *factor_major, *draw, *columns, case.weight, case.data.Y]
    before = [array.copy() for array in inputs]
    _, sums = cpu.vi_row_pass(rows, message)
    cpu.vi_row_pass(factor_major, message)
    sums_before = [np.copy(array) for array in sums]
    cpu.vi_activations(columns, sums, case.weight)
    cpu.gibbs_row_pass(draw, message, cpu.row_noise((1, 2), 3))
    cpu.gibbs_activations(sums, case.weight, np.eye(K), np.ones((K, N)))
    assert same_bits(inputs, before)
    assert same_bits(sums, sums_before)


@pytest.mark.parametrize("shape", ["plain", "tenth missing"])
def test_float32_data_agrees_to_its_own_precision(shape: str) -> None:
    case = make_case(shape, "feature", dtype=np.float32)
    assert case.data.Y.dtype == np.float32
    exact = make_case(shape, "feature")
    message = make_message(case, np.full(case.F.shape, 0.1))
    expected, expected_sums = ReferenceEngine(exact.data, exact.prior).vi_row_pass(vi_rows(case), message)
    cpu = CpuEngine(case.data, case.prior)
    actual, sums = cpu.vi_row_pass(vi_rows(case), message)
    for name in VIRows._fields:
        assert_close(getattr(actual, name), getattr(expected, name), name, 1e-4)
    assert_sums_close(sums, expected_sums, 1e-4)
    draw, _ = cpu.gibbs_row_pass(gibbs_rows(case), message, cpu.row_noise((1, 2), 3))
    oracle = ReferenceEngine(exact.data, exact.prior)
    expected_draw, _ = oracle.gibbs_row_pass(gibbs_rows(case), message, oracle.row_noise((1, 2), 3))
    same_rows = (draw.Z == expected_draw.Z).all(axis=1)
    assert same_rows.mean() > 0.99
    assert_close(draw.L[same_rows], expected_draw.L[same_rows], "L", 1e-4)


def test_column_lists_name_the_fewer() -> None:
    observed = np.array([[1, 1, 1, 0], [0, 0, 1, 0], [1, 1, 1, 1]], dtype=bool)
    start, columns, lists_missing = column_lists(observed)
    np.testing.assert_array_equal(start, [0, 1, 2, 2])
    np.testing.assert_array_equal(columns, [3, 2])
    np.testing.assert_array_equal(lists_missing, [True, False, True])


def test_build_engine_chooses_and_refuses() -> None:
    case = make_case("plain", "feature")
    assert isinstance(build_engine(case.data, case.prior), CpuEngine)
    assert isinstance(build_engine(case.data, case.prior, "reference"), ReferenceEngine)
    with pytest.raises(ValueError, match="backend must be one of"):
        build_engine(case.data, case.prior, "abacus")
    with pytest.raises(ValueError, match="n_threads must be a whole number of at least 1"):
        build_engine(case.data, case.prior, n_threads=0)


def test_missing_numba_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case("plain", "feature")
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ImportError, match=r'pass backend="reference"'):
        build_engine(case.data, case.prior)
