"""The study: watched runs are the public ones, stopped studies go on, claims follow from the numbers."""

import gzip
import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.helpers.browser import Browser, find_chromium
from tests.helpers.rds import as_rds

import sparsefactor as sf
from sparsefactor import plot, version
from sparsefactor.study import gtex, made_matrix, matrix, read_matrix, reproduce_gtex, reproduce_simulated, simulated
from sparsefactor.study import units as units_module
from sparsefactor.study.claims import claims, settled
from sparsefactor.study.gauges import FillInGauge, TruthGauge
from sparsefactor.study.traces import chains, vi_mean, vi_trials
from sparsefactor.study.units import Cache, Progress, Unit, run_units
from sparsefactor.study.watch import Laps, Means, Watch

SIM = sf.simulate_paper(snr=5, seed=3)
PRIOR = sf.Prior.paper(inclusion=[0.1] * 5 + [0.9])
PAPERS: dict[str, Any] = {"center": False, "activations": "independent"}  # what the study watches
TINY = {"n_trials": 2, "max_iter": 20, "n_chains": 2, "n_sweeps": 20, "warmup_plain": 5, "warmup_default": 5}


# ---- watched inference ----------------------------------------------------------------------------------------------


def columns(values: np.ndarray) -> np.ndarray:
    """In an order of their own: a result has its strongest factor first, a trial does not."""
    return values[:, np.lexsort(values)]


def test_watched_race_ends_where_fit_vi_ends() -> None:
    traces, seconds = vi_trials(SIM.X, PRIOR, TruthGauge(SIM), recipe="default", n_trials=4, seed=1)
    public = sf.fit_vi(SIM.X, PRIOR, n_trials=4, seed=1, **PAPERS)
    best = max(traces, key=lambda trace: trace.facts["elbo"])
    assert best.facts["elbo"] == public.elbo
    np.testing.assert_array_equal(columns(best.final.inclusion_prob), columns(public.inclusion_prob))
    assert sum(trace.seconds for trace in traces) <= seconds
    last = best.points[-1]
    assert {name: last[name] for name in sf.score(public, SIM)} == pytest.approx(sf.score(public, SIM))


def test_watched_plain_trial_is_that_of_fit_vi() -> None:
    options = {"max_iter": 30, "tol": 1e-10, "rtol": 1e-14}
    traces, _ = vi_trials(SIM.X, PRIOR, TruthGauge(SIM), recipe="plain", n_trials=2, seed=1, **options)
    plain: dict[str, Any] = {"init": "random", "race": False, "accelerate": False, **options, **PAPERS}
    with pytest.warns(sf.ConvergenceWarning):
        public = sf.fit_vi(SIM.X, PRIOR, n_trials=2, seed=1, **plain)
    assert [trace.facts["elbo"] for trace in traces] == [line["elbo"] for line in public.trial_records]


def test_watched_mean_of_trials_is_that_of_fit_vi() -> None:
    X = SIM.X[:, :200].copy()
    X[::7, ::5] = np.nan
    prior = sf.Prior.paper(n_factors=4, inclusion=0.3, noise="sample")
    samples, features = np.nonzero(np.isnan(X))
    gauge = FillInGauge(features, samples, SIM.X[samples, features])
    (trace,), seconds = vi_mean(X, prior, gauge, n_trials=3, seed=1)
    public = sf.fit_vi(X, prior, n_trials=3, seed=1, average=True, **PAPERS)
    np.testing.assert_allclose(trace.final.signal, public.reconstruct()[samples, features], rtol=1e-9)
    np.testing.assert_array_equal(columns(trace.final.inclusion_prob), columns(public.inclusion_prob))
    assert trace.facts["elbo"] == public.elbo
    assert len(trace.points) == 3
    assert trace.points[-1]["seconds"] <= seconds
    assert trace.points[-1]["rrmse"] == pytest.approx(sf.fill_in_error(public, SIM.X[:, :200], np.isnan(X)))


@pytest.mark.parametrize(
    ("recipe", "options"), [("plain", {"init": "random", "moves": (), "temper": False}), ("default", {})]
)
def test_watched_chain_is_that_of_sample(recipe, options) -> None:
    lengths = {"n_warmup": 4, "n_draws": 1, "thin": 2, "seed": 1}
    trace = chains(SIM.X, PRIOR, TruthGauge(SIM), recipe=recipe, n_chains=2, **lengths)[1]
    public = sf.sample(SIM.X, PRIOR, n_chains=2, progress=False, center=False, **lengths, **options)
    draw = public.unlabelled_draws()["posterior"]["loadings"].values[1, 0]
    np.testing.assert_allclose(trace.final.loadings_mean, draw, rtol=1e-6, atol=1e-12)
    assert trace.facts["kept"] == 1


