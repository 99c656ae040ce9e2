"""The draw of the factors' correlations, without data: it leaves their prior invariant; wrong ones do not (2.19)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tests.helpers.problems import prior_for, random_gibbs_state, small_data

from sparsefactor.engine import build_engine
from sparsefactor.gibbs import correlation
from sparsefactor.gibbs.correlation import contract, correlations_of, draw_correlation, draw_inverse_wishart, expand
from sparsefactor.gibbs.moves import MOVES
from sparsefactor.gibbs.state import GibbsState
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.contract import GibbsRows
from sparsefactor.model import Prior

K, N = 3, 6
REPLICATES, STEPS, LIMIT = 1500, 5, 4.5
GROUPS = [None, ["a", "b"]]


def prior_of(groups=None) -> Prior:
    return prior_for(K, groups=groups, correlation="learnt", loading_shape=2.0, loading_rate=1.5)


def draw_prior(prior: Prior, sigma: np.ndarray, rng: np.random.Generator) -> GibbsState:
    phi = correlations_of(sigma)
    F = np.linalg.cholesky(phi) @ rng.standard_normal((K, N))
    alpha = rng.gamma(prior.loading_shape, 1.0 / prior.loading_rate, (K, 2) if prior.grouped else K)
    Z = (rng.random((2, K)) < prior.inclusion).astype(np.int8)
    L = Z * rng.standard_normal((2, K)) / np.sqrt(prior.by_row(alpha))
    rows = GibbsRows(Z, L, np.full(2, 1e-12))  # no data are told of
    return GibbsState(rows, F, alpha, np.zeros(0), np.zeros(0), np.ones(K), phi=phi)


def values(state: GibbsState) -> list[float]:
    phi, F, log_alpha = state.phi, state.F, np.log(state.alpha)
    L, off = state.rows.L * state.scale, phi[np.tril_indices(K, -1)]
    return [
        *off,
        np.sum(off**2),
        np.sum(off**4),
        np.linalg.slogdet(phi)[1],
        np.sum(F**2),
        np.sum(F**4),
        np.sum(phi * (F @ F.T)),
        np.sum(np.linalg.inv(phi) * (F @ F.T)),
        log_alpha.mean(),
        np.sum(log_alpha**2),
        log_alpha.mean() * np.sum(F**2),
        log_alpha.mean() * np.sum(off**2),
        np.mean(np.tanh(L**2)),
        np.mean(np.tanh(L**2)) * np.sum(F**2),
    ]


def scores(prior: Prior, step: Callable[..., GibbsState], seed: int = 0) -> np.ndarray:
    """z-scores of functions of the parameters after some steps that begin at the prior."""
    rng = np.random.default_rng(seed)
    sigma = stats.invwishart(prior.correlation_df, np.eye(K)).rvs(3 * REPLICATES, random_state=rng)
    expected = np.array([values(draw_prior(prior, own, rng)) for own in sigma[REPLICATES:]])
    found = []
    for own in sigma[:REPLICATES]:
        state = draw_prior(prior, own, rng)
        for _ in range(STEPS):
            state = step(state, rng)
        found.append(values(state))
    own = np.array(found)
    error = np.sqrt(own.var(axis=0) / len(own) + expected.var(axis=0) / len(expected))
    return (own.mean(axis=0) - expected.mean(axis=0)) / error


@pytest.mark.statistical
@pytest.mark.parametrize("groups", GROUPS)
def test_the_draw_leaves_the_prior_invariant(groups):
    prior = prior_of(groups)

    def step(state, rng):
        return draw_correlation(state, prior, prior.correlation_df, rng)

    assert np.abs(scores(prior, step)).max() < LIMIT


@pytest.mark.statistical
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("wrong", ["accepts all", "leaves slabs behind", "df"])
def test_a_wrong_draw_is_noticed(groups, wrong, monkeypatch):
    prior = prior_of(groups)
    rescale = correlation.rescale
    if wrong == "accepts all":
        monkeypatch.setattr(correlation, "log_weight", lambda sigma, power, penalty: 0.0)
    if wrong == "leaves slabs behind":  # another Jacobian
        monkeypatch.setattr(correlation, "rescale", lambda state, d: rescale(state, d)._replace(alpha=state.alpha))
    df = prior.correlation_df * (3.0 if wrong == "df" else 1.0)

    def step(state, rng):
        return draw_correlation(state, prior, df, rng)

    assert np.abs(scores(prior, step)).max() > 2 * LIMIT


class BoldShear(MOVES["shear"]):
    """With shears that matter without data."""

    scales = (0.1, 0.3, 1.0)


def step_of(move: Any, prior: Prior, told: Prior) -> Callable[..., GibbsState]:
    """A move under a prior whose engine is told another."""
    data = small_data(2, N, K)
    gibbs = Gibbs(data, told, build_engine(data, told, "cpu", 1))
    gibbs.prior = prior

    def step(state, rng):
        return move(gibbs, state, rng)

    return step


class ShearAlways(BoldShear):
    """Takes every shear that is proposed."""

    def log_uniform(self, shape, rng):
        return np.full(shape, -np.inf)


@pytest.mark.statistical
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("move", [BoldShear, MOVES["rotation"]])
def test_moves_leave_the_prior_invariant(move, groups):
    """Without data (2.19c) is all that is left of a move."""
    prior = prior_of(groups)
    assert np.abs(scores(prior, step_of(move(), prior, prior))).max() < LIMIT


@pytest.mark.statistical
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("move", [ShearAlways, MOVES["rotation"]])
def test_wrong_moves_are_noticed(move, groups):
    """A shear that is always taken; a rotation that leaves out the part of slab precisions."""
    prior = prior_of(groups)
    told = prior if move is ShearAlways else replace(prior, loading_shape=1e-6, loading_rate=1e-6)
    assert np.abs(scores(prior, step_of(move(), prior, told))).max() > 2 * LIMIT


def test_inverse_wishart_draws_have_its_moments():
    rng = np.random.default_rng(0)
    scale = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, -0.3], [0.0, -0.3, 3.0]])
    draws = np.array([draw_inverse_wishart(scale, 9.5, rng) for _ in range(20_000)])
    other = stats.invwishart(9.5, scale).rvs(20_000, random_state=rng)
    np.testing.assert_allclose(draws.mean(axis=0), scale / (9.5 - K - 1), atol=0.02)
    for one, two in zip(draws.reshape(-1, K * K).T, other.reshape(-1, K * K).T, strict=True):
        assert stats.ks_2samp(one, two).pvalue > 1e-4


@pytest.mark.parametrize("groups", GROUPS)
def test_expanding_and_contracting_change_nothing_that_data_see(groups):
    data, prior = small_data(2, N, K), prior_of(groups)
    state = random_gibbs_state(data, prior)
    wide = expand(state, prior.correlation_df, np.random.default_rng(0))
    assert not np.allclose(np.diagonal(wide.phi), 1.0)
    product = (state.rows.L * state.scale) @ state.F
    np.testing.assert_allclose((wide.rows.L * wide.scale) @ wide.F, product)
    slab, wide_slab = ((s.rows.L * s.scale) ** 2 * prior.by_row(s.alpha) for s in (state, wide))
    np.testing.assert_allclose(wide_slab, slab)
    back = contract(wide)
    for one, two in zip(back[1:], state[1:], strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12)


def test_scales_given_correlations_have_their_conditional_law():
    """d^2 given Phi: inverse gamma, as draws of Sigma with nearly the same Phi have it (2.19a)."""
    rng, df = np.random.default_rng(1), 8.0
    sigma = stats.invwishart(df, np.eye(2)).rvs(400_000, random_state=rng)
    scale = np.sqrt(np.diagonal(sigma, axis1=1, axis2=2))
    rho = sigma[:, 0, 1] / scale.prod(axis=1)
    near = scale[np.abs(rho - 0.6) < 0.01] ** 2
    expected = stats.invgamma(0.5 * df, scale=0.5 / (1.0 - 0.6**2))
    for k in range(2):
        assert stats.kstest(near[:, k], expected.cdf).pvalue > 1e-4
