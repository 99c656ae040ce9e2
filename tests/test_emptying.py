"""Emptying factors: what it does to a state, and that it finds higher optima."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.elbo import direct_elbo, q_of
from tests.helpers.problems import prior_for, random_vi_state, small_data

import sparsefactor as sf
from sparsefactor.engine import build_kernels
from sparsefactor.kernels.reference import ReferenceKernels
from sparsefactor.model import Beta
from sparsefactor.vi.empty import EMPTY, emptied
from sparsefactor.vi.prune import without
from sparsefactor.vi.state import CAVI
from sparsefactor.vi.trial import Tolerance, Trial

VAGUE = {"noise_shape": 1e-3, "noise_rate": 1e-3, "loading_shape": 1e-3, "loading_rate": 1e-3}


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("noise", ["feature", "sample"])
@pytest.mark.parametrize("inclusion", [[0.3, 0.7, 0.2], Beta(1.0, 1.0)])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_an_emptied_factor_stays_empty_and_its_elbo_is_exact(joint, noise, inclusion, missing):
    data = small_data(G=8, N=6, missing=missing)
    prior = prior_for(3, inclusion=inclusion, noise=noise, **VAGUE)
    cavi = CAVI(data, prior, ReferenceKernels(data, prior), joint=joint)
    before = random_vi_state(cavi)
    kept = [a.copy() for a in (*before.rows, *before.columns)]
    state = emptied(cavi, before, 1)
    assert state.elbo == pytest.approx(direct_elbo(data, prior, q_of(data, prior, state.rows, state.columns)), rel=1e-9)
    for _ in range(3):
        assert state.sums.active[1] <= EMPTY
        state = cavi.sweep(state, rescale=True)
    assert state.sums.active[[0, 2]].max() > EMPTY
    for old, now in zip(kept, (*before.rows, *before.columns), strict=True):
        assert np.array_equal(old, now)  # the state it came from is untouched


def test_an_empty_factor_costs_what_the_prior_charges():
    """Without it the ELBO is higher by log(G + 1): the integral of (1 - pi)^G over a uniform pi is 1 / (G + 1)."""
    data = small_data(G=9, N=6)
    prior = prior_for(3, inclusion=Beta(1.0, 1.0), **VAGUE)
    cavi = CAVI(data, prior, ReferenceKernels(data, prior))
    trial = Trial(0, "", cavi, emptied(cavi, random_vi_state(cavi), 1), accelerate=True)
    smaller = without(trial, [1], "reference", None)
    again = cavi.finish(trial.state.rows, trial.state.columns, np.ones(3))
    assert smaller.elbo - again.elbo == pytest.approx(np.log(10.0), abs=1e-8)


def superfluous() -> tuple[np.ndarray, sf.Prior]:
    sim = sf.simulate(n_features=150, n_samples=30, inclusion=[0.3] * 4, snr=2, seed=3)
    return sim.X, sf.Prior(n_factors=12, inclusion=sf.Beta(1, 1), noise="sample")


def test_emptying_finds_a_higher_optimum(monkeypatch):
    X, prior = superfluous()
    found = sf.fit_vi(X, prior, n_trials=4, tol=1e-3)
    monkeypatch.setattr(Trial, "thin", lambda *_: False)
    stuck = sf.fit_vi(X, prior, n_trials=4, tol=1e-3)
    assert found.elbo > stuck.elbo + 1.0
    assert np.sum(found.inclusion_prob.sum(axis=0) > 0.5) < np.sum(stuck.inclusion_prob.sum(axis=0) > 0.5)
    assert np.all(np.diff(found.elbo_trace["elbo"]) >= 0)


def test_thinning_only_ever_raises_the_elbo_and_counts_its_passes():
    X, prior = superfluous()
    data = sf.data.as_data(X)
    cavi = CAVI(data, prior, build_kernels(data, prior, "auto", 1))
    rng = np.random.default_rng(0)
    start = cavi.start(rng.standard_normal((150, 12)), rng.standard_normal((12, 30)))
    trial = Trial(0, "", cavi, start, accelerate=True)
    trial.advance(30, Tolerance(1e-3, 0.0))
    before, spent = trial.elbo, trial.iterations
    assert trial.thin(1000, Tolerance(1e-3, 0.0)) == (trial.elbo > before)
    assert trial.iterations >= spent + 3
    reached, spent = trial.elbo, trial.iterations
    assert not trial.thin(spent, Tolerance(1e-3, 0.0))  # no iterations left: nothing is tried
    assert (trial.elbo, trial.iterations) == (reached, spent)
