"""What is shown and told while a run goes on: callbacks that watch and stop, bars, the notice that kernels compile."""

from __future__ import annotations

import logging
import os
import pty
import re
import subprocess
import sys
import threading
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor import notices, progress
from sparsefactor.kernels.cpu.compile_progress import COMPILING, called_kernels
from sparsefactor.mcmc.cut import most_draws

SIM = sf.simulate(n_features=60, n_samples=40, inclusion=[0.3, 0.4, 0.5], snr=3, seed=2)
PRIOR = sf.Prior(n_factors=4)
SHORT: dict[str, Any] = {"n_chains": 3, "n_warmup": 10, "n_draws": 30, "init": "random", "seed": 1}


class Seen(list):
    """A callback that keeps what it is told, and wants the end when `enough` says so."""

    def __init__(self, enough=lambda _: False) -> None:
        self.enough = enough

    def __call__(self, now) -> bool:
        self.append(now)
        return self.enough(now)


# ---- fit_vi ---------------------------------------------------------------------------------------------------------


def test_vi_tells_each_iteration_and_changes_nothing() -> None:
    seen = Seen()
    settings = {"search": "thorough", "seed": 1}
    p, alone = sf.fit_vi(SIM.X, PRIOR, callback=seen, **settings), sf.fit_vi(SIM.X, PRIOR, **settings)
    assert p.elbo == alone.elbo
    np.testing.assert_array_equal(p.loadings_mean, alone.loadings_mean)
    last = seen[-1]
    assert (last.best_trial, last.best_elbo) == (int(p.trials.query("won")["trial"].iloc[0]), p.elbo)
    assert last.elbo == p.elbo
    phases = list(dict.fromkeys(now.phase for now in seen))
    assert phases == ["start", "race", "climb", "search", "polish"]
    assert {now.trial for now in seen} == set(range(10))
    assert last.n_proposals == p.record["search"]["proposals"] > 0
    best = np.array([now.best_elbo for now in seen])
    assert np.all(np.diff(best) >= 0)
    assert np.all(np.diff([now.seconds for now in seen]) >= 0)


def test_vi_tells_what_it_has_found() -> None:
    seen = Seen()
    p = sf.fit_vi(SIM.X, PRIOR, callback=seen)
    last = seen[-1]
    order = np.argsort(-np.abs(p.loadings_mean).sum(axis=0))
    mine = np.argsort(-np.abs(last.loadings).sum(axis=0))
    np.testing.assert_allclose(np.abs(last.loadings[:, mine]), np.abs(p.loadings_mean[:, order]), rtol=1e-12)
    np.testing.assert_allclose(last.inclusion_prob[:, mine], p.inclusion_prob[:, order])
    np.testing.assert_allclose(last.activations @ last.loadings.T, p.activations_mean @ p.loadings_mean.T, atol=1e-12)
    assert len(repr(last)) < 300


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_vi_tells_in_units_of_x(scale) -> None:
    seen = Seen()
    p = sf.fit_vi(scale * SIM.X, sf.Prior(n_factors=2), n_trials=2, callback=seen)
    assert seen[-1].elbo == p.elbo
    np.testing.assert_allclose(np.abs(seen[-1].loadings).sum(), np.abs(p.loadings_mean).sum())


@pytest.mark.parametrize("phase", ["start", "race", "climb", "search", "polish"])
def test_vi_stops_in_any_phase_with_the_best_so_far(phase) -> None:
    seen = Seen(lambda now: now.phase == phase)
    with pytest.warns(sf.ConvergenceWarning, match="stopped by the callback"):
        p = sf.fit_vi(SIM.X, PRIOR, search="thorough", callback=seen)
    assert [now.phase == phase for now in seen] == [False] * (len(seen) - 1) + [True]
    assert p.status is sf.Status.STOPPED
    assert not p.converged
    assert p.trials["elbo"].max() == p.elbo
    assert p.loadings_mean.shape[1] == PRIOR.K
    if phase in ("search", "polish"):
        assert p.elbo == seen[-1].best_elbo


