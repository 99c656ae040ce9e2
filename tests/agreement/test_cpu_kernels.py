"""The compiled kernels against the oracle, on the same inputs and the same noise."""

import numpy as np
import pytest
from tests.agreement.cases import (
    NOISES,
    SHAPES,
    Case,
    assert_close,
    assert_sums_close,
    gibbs_rows,
    make_case,
    make_message,
    small_numbers,
    vi_rows,
)
from tests.helpers.problems import random_correlation

from sparsefactor.data import as_data
from sparsefactor.kernels import noise as noise_py
from sparsefactor.kernels.contract import NONE, VIColumns, VIRows
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.model import Prior

# ---- variational inference ------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("groups", [1, 3])
def test_vi_agrees(engine, shape: str, noise: str, per_row: bool, groups: int) -> None:
    case = make_case(shape, noise, per_row=per_row, groups=groups)
    K, N = case.F.shape
    oracle, cpu = ReferenceEngine(case.data, case.prior), engine(case.data, case.prior)
    f_var = np.random.default_rng(3).uniform(0.01, 0.3, (K, N))
    rows = vi_rows(case)
    for sweep in range(2):
        message = make_message(case, f_var, seed=sweep)
        expected, expected_sums = oracle.vi_row_pass(cpu.vi_fetch(rows), message)
        actual, sums = cpu.vi_row_pass(rows, message)
        for name in VIRows._fields:
            assert_close(getattr(actual, name), getattr(expected, name), name)
        assert_sums_close(sums, expected_sums)
        rows = actual
    empty = np.zeros(0)
    n_joint = 1 if case.data.is_complete and noise != "sample" else N
    phi = random_correlation(K, np.random.default_rng(4)) if K > 1 else NONE
    for start, own in (
        (f_var, NONE),
        (f_var, phi),
        (np.zeros((n_joint, K, K)), NONE),
        (np.zeros((n_joint, K, K)), phi),
        (np.zeros((N, K, K)), phi),
    ):
        columns = VIColumns(case.F, start, empty, empty, empty, empty, empty, empty, phi=own)
        mean, var = cpu.vi_activations(columns, sums, case.weight)
        expected_mean, expected_var = oracle.vi_activations(columns, expected_sums, case.weight)
        assert var.shape == start.shape
        assert_close(mean, expected_mean, "f_mean")
        assert_close(np.broadcast_to(var, expected_var.shape), expected_var, "f_var")


@pytest.mark.parametrize("shape", ["plain", "tenth missing"])
@pytest.mark.parametrize("scale", [1e-150, 1e-75, 1e75, 1e149])
def test_vi_agrees_at_extreme_scales(engine, shape: str, scale: float) -> None:
    case = make_case(shape, "feature", scale=scale)
    message = make_message(case, np.full(case.F.shape, 0.1), scale=scale)
    rows = vi_rows(case, scale=scale)
    expected, expected_sums = ReferenceEngine(case.data, case.prior).vi_row_pass(rows, message)
    actual, sums = engine(case.data, case.prior).vi_row_pass(rows, message)
    rtol = small_numbers(engine, scale)
    for name in VIRows._fields:
        assert_close(getattr(actual, name), getattr(expected, name), name, rtol)
    assert_sums_close(sums, expected_sums, rtol)


@pytest.mark.parametrize("strength", [1e-4, 1e4])
def test_vi_agrees_where_inclusion_is_certain(engine, strength: float) -> None:
    """Log odds of about -10^3 to 10^8: eta is 0 or 1 to the last bit, and the ELBO still counts."""
    case = make_case("plain", "feature")
    message = make_message(case, np.full(case.F.shape, 1e-6))
    logit = np.where(np.arange(5) % 2, 900.0, -900.0)[None] if strength < 1 else message.logit
    message = message._replace(alpha=message.alpha / strength, logit=logit)
    rows = vi_rows(case)._replace(mu=np.zeros((150, 5)), s2=np.full((150, 5), 1e-9))
    expected, expected_sums = ReferenceEngine(case.data, case.prior).vi_row_pass(rows, message)
    actual, sums = engine(case.data, case.prior).vi_row_pass(rows, message)
    for name in VIRows._fields:
        np.testing.assert_allclose(getattr(actual, name), getattr(expected, name), rtol=1e-8, atol=1e-250)
    assert_sums_close(sums, expected_sums)


