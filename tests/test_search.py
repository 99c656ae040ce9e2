"""The search of fit_vi: restarts, proposals, what the result says about them, and how it is stopped."""

import _thread
import signal
import threading
import time
from functools import cache

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine import build_engine
from sparsefactor.engine.small import SmallVI
from sparsefactor.engine.threads import single_blas_thread
from sparsefactor.vi import proposals, search
from sparsefactor.vi.cavi import CAVI
from sparsefactor.vi.empty import emptied, is_empty_factor
from sparsefactor.vi.factor_analysis import factor_analysis_start, whiten
from sparsefactor.vi.fit import options_of, search_on
from sparsefactor.vi.trial import WINDOW, Trial

SIM = sf.simulate(n_features=60, n_samples=50, inclusion=[0.3] * 3, snr=5, seed=0)
# Correlated features, many factors: restarts end in different optima.
RUGGED = np.random.default_rng(0).standard_normal((60, 12)) @ np.random.default_rng(1).standard_normal((12, 12))


@pytest.fixture
def heeding_interrupts():
    """Processes that a shell starts in the background ignore interrupts."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@cache
def thorough(K):
    """A thorough fit, which several tests look at."""
    return sf.fit_vi(RUGGED, n_factors=K, scale=True, search="thorough")


def cavi_of(X, joint=True, n_factors=4, **prior):
    data, given = as_data(X, center=True), sf.Prior(n_factors=n_factors, **prior)
    return CAVI(data, given, build_engine(data, given), joint=joint)


# ---- the first start ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("noise", ["feature", "sample"])
def test_the_first_start_is_factor_analysis_after_varimax(missing, noise):
    """Its loadings are those of scikit-learn's maximum-likelihood factor analysis, up to order and sign."""
    decomposition = pytest.importorskip("sklearn.decomposition")
    rng = np.random.default_rng(1)
    L = np.zeros((30, 3))
    for k in range(3):
        L[10 * k : 10 * k + 10, k] = rng.uniform(0.6, 1.2, 10)
    X = rng.standard_normal((400, 3)) @ L.T + rng.standard_normal((400, 30)) * rng.uniform(0.5, 1.5, 30)
    Y = np.where(rng.random(X.shape) < 0.05, np.nan, X) if missing else X
    cavi = cavi_of(Y, n_factors=3, noise=noise)
    with single_blas_thread():
        start = factor_analysis_start(cavi, search.StartMaker(cavi.engine, 0))
    found, other = np.asarray(start.L), decomposition.FactorAnalysis(3, rotation="varimax").fit(X).components_.T
    cosine = np.abs((found / np.linalg.norm(found, axis=0)).T @ (other / np.linalg.norm(other, axis=0)))
    assert np.all(cosine.max(axis=1) > (0.99 if noise == "feature" else 0.95))
    np.testing.assert_allclose(np.mean(start.F**2, axis=1), 1.0, atol=0.25)


