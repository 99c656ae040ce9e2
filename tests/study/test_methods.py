"""The study's recorded runs are those of the public functions, and its clock counts inference alone."""

import threading
from typing import Any

import numpy as np
import pytest
from study.matrix import held_out
from study.measures import FillInMeasure, TruthMeasure
from study.methods import run_chains, run_vi, run_vi_mean
from study.recording import Estimate, Recorder, RunningMeans, Stopwatch

import sparsefactor as sf

SIM = sf.simulate_paper(snr=5, seed=3)
PRIOR = sf.Prior.paper(inclusion=[0.1] * 5 + [0.9])
PAPERS: dict[str, Any] = {"center": False, "activations": "independent"}  # what the study watches


def columns(values: np.ndarray) -> np.ndarray:
    """Sorted columns: a result has its strongest factor first, a restart does not."""
    return values[:, np.lexsort(values)]


def test_recorded_restarts_end_where_fit_vi_ends() -> None:
    traces, seconds = run_vi(SIM.X, PRIOR, TruthMeasure(SIM), recipe="default", n_trials=4, seed=1)
    public = sf.fit_vi(SIM.X, PRIOR, n_trials=4, seed=1, **PAPERS)
    best = max(traces, key=lambda trace: trace.facts["elbo"])
    assert best.facts["elbo"] == public.elbo
    np.testing.assert_array_equal(columns(best.final.inclusion_prob), columns(public.inclusion_prob))
    assert sum(trace.seconds for trace in traces) <= seconds
    last = best.points[-1]
    assert {name: last[name] for name in sf.score(public, SIM)} == pytest.approx(sf.score(public, SIM))


def test_recorded_plain_restarts_are_those_of_fit_vi() -> None:
    options = {"max_iter": 30, "tol": 1e-10, "rtol": 1e-14}
    traces, _ = run_vi(SIM.X, PRIOR, TruthMeasure(SIM), recipe="plain", n_trials=2, seed=1, **options)
    plain: dict[str, Any] = {"init": "random", "race": False, "accelerate": False, **options, **PAPERS}
    with pytest.warns(sf.ConvergenceWarning):
        public = sf.fit_vi(SIM.X, PRIOR, n_trials=2, seed=1, **plain)
    assert [trace.facts["elbo"] for trace in traces] == [line["elbo"] for line in public.trial_records]


def test_the_recorded_mean_of_restarts_is_that_of_fit_vi() -> None:
    X = SIM.X[:, :200].copy()
    X[::7, ::5] = np.nan
    prior = sf.Prior.paper(n_factors=4, inclusion=0.3, noise="sample")
    samples, features = np.nonzero(np.isnan(X))
    measure = FillInMeasure(features, samples, SIM.X[samples, features])
    (trace,), seconds = run_vi_mean(X, prior, measure, n_trials=3, seed=1)
    public = sf.fit_vi(X, prior, n_trials=3, seed=1, average=True, **PAPERS)
    np.testing.assert_allclose(trace.final.signal, public.reconstruct()[samples, features], rtol=1e-9)
    np.testing.assert_array_equal(columns(trace.final.inclusion_prob), columns(public.inclusion_prob))
    assert trace.facts["elbo"] == public.elbo
    assert [point["seconds"] for point in trace.points] == [seconds]
    assert trace.points[-1]["rrmse"] == pytest.approx(sf.fill_in_error(public, SIM.X[:, :200], np.isnan(X)))


@pytest.mark.parametrize(
    ("recipe", "options"), [("plain", {"init": "random", "moves": (), "temper": False}), ("default", {})]
)
def test_a_recorded_chain_is_that_of_sample(recipe, options) -> None:
    lengths = {"n_warmup": 4, "n_draws": 1, "thin": 2, "seed": 1}
    trace = run_chains(SIM.X, PRIOR, TruthMeasure(SIM), recipe=recipe, n_chains=2, **lengths)[1]
    public = sf.sample(SIM.X, PRIOR, n_chains=2, progress=False, center=False, **lengths, **options)
    draw = public.unlabelled_draws()["posterior"]["loadings"].values[1, 0]
    np.testing.assert_allclose(trace.final.loadings_mean, draw, rtol=1e-6, atol=1e-12)
    assert trace.facts["kept"] == 1


def test_a_stopwatch_counts_neither_the_callback_nor_another_thread() -> None:
    def work() -> None:
        for _ in range(5):
            np.linalg.svd(np.ones((120, 120)))

    stopwatch = Stopwatch()
    work()
    once = stopwatch.elapsed()
    work()  # what a callback does
    stopwatch.restart()
    assert stopwatch.elapsed() < once
    thread = threading.Thread(target=stopwatch.restart)
    thread.start()
    thread.join()
    assert stopwatch.elapsed() == 0.0


def test_measurements_come_at_geometric_times() -> None:
    recorder = Recorder()
    for sweep in range(1, 10_001):
        recorder.record(1e-4 * sweep, sweep, dict)
    seconds = np.array([point["seconds"] for point in recorder.points])
    assert 25 < len(seconds) < 35
    assert np.all(seconds[1:] >= 1.25 * seconds[:-1] - 1e-12)
    recorder.record(1.0, 10_000, dict, final=True)
    recorder.record(1.0, 10_001, dict, final=True)
    assert [point["sweep"] for point in recorder.points[-1:]] == [10_001]


def test_an_interrupted_fit_is_no_finding(monkeypatch) -> None:
    def interrupt(*_) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("study.methods.load_kernels", lambda *_: None)
    monkeypatch.setattr("study.methods.RestartRecord.update", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_vi(SIM.X, PRIOR, TruthMeasure(SIM), recipe="default", n_trials=2, seed=1)


def test_means_follow_labels_and_signs() -> None:
    rng = np.random.default_rng(0)
    L, F, Z = rng.standard_normal((5, 3)), rng.standard_normal((3, 8)), rng.random((5, 3)) < 0.5
    means = RunningMeans(TruthMeasure(SIM))
    order, signs = [2, 0, 1], np.array([1.0, -1.0, 1.0])
    means.add(L, F, Z)
    means.add(L[:, order] * signs, F[order] * signs[:, None], Z[:, order])
    estimate = means.estimate()
    np.testing.assert_allclose(estimate.loadings_mean, L)
    np.testing.assert_allclose(estimate.activations_mean, F.T)
    np.testing.assert_allclose(estimate.inclusion_prob, Z)
    np.testing.assert_allclose(estimate.signal, F.T @ L.T)


def test_fill_in_measure_agrees_with_the_public_measure() -> None:
    held = held_out((800, 100), seed=0)
    features, samples = np.divmod(held, 100)
    p = sf.fit_vi(SIM.X, PRIOR, n_trials=1, max_iter=200, tol=1e-2, **PAPERS)
    measure = FillInMeasure(features, samples, SIM.X[samples, features])
    mask = np.zeros(SIM.X.shape, dtype=bool)
    mask[samples, features] = True
    signal = measure.signal(p.loadings_mean, p.activations_mean.T)
    measured = measure(Estimate(p.loadings_mean, p.activations_mean, p.inclusion_prob, signal))
    assert measured["rrmse"] == pytest.approx(sf.fill_in_error(p, SIM.X, mask))