@pytest.mark.parametrize(("phase", "settings"), [("prune", {"prune": True}), ("modules", {})])
def test_vi_stops_while_it_refines(phase, settings) -> None:
    prior = sf.Prior(n_factors=5, n_modules=2 if phase == "modules" else 1)
    with pytest.warns(sf.ConvergenceWarning, match="stopped by the callback"):
        p = sf.fit_vi(SIM.X, prior, n_trials=2, callback=lambda now: now.phase == phase, **settings)
    assert p.status is sf.Status.STOPPED
    assert (p.module_prob is not None) == (phase == "modules")


def test_only_true_stops() -> None:
    p = sf.fit_vi(SIM.X, PRIOR, n_trials=2, callback=lambda now: "a truth that was not meant")
    assert p.converged
    with pytest.warns(sf.ConvergenceWarning):
        assert sf.fit_vi(SIM.X, PRIOR, callback=lambda now: np.bool_(True)).status is sf.Status.STOPPED


def test_an_error_in_a_callback_is_raised() -> None:
    def fail(_) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sf.fit_vi(SIM.X, PRIOR, callback=fail)
    with pytest.raises(ZeroDivisionError):
        sf.sample(SIM.X, PRIOR, **SHORT, callback=fail)


@pytest.mark.parametrize("method", [sf.fit_vi, sf.sample])
def test_what_cannot_watch_is_refused(method) -> None:
    with pytest.raises(TypeError, match="callback must be a function of one argument, or None; got 3"):
        method(SIM.X, PRIOR, callback=3)
    with pytest.raises(
        TypeError, match=r"progress must be True, False or None; got the function .* pass it as callback="
    ):
        method(SIM.X, PRIOR, progress=print)
    with pytest.raises(TypeError, match="progress must be True, False or None; got 'yes'"):
        method(SIM.X, PRIOR, progress="yes")


# ---- sample ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_sample_tells_every_sweep_of_every_chain(n_jobs) -> None:
    seen = Seen()
    mc = sf.sample(SIM.X, PRIOR, **SHORT, n_jobs=n_jobs, callback=seen)
    assert sorted((now.chain, now.sweep) for now in seen) == [(c, s) for c in range(3) for s in range(1, 41)]
    for now in seen:
        assert now.phase == ("warmup" if now.sweep <= 10 else "draws")
        assert (now.n_sweeps, now.kept) == (40, max(0, now.sweep - 10))
        assert now.best_log_joint >= now.log_joint
    raw = mc.unlabelled_draws()
    for now in seen:
        if now.kept:
            at = {"chain": now.chain, "draw": now.kept - 1}
            assert now.log_joint == raw["sample_stats"]["lp"].values[now.chain, now.kept - 1]
            np.testing.assert_array_equal(now.loadings, raw["posterior"]["loadings"].isel(at).values)
            np.testing.assert_array_equal(now.inclusion, raw["posterior"]["inclusion"].isel(at).values)
            np.testing.assert_array_equal(now.activations, raw["posterior"]["activations"].isel(at).values)


def test_sample_tells_while_it_looks_for_starts() -> None:
    seen = Seen()
    settings = SHORT | {"n_chains": 2, "init": "auto", "n_draws": 4}
    sf.sample(SIM.X, PRIOR, **settings, callback=seen)
    assert list(dict.fromkeys(now.phase for now in seen)) == ["start", "warmup", "draws"]
    assert {now.chain for now in seen if now.phase == "start"} == {0, 1}
    with pytest.raises(ValueError, match="has a draw after its first sweep"):
        _ = seen[0].loadings


def test_one_call_at_a_time() -> None:
    inside = threading.Lock()

    def alone(_) -> None:
        assert inside.acquire(blocking=False)
        inside.release()

    sf.sample(SIM.X, PRIOR, **SHORT, n_jobs=3, callback=alone)


@cache
def whole_run() -> sf.MCMCPosterior:
    """What a run that nobody stops has drawn."""
    return sf.sample(SIM.X, PRIOR, **SHORT)