def test_laps_count_neither_the_callback_nor_another_thread() -> None:
    def work() -> None:
        for _ in range(5):
            np.linalg.svd(np.ones((120, 120)))

    laps = Laps()
    work()
    once = laps.lap()
    work()  # what a callback does
    laps.go_on()
    assert laps.lap() < once
    thread = threading.Thread(target=laps.go_on)
    thread.start()
    thread.join()
    assert laps.lap() == 0.0


def test_measurements_come_at_geometric_times() -> None:
    watch = Watch()
    for sweep in range(1, 10_001):
        watch.look(1e-4 * sweep, sweep, dict)
    seconds = np.array([point["seconds"] for point in watch.points])
    assert 25 < len(seconds) < 35
    assert np.all(seconds[1:] >= 1.25 * seconds[:-1] - 1e-12)
    watch.look(1.0, 10_000, dict, now=True)
    watch.look(1.0, 10_001, dict, now=True)
    assert [point["sweep"] for point in watch.points[-1:]] == [10_001]


def test_an_interrupted_fit_is_no_finding(monkeypatch) -> None:
    def interrupt(self, now, lap) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sparsefactor.study.traces.load_kernels", lambda *_: None)
    monkeypatch.setattr("sparsefactor.study.traces.Climbs.look", interrupt)
    with pytest.raises(KeyboardInterrupt):
        vi_trials(SIM.X, PRIOR, TruthGauge(SIM), recipe="default", n_trials=2, seed=1)


def test_means_follow_labels_and_signs() -> None:
    rng = np.random.default_rng(0)
    L, F, Z = rng.standard_normal((5, 3)), rng.standard_normal((3, 8)), rng.random((5, 3)) < 0.5
    means = Means(TruthGauge(SIM))
    order, signs = [2, 0, 1], np.array([1.0, -1.0, 1.0])
    means.add(L, F, Z)
    means.add(L[:, order] * signs, F[order] * signs[:, None], Z[:, order])
    estimate = means.estimate()
    np.testing.assert_allclose(estimate.loadings_mean, L)
    np.testing.assert_allclose(estimate.activations_mean, F.T)
    np.testing.assert_allclose(estimate.inclusion_prob, Z)
    np.testing.assert_allclose(estimate.signal, F.T @ L.T)


def test_fill_in_gauge_agrees_with_the_public_measure() -> None:
    held = matrix.held_out((800, 100), seed=0)
    features, samples = np.divmod(held, 100)
    p = sf.fit_vi(SIM.X, PRIOR, n_trials=1, max_iter=200, tol=1e-2, **PAPERS)
    gauge = FillInGauge(features, samples, SIM.X[samples, features])
    mask = np.zeros(SIM.X.shape, dtype=bool)
    mask[samples, features] = True
    from sparsefactor.study.watch import Estimate

    signal = gauge.signal(p.loadings_mean, p.activations_mean.T)
    measured = gauge.measure(Estimate(p.loadings_mean, p.activations_mean, p.inclusion_prob, signal))
    assert measured["rrmse"] == pytest.approx(sf.fill_in_error(p, SIM.X, mask))


# ---- units and the cache --------------------------------------------------------------------------------------------


def work(settings: dict, log: str, told) -> tuple[dict, dict]:
    with Path(log).open("a") as file:
        file.write(f"{settings['n']}\n")
    if settings["n"] == 2 and not Path(log).with_name("healed").exists():
        raise RuntimeError("stopped")
    return {"square": settings["n"] ** 2}, {"a": np.arange(settings["n"])}


def test_a_stopped_study_goes_on(tmp_path) -> None:
    log = tmp_path / "log"
    units = [Unit(work, {"n": n}, {"log": str(log)}) for n in (1, 2, 3)]
    cache = Cache(tmp_path / "cache")
    with pytest.raises(RuntimeError, match="stopped"):
        run_units(units, cache, 1)
    (tmp_path / "healed").touch()
    found = run_units(units, cache, 1)
    assert [facts["square"] for facts, _ in found] == [1, 4, 9]
    assert log.read_text().split() == ["1", "2", "2", "3"]  # the first was not made again
    np.testing.assert_array_equal(run_units(units, cache, 1)[2][1]["a"], [0, 1, 2])
    assert log.read_text().split() == ["1", "2", "2", "3"]


