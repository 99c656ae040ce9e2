"""Runs that go on by themselves: they end where a longer run would have been, and say how."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

import sparsefactor as sf
from sparsefactor.diagnostics import ChainsVerdict
from sparsefactor.executors import Serial, results
from sparsefactor.mcmc import look, stretches, until
from sparsefactor.mcmc.chain import Chain
from sparsefactor.mcmc.clock import Clock
from sparsefactor.mcmc.remote import remote_starts
from sparsefactor.preparation import prepared
from sparsefactor.vi.trial import Trial

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


# ---- looks at some of the draws -------------------------------------------------------------------------------------


@pytest.fixture
def judged(monkeypatch):
    """How many draws were judged each time, and what came of it; looks are at ten."""
    sizes, judge = [], until.judge

    def noted(result):
        verdict = judge(result)
        sizes.append((result.permutations.shape[1], verdict.ok))
        return verdict

    monkeypatch.setattr(until, "judge", noted)
    monkeypatch.setattr(look, "LOOKED_AT", 10)
    return sizes


def test_some_draws_are_looked_at_until_they_are_nearly_good_enough(X, monkeypatch, judged, tmp_path):
    """The result is that of the run that looks at all, where both end with as many draws."""
    monkeypatch.setattr(until, "NEARLY", (0.01, 0.09))  # ten draws of two chains are at most some twenty effective ones
    mc = sf.sample(X, PRIOR, n_draws=40, until="converged", **SETTINGS)
    n_draws = mc.permutations.shape[1]
    whole = [size for size, _ in judged if size > 10]
    assert len(judged) - len(whole) >= 2
    assert whole[-1] == n_draws
    assert judged[-1] == (n_draws, True)
    assert mc.diagnostics().ok
    before = list(judged)
    same_draws(mc, sf.sample(X, PRIOR, n_draws=n_draws, **SETTINGS))
    judged.clear()
    kept = {"path": tmp_path / "run", "precision": "double"}
    same_draws(mc, sf.sample(X, PRIOR, n_draws=40, until="converged", **kept, **SETTINGS))
    assert judged == before
    judged.clear()
    same_draws(mc, sf.sample(X, PRIOR, n_draws=40, until="converged", **kept, **SETTINGS))
    assert judged == [(n_draws, True)]  # it is done: what was found is read


def test_a_run_that_ends_is_judged_by_all_draws(X, monkeypatch, judged):
    monkeypatch.setattr(until, "nearly", lambda *_: False)
    monkeypatch.setattr(until, "DOUBLINGS", 2)
    with pytest.warns(sf.SamplingWarning, match="stopped with 80 draws a chain: it has 4 times n_draws=20"):
        mc = sf.sample(X, sf.Prior(n_factors=3, inclusion=0.5), n_draws=20, until="converged", **SETTINGS)
    assert [size for size, _ in judged] == [10, 10, 10, 80]
    same_draws(mc, sf.sample(X, sf.Prior(n_factors=3, inclusion=0.5), n_draws=80, **SETTINGS))


def test_a_look_is_at_draws_evenly_spaced_up_to_the_last():
    lp = xr.Dataset({"lp": (("chain", "draw"), np.arange(46.0).reshape(2, 23))})
    sink = SimpleNamespace(tree=lambda: xr.DataTree.from_dict({"sample_stats": lp}))
    for most, draws in ((5, [2, 7, 12, 17, 22]), (23, range(23)), (8, [1, 4, 7, 10, 13, 16, 19, 22])):
        some = look.ThinnedDraws(sink, 23, most).tree()["sample_stats"]["lp"]
        np.testing.assert_array_equal(some[0], list(draws))


@pytest.mark.parametrize(
    ("r_hat", "ess", "expected"), [(1.04, 300, True), (1.059, 71, True), (1.061, 300, False), (1.0, 69, False)]
)
def test_what_is_nearly_good_enough(r_hat, ess, expected):
    assert until.nearly(ChainsVerdict("bad", "", r_hat=r_hat, ess=ess), n_chains=2) is expected


# ---- time, by a clock that goes by what is done -------------------------------------------------------------------


class Work:
    """A clock: a sweep of a chain takes 0.05 s, to judge draws 0.02 s each, an iteration of VI as long as is said."""

    def __init__(self, monkeypatch, iteration: float) -> None:
        self.now, self.iterations, self.made = 0.0, 0, []
        advance, judge, step, climbed = Chain.advance, until.judge, Trial.step, Trial.climbed

        def advanced(chain):
            self.now += 0.05
            advance(chain)

        def judged(result):
            self.made.append(result.permutations.shape[1])
            self.now += 0.02 * self.made[-1]
            return replace(judge(result), level="bad")

        def stepped(trial):
            self.count(1, iteration)
            return step(trial)

        def climbed_so_far(trial, after, converged, way, seconds):
            self.count(len(way), iteration)
            climbed(trial, after, converged, way, seconds)

        monkeypatch.setattr(Chain, "advance", advanced)
        monkeypatch.setattr(until, "judge", judged)
        monkeypatch.setattr(Trial, "step", stepped)
        monkeypatch.setattr(Trial, "climbed", climbed_so_far)
        monkeypatch.setattr("sparsefactor.mcmc.clock.time", SimpleNamespace(monotonic=lambda: self.now))

    def count(self, iterations: int, each: float) -> None:
        self.iterations += iterations
        self.now += each * iterations


ALONE = SETTINGS | {"n_jobs": 1}
AT_ONCE = 3  # iterations between two looks at the clock


def test_the_last_stretch_is_as_long_as_the_time_that_is_left(X, monkeypatch):
    """30 sweeps and a first stretch of 10 draws take 4 s of two chains and 0.2 s to judge: 40 draws end at 8.0 s.

    At 5.6 s, with 20 draws, nine tenths of 2.4 s are left, less 0.4 s: for 14 draws more of 0.1 + 0.02 s each.
    """
    work = Work(monkeypatch, iteration=0.0)
    with pytest.warns(sf.SamplingWarning, match="stopped with 34 draws a chain: a quarter more"):
        mc = sf.sample(X, PRIOR, n_draws=10, until="converged", max_seconds=8.0, **ALONE)
    assert work.made == [10, 20, 34]
    monkeypatch.undo()
    same_draws(mc, sf.sample(X, PRIOR, n_draws=34, **SETTINGS))


def test_what_the_searches_took_is_not_counted_as_sweeps(X, monkeypatch):
    """Searches that end in time, however long they take, leave the time of a draw as it is."""
    plain = Work(monkeypatch, iteration=0.0)
    with pytest.warns(sf.SamplingWarning, match="stopped with"):
        sf.sample(X, PRIOR, n_draws=10, until="converged", max_seconds=1e6, **ALONE)
    monkeypatch.undo()
    work = Work(monkeypatch, iteration=1.0)
    took = float(plain.iterations)
    whole = 8.0 + took  # as above, and the searches
    monkeypatch.setattr("sparsefactor.mcmc.clock.SEARCHING", (took + 1.0) / whole * 2.0)
    with pytest.warns(sf.SamplingWarning, match="stopped with 34 draws a chain: a quarter more"):
        mc = sf.sample(X, PRIOR, n_draws=10, until="converged", max_seconds=whole, **ALONE)
    assert work.iterations == plain.iterations
    assert work.made == [10, 20, 34]
    assert "cut short" not in mc.record["ended"]


@pytest.mark.parametrize(("init", "iteration"), [("auto", 1.0), ("optima", 4.0)])
def test_searches_for_starts_share_a_third_of_the_time(X, monkeypatch, tmp_path, init, iteration):
    work = Work(monkeypatch, iteration)
    settings = ALONE | {"n_chains": 3, "init": init, "n_draws": 10, "until": "converged"}
    monkeypatch.setattr(until, "DOUBLINGS", 0)
    monkeypatch.setattr("sparsefactor.vi.trial.AT_ONCE", AT_ONCE)
    begun = []

    def begin(engine, prior, chain, *args):
        begun.append(work.now)
        return sought(engine, prior, chain, *args)

    name = "searched_start" if init == "auto" else "optimum_start"
    sought = getattr(stretches, name)
    monkeypatch.setattr(stretches, name, begin)
    with pytest.warns(sf.SamplingWarning, match="stopped with 10 draws"):
        mc = sf.sample(X, PRIOR, max_seconds=90.0, path=tmp_path / "run", precision="double", **settings)
    took = np.diff([*begun, iteration * work.iterations])
    shares = [(30 - at) / left for at, left in zip(begun, (3, 2, 1), strict=True)]
    assert np.all((took >= shares) & (took < np.add(shares, 2 * iteration * AT_ONCE)))
    assert mc.record["ended"].endswith("; 3 of 3 searches for a start were cut short")
    # Whoever goes on with it has these starts.
    monkeypatch.undo()
    more = sf.sample(X, PRIOR, path=tmp_path / "run", precision="double", **(settings | {"n_draws": 20, "until": None}))
    lp = [one.draws["sample_stats"]["lp"].values for one in (mc, more)]
    np.testing.assert_array_equal(lp[1][:, :10], lp[0])
    whole = sf.sample(X, PRIOR, **(settings | {"until": None}))  # of searches that were not cut
    assert np.any(whole.draws["sample_stats"]["lp"].values != lp[0])


def test_searches_on_workers_have_the_time_of_those_that_run_at_once(X, monkeypatch):
    """Of four chains two workers make two at a time, so that each has half of a third."""
    work = Work(monkeypatch, iteration=1.0)
    monkeypatch.setattr("sparsefactor.vi.trial.AT_ONCE", AT_ONCE)
    settings = {"center": True, "scale": False, "covariates": None, "covariate_loadings": "flat"}
    data, prior = prepared(X, PRIOR, None, None, **settings)
    asked = []

    class Jobs:
        n_threads = 2
        results = staticmethod(results)

        def submit(self, function, *args, name):
            asked.append(args[-1])
            return Serial().submit(function, data, *args)

    clock = Clock(90.0)
    found = list(remote_starts(Jobs(), prior, "auto", 4, 0, clock))
    assert asked == [15.0] * 4
    assert clock.cut == 4
    assert work.iterations < 4 * (15 + 2 * AT_ONCE)
    assert all(np.all(np.isfinite(start.F)) for start in found)
    assert Clock(None).for_search(4) is None


def test_a_search_with_no_time_gives_a_start(X, monkeypatch):
    Work(monkeypatch, iteration=1.0)
    with pytest.warns(sf.SamplingWarning, match="a quarter more"):
        mc = sf.sample(X, PRIOR, n_draws=5, until="converged", max_seconds=0, **ALONE)
    assert mc.record["ended"].endswith("; 2 of 2 searches for a start were cut short")
    assert np.all(np.isfinite(mc.draws["sample_stats"]["lp"]))


def test_a_callback_that_ends_a_search_is_still_refused(X, monkeypatch):
    Work(monkeypatch, iteration=1.0)
    with pytest.raises(RuntimeError, match="a run must have a draw before it is stopped"):
        sf.sample(X, PRIOR, until="converged", max_seconds=1e6, callback=lambda now: True, **ALONE)


def test_without_until_it_ends_as_asked(X):
    assert sf.sample(X, PRIOR, n_draws=5, **SETTINGS).record["ended"] == "n_draws=5 were asked for"


def test_wrong_settings_are_refused(X):
    with pytest.raises(ValueError, match="until must be None or \"converged\"; got 'done'"):
        sf.sample(X, PRIOR, until="done")
    with pytest.raises(ValueError, match="max_seconds is for a run that goes on by itself; got 10 with until=None"):
        sf.sample(X, PRIOR, max_seconds=10)
    with pytest.raises(ValueError, match="max_seconds must be zero or positive"):
        sf.sample(X, PRIOR, until="converged", max_seconds=-1)
