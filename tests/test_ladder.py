"""The number of factors that is asked for is a bound: one that is not reached does not decide what is found."""

from itertools import islice

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor.relabel import alike
from sparsefactor.vi import fit, ladder
from sparsefactor.vi.ladder import rungs
from sparsefactor.vi.search import Search
from sparsefactor.vi.trial import Trial

SIM = sf.simulate(n_features=25, n_samples=60, inclusion=[0.4] * 3, snr=5, seed=0)
SEVEN = sf.simulate(n_features=40, n_samples=80, inclusion=[0.4] * 7, snr=8, seed=1)
HOLES = np.where(np.random.default_rng(0).random(SIM.X.shape) < 0.05, np.nan, SIM.X)


def test_rungs_are_the_same_for_any_number_of_factors():
    assert list(islice(rungs(), 18)) == [5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250]
    assert ladder.ladder(4, np.inf) == [4]
    assert ladder.ladder(5, np.inf) == [5]
    assert ladder.ladder(7, np.inf) == [5, 6, 7]
    assert ladder.ladder(20, np.inf) == [5, 6, 8, 10, 12, 15, 20]
    assert ladder.ladder(20, 9.5) == [5, 6, 8, 20]
    assert ladder.ladder(20, 5) == [5, 20]
    assert ladder.ladder(20, 0) == [20]


@pytest.mark.parametrize(
    ("X", "prior"),
    [
        (SIM.X, {}),
        (HOLES, {}),
        (SIM.X[:30], {}),
        (SIM.X, {"inclusion": sf.Beta(1, 9)}),
    ],
    ids=["tall", "holes", "wide", "sparse"],
)
def test_what_is_found_does_not_depend_on_factors_that_are_not_needed(X, prior):
    few, more, most = (sf.fit_vi(X, sf.Prior(n_factors=K, **prior)) for K in (5, 9, 14))
    assert few.record["search"] == more.record["search"] == most.record["search"]
    assert few.record["search"]["bound"] == 5
    for p, K in ((more, 9), (most, 14)):
        assert p.loadings_mean.shape[1] == p.n_factors == K
        np.testing.assert_allclose(p.loadings_mean[:, :5], few.loadings_mean, atol=1e-3)
        assert np.all(p.inclusion_prob[:, 5:] < 0.5)
        assert p.converged
    # An empty factor costs a constant.
    assert more.elbo - few.elbo == pytest.approx(4 / 9 * (most.elbo - few.elbo), abs=0.02)
    assert more.elbo < few.elbo - 1.0


def test_the_way_there_is_told_as_that_of_the_model_asked_for():
    p = sf.fit_vi(SIM.X, n_factors=12)
    assert p.record["search"]["bound"] == 5
    assert p.elbo == p.trials["elbo"].max() == p.elbo_trace["elbo"].iloc[-1]
    assert np.all(np.diff(p.elbo_trace["elbo"]) >= 0)
    assert p.elbo_trace["elbo"].iloc[0] < p.elbo
    assert p.elbo == pytest.approx(sum(p.elbo_terms.values()))
    assert p.trials["trial"].tolist() == list(range(len(p.trials)))
    assert set(p.trials["status"]) <= {"converged", "dropped"}
    assert np.all(p.stability[:3] == 1.0)


def test_a_bound_that_is_reached_is_raised():
    p = sf.fit_vi(SEVEN.X, n_factors=20)
    assert p.record["search"]["bound"] == 8
    assert np.sum(p.variance_explained(by="factor") > 1e-3) == 7
    short = sf.fit_vi(SEVEN.X, n_factors=6)
    assert short.record["search"]["bound"] == 6
    assert p.elbo > short.elbo + 10.0


def test_a_bound_that_hops_reach_is_raised(monkeypatch):
    """What the race ends in has room, what the search ends in has none."""
    asked, real = [], Search.is_short

    def short_after_hops(self, trial):
        asked.append((self.told["bound"], self.watcher.n_hops))
        return real(self, trial) or (self.told["bound"] < 8 and self.watcher.n_hops > 0)

    monkeypatch.setattr(Search, "is_short", short_after_hops)
    p = sf.fit_vi(SIM.X, n_factors=20)
    assert [bound for bound, hops in asked if hops][:1] == [5]
    assert p.record["search"]["bound"] == 8
    assert p.converged
    assert p.trials["trial"].tolist() == list(range(len(p.trials)))


@pytest.mark.parametrize(
    "settings",
    [
        {"n_trials": 3},
        {"race": False},
        {"average": True, "n_trials": 2},
        {"accelerate": False, "max_iter": 30},
        {"prior": sf.Prior(n_factors=7, inclusion=0.3)},
        {"prior": sf.Prior(inclusion=[0.1] * 3 + [0.5] * 4)},
        {"init": sf.Start("own", np.ones((25, 7)), np.random.default_rng(0).standard_normal((7, 60)))},
    ],
    ids=["trials", "no race", "average", "plain", "fixed", "unequal", "given"],
)
@pytest.mark.filterwarnings("ignore:VI has not converged", "ignore:2 of the 2", "ignore:1 of the 2")
def test_where_factors_are_not_alike_or_the_search_is_the_users_all_are_there_at_once(settings):
    settings = {"prior": sf.Prior(n_factors=7)} | settings
    assert sf.fit_vi(SIM.X, **settings).record["search"]["bound"] == 7


