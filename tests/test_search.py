"""The search for the best optimum: hops, recombination, and what the result tells of how sure it is."""

import _thread
import signal
import threading
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine import build_engine
from sparsefactor.engine.small import SmallVI
from sparsefactor.engine.threads import single_blas_thread
from sparsefactor.relabel import alike
from sparsefactor.start import PORTFOLIO
from sparsefactor.vi import hop, lineages, search
from sparsefactor.vi import trial as trial_module
from sparsefactor.vi.cavi import CAVI
from sparsefactor.vi.cross import crossed
from sparsefactor.vi.empty import emptied, holds_nothing
from sparsefactor.vi.fit import options_of, search_on
from sparsefactor.vi.hop import SPARE, Hops
from sparsefactor.vi.trial import Tolerance, Trial
from sparsefactor.vi.turn import turned

SIM = sf.simulate(n_features=60, n_samples=50, inclusion=[0.3] * 3, snr=5, seed=0)
# Correlated features, many factors: starts end in different optima.
RUGGED = np.random.default_rng(0).standard_normal((60, 12)) @ np.random.default_rng(1).standard_normal((12, 12))


@pytest.fixture
def heeding_interrupts():
    """What a shell starts in the background ignores them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def short_runs(monkeypatch):
    """Long ones take most of the time, and are little to the point in many tests."""
    monkeypatch.setattr(lineages, "LONG", hop.SWEEPS + 10)


@cache
def rugged(K):
    """The default fit, which several tests look at."""
    return sf.fit_vi(RUGGED, n_factors=K, scale=True)


def correlated_factors():
    """(300, 60) Where finalists of a race may all be in one optimum that is not the best."""
    rng = np.random.default_rng(17)
    F = rng.standard_normal((300, 4)) @ np.linalg.cholesky(0.5 + 0.5 * np.eye(4)).T
    L = rng.standard_normal((60, 4)) * (rng.random((60, 4)) < 0.3)
    return F @ L.T + rng.standard_normal((300, 60))


def climbed(K, joint=True, X=SIM.X, **prior):
    data = as_data(X, center=True)
    given = sf.Prior(n_factors=K, **prior)
    cavi = CAVI(data, given, build_engine(data, given), joint=joint)
    rng = np.random.default_rng(0)
    start = cavi.start(0.5 * rng.standard_normal((data.n_features, K)), rng.standard_normal((K, data.n_samples)))
    trial = Trial(0, "random", cavi, start, accelerate=True)
    with single_blas_thread():
        trial.polish(500, Tolerance(1e-5, 0.0), rng, kicks=0)
    return cavi, trial.state


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("prior", [{}, {"noise": "sample"}, {"inclusion": 0.3}], ids=["learnt", "sample", "fixed"])
def test_a_hop_leaves_out_empty_factors_and_comes_back_whole(joint, prior):
    cavi, state = climbed(9, joint, **prior)
    hops = Hops(cavi, 0)
    used = int(np.sum(~holds_nothing(cavi, state)))
    small, new = hops.from_state(state)
    assert used + SPARE == small.prior.K
    assert used < 9
    new = small.sweep(new)
    whole = hops.whole_of(small, new)
    assert whole.columns.f_mean.shape == (9, 50)
    assert np.isfinite(whole.elbo)
    L, F = new.rows.eta * new.rows.mu, new.columns.f_mean
    again = whole.rows.eta * whole.rows.mu @ np.eye(9)
    # The pass over the whole moves it a little; the signal is the same.
    np.testing.assert_allclose(again @ whole.columns.f_mean, L @ F, atol=0.5)


def test_a_hop_may_use_more_factors_than_there_are_to_be():
    cavi, state = climbed(3)
    assert not holds_nothing(cavi, state).any()
    hops = Hops(cavi, 0)
    large, new = hops.from_state(state, sweeps=20)
    assert large.prior.K == 3 + SPARE
    assert hops.whole_of(large, new).columns.f_mean.shape == (3, 50)
    # Where each factor has an inclusion probability of its own, there is none for another one.
    unequal, state = climbed(3, inclusion=[0.1, 0.3, 0.5])
    assert Hops(unequal, 0).from_state(state, sweeps=20)[0] is unequal


def test_of_the_weakest_factors_the_one_goes_that_is_missed_least():
    cavi, state = climbed(3)
    trial, tolerance = Trial(0, "given", cavi, state, accelerate=True), Tolerance(1e-3, 0.0)
    without = []
    for k in range(3):
        without.append(Trial(0, "given", cavi, emptied(cavi, state, k), accelerate=True))
        without[-1].advance(15, tolerance)
    trial.shrink(2, tolerance)
    assert holds_nothing(cavi, trial.state).sum() == 1
    assert trial.elbo == max(one.elbo for one in without)
    assert trial.iterations == sum(one.iterations + 1 for one in without)
    trial.shrink(2, tolerance)  # nothing is left to do, and nothing is done
    assert trial.iterations == sum(one.iterations + 1 for one in without)
    assert holds_nothing(cavi, trial.state).sum() == 1


@pytest.mark.parametrize("weakest", [1, 16])
def test_a_strong_factor_goes_where_it_is_missed_least(monkeypatch, weakest):
    """Two factors that are one, each with half of it: stronger than the others, but each makes up for the other."""
    rng = np.random.default_rng(0)
    L, F = SIM.loadings * [6.0, 1.0, 1.0], SIM.activations.T
    data, prior = as_data((L @ F).T + 0.3 * rng.standard_normal(SIM.X.shape), center=True), sf.Prior(n_factors=4)
    cavi = CAVI(data, prior, build_engine(data, prior), joint=True)
    halves = np.hstack([0.5 * L[:, :1], L[:, 1:], 0.5 * L[:, :1]])
    monkeypatch.setattr(trial_module, "WEAKEST", weakest)
    monkeypatch.setattr(trial_module, "CANDIDATES", 1)
    with single_blas_thread():
        trial = Trial(0, "halves", cavi, cavi.start(halves, np.vstack([F, F[:1]])), accelerate=True)
        trial.advance(1, Tolerance(1e-3, 0.0))
        assert set(np.argsort(cavi.strength(trial.state))[-2:].tolist()) == {0, 3}
        trial.shrink(3, Tolerance(1e-3, 0.0))
    left = ~holds_nothing(cavi, trial.state)
    assert left.sum() == 3
    # The strength of a factor, all that counts where but one is looked at, does not tell.
    assert left.tolist() in ([[True, True, True, False], [False, True, True, True]] if weakest > 1 else
                             [[True, False, True, True], [True, True, False, True]])  # fmt: skip


def test_where_factors_are_short_hops_with_more_of_them_find_far_better_optima(monkeypatch):
    """Four factors for thirty measurements of cells, many of them of the same thing."""
    X = pytest.importorskip("sklearn.datasets").load_breast_cancer().data[:150]
    found = sf.fit_vi(X, n_factors=4, scale=True)
    for module in (hop, search):
        monkeypatch.setattr(module, "SPARE", 0)
    monkeypatch.setattr(search, "crossed", lambda *_: None)
    short = sf.fit_vi(X, n_factors=4, scale=True)
    assert found.elbo > short.elbo + 100.0
    # With more factors than there are to be the race ends higher: none of that may be taken for the result.
    assert found.loadings_mean.shape[1] == 4
    assert found.trials["elbo"].max() == found.elbo
    assert found.n_factors == 4


def test_hops_are_a_function_of_the_seed_and_their_number():
    cavi, state = climbed(5)
    first, again = (Hops(cavi, 3).from_state(state)[1] for _ in range(2))
    np.testing.assert_array_equal(first.rows.mu, again.rows.mu)
    hops = Hops(cavi, 3)
    one, other = (hops.from_state(state, (number,))[1] for number in range(2))
    assert not np.array_equal(one.rows.mu, other.rows.mu)


@pytest.mark.parametrize("joint", [False, True])
def test_recombination_gives_back_a_factor_that_was_lost(joint):
    cavi, whole = climbed(4, joint)
    rng = np.random.default_rng(0)
    hops = Hops(cavi, 0)
    assert crossed(hops, whole, whole) is None  # they have the same factors
    strong = int(np.argmax(whole.sums.l2))
    with single_blas_thread():
        lost = Trial(0, "", cavi, emptied(cavi, whole, strong), accelerate=True)
        lost.advance(3, Tolerance(1e-6, 0.0))
        both = crossed(hops, lost.state, whole)
        assert both is not None
        few, state = both
        assert few.prior.K == 3  # empty places are left out on the way
        back = Trial(0, "", few, state, accelerate=True)
        back.polish(300, Tolerance(1e-6, 0.0), rng, kicks=0)
        back = back.continued(cavi, hops.whole_of(few, back.state))
    assert lost.elbo < whole.elbo - 10
    assert back.elbo == pytest.approx(whole.elbo, abs=0.5)


def test_recombination_puts_what_only_one_has_beside_all_that_the_other_has():
    data, prior = as_data(SIM.X, center=True), sf.Prior(n_factors=2)
    cavi = CAVI(data, prior, build_engine(data, prior), joint=True)
    ends, tolerance = [], Tolerance(1e-5, 0.0)
    with single_blas_thread():
        for own in ([0, 1], [1, 2]):
            state = cavi.start(SIM.loadings[:, own], SIM.activations[:, own].T)
            ends.append(Trial(0, "truth", cavi, state, accelerate=True))
            ends[-1].advance(200, tolerance)
        one, other = (trial.state for trial in ends)
        both = crossed(Hops(cavi, 0), one, other)
        assert both is not None
        wide, state = both
        assert wide.prior.K == 3
        trial = Trial(0, "both", wide, state, accelerate=True)
        trial.advance(200, tolerance)
    assert trial.elbo > max(one.elbo, other.elbo) + 50
    cosine = alike(trial.state.columns.f_mean.T, SIM.activations[:, :3])[0]
    assert np.all(cosine.max(axis=0) > 0.95)
    # Factors with priors of their own have no room beside them.
    unequal, state = climbed(3, inclusion=[0.1, 0.3, 0.5])
    assert crossed(Hops(unequal, 0), emptied(unequal, state, 0), state) is None


def test_what_a_hop_has_found_elsewhere_is_offered_to_the_best(monkeypatch):
    offered = []

    def noted(hops, one, other):
        offered.append(other.elbo - one.elbo)
        return crossed(hops, one, other)

    monkeypatch.setattr(search, "crossed", noted)
    found = sf.fit_vi(RUGGED, n_factors=6, scale=True)
    assert 2 < len(offered) <= found.record["search"]["hops"] + 1  # and once what the second finalist has
    assert max(offered) <= search.WORTH


def test_the_search_goes_on_where_starts_disagree_and_finds_more():
    raced, found = sf.fit_vi(RUGGED, n_factors=8, n_trials=10, scale=True), rugged(8)
    assert "hops" in found.record["search"]
    assert found.record["search"]["hops"] > 0
    assert raced.record["search"]["hops"] == 0
    assert found.elbo > raced.elbo + 1.0
    assert np.all(np.diff(found.elbo_trace["elbo"]) >= 0)
    assert found.converged


def test_lineages_that_agree_are_not_believed_before_hops_come_back(monkeypatch):
    """Both lineages end in an optimum that no hop came back to; hops from there find a better one."""
    found = rugged(6)
    monkeypatch.setattr(lineages, "RETURNS", 0)
    hasty = sf.fit_vi(RUGGED, n_factors=6, scale=True)
    assert found.elbo > hasty.elbo + 1.0
    assert found.record["search"]["agreeing"] == 1


def test_where_lineages_disagree_further_ones_join(monkeypatch, short_runs):
    found = sf.fit_vi(RUGGED, n_factors=8, scale=True)
    assert len(found.trial_records) == 2 * len(PORTFOLIO)  # those of another race
    assert found.trials["trial"].tolist() == list(range(2 * len(PORTFOLIO)))
    named = sf.fit_vi(RUGGED, n_factors=8, scale=True, init="rotation")
    assert set(named.trials["start"]) == {"rotation"}
    assert len(named.trial_records) == 2 * len(PORTFOLIO)
    monkeypatch.setattr(lineages, "CHEAP", 0.0)
    alone = sf.fit_vi(RUGGED, n_factors=8, scale=True)
    assert len(alone.trial_records) == len(PORTFOLIO)
    assert alone.record["search"]["hops"] < found.record["search"]["hops"]
    assert found.elbo >= found.trials["elbo"].max() - 1e-9


@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_start_that_does_not_lead_leaves_the_search_to_the_others(n_threads, short_runs):
    """A race of six has two finalists, so that there is no third one to join them."""
    rng = np.random.default_rng(5)
    poor = sf.Start("poor", rng.standard_normal((12, 8)), 1e-3 * rng.standard_normal((8, 60)))
    found = sf.fit_vi(RUGGED, n_factors=8, scale=True, init=[poor], n_threads=n_threads)
    assert found.record["search"]["finalists"] == 2
    assert len(found.trial_records) == 6 + len(PORTFOLIO)
    assert found.elbo > found.trials["elbo"][0] + 1.0


def test_further_lineages_begin_with_long_runs_wherever_they_lead(monkeypatch, short_runs):
    """As do second rounds. The first round, of the best of two races, does not, nor does the one that joins first."""
    asked, real = [], Hops.from_state

    def noted(self, state, number, sweeps):
        asked.append((number[0], sweeps))
        return real(self, state, number, sweeps)

    monkeypatch.setattr(Hops, "from_state", noted)
    sf.fit_vi(RUGGED, n_factors=8, scale=True, n_threads=1)
    long = [trial for trial, sweeps in asked if sweeps == lineages.LONG]
    begun = list(dict.fromkeys(long))
    assert all(long.count(trial) % lineages.RUNS == 0 for trial in begun)
    assert len(long) // lineages.RUNS == 3 + lineages.SECOND
    first = dict(reversed(asked))  # of each trial, the sweeps of its first run
    order = list(dict.fromkeys(trial for trial, _ in asked))
    assert len(order) == 6  # three finalists of each race
    assert [trial >= len(PORTFOLIO) for trial in order] == [False, True, False, False, True, True]
    assert [first[trial] == lineages.LONG for trial in order] == [False] * 3 + [True] * 3


def test_the_best_of_two_races_hop_first_where_data_are_small(monkeypatch):
    """Two finalists of one race are often in the same optimum, and that is not always the best."""
    X = correlated_factors()
    found = sf.fit_vi(X, n_factors=10, scale=True, seed=5)
    assert len(found.trial_records) == 2 * len(PORTFOLIO)
    monkeypatch.setattr(lineages, "CHEAP", 0.0)
    alone = sf.fit_vi(X, n_factors=10, scale=True, seed=5)
    assert len(alone.trial_records) == len(PORTFOLIO)
    assert alone.record["search"]["agreeing"] == lineages.LINEAGES
    assert found.elbo > alone.elbo + 5.0


def test_what_recombination_has_bettered_was_found_once(monkeypatch):
    """Lineages that agreed are not in what only the best of them has come to since."""
    made = Straight([])
    large = SimpleNamespace(n_features=10**6, n_samples=10**6)
    made.cavi, made.trials, made.told = SimpleNamespace(data=large, prior=SimpleNamespace(K=1)), [], {"agreeing": 1}
    made.together = lambda hop, some: None
    of = lineages.Lineages(made)
    first, second, third = (lineage(made, elbo) for elbo in (5.0, 5.0, 3.0))
    for own in (first, second):
        own.returns = own.recent = lineages.RETURNS
        own.trial.status = None
    of.all = [first, second]
    last = []
    monkeypatch.setattr(lineages.Lineage, "hop", lambda own, patience, **_: last.append(own) or False)
    assert of.sought([first, second, third], handed=False) is first
    assert of.known
    assert not last
    monkeypatch.setattr(lineages.Lineage, "cross", lambda own, _: setattr(own.trial, "elbo", 6.0))
    second.trial.elbo = 4.95
    first.trial.elbo = 5.0
    monkeypatch.setattr(lineages, "AGREE", 0.01)  # of what is crossed
    monkeypatch.setattr(lineages.Lineages, "agreed", lambda own, some: own.told.update(agreeing=2) or some[0])
    of.sought([first, second, third], handed=False)
    assert not of.known
    assert last == [first]


class Straight:
    """A search whose hops end at given ELBOs, one after another."""

    def __init__(self, ends):
        self.coming, self.from_where = iter(ends), []
        self.options = SimpleNamespace(seed=0, init="auto")
        self.watcher, self.crew = SimpleNamespace(n_hops=0, phase=""), self
        self.excursion = None

    def near(self, nats, _):
        return nats

    def came_back(self, new, old):
        return abs(new.elbo - old.elbo) < lineages.AGREE

    def is_better(self, new, old):
        return new.elbo > old.elbo + lineages.WORTH

    def is_short(self, _):
        return False

    def next(self, _, here, *rest):
        self.from_where.append(here.elbo)
        return SimpleNamespace(elbo=next(self.coming), state=None), None

    def rest(self):
        pass


def lineage(made, elbo):
    own = SimpleNamespace(elbo=elbo, number=0)

    def succeed(new, _):
        own.elbo = max(own.elbo, new.elbo)

    own.succeed = succeed
    return lineages.Lineage(made, own)


def test_hops_set_out_from_the_best_until_lineages_disagree_and_then_from_where_they_ended():
    made = Straight([-1.0, -1.0, -1.0])
    lineage(made, 0.0).hop(3)
    assert made.from_where == [0.0, 0.0, 0.0]
    made = Straight([-1e-9, -500.0, -1.0, 7.0, 6.9, -500.0])
    best = lineage(made, 0.0)
    assert best.hop(9, most=6, heat=lineages.HEAT)
    assert best.elbo == 7.0  # kept, wherever hops go on from
    assert made.from_where[:3] == [0.0, -1e-9, -1e-9]  # a hop may lose a little, not everything
    assert made.from_where[4] == 7.0


def test_a_lineage_that_comes_to_the_goal_stops_there():
    made = Straight([1.0, 4.95, 9.0])
    own = lineage(made, 0.0)
    assert own.hop(9, goal=5.0)
    assert own.elbo == 4.95
    made = Straight([1.0, 5.5, 5.4, 5.3])  # better than the goal: it goes on
    own = lineage(made, 0.0)
    own.hop(2, goal=5.0)
    assert own.hops == 4


def test_where_starts_agree_rotations_confirm_it():
    sim = sf.simulate_paper(snr=5, seed=0)
    told = sf.fit_vi(sim.X, n_factors=6).record["search"]
    assert told["hops"] == told["returns"] == lineages.CONFIRMING[0]
    assert told["agreeing"] >= lineages.ENOUGH


def test_where_starts_agree_and_rotations_end_elsewhere_the_search_goes_on(monkeypatch):
    """Axes of correlated factors: all three finalists are in one optimum, and it is not the best."""
    X = correlated_factors()
    found = sf.fit_vi(X, n_factors=4, scale=True, seed=3)
    monkeypatch.setattr(search, "TURNS", 0)
    monkeypatch.setattr(lineages.Lineage, "hopped", lambda *_: False)
    hasty = sf.fit_vi(X, n_factors=4, scale=True, seed=3)
    assert [end["status"] for end in hasty.trial_records].count("converged") >= lineages.ENOUGH
    assert found.record["search"]["hops"] > search.TURNS
    assert found.elbo > hasty.elbo + 5.0


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("prior", [{}, {"noise": "sample"}, {"inclusion": 0.3}], ids=["learnt", "sample", "fixed"])
@pytest.mark.parametrize("missing", [False, True])
def test_a_rotation_turns_a_few_factors_in_the_space_they_span(joint, prior, missing):
    X = np.where(np.random.default_rng(2).random(SIM.X.shape) < 0.1, np.nan, SIM.X) if missing else SIM.X
    data, given = as_data(X, center=True), sf.Prior(n_factors=4, **prior)
    cavi = CAVI(data, given, build_engine(data, given), joint=joint)
    rng = np.random.default_rng(0)
    L = np.column_stack([SIM.loadings, 0.01 * rng.standard_normal(60)])
    F = np.column_stack([SIM.activations, rng.standard_normal(50)]).T
    with single_blas_thread():
        state = emptied(cavi, cavi.sweep(cavi.start(L, F)), 3)
        F, used = state.columns.f_mean, ~holds_nothing(cavi, state)
        np.testing.assert_array_equal(used, [True, True, True, False])
        sizes = set()
        for seed in range(12):
            new, again = (turned(cavi, state, np.random.default_rng(seed)) for _ in range(2))
            assert new is not None
            assert again is not None
            np.testing.assert_array_equal(again.columns.f_mean, new.columns.f_mean)
            moved = np.abs(new.columns.f_mean - F).max(axis=1) > 0
            sizes.add(int(moved.sum()))
            assert not np.any(moved & ~used)
            assert np.linalg.matrix_rank(np.vstack([F[used], new.columns.f_mean[used]]), tol=1e-6) == used.sum()
            assert np.isfinite(new.elbo)
    assert sizes == {2, 3}


def test_there_is_nothing_to_turn_without_two_factors():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 1)) @ rng.standard_normal((1, 20)) + 0.1 * rng.standard_normal((50, 20))
    cavi, state = climbed(3, X=X)
    assert np.sum(~holds_nothing(cavi, state)) == 1
    assert turned(cavi, state, rng) is None
    found = sf.fit_vi(X, n_factors=3)
    assert found.converged
    assert found.record["search"]["hops"] <= search.TURNS


@pytest.mark.parametrize("holes", [False, True])
def test_lineages_on_threads_find_what_they_find_one_after_another(holes, monkeypatch, short_runs):
    X = np.where(np.random.default_rng(3).random(RUGGED.shape) < 0.05, np.nan, RUGGED) if holes else RUGGED
    names, told = set(), set()
    real = Hops.from_state

    def noted(*args):
        names.add(threading.current_thread().name)
        told.add(np.geterr()["over"])
        return real(*args)

    monkeypatch.setattr(Hops, "from_state", noted)
    one = sf.fit_vi(X, n_factors=7, scale=True, n_threads=1)
    assert names == {threading.main_thread().name}
    told.clear()
    with np.errstate(over="print"):  # what is set for the caller's thread holds on the others
        some = sf.fit_vi(X, n_factors=7, scale=True, n_threads=3)
    assert told == {"print"}
    assert len(names) > 2
    assert some.record["search"] == one.record["search"]
    assert some.elbo == one.elbo
    np.testing.assert_array_equal(some.loadings_mean, one.loadings_mean)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("how", ["in the main thread", "wherever it hops", "no memory"])
@pytest.mark.filterwarnings("ignore:the search ended early")
def test_an_interruption_while_hopping_keeps_the_best(how, n_threads, monkeypatch, heeding_interrupts):
    calls = []

    def interrupt(self, *args):
        calls.append(1)
        if len(calls) > 2:
            if how != "in the main thread":
                raise KeyboardInterrupt if how == "wherever it hops" else MemoryError("none left")
            _thread.interrupt_main()
        return real(self, *args)

    real = Hops.from_state
    monkeypatch.setattr(Hops, "from_state", interrupt)
    with pytest.warns(sf.ConvergenceWarning, match="Interrupted"):
        p = sf.fit_vi(RUGGED, n_factors=8, scale=True, n_threads=n_threads)
    assert p.status is sf.Status.INTERRUPTED
    assert 3 <= len(calls) <= (3 if n_threads == 1 else 2 + 2 * n_threads)  # others stop once they have climbed
    assert p.elbo >= p.trials["elbo"].max() - 1e-9
    assert not [own for own in threading.enumerate() if own.name.startswith("sparsefactor-search")]


def test_who_says_that_it_is_over_ends_the_search_on_every_thread():
    data, prior = as_data(RUGGED, center=True, scale=True), sf.Prior(n_factors=8)
    engine, asked = build_engine(data, prior, n_threads=3), []

    def over():
        asked.append(threading.current_thread().name)
        return len(asked) > 3000

    found = search_on(engine, prior, options_of(), over=over)
    assert found.status is sf.Status.STOPPED
    assert len(set(asked)) > 2
    assert len(asked) < 3010
    assert found.winner.elbo == max(trial.elbo for trial in found.trials)


def test_a_line_of_progress_leaves_climbs_their_compiled_calls(monkeypatch):
    """As it is shown in a terminal or a notebook; a callback is told of each iteration."""
    calls = []
    real = SmallVI.together
    monkeypatch.setattr(SmallVI, "together", lambda *args: calls.append(1) or real(*args))
    shown, silent = (sf.fit_vi(SIM.X, n_factors=4, progress=progress) for progress in (True, False))
    assert shown.elbo == silent.elbo
    assert len(calls) % 2 == 0
    assert len(calls) > 20
    calls.clear()
    assert sf.fit_vi(SIM.X, n_factors=4, callback=lambda _: None).elbo == silent.elbo
    assert not calls


def test_how_sure_it_is_is_told():
    found = rugged(8)
    told = found.record["search"]
    assert 0 <= told["recurred"] <= 2 * told["hops"] + 3
    times = f"{told['recurred'] + 1} times" if told["recurred"] else "once"
    assert found.certainty.startswith(f"The best optimum was found {times} on {told['hops']} hops")
    assert f", found {times}" in repr(found)
    sure = sf.fit_vi(sf.simulate_paper(snr=5, seed=0).X, n_factors=6)
    assert sure.certainty.startswith("The best optimum was reached from 3 of 3")
    assert sure.record["search"]["recurred"] >= 2


@pytest.mark.parametrize("n_trials", [0, 1.5, "many", True])
def test_n_trials_is_auto_or_a_count(n_trials):
    with pytest.raises(ValueError, match="n_trials must be"):
        sf.fit_vi(SIM.X, n_factors=2, n_trials=n_trials)