def test_whitened_activations_have_unit_second_moments():
    cavi = cavi_of(SIM.X)
    with single_blas_thread():
        state = cavi.sweep(cavi.start(np.ones((60, 4)), np.random.default_rng(0).standard_normal((4, 50))))
    F, root = whiten(state)
    spread = np.linalg.solve(root, np.linalg.solve(root, state.columns.f_var[0]).T)
    np.testing.assert_allclose(F @ F.T / 50 + spread, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(root @ F, state.columns.f_mean, atol=1e-10)


def test_a_default_fit_is_one_restart_and_does_not_depend_on_the_seed():
    one, other = (sf.fit_vi(SIM.X, n_factors=4, seed=seed) for seed in (0, 1))
    assert one.trials["start"].tolist() == ["factor_analysis"]
    np.testing.assert_array_equal(one.loadings_mean, other.loadings_mean)
    assert one.certainty.startswith("One restart.")


# ---- when a climb ends --------------------------------------------------------------------------------------------


def test_a_single_restart_with_learnt_inclusion_stops_early():
    early, tight = (sf.fit_vi(SIM.X, n_factors=4, tol=tol) for tol in ("auto", 1e-6))
    assert early.record["search"]["early"]
    assert not tight.record["search"]["early"]
    assert early.elbo < tight.elbo
    last = early.elbo_trace["elbo"].diff().iloc[-1]
    assert 1e-3 < last < search.EARLY * len(SIM.X)


@pytest.mark.parametrize(
    "settings", [{"n_trials": 2}, {"search": "thorough"}, {"accelerate": False}, {"inclusion": 0.3}], ids=str
)
def test_other_fits_climb_to_the_optimum(settings):
    inclusion = {"inclusion": settings.pop("inclusion")} if "inclusion" in settings else {}
    p = sf.fit_vi(SIM.X, sf.Prior(n_factors=4, **inclusion), **settings)
    assert not p.record["search"]["early"]
    tighter = sf.fit_vi(SIM.X, sf.Prior(n_factors=4, **inclusion), **(settings | {"tol": 1e-9, "rtol": 0.0}))
    assert abs(tighter.elbo - p.elbo) < 0.1


def test_a_climb_that_max_iter_ends_with_little_left_to_gain_has_converged():
    """Verdicts go by what further iterations could change; the same climb, cut while it gains, has not converged."""
    settings = {"n_factors": 4, "accelerate": False, "n_trials": 1, "tol": 0.0, "rtol": 0.0}
    assert sf.fit_vi(SIM.X, max_iter=2000, **settings).converged
    with pytest.warns(sf.ConvergenceWarning, match="max_iter"):
        assert not sf.fit_vi(SIM.X, max_iter=5, **settings).converged


def test_the_remaining_gain_is_extrapolated():
    trial = Trial(0, "", None, None, accelerate=False)
    gains = 8.0 * 0.5 ** (np.arange(5 * WINDOW) / WINDOW)
    trial.trace = [(n, elbo, 0.0) for n, elbo in enumerate(np.cumsum(gains))]
    assert trial.remaining_gain == pytest.approx(gains[-1] / (1 - 0.5 ** (1 / WINDOW)) * 0.5 ** (1 / WINDOW), rel=0.02)
    trial.trace = trial.trace[:WINDOW]
    assert trial.remaining_gain == np.inf


# ---- proposals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("prior", [{}, {"noise": "sample"}, {"inclusion": 0.3}], ids=["learnt", "sample", "fixed"])
@pytest.mark.parametrize("missing", [False, True])
def test_a_rotation_stays_in_the_space_of_the_factors(joint, prior, missing):
    X = np.where(np.random.default_rng(2).random(SIM.X.shape) < 0.1, np.nan, SIM.X) if missing else SIM.X
    cavi, rng = cavi_of(X, joint, **prior), np.random.default_rng(0)
    L = np.column_stack([SIM.loadings, 0.01 * rng.standard_normal(60)])
    F = np.column_stack([SIM.activations, rng.standard_normal(50)]).T
    with single_blas_thread():
        state = emptied(cavi, cavi.sweep(cavi.start(L, F)), 3)
        F, used = state.columns.f_mean, ~is_empty_factor(cavi, state)
        np.testing.assert_array_equal(used, [True, True, True, False])
        sizes = set()
        for seed in range(12):
            new, again = (proposals.rotate(cavi, state, np.random.default_rng(seed)) for _ in range(2))
            assert new is not None
            assert again is not None
            np.testing.assert_array_equal(again.columns.f_mean, new.columns.f_mean)
            moved = np.abs(new.columns.f_mean - F).max(axis=1) > 0
            sizes.add(int(moved.sum()))
            assert not np.any(moved & ~used)
            assert np.linalg.matrix_rank(np.vstack([F[used], new.columns.f_mean[used]]), tol=1e-6) == used.sum()
            assert np.isfinite(new.elbo)
    assert sizes == {2, 3}


def test_a_proposal_is_a_function_of_the_state_the_seed_and_its_number():
    cavi = cavi_of(SIM.X)
    rng = np.random.default_rng(0)
    with single_blas_thread():
        state = cavi.sweep(cavi.start(rng.standard_normal((60, 4)), rng.standard_normal((4, 50))))
        size = {
            (seed, number): np.abs(proposals.propose(cavi, state, seed, number).columns.f_mean).sum()
            for seed in (0, 1)
            for number in range(3)
        }
        assert len(set(size.values())) == 6
        for (seed, number), before in size.items():
            assert np.abs(proposals.propose(cavi, state, seed, number).columns.f_mean).sum() == before


def test_without_two_factors_every_proposal_is_by_gibbs_sampling():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((50, 1)) @ rng.standard_normal((1, 20)) + 0.1 * rng.standard_normal((50, 20))
    p = sf.fit_vi(X, n_factors=3, search="thorough")
    assert (~p.empty).sum() == 1
    cavi = cavi_of(X, n_factors=1)
    with single_blas_thread():
        state = cavi.start(np.ones((20, 1)), np.ones((1, 50)))
        assert proposals.rotate(cavi, state, rng) is None
        assert np.isfinite(cavi.sweep(proposals.propose(cavi, state, 0, 0)).elbo)


def test_a_thorough_search_finds_a_higher_elbo():
    found, restarts = thorough(8), sf.fit_vi(RUGGED, n_factors=8, scale=True, n_trials=10)
    assert found.elbo > restarts.elbo - 0.1
    assert found.elbo > sf.fit_vi(RUGGED, n_factors=8, scale=True).elbo + 1.0
    facts = found.record["search"]
    assert facts["improved"] >= 1
    assert facts["proposals"] % search.ROUND == 0
    assert facts["proposals"] >= search.ROUND * search.PATIENCE
    assert f"the last {search.ROUND * search.PATIENCE} attempts to improve it failed" in found.certainty
    assert "attempts to improve it" in repr(found)


@pytest.mark.parametrize("missing", [False, True])
def test_threads_find_the_same(missing, monkeypatch):
    X = np.where(np.random.default_rng(3).random(RUGGED.shape) < 0.05, np.nan, RUGGED) if missing else RUGGED
    monkeypatch.setattr(search, "PATIENCE", 2)
    names, states = set(), set()
    real = proposals.run_gibbs

    def noted(*args):
        names.add(threading.current_thread().name)
        states.add(np.geterr()["over"])
        return real(*args)

    monkeypatch.setattr(proposals, "run_gibbs", noted)
    one = sf.fit_vi(X, n_factors=5, scale=True, search="thorough", n_threads=1)
    assert names == {threading.main_thread().name}
    states.clear()
    with np.errstate(over="print"):  # the caller's setting holds in the threads
        some = sf.fit_vi(X, n_factors=5, scale=True, search="thorough", n_threads=3)
    assert states == {"print"}
    assert len(names) > 1
    assert some.record["search"] == one.record["search"]
    assert some.elbo == one.elbo
    np.testing.assert_array_equal(some.loadings_mean, one.loadings_mean)


# ---- how it ends ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("how", ["in the main thread", "in a proposal", "no memory"])
@pytest.mark.filterwarnings("ignore:the search ended early")
def test_an_interruption_keeps_the_best(how, n_threads, monkeypatch, heeding_interrupts):
    calls = []

    def interrupt(*args):
        calls.append(1)
        if len(calls) > 1 and how != "in the main thread":
            raise KeyboardInterrupt if how == "in a proposal" else MemoryError("none left")
        if len(calls) == 2:
            _thread.interrupt_main()
        return real(*args)

    real = proposals.run_gibbs
    monkeypatch.setattr(proposals, "run_gibbs", interrupt)
    with pytest.warns(sf.ConvergenceWarning, match="interrupted"):
        p = sf.fit_vi(RUGGED, n_factors=8, scale=True, search="thorough", n_threads=n_threads)
    assert p.status is sf.Status.INTERRUPTED
    assert 2 <= len(calls) <= 2 + n_threads
    assert p.elbo >= p.trials["elbo"].max() - 1e-9
    deadline = time.monotonic() + 10  # a thread that was being started when the interrupt came ends on its own
    while any(own.name.startswith("sparsefactor-search") for own in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_function_that_says_so_ends_the_search_on_every_thread():
    data, prior = as_data(RUGGED, center=True, scale=True), sf.Prior(n_factors=8)
    engine, asked = build_engine(data, prior, n_threads=3), []

    def over():
        asked.append(threading.current_thread().name)
        return len(asked) > 300

    found = search_on(engine, prior, options_of(search="thorough"), over=over)
    assert len(set(asked)) > 2
    assert len(asked) < 320
    assert found.winner.elbo == max(trial.elbo for trial in found.trials)


def test_max_seconds_returns_the_best_so_far():
    """A limit that has passed at once ends the climb; one in the midst of proposals leaves an optimum that stands."""
    with pytest.warns(sf.ConvergenceWarning, match="max_seconds"):
        p = sf.fit_vi(SIM.X, n_factors=4, max_seconds=1e-9, callback=lambda _: None)
    assert p.status is sf.Status.TIME_LIMIT
    assert np.isfinite(p.elbo)


def test_a_search_that_time_ends_between_proposals_has_converged(monkeypatch):
    calls = []
    monkeypatch.setattr("sparsefactor.vi.fit.time_limit", lambda seconds: lambda: len(calls) > 5)
    real = proposals.propose
    monkeypatch.setattr(search, "propose", lambda *args: calls.append(1) or real(*args))
    p = sf.fit_vi(RUGGED, n_factors=5, scale=True, search="thorough", max_seconds=60, n_threads=1)
    assert p.converged
    assert p.record["search"]["ended"] == "time_limit"
    assert "refine continues" in p.certainty


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"search": "slow"}, "search must be one of"),
        ({"max_seconds": 0}, "max_seconds must be positive"),
        ({"max_seconds": -1}, "max_seconds must be positive"),
        ({"max_seconds": "5"}, "max_seconds must be positive"),
        ({"tol": "loose"}, "tol must be"),
        *(({"n_trials": n}, "n_trials must be") for n in (0, 1.5, "many", True)),
    ],
)
def test_settings_are_checked(settings, text):
    with pytest.raises(ValueError, match=text):
        sf.fit_vi(SIM.X, n_factors=2, **settings)


