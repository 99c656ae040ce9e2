"""Emptying factors: what it does to a state, and that it finds higher optima."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.elbo import direct_elbo, q_of
from tests.helpers.problems import prior_for, random_vi_state, small_data

import sparsefactor as sf
from sparsefactor.engine import build_engine
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.model import Beta
from sparsefactor.vi.cavi import CAVI
from sparsefactor.vi.empty import emptied, is_empty_factor
from sparsefactor.vi.prune import without
from sparsefactor.vi.trial import Tolerance, Trial

VAGUE = {"noise_shape": 1e-3, "noise_rate": 1e-3, "loading_shape": 1e-3, "loading_rate": 1e-3}


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("noise", ["feature", "shared", "sample"])
@pytest.mark.parametrize("inclusion", [[0.3, 0.7, 0.2], Beta(1.0, 1.0)])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_an_emptied_factor_stays_empty_and_its_elbo_is_exact(joint, noise, inclusion, missing):
    data = small_data(G=8, N=6, missing=missing)
    prior = prior_for(3, inclusion=inclusion, noise=noise, **VAGUE)
    cavi = CAVI(data, prior, ReferenceEngine(data, prior), joint=joint)
    before = random_vi_state(cavi)
    kept = [a.copy() for a in (*before.rows, *before.columns)]
    assert before.sums.active[1] > 0.1  # there is something to empty
    state = emptied(cavi, before, 1)
    assert state.elbo == pytest.approx(direct_elbo(data, prior, q_of(data, prior, state.rows, state.columns)), rel=1e-9)
    for _ in range(3):
        assert state.sums.active[1] < 1e-12
        assert is_empty_factor(cavi, state)[1]
        state = cavi.sweep(state, rescale=True)
    for old, now in zip(kept, (*before.rows, *before.columns), strict=True):
        assert np.array_equal(old, now)  # the state it came from is untouched


def test_an_empty_factor_costs_what_the_prior_charges():
    """Without it the ELBO is higher by log(G + 1): the integral of (1 - pi)^G over a uniform pi is 1 / (G + 1)."""
    data = small_data(G=9, N=6)
    prior = prior_for(3, inclusion=Beta(1.0, 1.0), **VAGUE)
    cavi = CAVI(data, prior, ReferenceEngine(data, prior))
    trial = Trial(0, "", cavi, emptied(cavi, random_vi_state(cavi), 1), accelerate=True)
    smaller = without(trial, [1])
    again = cavi.finish(trial.state.rows, trial.state.columns, np.ones(3))
    assert smaller.elbo - again.elbo == pytest.approx(np.log(10.0), abs=1e-8)


def superfluous(seed: int = 3, **changes) -> tuple[np.ndarray, sf.Prior]:
    sim = sf.simulate(n_features=150, n_samples=30, inclusion=[0.3] * 4, snr=2, seed=seed)
    return sim.X, sf.Prior.paper(**{"n_factors": 12, "inclusion": sf.Beta(1, 1), "noise": "sample", **changes})


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="learnt, by sample"),
        pytest.param({"inclusion": 0.1, "noise": "feature"}, id="fixed, by feature"),
        pytest.param(
            {"seed": 0, "noise": "feature", "loading_shape": 1.0, "loading_rate": 1.0}, id="a slab that is not vague"
        ),
    ],
)
def test_emptying_finds_a_higher_optimum(monkeypatch, changes):
    X, prior = superfluous(**changes)
    init = "ica" if changes.get("inclusion") else "auto"  # a start that superfluous factors hold up
    settings = {"init": init, "n_trials": 4, "tol": 1e-3, "activations": "independent", "center": False}
    found = sf.fit_vi(X, prior, **settings)
    monkeypatch.setattr(Trial, "thin", lambda *_: False)
    stuck = sf.fit_vi(X, prior, **settings)
    assert found.elbo > stuck.elbo + 1.0
    assert solid(found) < solid(stuck)
    assert np.all(np.diff(found.elbo_trace["elbo"]) >= 0)


def solid(vi: sf.VIPosterior) -> int:
    """Factors that contribute to the signal."""
    parts = np.sum(vi.loadings_mean**2, axis=0) * np.sum(vi.activations_mean**2, axis=0)
    return int(np.sum(parts > 1e-9 * parts.max()))


def test_thinning_raises_the_elbo_and_counts_its_passes(monkeypatch):
    X, prior = superfluous()
    data = sf.data.as_data(X)
    cavi = CAVI(data, prior, build_engine(data, prior, "auto", 1))
    rng = np.random.default_rng(0)
    start = cavi.start(rng.standard_normal((150, 12)), rng.standard_normal((12, 30)))
    trial = Trial(0, "", cavi, start, accelerate=True)
    trial.advance(30, Tolerance(1e-3, 0.0))
    before, spent, passes = trial.elbo, trial.iterations, 0
    finish = CAVI.finish

    def counted(*arguments):
        nonlocal passes
        passes += 1
        return finish(*arguments)

    monkeypatch.setattr(CAVI, "finish", counted)
    assert trial.thin(1000, Tolerance(1e-3, 0.0))
    assert trial.elbo > before
    assert trial.iterations == spent + passes > spent + 10
    reached, spent = trial.elbo, trial.iterations
    assert not trial.thin(spent, Tolerance(1e-3, 0.0))  # no iterations left: nothing is tried
    assert (trial.elbo, trial.iterations) == (reached, spent)


@pytest.mark.filterwarnings("ignore::sparsefactor.ConvergenceWarning")
@pytest.mark.parametrize("max_iter", range(50, 80, 3))
def test_thinning_keeps_to_max_iter(max_iter):
    X, prior = superfluous()
    vi = sf.fit_vi(X, prior, n_trials=3, tol=1e-3, max_iter=max_iter, race=False)
    # A plain step in place of an extrapolated one, and a shear, may come on top of the last iteration.
    assert vi.trials["iterations"].max() <= max_iter + 2


@pytest.mark.filterwarnings("ignore::sparsefactor.ConvergenceWarning")
def test_an_interruption_while_emptying_keeps_what_was_reached(monkeypatch):
    X, prior = superfluous()
    calls = 0

    def interrupting(cavi, state, k):
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return emptied(cavi, state, k)

    monkeypatch.setattr("sparsefactor.vi.trial.emptied", interrupting)
    vi = sf.fit_vi(X, prior, n_trials=3, tol=1e-3, race=False, average=True, center=False)
    assert vi.status is sf.Status.INTERRUPTED
    assert vi.elbo == vi.trials["elbo"].max() == vi.elbo_trace["elbo"].iloc[-1]
    assert (vi.trials["status"] == "interrupted").all()
    # The others had hardly begun: the mean is that of the best alone.
    assert np.allclose(vi.reconstruct(), vi.activations_mean @ vi.loadings_mean.T)