def test_other_settings_are_other_units(tmp_path) -> None:
    one, other = Unit(work, {"n": 1}, {"log": "x"}), Unit(work, {"n": 1, "seed": 1}, {"log": "x"})
    assert one.key != other.key
    assert one.key == Unit(work, {"n": 1, "title": "as called"}, {"log": "elsewhere"}).key


def test_changed_defaults_are_other_units(monkeypatch) -> None:
    before = {unit.key for unit in simulated.plan(simulated.LEVELS["quick"])}
    monkeypatch.setitem(sf.sample.__kwdefaults__, "moves", ("scale",))
    after = {unit.key for unit in simulated.plan(simulated.LEVELS["quick"])}
    assert len(before - after) == 3  # the default chains, at each snr


def test_other_code_makes_other_units(monkeypatch) -> None:
    unit = Unit(work, {"n": 1})
    before = unit.key
    assert len(units_module.code_digest()) == 24
    monkeypatch.setattr(units_module, "code_digest", lambda: "other")
    assert unit.key != before


def test_the_code_that_decides_is_all_there() -> None:
    root = Path(sf.__file__).parent
    for name in (*version.DECIDING, *units_module.DECIDING):
        assert (root / name).is_dir() or (root / f"{name}.py").is_file()


def test_a_damaged_file_is_made_again(tmp_path, caplog) -> None:
    cache = Cache(tmp_path / "cache")
    unit = Unit(work, {"n": 1}, {"log": str(tmp_path / "log")})
    run_units([unit], cache, 1)
    cache.path(unit.key).write_bytes(b"half a file")
    assert run_units([unit], cache, 1)[0][0] == {"square": 1}
    assert "made again" in caplog.text


def slow_work(settings: dict, told) -> tuple[dict, dict]:
    for step in range(30):
        told(step / 30)
        time.sleep(0.01)
    return {"n": settings["n"]}, {}


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_is_told_while_units_are_under_way(tmp_path, monkeypatch, jobs) -> None:
    monkeypatch.setattr(units_module, "EVERY", 0.02)
    units = [Unit(slow_work, {"n": n}, cost=1.0 + n) for n in range(3)]
    said: list[Progress] = []
    found = run_units(units, Cache(tmp_path / "cache"), jobs, said.append)
    assert [facts["n"] for facts, _ in found] == [0, 1, 2]
    shares = [progress.share for progress in said]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert {round(6 * share, 6) for share in shares} - set(range(7))  # not only where a unit ends
    assert [p.done for p in said] == sorted(p.done for p in said)


# ---- the whole, in small --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("study")
    reports: list = []
    page = reproduce_simulated(out, level="quick", jobs=1, report=reports.append, **TINY)
    assert page == out / "report.html"
    assert reports[-1].share == pytest.approx(1.0)
    assert reports[-1].done == reports[-1].total
    return out


def test_study_writes_what_it_promises(folder) -> None:
    for name in ("figure1_inclusion", "figure2_over_time", "figure3_noise"):
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (folder / "figures" / f"{name}.svg").read_text()[:2000]
    record = json.loads((folder / "run.json").read_text())
    assert record["settings"]["seed"] == 0
    assert record["versions"]["sparsefactor"] == sf.__version__
    lines = (folder / "runs.csv").read_text().splitlines()
    assert len(lines) == 1 + 3 * (2 + 2 + 2 + 2)
    assert "A smaller study" in (folder / "report.html").read_text()


def test_tables_come_as_parquet_too(folder) -> None:
    import pandas as pd

    for name in ("summary", "runs", "traces", "claims"):
        exact, short = pd.read_parquet(folder / f"{name}.parquet"), pd.read_csv(folder / f"{name}.csv")
        assert list(exact.columns) == list(short.columns)
        assert len(exact) == len(short) > 0
        for column in short.select_dtypes("number"):
            np.testing.assert_allclose(exact[column].astype(float), short[column], rtol=1e-5)


@pytest.mark.skipif(find_chromium() is None and "CI" not in os.environ, reason="no Chromium on this machine")
def test_study_page_opens_and_fits(folder) -> None:
    with Browser(find_chromium() or "chromium") as browser:
        for width in (1200, 360):
            browser.open(folder / "report.html", width=width)
            assert browser.problems == []
            assert browser.run("document.documentElement.scrollWidth") <= width
        assert browser.run("document.querySelectorAll('.claims tbody tr').length") == 9
        assert browser.run("document.querySelectorAll('svg.chart').length") == 12
        assert browser.run("document.querySelectorAll('canvas').length") == 5


