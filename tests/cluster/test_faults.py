"""The same results, whatever becomes of workers, client and scheduler."""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from tests.cluster.common import CLUSTER, DRAWS, FIT, RUGGED, loadings, same

import sparsefactor as sf

distributed = pytest.importorskip("distributed")
zarr = pytest.importorskip("zarr")
dask_array = pytest.importorskip("dask.array")


def struck(client, how, when: int, after: float, call):
    """A call during which a worker is killed or stopped, and how often it told of itself.

    when: at which of these times, and `after` so many seconds; 0: so many seconds after the call, while shards are
    placed and data read, or starts made.
    """
    pid, told = random.choice(list(client.run(os.getpid).values())), []

    def strike(_=None):
        if len(told) == when:
            threading.Timer(after, strike_at, (pid, how)).start()
        told.append(1)

    try:
        if not when:
            strike()
        found = call(client=client, callback=strike)
    finally:
        strike_at(pid, signal.SIGCONT)
    return found, len(told)


def strike_at(pid: int, how: signal.Signals) -> None:
    """At a process, unless it was ended since."""
    with suppress(ProcessLookupError):
        os.kill(pid, how)


@pytest.fixture
def impatient(monkeypatch):
    """A worker that does not answer is given up after seconds, not a minute."""
    for room in ("engine.dask.places", "engine.dask.gathering", "jobs"):
        monkeypatch.setattr(f"sparsefactor.{room}.LEAST_PATIENCE", 4.0)
    monkeypatch.setattr("sparsefactor.engine.dask.passing.PATIENCE", 4.0)
    monkeypatch.setattr("sparsefactor.jobs.ANSWERED", 5.0)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)


def noticed(caplog) -> bool:
    """Whether a worker was said to be lost since this was last asked."""
    found = any("is lost" in line or "made elsewhere" in line for line in caplog.messages)
    caplog.clear()
    return found


