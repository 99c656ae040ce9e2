"""More samples than features: the same fits from as many samples as there are features, and many iterations at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine import build_engine
from sparsefactor.kernels.columns import elbo_terms
from sparsefactor.preparation import prepared
from sparsefactor.start import starts
from sparsefactor.vi.cavi import CAVI
from sparsefactor.vi.filled import unfolded
from sparsefactor.vi.fold import folded
from sparsefactor.vi.search import COARSE
from sparsefactor.vi.shear import ShearSearch
from sparsefactor.vi.trial import Tolerance, Trial

G, N, K = 12, 90, 4


def tall(seed: int = 0) -> np.ndarray:
    return sf.simulate(n_features=G, n_samples=N, inclusion=[0.6, 0.5, 0.4], snr=4, seed=seed).X


def patterned(seed: int = 0) -> np.ndarray:
    """A few patterns of missing entries, one of them with a single sample."""
    X, rng = np.array(tall(seed)), np.random.default_rng(seed)
    X[rng.random(N) < 0.25, 2] = np.nan
    X[3, :4] = np.nan
    return X


def sweeps_of(X, prior=None, joint=True, center=True, covariates=None) -> CAVI:
    settings = {"center": center, "scale": False, "covariates": covariates, "covariate_loadings": "flat"}
    prior = prior or sf.Prior(n_factors=K, inclusion=sf.Beta(1, 1))
    data, prior = prepared(X, prior, None, read=as_data, **settings)
    return CAVI(data, prior, build_engine(data, prior, "cpu", 1), joint=joint)


def begun(cavi: CAVI, seed: int = 0):
    """A state whose activations are not in the space of the data alone."""
    own = cavi if cavi.fold is None else cavi.fold.whole
    start = next(iter(starts(own.engine, "auto", 10, seed)))
    F = start.F + 0.3 * np.random.default_rng(seed).standard_normal(start.F.shape)
    return cavi.start(start.L, F)


@pytest.mark.parametrize("shortcut", [True, False])
@pytest.mark.parametrize("inclusion", [sf.Beta(1, 1), 0.3])
def test_sweeps_are_the_same(inclusion, shortcut):
    whole = sweeps_of(tall(), sf.Prior(n_factors=K, inclusion=inclusion))
    few = folded(whole)
    assert few.data.Y.shape == (G, G)
    if not shortcut:
        few.shortcut = None
    a, b = begun(whole), begun(few)
    for _ in range(30):
        a, b = whole.sweep(a, rescale=True), few.sweep(b, rescale=True)
    back = few.fold.unfolded(b)
    assert b.elbo == pytest.approx(a.elbo, rel=1e-12)
    for one, other in [
        (a.columns.f_mean, back.columns.f_mean), (a.columns.f_var, back.columns.f_var), (a.rows.mu, back.rows.mu),
        (a.rows.eta, back.rows.eta), (a.rows.tau, back.rows.tau), (a.sums.LY, back.sums.LY),
    ]:  # fmt: skip
        assert np.allclose(one, other, rtol=1e-8, atol=1e-10)
    told = elbo_terms(back.columns, back.sums, whole.inclusion, whole.fixed)
    assert told.total == pytest.approx(a.elbo, rel=1e-12)


@pytest.mark.parametrize("shortcut", [True, False])
@pytest.mark.parametrize("inclusion", [sf.Beta(1, 1), 0.3])
@pytest.mark.parametrize("design", ["intercept", "none", "covariates"])
def test_sweeps_with_few_patterns_of_holes_are_the_same(design, inclusion, shortcut):
    more = np.random.default_rng(4).standard_normal((N, 2)) if design == "covariates" else None
    prior = sf.Prior(n_factors=K, inclusion=inclusion)
    whole = sweeps_of(patterned(), prior, center=design == "intercept", covariates=more)
    few = folded(whole)
    d = {"intercept": 1, "none": 0, "covariates": 2}[design]
    sizes = [int(np.isnan(patterned()[:, 2]).sum()) - 1, 1]
    sizes.append(N - sum(sizes))
    assert few.data.Y.shape[1] == sum(min(n, g + d) for n, g in zip(sizes, (G - 1, G - 4, G), strict=True)) < N / 1.5
    assert few.shortcut is not None
    if not shortcut:
        few.shortcut = None
    a, b = begun(whole), begun(few)
    for _ in range(30):
        a, b = whole.sweep(a, rescale=True), few.sweep(b, rescale=True)
    assert b.elbo == pytest.approx(a.elbo, rel=1e-11)
    shown = few.fold.shown(b)
    for one, other in [
        (a.columns.f_mean, shown.columns.f_mean), (a.columns.f_var, shown.columns.f_var), (a.rows.mu, b.rows.mu),
        (a.rows.eta, b.rows.eta), (a.rows.tau, b.rows.tau), (a.rows.base, b.rows.base),
    ]:  # fmt: skip
        assert np.allclose(one, other, rtol=1e-8, atol=1e-9)
    back, expected = few.fold.unfolded(b), whole.finish(a.rows, a.columns, np.ones(K))
    assert back.elbo == pytest.approx(expected.elbo, rel=1e-11)
    for one, other in zip(expected.sums[:3], back.sums[:3], strict=True):
        assert np.allclose(one, other, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    ("X", "prior", "joint"),
    [
        (tall()[:G], None, True),  # no more samples than features
        (np.where(np.random.default_rng(1).random((N, G)) < 0.3, np.nan, tall()), None, True),  # nearly all differ
        (patterned(), sf.Prior(n_factors=K, noise="sample"), True),
        (tall(), sf.Prior(n_factors=K, noise="shared"), True),
        (tall(), None, False),
    ],
)
def test_what_says_more_of_samples_stays_as_it_is(X, prior, joint):
    whole = sweeps_of(X, prior, joint)
    assert folded(whole) is whole


KINDS = pytest.mark.parametrize("X", [tall(), patterned()], ids=["complete", "holes"])


@KINDS
def test_a_fit_is_the_same(X, monkeypatch):
    found = sf.fit_vi(X, n_factors=K, seed=1)
    monkeypatch.setattr("sparsefactor.data.folding.TALL", np.inf)
    expected = sf.fit_vi(X, n_factors=K, seed=1)
    assert found.elbo == pytest.approx(expected.elbo, abs=1e-3)
    assert np.allclose(found.activations_mean, expected.activations_mean, atol=1e-3)
    assert np.allclose(found.activations_sd, expected.activations_sd, atol=1e-3)
    assert found.activations_mean.shape == (N, K)
    assert found.elbo_history["elbo"][-1] == found.elbo


@KINDS
def test_who_looks_on_sees_all_samples_and_the_same_fit(X):
    shapes = set()
    seen = sf.fit_vi(X, n_factors=K, callback=lambda now: shapes.add(now.activations.shape) and None)
    assert {shape[0] for shape in shapes} == {N}
    found = sf.fit_vi(X, n_factors=K)
    assert found.elbo == seen.elbo
    assert np.array_equal(found.loadings_mean, seen.loadings_mean)


@KINDS
def test_a_fit_that_is_stopped_has_all_samples(X):
    calls = iter(range(10**6))
    with pytest.warns(sf.ConvergenceWarning):
        found = sf.fit_vi(X, n_factors=K, callback=lambda now: next(calls) == 60)
    assert found.activations_mean.shape == (N, K)
    assert np.isfinite(found.elbo)


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("inclusion", [sf.Beta(1, 1), 0.3])
@pytest.mark.parametrize("center", [True, False])
@KINDS
def test_many_iterations_at_once_are_those_one_after_another(X, center, inclusion, few):
    cavi = sweeps_of(X, sf.Prior(n_factors=K, inclusion=inclusion), center=center)
    cavi = folded(cavi) if few else cavi
    assert cavi.shortcut.alone
    state, tolerance = begun(cavi), Tolerance(COARSE, 1e-12)
    told = []
    alone = Trial(0, "", cavi, state, accelerate=True)
    watched = Trial(0, "", cavi, state, accelerate=True, tell=told.append)
    for until in (1, 7, 8, 40, 900):
        for trial in (alone, watched):
            trial.advance(until, tolerance)
        assert alone.iterations == watched.iterations
        assert alone.status == watched.status
        assert [point[:2] for point in alone.trace] == [point[:2] for point in watched.trace]
        for one, other in zip(alone.state[:3], watched.state[:3], strict=True):
            for a, b in zip(one, other, strict=True):
                assert np.array_equal(a, b)
        assert alone.state.terms == watched.state.terms
        assert alone.momentum.t == watched.momentum.t
        assert np.array_equal(alone.momentum.previous, watched.momentum.previous)
    assert told
    assert alone.status is not None  # it has settled


def test_a_climb_may_be_as_long_as_one_likes(monkeypatch):
    """What a compiled call needs does not grow with what is allowed, and calls go on where they were."""
    expected = sf.fit_vi(tall(), n_factors=K)
    assert sf.fit_vi(tall(), n_factors=K, max_iter=10**11).elbo == expected.elbo
    monkeypatch.setattr("sparsefactor.vi.trial.AT_ONCE", 7)
    assert sf.fit_vi(tall(), n_factors=K).elbo == expected.elbo


@KINDS
def test_states_are_not_written_to(X):
    cavi = folded(sweeps_of(X))
    state = begun(cavi)
    before = [np.array(array) for array in (*state.rows, *state.columns[:2], state.sums.LY)]
    Trial(0, "", cavi, state, accelerate=True).advance(50, Tolerance(1e-6, 0.0))
    after = (*state.rows, *state.columns[:2], state.sums.LY)
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_shears_at_once_are_those_one_after_another():
    cavi, found = sweeps_of(tall(3)), []
    state = begun(cavi)
    for _ in range(5):
        state = cavi.sweep(state, rescale=True)
    for whole in (True, False):
        search = ShearSearch(cavi, state)
        search.rows.whole = whole
        search.climb()
        found.append(search)
    once, each = found
    assert each.promise > 0.1
    assert once.promise == pytest.approx(each.promise, rel=1e-9)
    assert np.allclose(once.E, each.E, atol=1e-12)
    assert np.allclose(once.rows.m, each.rows.m, atol=1e-12)
    assert once.in_vain == each.in_vain


@KINDS
def test_the_data_are_not_written_to(X):
    whole = sweeps_of(X)
    before = np.array(whole.data.Y)
    folded(whole)
    assert np.array_equal(before, whole.data.Y)
    assert replace(whole.data).n_folded == 0


def test_filled_data_have_what_was_seen_and_no_holes():
    """What hops of data with holes run on (docs/math.md, 3.18)."""
    cavi = sweeps_of(patterned())
    state = begun(cavi)
    for _ in range(5):
        state = cavi.sweep(state, rescale=True)
    engine = cavi.engine.with_holes_filled(state.rows, state.columns.f_mean, np.random.default_rng(0))
    data, seen = cavi.data, cavi.data.observed
    signal = (state.rows.eta * state.rows.mu) @ state.columns.f_mean
    assert engine.data.is_complete
    assert engine.data.design is None
    assert engine.prior.K == K
    explained = state.rows.base @ data.design.basis
    assert np.allclose(engine.data.Y[seen], (data.Y - explained)[seen], atol=1e-12)
    noise = (engine.data.Y - signal)[~seen] * np.sqrt(np.broadcast_to(state.rows.tau[:, None], seen.shape)[~seen])
    assert len(noise) > 20
    assert 0.5 < noise.std() < 1.5


def test_activations_unfold_to_what_they_stand_for():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((N, G)))[0].T
    F = rng.standard_normal((K, G + K))
    whole = unfolded(F, basis, rng)
    assert np.allclose(whole @ basis.T, F[:, :G])
    assert np.allclose(whole @ whole.T, F @ F.T)