# ---- refine ---------------------------------------------------------------------------------------------------------


def test_refine_continues_from_a_fit():
    quick = sf.fit_vi(RUGGED, n_factors=8, scale=True)
    better = quick.refine(RUGGED)
    assert better.elbo > quick.elbo + 1.0
    assert "refined" in better.trials["start"].tolist()
    again = better.refine(RUGGED, max_seconds=1e-6)
    assert again.elbo >= better.elbo


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_refine_refuses_other_data(scale, missing):
    X = np.where(np.random.default_rng(2).random(SIM.X.shape) < 0.1, np.nan, SIM.X) if missing else SIM.X
    p = sf.fit_vi(X, n_factors=3, scale=scale)
    assert p.refine(X, n_trials=1).elbo >= p.elbo
    for other in (X * 0.01, X[:, ::-1], X[:-1], np.where(np.eye(50, 60) > 0, np.nan, X)):
        with pytest.raises(ValueError, match="refine needs the data of the fit"):
            p.refine(other)
    with pytest.raises(ValueError, match="refine takes n_factors from the fit"):
        p.refine(X, n_factors=5)
    with pytest.raises(ValueError, match="refine needs the covariates of the fit"):
        p.refine(X, covariates=np.arange(50.0)[:, None])


def test_refine_refuses_other_names():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(SIM.X, columns=[f"x{n}" for n in range(60)])
    p = sf.fit_vi(frame, n_factors=3)
    with pytest.raises(ValueError, match="refine needs the features of the fit in their order"):
        p.refine(frame[frame.columns[::-1]])