def test_claims_are_undecided_where_trials_were_stopped(folder) -> None:
    text = (folder / "claims.txt").read_text()
    assert "not decided: 0 of 2 converged within 20 iterations" in text


def results_of(*, chains: dict[float, list[float]], elbos: list[float]) -> simulated.Results:
    """Results made up: for each snr, the chains' correlations with factor 1; all else is perfect."""
    level = replace(simulated.LEVELS["quick"], n_chains=len(chains[1.0]))
    runs = []
    for snr in level.snrs:
        for method in simulated.METHODS:
            numbers = elbos if method.startswith("vi") else chains[snr]
            for number, value in enumerate(numbers):
                first = value if method.startswith("mcmc") else 0.95
                point = dict.fromkeys(simulated.MEASURES, 0.5) | {"seconds": 1.0 + number, "sweep": 1}
                facts = {"points": [point], "correlations": [first, 0.99], "seconds": 2.0, "sweeps": 9}
                if method.startswith("vi"):
                    facts |= {"elbo": value, "status": "converged"}
                runs.append(simulated.Run(snr, method, number, facts, {}))
    return simulated.Results(level, runs, {}, {})


def test_claims_count_the_chains_that_fail() -> None:
    results = results_of(chains={1.0: [0.95, 0.2], 5.0: [0.95, 0.2], 25.0: [0.95, 0.95]}, elbos=[-1.0, -9.0])
    found = {claim.claim: claim for claim in claims(results)}
    fails = found["Some MCMC chains fail to find the structure (snr 5)"]
    assert fails.plain_holds
    assert fails.plain.startswith("1 of 2 chains")
    assert found["At snr 1 some chains, not all, find factor 1"].plain_holds
    assert not found["At snr 1 no VI trial finds factor 1, the sparsest"].plain_holds
    assert found["All VI trials converge, to different optima (snr 5)"].plain_holds
    healthy = results_of(chains={1.0: [0.95, 0.95], 5.0: [0.95, 0.95], 25.0: [0.95, 0.95]}, elbos=[-1.0, -1.0])
    found = {claim.claim: claim for claim in claims(healthy)}
    assert not found["Some MCMC chains fail to find the structure (snr 5)"].plain_holds
    assert not found["All VI trials converge, to different optima (snr 5)"].plain_holds


def test_settled_is_when_a_measure_last_came_close() -> None:
    points = [{"seconds": s, "z_accuracy": a} for s, a in ((1, 0.9), (2, 0.5), (4, 0.895), (8, 0.9))]
    assert settled(simulated.Run(1.0, "mcmc_plain", 0, {"points": points}, {})) == 4


# ---- the fill-in test -----------------------------------------------------------------------------------------------


def test_fill_in_study(tmp_path) -> None:
    small = made_matrix((60, 12), n_factors=3)
    tiny = {"n_trials": 2, "max_iter": 10, "n_warmup": 2, "n_sweeps": 6, "n_factors": 3}
    page = reproduce_gtex(tmp_path, small, level="quick", **tiny)
    assert "Not GTEx" in page.read_text()
    rows = (tmp_path / "fill_in.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 + 6 * 3 + 3
    means = [row for row in rows if row.startswith('"VI, mean of all trials",')]
    assert len(means) == 6
    assert all(row.split(",")[-2] == "2" for row in means)  # of two trials
    assert (tmp_path / "figures" / "factors.svg").exists()
    held = np.load(tmp_path / "held_out.npy")
    np.testing.assert_array_equal(held, np.random.default_rng(0).choice(720, 72, replace=False))


def test_held_out_entries_do_not_reach_the_fit(tmp_path) -> None:
    values = np.arange(24.0).reshape(6, 4)
    np.savez(tmp_path / "d.npz", values=values)
    X, gauge = gtex._masked({"seed": 0}, str(tmp_path / "d.npz"))
    hidden = np.isnan(X)
    assert hidden.sum() == len(gauge.values) == 2
    np.testing.assert_array_equal(np.sort(values.T[hidden]), np.sort(gauge.values))


def test_soft_svd_beats_the_mean_on_low_rank_data_only() -> None:
    rng = np.random.default_rng(0)
    low = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 20)) + 0.3 * rng.standard_normal((200, 20))
    held = matrix.held_out(low.shape, 0)
    found = matrix.baselines(low, held, 0)
    assert found["soft-thresholded SVD"] < 0.4
    assert found["feature mean"] > 0.9
    assert found["zero"] == 1.0
    noise = matrix.baselines(rng.standard_normal((200, 20)), held, 0)
    assert noise["soft-thresholded SVD"] > 0.95


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet", ".rds"])
def test_matrices_are_read(tmp_path, suffix) -> None:
    import pandas as pd

    frame = pd.DataFrame([[1.5, 2.0], [3.0, -4.0], [0.0, 1.0]], index=["r1", "r2", "r3"], columns=["Liver", "Lung"])
    path = tmp_path / f"z{suffix}"
    if suffix == ".parquet":
        frame.to_parquet(path)
    elif suffix == ".rds":
        path.write_bytes(gzip.compress(as_rds(frame.to_numpy(), list(frame.index), list(frame.columns))))
    else:
        frame.to_csv(path)
    found = read_matrix(path, transpose=True)
    np.testing.assert_array_equal(found.values, frame.to_numpy())
    assert found.sample_names == ["Liver", "Lung"]
    assert found.feature_names == ["r1", "r2", "r3"]
    as_fit_reads_it = read_matrix(path)
    np.testing.assert_array_equal(as_fit_reads_it.values, frame.to_numpy().T)
    assert as_fit_reads_it.sample_names == ["r1", "r2", "r3"]
    for choices in ({}, {"transpose": True}):
        own, study = sf.read_table(path, **choices), read_matrix(path, **choices)
        assert (list(own.index), list(own.columns)) == (study.sample_names, study.feature_names)
        np.testing.assert_array_equal(own.to_numpy().T, study.values)


