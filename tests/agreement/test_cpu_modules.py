"""The compiled row pass with modules against the oracle, and against itself on other threads."""

from dataclasses import replace

import numpy as np
import pytest
from tests.agreement.cases import (
    NOISES,
    SHAPES,
    Case,
    assert_close,
    assert_sums_close,
    make_case,
    make_message,
    same_bits,
    small_numbers,
    vi_rows,
)

from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.kernels.contract import Message, VIRows
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.model import Beta


def with_modules(case: Case, M: int) -> Case:
    """The case under a prior with M modules."""
    return case._replace(prior=replace(case.prior, inclusion=Beta(1, 1), n_modules=M))


def message_for(case: Case, *, scale: float = 1.0, seed: int = 0) -> Message:
    rng = np.random.default_rng(seed)
    M = case.prior.n_modules
    pi, w = rng.uniform(0.05, 0.95, (case.prior.K, M)), rng.dirichlet(np.ones(M))
    plain = make_message(case, rng.uniform(0.01, 0.3, case.F.shape), scale=scale, seed=seed)
    spread = rng.uniform(0.0, 0.1, (2, case.prior.K, M))  # E[log pi] lies below log E[pi]
    return plain._replace(log_in=np.log(pi) - spread[0], log_out=np.log1p(-pi) - spread[1], log_weight=np.log(w))


def rows_for(case: Case, *, scale: float = 1.0) -> VIRows:
    rng = np.random.default_rng(4)
    G, K, M = case.data.n_features, case.prior.K, case.prior.n_modules
    member, within = rng.dirichlet(np.ones(M), G), rng.uniform(0.0, 1.0, (G, K, M))
    eta = np.einsum("ikm,im->ik", within, member)
    return vi_rows(case, scale=scale)._replace(member=member, within=within, eta=eta)


def assert_agree(engine, case: Case, rows: VIRows, message: Message, rtol: float = 1e-9) -> VIRows:
    own = engine(case.data, case.prior)
    expected, expected_sums = ReferenceEngine(case.data, case.prior).vi_row_pass(own.vi_fetch(rows), message)
    actual, sums = own.vi_row_pass(rows, message)
    for name in VIRows._fields:
        assert_close(getattr(actual, name), getattr(expected, name), name, rtol)
    assert_sums_close(sums, expected_sums, rtol)
    assert_close(sums.members, expected_sums.members, "members", rtol)
    assert_close(sums.active_in, expected_sums.active_in, "active_in", rtol)
    return actual


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shape", SHAPES)
def test_module_pass_agrees(engine, shape: str, noise: str) -> None:
    case = with_modules(make_case(shape, noise), 3)
    rows = rows_for(case)
    for sweep in range(2):
        rows = assert_agree(engine, case, rows, message_for(case, seed=sweep))


@pytest.mark.parametrize("M", [2, 8, 13, 200])
def test_any_number_of_modules(engine, M: int) -> None:
    case = with_modules(make_case("tenth missing", "feature"), M)
    assert_agree(engine, case, rows_for(case), message_for(case))


@pytest.mark.parametrize("shape", ["plain", "tenth missing"])
@pytest.mark.parametrize("scale", [1e-150, 1e-75, 1e75, 1e149])
def test_module_pass_agrees_at_extreme_scales(engine, shape: str, scale: float) -> None:
    case = with_modules(make_case(shape, "feature", scale=scale), 3)
    rtol = small_numbers(engine, scale)
    assert_agree(engine, case, rows_for(case, scale=scale), message_for(case, scale=scale), rtol)


def test_module_pass_agrees_where_inclusion_and_module_are_certain(engine) -> None:
    case = with_modules(make_case("plain", "feature"), 3)
    message = message_for(case)
    sure = np.where(np.arange(5)[:, None] % 3 == np.arange(3), 0.0, -800.0)
    message = message._replace(log_in=sure, log_out=-800.0 - sure, log_weight=np.array([0.0, -900.0, -2000.0]))
    rows = rows_for(case)
    rows = rows._replace(member=np.tile([1.0, 0.0, 0.0], (150, 1)), within=np.zeros_like(rows.within))
    assert_agree(engine, case, rows, message)


def test_module_pass_on_float32_data(engine) -> None:
    case = with_modules(make_case("several tiles", "feature", dtype=np.float32), 4)
    assert_agree(engine, case, rows_for(case), message_for(case), rtol=1e-4)


@pytest.mark.parametrize("shape", ["several tiles", "several tiles, complete"])
def test_threads_do_not_change_a_bit(shape: str) -> None:
    case = with_modules(make_case(shape, "feature"), 4)
    rows, message = rows_for(case), message_for(case)
    one, one_sums = CpuEngine(case.data, case.prior, 1).vi_row_pass(rows, message)
    for n_threads in (2, 3):
        many = CpuEngine(case.data, case.prior, n_threads, _split_small=True)
        for _ in range(2):  # the second pass uses the first one's working space
            rows_many, sums_many = many.vi_row_pass(rows, message)
        assert same_bits(one, rows_many)
        assert same_bits(one_sums, sums_many)


def test_one_module_is_the_plain_pass(engine) -> None:
    """With equal rates everywhere and full membership of one module, the plain pass is another way to compute it."""
    case = with_modules(make_case("tenth missing", "feature"), 2)
    message, rows = message_for(case), rows_for(case)
    same = message._replace(
        log_in=message.log_in[:, :1].repeat(2, axis=1),
        log_out=message.log_out[:, :1].repeat(2, axis=1),
        log_weight=np.array([0.0, -1e4]),
        logit=(message.log_in - message.log_out)[None, :, 0],
    )
    alike = rows._replace(member=np.tile([1.0, 0.0], (150, 1)), within=rows.eta[:, :, None].repeat(2, axis=2))
    whole = engine(case.data, case.prior)
    modules, sums = whole.vi_row_pass(alike, same)
    plain, plain_sums = whole.with_prior(replace(case.prior, n_modules=1)).vi_row_pass(rows, same)
    for name in ("mu", "s2", "eta", "tau"):
        assert_close(getattr(modules, name), getattr(plain, name), name)
    assert_close(sums.LY, plain_sums.LY, "LY")
    assert_close(sums.LL + sums.LL_share, plain_sums.LL + plain_sums.LL_share, "D")
    out = case.data.n_features * message.log_out[:, 0].sum()
    np.testing.assert_allclose(sums.elbo, plain_sums.elbo + np.array([0.0, out, 0.0]), rtol=1e-9)