def test_refine_that_finds_nothing_better_says_so():
    p = sf.fit_vi(SIM.X, sf.Prior(n_factors=3, inclusion=0.3), n_trials=10)
    again = p.refine(SIM.X, max_seconds=60)
    assert again.elbo - p.elbo < 0.01
    assert "attempts to improve it failed" in again.certainty


def test_refine_asks_for_the_covariates_of_the_fit():
    age = np.random.default_rng(0).standard_normal((50, 1))
    p = sf.fit_vi(SIM.X, n_factors=3, covariates=age)
    with pytest.raises(ValueError, match="refine needs the covariates"):
        p.refine(SIM.X)
    assert p.refine(SIM.X, covariates=age, max_seconds=5).elbo >= p.elbo


# ---- what is said ---------------------------------------------------------------------------------------------------


def test_stability_counts_only_restarts_that_ended_near_the_best():
    """A restart from nonsense that ends thousands of nats below says nothing about the factors."""
    rng = np.random.default_rng(0)
    poor = sf.Start("poor", 1e-3 * rng.standard_normal((60, 3)), rng.standard_normal((3, 50)))
    p = sf.fit_vi(SIM.X, n_factors=3, init=[poor], n_trials=3, race=False, accelerate=False, max_iter=3000)
    gap = p.elbo - p.trials["elbo"]
    near = (gap < 10) & (p.trials["status"] == "converged") & ~p.trials["won"]
    assert len(p.trial_agreement) == near.sum()
    assert near.sum() >= 1


def test_the_best_elbo_never_falls():
    seen = []
    sf.fit_vi(RUGGED, n_factors=6, scale=True, n_trials=3, callback=lambda now: seen.append(now.best_elbo))
    assert np.all(np.diff(seen) >= 0)


def test_a_line_of_progress_leaves_climbs_their_compiled_calls(monkeypatch):
    """As it is shown in a terminal or a notebook; a callback is called after each iteration."""
    calls = []
    real = SmallVI.climb
    monkeypatch.setattr(SmallVI, "climb", lambda *args: calls.append(1) or real(*args))
    shown, silent = (sf.fit_vi(SIM.X, n_factors=4, progress=progress) for progress in (True, False))
    assert shown.elbo == silent.elbo
    assert len(calls) % 2 == 0
    assert len(calls) > 4
    calls.clear()
    assert sf.fit_vi(SIM.X, n_factors=4, callback=lambda _: None).elbo == silent.elbo
    assert len(calls) == 1  # the factor analysis that the restart begins with


@pytest.mark.parametrize("K", [4, 8])
def test_a_vector_of_inclusion_probabilities_needs_no_search(K):
    """One restart and no proposals, as with a scalar, whatever the number of factors."""
    p = sf.fit_vi(SIM.X, sf.Prior(inclusion=np.linspace(0.1, 0.6, K)))
    assert p.record["search"]["restarts"] == 1
    assert p.record["search"]["proposals"] == 0
