"""The compiled kernels against the oracle, on the same inputs and the same noise."""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from sparsefactor.data import Data, as_data
from sparsefactor.engine import build_kernels
from sparsefactor.engine.local import CpuKernels
from sparsefactor.engine.threads import run_parts, single_blas_thread, split
from sparsefactor.kernels import noise as noise_py
from sparsefactor.kernels.contract import GibbsRows, Message, Sums, VIColumns, VIRows
from sparsefactor.kernels.cpu import philox
from sparsefactor.kernels.cpu.lanes import exp_lane, log_lane
from sparsefactor.kernels.cpu.tiles import column_lists
from sparsefactor.kernels.reference import ReferenceKernels
from sparsefactor.model import Prior

RTOL = 1e-9
NOISES = ("feature", "shared", "sample")
SHAPES = {  # G, N, K, fraction missing
    "plain": (150, 20, 5, 0.0),
    "tenth missing": (150, 20, 5, 0.1),
    "most missing": (150, 20, 5, 0.9),
    "one factor": (40, 9, 1, 0.0),
    "one factor masked": (40, 9, 1, 0.3),
    "one feature": (1, 12, 3, 0.0),
    "fewer samples than factors": (40, 3, 5, 0.0),
    "fewer samples than factors, masked": (40, 3, 5, 0.3),
    "several tiles": (230, 17, 9, 0.2),
}


class Case(NamedTuple):
    data: Data
    prior: Prior
    F: np.ndarray
    weight: np.ndarray
    logit: np.ndarray


def make_case(shape: str, noise: str, *, per_row: bool = False, scale: float = 1.0, dtype=np.float64) -> Case:
    G, N, K, missing = SHAPES[shape]
    rng = np.random.default_rng(sum(map(ord, shape + noise)))
    L = rng.standard_normal((G, K)) * (rng.random((G, K)) < 0.4)
    F = rng.standard_normal((K, N))
    X = scale * (F.T @ L.T + 0.3 * rng.standard_normal((N, G)))
    if missing:
        gone = rng.random(X.shape) < missing
        gone[rng.integers(N, size=G), np.arange(G)] = False  # some rows keep a single entry
        gone[np.arange(N), rng.integers(G, size=N)] = False
        X[gone] = np.nan
    inclusion = rng.uniform(0.05, 0.6, (G, K)) if per_row else rng.uniform(0.05, 0.6, K)
    prior = Prior(n_factors=K, inclusion=inclusion, noise=noise, noise_rate=1e-3 * scale**2, loading_rate=1e-3)
    weight = {"feature": np.ones(N), "shared": np.full(N, 1.7), "sample": rng.uniform(0.5, 3.0, N)}[noise]
    if noise != "feature":
        weight = weight / scale**2
    pi = prior.inclusion_matrix()
    return Case(as_data(X, dtype=dtype), prior, F, weight, np.log(pi) - np.log1p(-pi))


def make_message(case: Case, f_var: np.ndarray, *, scale: float = 1.0, seed: int = 0) -> Message:
    """A message as the column step would send it, alpha in the units of loadings at data scale `scale`."""
    rng = np.random.default_rng(seed)
    K, N = case.F.shape
    share = np.einsum("kj,lj->jkl", case.F, case.F)
    share = share + (f_var if f_var.ndim == 3 else np.einsum("kj,kl->jkl", f_var, np.eye(K)))
    share *= case.weight[:, None, None]
    alpha = rng.uniform(0.5, 2.0, K) / scale**2
    return Message(
        F=np.ascontiguousarray((case.F * case.weight).T),
        gram=share.sum(axis=0),
        share=share[: 0 if case.data.is_complete else N].copy(),
        alpha=alpha,
        log_alpha=np.log(alpha) - rng.uniform(0.0, 0.3, K),
        logit=case.logit,
        scale=rng.uniform(0.7, 1.4, K),
    )