# ---- Gibbs sampling ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("groups", [1, 3])
def test_gibbs_agrees(engine, shape: str, noise: str, per_row: bool, groups: int) -> None:
    case = make_case(shape, noise, per_row=per_row, groups=groups)
    K, N = case.F.shape
    oracle, cpu = ReferenceEngine(case.data, case.prior), engine(case.data, case.prior)
    rows, key = gibbs_rows(case), noise_py.stream_key(7, 1)
    normal = np.random.default_rng(4).standard_normal((K, N))
    for sweep in range(2):
        message = make_message(case, np.zeros((K, N)), seed=sweep)
        own = cpu.gibbs_fetch(rows)
        expected, expected_sums = oracle.gibbs_row_pass(own, message, oracle.row_noise(key, sweep))
        actual, sums = cpu.gibbs_row_pass(rows, message, cpu.row_noise(key, sweep))
        np.testing.assert_array_equal(actual.Z, expected.Z)
        assert_close(actual.L, expected.L, "L")
        assert_close(actual.tau, expected.tau, "tau")
        assert_sums_close(sums, expected_sums)
        K = len(case.F)
        learnt = random_correlation(K, np.random.default_rng(5)) if K > 1 else np.eye(1)
        for prior in (np.eye(K), np.linalg.inv(learnt)):
            F = cpu.gibbs_activations(sums, case.weight, prior, normal)
            assert_close(F, oracle.gibbs_activations(expected_sums, case.weight, prior, normal), "F", 1e-8)
        rows = actual


@pytest.mark.parametrize("scale", [1e-150, 1e-75, 1e75, 1e149])
def test_gibbs_agrees_at_extreme_scales(engine, scale: float) -> None:
    case = make_case("tenth missing", "feature", scale=scale)
    message = make_message(case, np.zeros(case.F.shape), scale=scale)
    rows = gibbs_rows(case, scale=scale)
    oracle, cpu = ReferenceEngine(case.data, case.prior), engine(case.data, case.prior)
    expected, expected_sums = oracle.gibbs_row_pass(rows, message, oracle.row_noise((1, 2), 0))
    actual, sums = cpu.gibbs_row_pass(rows, message, cpu.row_noise((1, 2), 0))
    np.testing.assert_array_equal(actual.Z, expected.Z)
    rtol = small_numbers(engine, scale)
    assert_close(actual.L, expected.L, "L", rtol)
    assert_sums_close(sums, expected_sums, rtol)


def test_gibbs_agrees_where_the_active_block_is_ill_conditioned(engine) -> None:
    """Nearly equal activations, noise precision 10^8 times the slab's, and many flips in a row."""
    rng = np.random.default_rng(5)
    G, N, K = 60, 30, 20
    F = rng.standard_normal((1, N)) + 1e-2 * rng.standard_normal((K, N))
    X = F.T @ rng.standard_normal((K, G)) + 1e-4 * rng.standard_normal((N, G))
    case = Case(as_data(X), Prior(n_factors=K, inclusion=0.5, noise="shared"), F, np.full(N, 1e8), np.zeros((1, K)))
    message = make_message(case, np.zeros((K, N)))._replace(scale=np.ones(K))
    oracle, cpu = ReferenceEngine(case.data, case.prior), engine(case.data, case.prior)
    rows = gibbs_rows(case)
    expected, _ = oracle.gibbs_row_pass(rows, message, oracle.row_noise((1, 2), 0))
    actual, _ = cpu.gibbs_row_pass(rows, message, cpu.row_noise((1, 2), 0))
    assert (expected.Z != rows.Z).sum() > 100
    np.testing.assert_array_equal(actual.Z, expected.Z)
    assert_close(actual.L, expected.L, "L", 1e-5)