def test_data_of_which_a_race_takes_long_are_searched_once(monkeypatch):
    monkeypatch.setattr(ladder, "CHEAP", 25 * 25 * 5.0)
    assert sf.fit_vi(SEVEN.X[:, :25], n_factors=9).record["search"]["bound"] == 9
    assert sf.fit_vi(SIM.X, n_factors=9).record["search"]["bound"] == 5


@pytest.mark.filterwarnings("ignore:VI has not converged")
def test_an_interruption_keeps_what_was_found_with_fewer_factors(monkeypatch):
    """Two probes that are short of factors, one that is not, and a race."""
    begun, real, last = [], Search.begun, [99]

    def interrupt(self, *args):
        begun.append(self.told["bound"])
        if len(begun) == last[0]:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(Search, "begun", interrupt)
    whole = sf.fit_vi(SEVEN.X, n_factors=20)
    assert begun[:13] == [5, 6] + [8] * 11
    found = []
    for last[0] in (2, 3, 4, 9):
        begun.clear()
        p = sf.fit_vi(SEVEN.X, n_factors=20)
        assert p.status is sf.Status.INTERRUPTED
        assert p.loadings_mean.shape == (40, 20)
        assert p.elbo == p.trials["elbo"].max() <= whole.elbo + 1e-6
        found.append((len(p.trials), p.elbo))
    assert [n for n, _ in found] == [1, 1, 1, 6]  # the probe before it, and the trials of a race that have begun
    assert [elbo for _, elbo in found] == sorted(elbo for _, elbo in found)
    begun.clear()
    last[0] = 1  # there is nothing yet
    with pytest.raises(KeyboardInterrupt):
        sf.fit_vi(SEVEN.X, n_factors=20)


@pytest.mark.filterwarnings("ignore:VI has not converged")
@pytest.mark.parametrize("what", ["pruned", "moduled"])
def test_an_interruption_after_the_search_keeps_what_it_has_found(monkeypatch, what):
    """Of few factors and folded samples, of which the trials know no longer."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(fit, what, interrupted)
    p = sf.fit_vi(SIM.X, sf.Prior(n_factors=9, n_modules=2), prune=True)
    assert p.status is sf.Status.INTERRUPTED
    assert p.record["search"]["bound"] == 5
    found = sf.fit_vi(SIM.X, n_factors=9)
    cosine = alike(p.activations_mean, found.activations_mean)[0]
    assert np.all(cosine.max(axis=0)[:3] > 0.99)


@pytest.mark.filterwarnings("ignore:VI has not converged")
def test_a_callback_can_end_it_on_any_rung():
    for last in (1, 30, 400):
        told = []
        p = sf.fit_vi(SEVEN.X, n_factors=20, callback=lambda now: told.append(now.phase) or len(told) >= last)  # noqa: B023
        assert p.status is sf.Status.STOPPED
        assert len(told) == last
        assert p.n_factors == 20
        assert np.isfinite(p.elbo)


@pytest.mark.filterwarnings("ignore:VI has not converged")
def test_the_last_steps_are_not_lost():
    """Stopped while the factors beyond the bound are added: what whoever looked on was told is what there is."""
    told, X = [], SEVEN.X[:15, :24]
    whole = sf.fit_vi(X, n_factors=15, callback=lambda now: told.append(now))
    assert whole.record["search"]["bound"] < 15
    last = [n for n, now in enumerate(told) if now.phase == "complete"]
    assert last[-1] == len(told) - 1
    assert told[last[0]].loadings.shape == (24, 15)
    for stop in (last[0], last[-1]):
        count = iter(range(len(told) + 1))
        p = sf.fit_vi(X, n_factors=15, callback=lambda _, count=count, stop=stop: next(count) >= stop)
        assert p.status is sf.Status.STOPPED
        assert p.elbo >= told[stop].best_elbo
        assert len(p.elbo_trace) > 5
        assert np.all(np.diff(p.elbo_trace["elbo"]) >= 0)
    assert p.elbo == pytest.approx(whole.elbo, abs=1e-3)


def test_trials_that_ended_in_the_same_optimum_have_the_same_elbo_with_any_number_of_factors():
    for K in (5, 60):
        p = sf.fit_vi(SIM.X, n_factors=K)
        assert p.record["search"]["agreeing"] >= 2
        ends = np.sort(p.trials["elbo"][p.trials["status"] == "converged"])[::-1]
        np.testing.assert_allclose(ends[: p.record["search"]["agreeing"]], p.elbo, atol=0.1)


def test_probes_climb_as_the_race_would_have(monkeypatch):
    """The first start of the race, with as many factors as it has."""
    climbed, real = [], Trial.polish

    def noted(self, *args, **kwargs):
        climbed.append((self.name, self.cavi.prior.K))
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Trial, "polish", noted)
    sf.fit_vi(SEVEN.X, n_factors=20)
    assert climbed[:3] == [("ica", 7), ("ica", 8), ("ica", 10)]