def vi_rows(case: Case, *, scale: float = 1.0, seed: int = 1) -> VIRows:
    rng = np.random.default_rng(seed)
    G, K = case.data.n_features, case.prior.K
    return VIRows(
        mu=scale * rng.standard_normal((G, K)),
        s2=scale**2 * rng.uniform(0.01, 0.5, (G, K)),
        eta=rng.uniform(0.0, 1.0, (G, K)),
        tau=rng.uniform(0.5, 2.0, G) / scale**2 if case.prior.noise == "feature" else np.ones(G),
    )


def gibbs_rows(case: Case, *, scale: float = 1.0, seed: int = 2) -> GibbsRows:
    rng = np.random.default_rng(seed)
    G, K = case.data.n_features, case.prior.K
    Z = (rng.random((G, K)) < 0.4).astype(np.int8)
    return GibbsRows(Z=Z, L=scale * Z * rng.standard_normal((G, K)), tau=np.ones(G))


def assert_close(actual: np.ndarray, expected: np.ndarray, name: str, rtol: float = RTOL) -> None:
    """Elementwise to rtol, and to rtol of the largest entry where terms cancel."""
    assert actual.shape == expected.shape, name
    if expected.size:
        np.testing.assert_allclose(
            actual, expected, rtol=rtol, atol=rtol * np.abs(expected).max(), err_msg=name
        )


def assert_sums_close(actual: Sums, expected: Sums, rtol: float = RTOL) -> None:
    for name in ("LY", "count", "l2"):
        assert_close(getattr(actual, name), getattr(expected, name), name, rtol)
    # The two may split D_j = LL + LL_share[j] differently.
    if len(expected.LL_share):
        assert_close(actual.LL + actual.LL_share, expected.LL + expected.LL_share, "D", rtol)
    else:
        assert_close(actual.LL, expected.LL, "LL", rtol)
    np.testing.assert_allclose(actual.terms, expected.terms, rtol=rtol, atol=1e-12)