def test_matrices_that_cannot_be_used_are_refused(tmp_path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        read_matrix(tmp_path / "none.csv")
    (tmp_path / "a.txt").touch()
    with pytest.raises(ValueError, match="is empty"):
        read_matrix(tmp_path / "a.txt")
    (tmp_path / "a.csv").write_text("n,a,b\nx,1,\ny,2,3\n")
    with pytest.raises(ValueError, match="must be complete"):
        read_matrix(tmp_path / "a.csv")


# ---- its figures ----------------------------------------------------------------------------------------------------


def test_lines_over_time_show_what_they_are_given() -> None:
    lines = [plot.Line([0.1, 1.0], [3.0, 2.0], "a"), plot.Line([0.2, 2.0], [3.0, 1.0], "b", marked=True)]
    figure = plot.over_time([[plot.Panel("snr = 5", "RRMSE", lines, {"prior mean": 4.0})]], note="quick")
    (ax,) = figure.axes
    assert ax.get_xscale() == "log"
    assert (ax.get_title(), ax.get_ylabel()) == ("snr = 5", "RRMSE")
    drawn = [line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_linestyle() != ":"]
    np.testing.assert_array_equal([line.get_ydata() for line in drawn], [[3.0, 2.0], [3.0, 1.0]])
    assert drawn[1].get_linewidth() > drawn[0].get_linewidth()
    assert drawn[0].get_color() != drawn[1].get_color()
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a", "b", "largest ELBO", "prior mean"]
    assert figure.get_suptitle() == "quick"


def test_factor_bars_come_in_order_of_their_share() -> None:
    activations = np.arange(12.0).reshape(4, 3)
    figure = plot.factor_bars(activations, list("wxyz"), [0.1, 0.6, 0.3], note="made up")
    assert [ax.get_title() for ax in figure.axes] == ["2\n60.0%", "3\n30.0%", "1\n10.0%"]
    np.testing.assert_array_equal([bar.get_width() for bar in figure.axes[0].patches], activations[:, 1])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == list("wxyz")
    assert figure.get_suptitle() == "made up"


def test_factor_bars_leave_empty_factors_out() -> None:
    figure = plot.factor_bars(np.arange(12.0).reshape(4, 3), list("wxyz"), [0.3, 0.0, 0.6], note="made up")
    assert [ax.get_title() for ax in figure.axes] == ["3\n60.0%", "1\n30.0%"]
    assert figure.get_suptitle() == "made up; 1 empty left out"
    rounding = plot.factor_bars(np.ones((4, 3)), list("wxyz"), [0.3, 1e-45, 0.6], note="made up")
    assert len(rounding.axes) == 2
    assert plot.factor_bars(np.zeros((4, 3)), list("wxyz"), np.zeros(3), note="n").get_suptitle() == "n; all are empty"


def test_panels_may_be_cut_to_what_matters() -> None:
    panel = plot.Panel("t", "y", [plot.Line([1, 2], [9.0, 0.5], "a")], ylim=(0.0, 1.0))
    whole = replace(panel, ylim=None)
    figure = plot.over_time([[panel, whole]])
    assert figure.axes[0].get_ylim() == (0.0, 1.0)
    assert figure.axes[1].get_ylim()[1] > 9.0