def same_draws(cut: sf.MCMCPosterior, whole: sf.MCMCPosterior) -> None:
    """The first draws of some of the chains of `whole`, and means that are theirs."""
    raw, full = cut.unlabelled_draws()["posterior"], whole.unlabelled_draws()["posterior"]
    for name in ("loadings", "inclusion", "activations", "noise_precision"):
        wanted = full[name].isel(chain=list(cut.chain_numbers), draw=slice(raw.sizes["draw"]))
        np.testing.assert_allclose(raw[name].values, wanted.values, rtol=1e-6)
    signal = np.einsum("cdgk,cdnk->ng", raw["loadings"].values, raw["activations"].values)
    np.testing.assert_allclose(cut.signal_mean, signal / (raw.sizes["chain"] * raw.sizes["draw"]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize(("n_jobs", "stop", "chains"), [(1, (0, 12), [0]), (1, (2, 25), [0, 1, 2]), (3, (0, 20), None)])
def test_sample_stops_with_the_draws_so_far(tmp_path, on_disk, n_jobs, stop, chains) -> None:
    path = tmp_path / "run" if on_disk else None
    chain, kept = stop
    enough = Seen(lambda now: (now.chain, now.kept) == (chain, kept))
    whole = whole_run()
    mc = sf.sample(SIM.X, PRIOR, **SHORT, n_jobs=n_jobs, path=path, callback=enough)
    if chains is not None:
        assert list(mc.chain_numbers) == chains
        assert mc.permutations.shape[1] == kept
    assert mc.n_chains * mc.permutations.shape[1] >= kept
    assert mc.record["ended"].startswith("stopped by the callback with")
    same_draws(mc, whole)
    if path is not None:  # and the run can be gone on
        same_draws(sf.sample(SIM.X, PRIOR, **SHORT, path=path), whole)


def test_the_chains_that_make_the_most_draws() -> None:
    assert most_draws([30, 30, 3, 0]) == ([0, 1], 30)
    assert most_draws([5, 9, 7]) == ([0, 1, 2], 5)
    assert most_draws([0, 4, 0]) == ([1], 4)
    assert most_draws([0, 0]) == ([0, 1], 0)


@pytest.mark.parametrize("init", ["random", "auto"])
def test_a_run_without_a_draw_has_nothing_to_return(init) -> None:
    with pytest.raises(RuntimeError, match=r"must have a draw before it is stopped.*once progress.kept is positive"):
        sf.sample(SIM.X, PRIOR, **(SHORT | {"init": init}), callback=lambda now: True)


def test_a_stop_ends_a_run_that_goes_on_by_itself() -> None:
    settings = SHORT | {"n_draws": 5}
    mc = sf.sample(SIM.X, PRIOR, **settings, until="converged", callback=lambda now: now.kept == 8)
    assert mc.record["ended"].startswith("stopped by the callback")


def test_an_interrupt_in_a_callback_saves_the_run(tmp_path) -> None:
    def interrupt(now) -> None:
        if now.sweep == 20:
            raise KeyboardInterrupt

    whole = whole_run()
    with pytest.raises(KeyboardInterrupt):
        sf.sample(SIM.X, PRIOR, **SHORT, path=tmp_path / "run", callback=interrupt)
    later = Seen()
    again = sf.sample(SIM.X, PRIOR, **SHORT, path=tmp_path / "run", callback=later)
    first = {now.chain: now.sweep for now in reversed(later)}
    assert 21 in first.values()
    same_draws(again, whole)


# ---- what is shown --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["vi", "mcmc"])
def test_nothing_is_shown_where_nobody_looks(capfd, method) -> None:
    sf.fit_vi(SIM.X, PRIOR, n_trials=1) if method == "vi" else sf.sample(SIM.X, PRIOR, **SHORT)
    assert capfd.readouterr() == ("", "")


def test_progress_goes_to_standard_error(capfd) -> None:
    sf.fit_vi(SIM.X, PRIOR, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert re.search(r"VI: start, restart 1, iteration \d+, best ELBO -", err)
    assert re.search(r"VI: ELBO -[\d,.]+, converged, [\d.]+ s\s*$", err)
    sf.sample(SIM.X, PRIOR, **(SHORT | {"init": "auto"}), progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "starts: VI looks for that of chain 2, of 3" in err
    for chain in range(3):
        assert re.search(rf"chain {chain} 100% \|█+\| .*\d+ active, log joint -", err)
    assert "nan" not in err


CODE = """
import sys, sparsefactor as sf
X = sf.simulate(n_features=30, n_samples=20, inclusion=[0.5], snr=4, seed=0).X
sf.fit_vi(X, n_factors=1, n_trials=1, progress=eval(sys.argv[1]))
"""


@pytest.mark.parametrize(("asked", "shown"), [("None", True), ("False", False)])
def test_a_terminal_shows_progress_unless_told_not_to(asked, shown) -> None:
    ours, theirs = pty.openpty()
    done = subprocess.run([sys.executable, "-c", CODE, asked], stderr=theirs, stdout=subprocess.PIPE, check=True)
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert done.stdout == b""
    assert (b"VI:" in said) == shown
    assert shown or said == b""


def test_a_notebook_shows_progress(monkeypatch) -> None:
    assert not progress.is_shown(None)
    shell = SimpleNamespace(config={"IPKernelApp": {}})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert progress.is_shown(None)
    assert not progress.is_shown(False)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not progress.is_shown(None)


def test_bars_start_no_thread(capfd) -> None:
    before = threading.active_count()
    with progress.Bars() as bars:
        bars.show("a", "x", 1, 3)
        assert threading.active_count() == before


# ---- compiling ------------------------------------------------------------------------------------------------------


def test_listeners_hear_each_notice_once() -> None:
    outer: list[str] = []
    inner: list[str] = []
    with notices.listening(outer.append):
        notices.announce("one")
        with notices.listening(inner.append), notices.listening(None):
            notices.announce("two")
            notices.announce("two")
        notices.announce("one")
    notices.announce("three")
    assert (outer, inner) == (["one"], ["two"])


def test_notices_are_logged_once(caplog, monkeypatch) -> None:
    monkeypatch.setattr(notices, "_logged", set())
    with caplog.at_level(logging.INFO, logger="sparsefactor"):
        notices.announce("compiling")
        notices.announce("compiling")
    assert [record.getMessage() for record in caplog.records] == ["compiling"]


COMPILE = """
import sparsefactor as sf
from sparsefactor.kernels.cpu.compiled import OPTIONS, njit
from sparsefactor.progress import Bars

@njit(**OPTIONS)
def half(x):
    return x / 2

@njit(**OPTIONS)
def twice(x):
    return 4 * half(x)

with Bars() as bars:
    bars.show("VI", "first")
    twice(1.0)
    twice(1)
"""


def test_the_first_compilation_is_announced_above_the_bars(tmp_path) -> None:
    (tmp_path / "code.py").write_text(COMPILE)
    env = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    said = [
        subprocess.run([sys.executable, tmp_path / "code.py"], capture_output=True, text=True, env=env, check=True)
        for _ in range(2)
    ]
    assert said[0].stderr.count(COMPILING) == 1
    assert "Compiling   0% |" in said[0].stderr
    assert re.search(r"Compiling 100% .* 2 of 2 kernels, \d+ s\s*$", said[0].stderr)
    assert "ompiling" not in said[1].stderr  # it lies on disk
    assert said[0].stdout == said[1].stdout == ""


def test_compilation_counts_the_kernels_that_a_call_needs() -> None:
    from sparsefactor.kernels.cpu.compiled import OPTIONS, njit

    @njit(**OPTIONS)
    def inner(x):
        return x + 1.0

    @njit(**OPTIONS)
    def outer(x):
        return inner(x) * inner(2 * x)

    assert called_kernels(outer) == {inner, outer}
    heard: list[tuple[int, int]] = []
    said: list[str] = []
    with notices.listening(said.append, lambda task, done, total, seconds: heard.append((done, total))):
        assert outer(1.0) == 6.0
    assert heard == [(0, 2), (0, 2), (1, 2), (2, 2)]
    assert said == [COMPILING]
    heard.clear()
    with notices.listening(said.append, lambda task, done, total, seconds: heard.append((done, total))):
        assert outer(1) == 6  # another type for both; the inner one is then compiled twice, for int and float
    assert heard[-1] == (2, 2)
    assert heard.count((2, 2)) == 1


def test_progress_without_a_display_of_its_own_comes_as_lines(monkeypatch) -> None:
    seconds = iter([0.0, 4.0, 12.0, 12.0, 15.0])
    monkeypatch.setattr("sparsefactor.notices.time.monotonic", lambda: next(seconds))
    said: list[str] = []
    with notices.listening(said.append):
        for done in range(3):
            notices.report_progress("Compiling", done, 5, 6.0)
    assert said == ["Compiling: 1 of 5 kernels, 6 s"]