def same_bits(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.fixture(autouse=True, scope="module")
def one_blas_thread():
    with single_blas_thread():
        yield


# ---- variational inference ------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shape", SHAPES)
def test_vi_agrees(shape: str, noise: str, per_row: bool) -> None:
    case = make_case(shape, noise, per_row=per_row)
    K, N = case.F.shape
    oracle, cpu = ReferenceKernels(case.data, case.prior), CpuKernels(case.data, case.prior)
    f_var = np.random.default_rng(3).uniform(0.01, 0.3, (K, N))
    rows = vi_rows(case)
    for sweep in range(2):
        message = make_message(case, f_var, seed=sweep)
        expected, expected_sums = oracle.vi_row_pass(rows, message)
        actual, sums = cpu.vi_row_pass(rows, message)
        for name in VIRows._fields:
            assert_close(getattr(actual, name), getattr(expected, name), name)
        assert_sums_close(sums, expected_sums)
        rows = actual
    empty = np.zeros(0)
    n_joint = 1 if case.data.is_complete and noise != "sample" else N
    for start in (f_var, np.zeros((n_joint, K, K)), np.zeros((N, K, K))):
        columns = VIColumns(case.F, start, empty, empty, empty, empty, empty, empty)
        mean, var = cpu.vi_activations(columns, sums, case.weight)
        expected_mean, expected_var = oracle.vi_activations(columns, expected_sums, case.weight)
        assert var.shape == start.shape
        assert_close(mean, expected_mean, "f_mean")
        assert_close(np.broadcast_to(var, expected_var.shape), expected_var, "f_var")


@pytest.mark.parametrize("shape", ["plain", "tenth missing"])
@pytest.mark.parametrize("scale", [1e-150, 1e-75, 1e75, 1e149])
def test_vi_agrees_at_extreme_scales(shape: str, scale: float) -> None:
    case = make_case(shape, "feature", scale=scale)
    message = make_message(case, np.full(case.F.shape, 0.1), scale=scale)
    rows = vi_rows(case, scale=scale)
    expected, expected_sums = ReferenceKernels(case.data, case.prior).vi_row_pass(rows, message)
    actual, sums = CpuKernels(case.data, case.prior).vi_row_pass(rows, message)
    for name in VIRows._fields:
        assert_close(getattr(actual, name), getattr(expected, name), name)
    assert_sums_close(sums, expected_sums)


@pytest.mark.parametrize("strength", [1e-4, 1e4])
def test_vi_agrees_where_inclusion_is_certain(strength: float) -> None:
    """Log odds of about -10^3 to 10^8: eta is 0 or 1 to the last bit, and the ELBO still counts."""
    case = make_case("plain", "feature")
    message = make_message(case, np.full(case.F.shape, 1e-6))
    logit = np.where(np.arange(5) % 2, 900.0, -900.0)[None] if strength < 1 else message.logit
    message = message._replace(alpha=message.alpha / strength, logit=logit)
    rows = vi_rows(case)._replace(mu=np.zeros((150, 5)), s2=np.full((150, 5), 1e-9))
    expected, expected_sums = ReferenceKernels(case.data, case.prior).vi_row_pass(rows, message)
    actual, sums = CpuKernels(case.data, case.prior).vi_row_pass(rows, message)
    for name in VIRows._fields:
        np.testing.assert_allclose(getattr(actual, name), getattr(expected, name), rtol=1e-8, atol=1e-250)
    assert_sums_close(sums, expected_sums)


def test_vi_reuses_the_memory_it_is_given() -> None:
    case = make_case("tenth missing", "feature")
    cpu = CpuKernels(case.data, case.prior)
    message = make_message(case, np.full(case.F.shape, 0.1))
    first, _ = cpu.vi_row_pass(vi_rows(case), message)
    fresh, fresh_sums = cpu.vi_row_pass(first, message)
    out, _ = cpu.vi_row_pass(vi_rows(case, seed=9), message)
    reused, sums = cpu.vi_row_pass(first, message, out=out)
    assert np.shares_memory(reused.mu, out.mu)
    assert same_bits(reused, fresh)
    assert same_bits(sums, fresh_sums)


# ---- Gibbs sampling ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("shape", SHAPES)
def test_gibbs_agrees(shape: str, noise: str, per_row: bool) -> None:
    case = make_case(shape, noise, per_row=per_row)
    K, N = case.F.shape
    oracle, cpu = ReferenceKernels(case.data, case.prior), CpuKernels(case.data, case.prior)
    rows, key = gibbs_rows(case), noise_py.stream_key(7, 1)
    normal = np.random.default_rng(4).standard_normal((K, N))
    for sweep in range(2):
        message = make_message(case, np.zeros((K, N)), seed=sweep)
        expected, expected_sums = oracle.gibbs_row_pass(rows, message, oracle.row_noise(key, sweep))
        actual, sums = cpu.gibbs_row_pass(rows, message, cpu.row_noise(key, sweep))
        np.testing.assert_array_equal(actual.Z, expected.Z)
        assert_close(actual.L, expected.L, "L")
        assert_close(actual.tau, expected.tau, "tau")
        assert_sums_close(sums, expected_sums)
        F = cpu.gibbs_activations(sums, case.weight, normal)
        assert_close(F, oracle.gibbs_activations(expected_sums, case.weight, normal), "F", 1e-8)
        rows = actual


@pytest.mark.parametrize("scale", [1e-150, 1e-75, 1e75, 1e149])
def test_gibbs_agrees_at_extreme_scales(scale: float) -> None:
    case = make_case("tenth missing", "feature", scale=scale)
    message = make_message(case, np.zeros(case.F.shape), scale=scale)
    rows = gibbs_rows(case, scale=scale)
    oracle, cpu = ReferenceKernels(case.data, case.prior), CpuKernels(case.data, case.prior)
    expected, expected_sums = oracle.gibbs_row_pass(rows, message, oracle.row_noise((1, 2), 0))
    actual, sums = cpu.gibbs_row_pass(rows, message, cpu.row_noise((1, 2), 0))
    np.testing.assert_array_equal(actual.Z, expected.Z)
    assert_close(actual.L, expected.L, "L")
    assert_sums_close(sums, expected_sums)


def test_gibbs_agrees_where_the_active_block_is_ill_conditioned() -> None:
    """Nearly equal activations, noise precision 10^8 times the slab's, and many flips in a row."""
    rng = np.random.default_rng(5)
    G, N, K = 60, 30, 20
    F = rng.standard_normal((1, N)) + 1e-2 * rng.standard_normal((K, N))
    X = F.T @ rng.standard_normal((K, G)) + 1e-4 * rng.standard_normal((N, G))
    case = Case(as_data(X), Prior(n_factors=K, inclusion=0.5, noise="shared"), F, np.full(N, 1e8), np.zeros((1, K)))
    message = make_message(case, np.zeros((K, N)))._replace(scale=np.ones(K))
    oracle, cpu = ReferenceKernels(case.data, case.prior), CpuKernels(case.data, case.prior)
    rows = gibbs_rows(case)
    expected, _ = oracle.gibbs_row_pass(rows, message, oracle.row_noise((1, 2), 0))
    actual, _ = cpu.gibbs_row_pass(rows, message, cpu.row_noise((1, 2), 0))
    assert (expected.Z != rows.Z).sum() > 100
    np.testing.assert_array_equal(actual.Z, expected.Z)
    assert_close(actual.L, expected.L, "L", 1e-5)


# ---- threads ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["several tiles", "plain"])
def test_any_number_of_threads_gives_the_same_bits(shape: str) -> None:
    case = make_case(shape, "feature")
    K, N = case.F.shape
    message = make_message(case, np.full((K, N), 0.1))
    columns = VIColumns(case.F, np.zeros((N, K, K)), *(np.zeros(0),) * 6)
    results = []
    for n_threads in (1, 2, 3):
        cpu = CpuKernels(case.data, case.prior, n_threads, _split_small=True)
        assert len(cpu.vi_parts) == n_threads
        rows, sums = cpu.vi_row_pass(vi_rows(case), message)
        draw, draw_sums = cpu.gibbs_row_pass(gibbs_rows(case), message, cpu.row_noise((3, 4), 5))
        F = cpu.gibbs_activations(draw_sums, case.weight, np.ones((K, N)))
        results.append((*rows, *sums, *draw, *draw_sums, F, *cpu.vi_activations(columns, sums, case.weight)))
    assert same_bits(results[0], results[1])
    assert same_bits(results[0], results[2])


def test_one_engine_serves_several_threads_at_once() -> None:
    case = make_case("several tiles", "feature")
    message = make_message(case, np.full(case.F.shape, 0.1))
    cpu = CpuKernels(case.data, case.prior, 2, _split_small=True)
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
    cpu = CpuKernels(case.data, case.prior)
    message, rows, draw = make_message(case, np.full((K, N), 0.1)), vi_rows(case), gibbs_rows(case)
    columns = VIColumns(case.F, np.full((K, N), 0.1), *(np.zeros(0),) * 6)
    factor_major = VIRows(*(np.asfortranarray(array) for array in rows))  # the layout that is read in place
    inputs = [*message, *rows, *factor_major, *draw, *columns, case.weight, case.data.Y]
    before = [array.copy() for array in inputs]
    _, sums = cpu.vi_row_pass(rows, message)
    cpu.vi_row_pass(factor_major, message)
    sums_before = [array.copy() for array in sums]
    cpu.vi_activations(columns, sums, case.weight)
    cpu.gibbs_row_pass(draw, message, cpu.row_noise((1, 2), 3))
    cpu.gibbs_activations(sums, case.weight, np.ones((K, N)))
    assert same_bits(inputs, before)
    assert same_bits(sums, sums_before)


@pytest.mark.parametrize("shape", ["plain", "tenth missing"])
def test_float32_data_agrees_to_its_own_precision(shape: str) -> None:
    case = make_case(shape, "feature", dtype=np.float32)
    assert case.data.Y.dtype == np.float32
    exact = make_case(shape, "feature")
    message = make_message(case, np.full(case.F.shape, 0.1))
    expected, expected_sums = ReferenceKernels(exact.data, exact.prior).vi_row_pass(vi_rows(case), message)
    cpu = CpuKernels(case.data, case.prior)
    actual, sums = cpu.vi_row_pass(vi_rows(case), message)
    for name in VIRows._fields:
        assert_close(getattr(actual, name), getattr(expected, name), name, 1e-4)
    assert_sums_close(sums, expected_sums, 1e-4)
    draw, _ = cpu.gibbs_row_pass(gibbs_rows(case), message, cpu.row_noise((1, 2), 3))
    oracle = ReferenceKernels(exact.data, exact.prior)
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


def test_build_kernels_chooses_and_refuses() -> None:
    case = make_case("plain", "feature")
    assert isinstance(build_kernels(case.data, case.prior), CpuKernels)
    assert isinstance(build_kernels(case.data, case.prior, "reference"), ReferenceKernels)
    with pytest.raises(ValueError, match="backend must be one of"):
        build_kernels(case.data, case.prior, "gpu")
    with pytest.raises(ValueError, match="n_threads must be at least 1"):
        build_kernels(case.data, case.prior, n_threads=0)


def test_missing_numba_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    case = make_case("plain", "feature")
    monkeypatch.setitem(__import__("sys").modules, "numba", None)
    with pytest.raises(ImportError, match=r'pass backend="reference"'):
        build_kernels(case.data, case.prior)


# ---- elementary functions and randomness --------------------------------------------------------------------------


def test_exp_and_log_are_accurate_to_the_last_places() -> None:
    x = np.linspace(-699.0, 699.0, 20_001)
    np.testing.assert_allclose([exp_lane(v) for v in x], np.exp(x), rtol=5e-16)
    assert exp_lane(1e300) == exp_lane(700.0)
    y = np.concatenate([np.exp(x), np.linspace(0.5, 2.0, 1001)])
    np.testing.assert_allclose([log_lane(v) for v in y], np.log(y), rtol=5e-16, atol=1e-300)


def test_uniforms_are_those_of_the_oracle_to_the_bit() -> None:
    key, sweep = noise_py.stream_key(11, 3), 2**31 + 5
    rows = np.array([0, 1, 2**20, 2**32 - 1])
    expected, _ = noise_py.uniform_pair(np.arange(64)[None, :], rows[:, None], sweep, noise_py.STREAM_Z, key)
    words = [np.uint64(word) for word in (sweep, noise_py.STREAM_Z, *key)]
    actual = np.empty((4, 64))
    for i, row in enumerate(rows):
        philox.units(np.uint64(row), *words, actual[i])
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("shape", [0.2, 0.9, 1.0, 3.5, 50.0])
def test_gammas_and_normals_are_those_of_the_oracle(shape: float) -> None:
    key, sweep, rows = noise_py.stream_key(11, 3), 7, np.arange(4000)
    words = [np.uint64(word) for word in (sweep, *key)]
    expected = noise_py.standard_gamma(np.full(len(rows), shape), rows, sweep, key)
    actual = np.array([philox.standard_gamma(shape, np.uint64(row), *words) for row in rows])
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    assert stats.kstest(actual, stats.gamma(shape).cdf).pvalue > 1e-3
    assert stats.kstest(actual, stats.gamma(1.2 * shape).cdf).pvalue < 1e-3  # the control that must fail
    normal = noise_py.normal_from(*noise_py.uniform_pair(5, rows, sweep, noise_py.STREAM_L, key))
    stream = np.uint64(noise_py.STREAM_L)
    drawn = np.array([philox.normal(np.uint64(5), np.uint64(r), words[0], stream, *words[1:]) for r in rows])
    np.testing.assert_allclose(drawn, normal, rtol=1e-12, atol=1e-15)
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
