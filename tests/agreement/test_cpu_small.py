"""The compiled iteration for small problems agrees with the steps it replaces, and stands aside where it must."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy import special
from tests.agreement.cases import same_bits
from tests.helpers.problems import random_correlation, random_vi_state, small_data

from sparsefactor.data import as_data
from sparsefactor.densities import gamma_kl
from sparsefactor.design import Design
from sparsefactor.engine import build_engine
from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.engine.small_masked import SmallMaskedVI
from sparsefactor.kernels.cpu import sample_lanes, vi_small
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.model import Beta, Prior
from sparsefactor.vi.cavi import CAVI, VIState

SHAPES = {
    "plain": (70, 9, 4),
    "two tiles": (500, 6, 3),
    "one factor": (40, 9, 1),
    "one feature": (1, 12, 3),
    "wide": (20, 3, 5),
}


def pair(shape: str, inclusion, *, dtype=np.float64, joint=False, correlation="none") -> tuple[CAVI, CAVI]:
    """The same problem with the shortcut, and by the oracle."""
    G, N, K = SHAPES[shape]
    data = as_data(small_data(G, N, K, seed=1).Y.T.copy(), dtype=dtype)
    prior = Prior(n_factors=K, inclusion=inclusion if isinstance(inclusion, Beta) else np.linspace(0.1, 0.6, K))
    prior = replace(prior, factor_correlation=correlation)
    small = CAVI(data, prior, CpuEngine(data, prior, 1), joint=joint)
    assert small.shortcut is not None
    return small, CAVI(data, prior, ReferenceEngine(data, prior), joint=joint)


def masked_pair(directions: int, inclusion, *, dtype=np.float64, slab=False, correlation="none") -> tuple[CAVI, CAVI]:
    """The same of data with holes, and with directions whose activations are given."""
    data = small_data(70, 30, 4, missing=0.25, seed=2)
    data = as_data(np.where(data.observed, data.Y, np.nan).T, dtype=dtype)
    if directions:
        basis = np.vstack([np.ones((1, 30)), np.random.default_rng(3).standard_normal((directions - 1, 30))])
        data = replace(data, design=Design(basis, True, None, 0.3, slab=slab))
    prior = Prior(n_factors=4, inclusion=inclusion if isinstance(inclusion, Beta) else np.linspace(0.1, 0.6, 4))
    prior = replace(prior, factor_correlation=correlation)
    both = (CAVI(data, prior, build_engine(data, prior, name, 1), joint=True) for name in ("cpu", "reference"))
    small, oracle = both
    return small, oracle


def assert_same(one: VIState, other: VIState, rtol: float) -> None:
    for mine, theirs in zip((one.rows, one.columns, one.sums), (other.rows, other.columns, other.sums), strict=True):
        for name, value in mine._asdict().items():
            expected = getattr(theirs, name)
            if name == "f_var":  # of which the oracle has one for every sample
                value = np.broadcast_to(value, expected.shape)
            np.testing.assert_allclose(value, expected, rtol=rtol, atol=rtol, err_msg=name)
    np.testing.assert_allclose(one.terms, other.terms, rtol=rtol, atol=rtol)
    assert one.elbo == pytest.approx(other.elbo, rel=rtol)
    assert one.elbo == pytest.approx(sum(one.terms), rel=1e-14)


@pytest.mark.parametrize("rescale", [False, True])
@pytest.mark.parametrize("inclusion", [None, Beta(1.0, 1.0), Beta(2.5, 0.5)])
@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("correlation", ["none", "learnt"])
@pytest.mark.parametrize("shape", SHAPES)
def test_an_iteration_agrees_with_the_oracle(shape, correlation, joint, inclusion, rescale) -> None:
    small, oracle = pair(shape, inclusion, joint=joint, correlation=correlation)
    state = random_vi_state(oracle)  # its f_var differs between samples
    kept = [np.copy(a) for part in state[:3] for a in part]
    one, other = small.sweep(state, rescale=rescale), oracle.sweep(state, rescale=rescale)
    assert_same(one, other, 1e-9)
    for _ in range(3):
        one, other = small.sweep(one, rescale=rescale), oracle.sweep(other, rescale=rescale)
    assert_same(one, other, 1e-8)
    assert all(np.array_equal(a, b) for a, b in zip(kept, (a for part in state[:3] for a in part), strict=True))


@pytest.mark.parametrize("rescale", [False, True])
@pytest.mark.parametrize("inclusion", [None, Beta(2.5, 0.5)])
@pytest.mark.parametrize("correlation", ["none", "learnt"])
@pytest.mark.parametrize("directions", [0, 1, 3])
def test_an_iteration_with_missing_values_agrees_with_the_oracle(directions, correlation, inclusion, rescale) -> None:
    small, oracle = masked_pair(directions, inclusion, correlation=correlation)
    assert isinstance(small.shortcut, SmallMaskedVI)
    assert oracle.shortcut is None
    start = np.random.default_rng(4)
    L, F = start.standard_normal((70, 4)), start.standard_normal((4, 30))
    one, other = small.start(L, F), oracle.start(L, F)
    for _ in range(4):
        kept = [np.copy(a) for part in one[:3] for a in part]
        new, other = small.sweep(one, rescale=rescale), oracle.sweep(other, rescale=rescale)
        assert all(np.array_equal(a, b) for a, b in zip(kept, (a for part in one[:3] for a in part), strict=True))
        one = new
        # What rows list what is missing is the engine's own affair: of LL and the shares only the sum is defined.
        np.testing.assert_allclose(one.sums.LL + one.sums.LL_share, other.sums.LL + other.sums.LL_share, 1e-8, 1e-8)
        one = one._replace(sums=one.sums._replace(LL=other.sums.LL, LL_share=other.sums.LL_share))
        assert_same(one, other, 1e-8)


def test_single_precision_data_with_holes_agree_to_single_precision() -> None:
    small, oracle = masked_pair(1, None, dtype=np.float32)
    start = np.random.default_rng(4)
    L, F = start.standard_normal((70, 4)), start.standard_normal((4, 30))
    one, other = (cavi.sweep(cavi.start(L, F), rescale=True) for cavi in (small, oracle))
    np.testing.assert_allclose(one.rows.eta, other.rows.eta, atol=1e-3)
    assert one.elbo == pytest.approx(other.elbo, rel=1e-4)


def test_directions_with_slabs_take_the_long_way() -> None:
    assert masked_pair(2, None, slab=True)[0].shortcut is None


def test_finish_alone_agrees_where_variances_differ_between_samples() -> None:
    small, oracle = pair("plain", Beta(1.0, 1.0))
    state = random_vi_state(oracle)
    scale = np.linspace(0.5, 2.0, 4)
    assert np.ptp(state.columns.f_var, axis=1).min() > 0
    one, other = (cavi.finish(state.rows, state.columns, scale) for cavi in (small, oracle))
    assert_same(one, other, 1e-9)
    control = small.finish(state.rows, state.columns, np.ones(4))
    assert control.elbo != pytest.approx(other.elbo, rel=1e-6)  # the scale matters


@pytest.mark.parametrize("joint", [False, True])
def test_a_start_with_no_variance_has_no_elbo_yet(joint) -> None:
    small, oracle = pair("plain", None, joint=joint)
    rng = np.random.default_rng(0)
    L, F = rng.standard_normal((70, 4)), rng.standard_normal((4, 9))
    assert small.start(L, F).elbo == oracle.start(L, F).elbo == -np.inf


def test_single_precision_data_agrees_to_single_precision() -> None:
    small, oracle = pair("two tiles", None, dtype=np.float32)
    state = random_vi_state(oracle)
    one, other = small.sweep(state, rescale=True), oracle.sweep(state, rescale=True)
    np.testing.assert_allclose(one.rows.eta, other.rows.eta, atol=1e-3)
    assert one.elbo == pytest.approx(other.elbo, rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "joint", "missing"),
    [
        ({"noise": "sample"}, False, 0.0),
        ({"noise": "shared"}, False, 0.0),
        ({"inclusion": np.full((70, 4), 0.2)}, False, 0.0),
        ({"inclusion": Beta(1e8, 1e8)}, False, 0.0),
        ({"noise": "shared"}, True, 0.0),
        ({}, False, 0.2),
        ({"noise": "shared"}, True, 0.2),
    ],
)
def test_what_it_was_not_made_for_takes_the_long_way(changes, joint, missing) -> None:
    data = small_data(70, 9, 4, missing=missing)
    prior = Prior(**{"n_factors": 4, "inclusion": 0.2, **changes})
    assert CAVI(data, prior, CpuEngine(data, prior, 1), joint=joint).shortcut is None


def test_the_choice_depends_on_the_problem_alone() -> None:
    """Results must not depend on the number of threads, so the choice must not."""
    for G, short in ((800, True), (4000, False)):
        data = small_data(G, 20, 6)
        prior = Prior(n_factors=6, inclusion=0.2)
        chosen = [CpuEngine(data, prior, n).vi_shortcut(False) is not None for n in (1, 2, 5)]
        assert chosen == [short] * 3


def test_several_threads_may_use_it_at_once() -> None:
    small, oracle = pair("plain", Beta(1.0, 1.0))
    states = [random_vi_state(oracle, seed=seed) for seed in range(8)]

    def climbed(state: VIState) -> VIState:
        for _ in range(20):
            state = small.sweep(state, rescale=True)
        return state

    alone = [climbed(state) for state in states]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(climbed, states))
    for one, other in zip(alone, together, strict=True):
        assert same_bits(one.rows, other.rows)
        assert one.elbo == other.elbo


def test_special_functions_are_those_of_scipy() -> None:
    x = 10.0 ** np.linspace(-6, 7, 500)
    found = np.array([vi_small.digamma(value) for value in x])
    np.testing.assert_allclose(found, special.digamma(x), rtol=2e-14, atol=2e-15)
    for shape, rate in ((1e-3, 1e-3), (0.7, 3.0), (400.5, 1e-4), (9e3, 2e5)):
        assert vi_small.gamma_kl(shape, rate, 1e-3, 2e-3) == pytest.approx(gamma_kl(shape, rate, 1e-3, 2e-3), rel=1e-12)


@pytest.mark.parametrize(("N", "K"), [(70, 5), (32, 1), (3, 12)])
def test_matrices_of_samples_side_by_side_are_those_of_each(N, K) -> None:
    """Whole groups of samples and what is left over, against NumPy's own factorisations."""
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((9, K)), rng.standard_normal((N, 4, K))
    LL, share, weight = A.T @ A, B.transpose(0, 2, 1) @ B, rng.uniform(0.5, 2.0, N)
    LY, normal = rng.standard_normal((2, K, N))
    prior = np.linalg.inv(random_correlation(K, rng)) if K > 1 else np.eye(1)
    precision = prior + weight[:, None, None] * (LL + share)
    mean, covariance, F = np.empty((K, N)), np.empty((N, K, K)), np.empty((K, N))
    sample_lanes.joint_each(0, N, LY, LL, share, weight, prior, mean, covariance)
    np.testing.assert_allclose(covariance, np.linalg.inv(precision), rtol=1e-9, atol=1e-12)
    expected = np.einsum("jkm,mj->kj", np.linalg.inv(precision), weight * LY)
    np.testing.assert_allclose(mean, expected, rtol=1e-9, atol=1e-12)
    sample_lanes.draw_each(0, N, LY, LL, share, weight, prior, normal, F)
    upper = np.linalg.cholesky(precision).transpose(0, 2, 1)
    noise = np.linalg.solve(upper, normal.T[:, :, None])[:, :, 0].T
    np.testing.assert_allclose(F, expected + noise, rtol=1e-9, atol=1e-12)
    assert sample_lanes.log_determinants(covariance) == pytest.approx(-np.linalg.slogdet(precision)[1].sum(), rel=1e-12)
    covariance[-1] = 0.0
    assert sample_lanes.log_determinants(covariance) == -np.inf
    # Where a thread's part begins does not matter.
    again = np.empty((N, K, K))
    for part in ((0, N // 2), (N // 2, N)):
        sample_lanes.joint_each(*part, LY, LL, share, weight, prior, mean, again)
    assert same_bits((again[:-1],), (covariance[:-1],))