@pytest.fixture
def doomed():
    """A cluster of its own, for a worker that is lost may be slow to come back."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with distributed.LocalCluster(**CLUSTER) as cluster, distributed.Client(cluster) as client:
        yield client


def fitted(X):
    return partial(sf.fit_vi, X, **FIT)


def test_a_worker_is_lost(doomed, by_rows, impatient, sim, expected, caplog):
    assert same(expected, struck(doomed, signal.SIGKILL, 15, 0.0, fitted(sim.X))[0])
    assert noticed(caplog)


@pytest.mark.slow
def test_what_is_saved_is_where_a_lost_worker_goes_on(doomed, by_rows, impatient, sim, expected, monkeypatch, caplog):
    monkeypatch.setattr("sparsefactor.engine.dask.places.SAVE_AFTER", 0.02)
    monkeypatch.setattr("sparsefactor.engine.dask.places.SAVE_SHARE", 1.0)
    monkeypatch.setattr("sparsefactor.engine.dask.places.PIECE", 10_000)  # of which a shard has several
    assert same(expected, struck(doomed, signal.SIGKILL, 30, 0.0, fitted(sim.X))[0])
    assert noticed(caplog)


RUNS = {"rows": {**DRAWS, "n_warmup": 8, "n_draws": 12}, "chains": {**DRAWS, "n_warmup": 30, "n_draws": 60}}


def faulty(what: str, sim, store, request):
    """A call that is to be struck, and whether what it returns is right."""
    if what.endswith("rows"):
        request.getfixturevalue("by_rows")
    if what.startswith("draws"):
        settings = RUNS[what.split()[-1]]
        expected = loadings(sf.sample(sim.X, **settings))
        return partial(sf.sample, store, **settings), lambda found: np.array_equal(expected, loadings(found))
    if what == "a fit by rows":
        return fitted(store), partial(same, request.getfixturevalue("expected"))
    return partial(sf.fit_vi, RUGGED, n_factors=3, search="thorough"), partial(same, request.getfixturevalue("rugged"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sparsefactor.SamplingWarning")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("what", ["a fit by rows", "a fit by trials", "draws by rows", "draws by chains"])
def test_ten_random_moments(sim, store, impatient, what, how, caplog, request):
    call, is_right = faulty(what, sim, store, request)
    rng, seen, length = random.Random(int(how)), 0, 40
    for number in range(10):
        early = number % 3 == 2
        when, after = (0, rng.uniform(0.0, 1.0)) if early else (rng.randrange(1, length), rng.uniform(0, 0.02))
        with distributed.LocalCluster(**CLUSTER) as cluster, distributed.Client(cluster) as client:
            found, length = struck(client, how, when, after, call)
        assert is_right(found)
        seen += noticed(caplog)
    if what.endswith("rows"):
        assert seen >= 7  # but for those near the end
    elif how == signal.SIGSTOP:  # jobs of a worker that was killed are made again by Dask itself
        assert seen >= 4  # for they tell of themselves when they have come back


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_is_lost_among_many(by_rows, impatient, sim, expected, tmp_path, how, monkeypatch, caplog):
    """Where workers add up sums among themselves and pass messages on, at a few moments."""
    few = tmp_path / "few.py"
    few.write_text("import sparsefactor.engine.dask.messages as messages\nmessages.FEW, messages.MUCH = 2, 0\n")
    monkeypatch.setattr("sparsefactor.engine.dask.messages.FEW", 2)
    monkeypatch.setattr("sparsefactor.engine.dask.messages.MUCH", 0)
    rng = random.Random(int(how))
    for when in (5, 20):
        with (
            distributed.LocalCluster(**{**CLUSTER, "n_workers": 4}, preload=str(few)) as cluster,
            distributed.Client(cluster) as client,
        ):
            assert same(expected, struck(client, how, when, rng.uniform(0.0, 0.02), fitted(sim.X))[0])
        assert noticed(caplog)


CHILD = """
import json, logging, sys
import distributed, sparsefactor.engine.readers, sparsefactor as sf
logging.getLogger("distributed").setLevel(logging.CRITICAL)
if __name__ == "__main__":
    call, store, path, settings, little = sys.argv[1:]
    sparsefactor.engine.readers.LITTLE = int(little)
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        with distributed.Client(cluster) as client:
            getattr(sf, call)(store, **json.loads(settings), progress=False, path=path, client=client)
"""


def killed_at_moments(call: str, store: str, folder, seed: int, longest: float, little: int, settings) -> None:
    """A call in a process that is killed ten times; with it go the scheduler and all workers."""
    script = folder / "child.py"
    script.write_text(CHILD)
    rng, killed = random.Random(seed), 0
    for _ in range(10):
        args = [call, store, str(folder / "run"), json.dumps(settings), str(little)]
        child = subprocess.Popen([sys.executable, "-W", "ignore", str(script), *args])
        try:
            child.wait(timeout=rng.uniform(6.0, longest))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            killed += 1
    assert killed >= 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sparsefactor.SamplingWarning")
@pytest.mark.parametrize("little", [2**26, 0])
def test_a_client_is_killed_at_ten_moments_and_goes_on(sim, store, tmp_path, little):
    """Whether a worker has chains, or features."""
    n_draws = 2000 if little else 100  # so that the first moments are not the last: chains on workers are fast
    settings = {**DRAWS, "n_warmup": 20, "n_draws": n_draws, "precision": "double"}
    told = {name: value for name, value in settings.items() if name != "progress"}
    killed_at_moments("sample", store, tmp_path, 0, 14.0, little, told | {"checkpoint_seconds": 0.1})
    found = sf.sample(sim.X, **settings, path=tmp_path / "run")
    assert np.array_equal(loadings(found), loadings(sf.sample(sim.X, **settings)))


@pytest.mark.slow
def test_a_client_is_killed_in_a_search_which_goes_on(sim, store, tmp_path):
    """What goes on has no cluster."""
    killed_at_moments("fit_vi", store, tmp_path, 1, 20.0, 0, {"n_factors": 3, "checkpoint_seconds": 0.2})
    assert same(sf.fit_vi(sim.X, n_factors=3, path=tmp_path / "run"), sf.fit_vi(sim.X, n_factors=3))
