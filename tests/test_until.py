"""Runs that go on by themselves: they end where a longer run would have been, and say how."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor.mcmc import until

PRIOR = sf.Prior(n_factors=2, inclusion=0.5)
SETTINGS = {"n_chains": 2, "n_warmup": 30, "seed": 1}


@pytest.fixture(scope="module")
def X():
    return sf.simulate(n_features=20, n_samples=25, inclusion=[0.5, 0.5], snr=5, seed=0).X


def same_draws(a, b):
    for name, values in a.draws["posterior"].data_vars.items():
        np.testing.assert_array_equal(values.values, b.draws["posterior"][name].values)
    np.testing.assert_array_equal(a.draws["sample_stats"]["lp"], b.draws["sample_stats"]["lp"])
    np.testing.assert_array_equal(a.signal_mean, b.signal_mean)


@pytest.mark.filterwarnings("error::sparsefactor.SamplingWarning")
def test_a_run_goes_on_until_it_converges_and_is_the_longer_run(X, tmp_path):
    mc = sf.sample(X, PRIOR, n_draws=40, until="converged", **SETTINGS)
    n_draws = mc.permutations.shape[1]
    assert n_draws > 40
    assert mc.diagnostics().ok
    assert mc.record["ended"] == f"converged with {n_draws} draws a chain"
    same_draws(mc, sf.sample(X, PRIOR, n_draws=n_draws, **SETTINGS))
    kept = {"path": tmp_path / "run", "precision": "double"}
    on_disk = sf.sample(X, PRIOR, n_draws=40, until="converged", **kept, **SETTINGS)
    same_draws(mc, on_disk)
    same_draws(mc, sf.sample(X, PRIOR, n_draws=40, until="converged", **kept, **SETTINGS))


def test_a_run_that_may_not_go_on_says_so(X, monkeypatch):
    with pytest.warns(sf.SamplingWarning, match="stopped with 10 draws a chain: a quarter more .* max_seconds=0"):
        mc = sf.sample(X, PRIOR, n_draws=10, until="converged", max_seconds=0, **SETTINGS)
    assert "max_seconds=0" in mc.record["ended"]
    monkeypatch.setattr("sparsefactor.mcmc.until.DOUBLINGS", 1)
    with pytest.warns(sf.SamplingWarning, match="stopped with 10 draws a chain: it has 2 times n_draws=5"):
        sf.sample(X, PRIOR, n_draws=5, until="converged", **SETTINGS)


def test_the_last_stretch_is_as_long_as_the_time_that_is_left(X, monkeypatch):
    """By a clock that goes by the draws: 10 cost a second, and so do 10 sweeps of the warm-up."""
    made = []
    judged = until.judge

    def looked_at(result):
        made.append(result.permutations.shape[1])
        return judged(result)._replace(ok=False)

    monkeypatch.setattr(until, "judge", looked_at)
    clock = SimpleNamespace(monotonic=lambda: 0.1 * (made[-1] + SETTINGS["n_warmup"]) if made else 0.0)
    monkeypatch.setattr(until, "time", clock)
    with pytest.warns(sf.SamplingWarning, match="stopped with 38 draws a chain: a quarter more"):
        mc = sf.sample(X, PRIOR, n_draws=10, until="converged", max_seconds=7.1, **SETTINGS)
    assert made == [10, 20, 38]
    monkeypatch.undo()
    same_draws(mc, sf.sample(X, PRIOR, n_draws=38, **SETTINGS))


def test_without_until_it_ends_as_asked(X):
    assert sf.sample(X, PRIOR, n_draws=5, **SETTINGS).record["ended"] == "n_draws=5 were asked for"


def test_wrong_settings_are_refused(X):
    with pytest.raises(ValueError, match="until must be None or \"converged\"; got 'done'"):
        sf.sample(X, PRIOR, until="done")
    with pytest.raises(ValueError, match="max_seconds is for a run that goes on by itself; got 10 with until=None"):
        sf.sample(X, PRIOR, max_seconds=10)
    with pytest.raises(ValueError, match="max_seconds must be zero or positive"):
        sf.sample(X, PRIOR, until="converged", max_seconds=-1)
