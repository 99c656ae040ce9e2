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
import time
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from tests.cluster.common import CLUSTER, DRAWS, FIT, RUGGED, loadings, same

import sparsefactor as sf
from sparsefactor.executors import Shared, workers_of

distributed = pytest.importorskip("distributed")
zarr = pytest.importorskip("zarr")
dask_array = pytest.importorskip("dask.array")


def struck(client, when: int, after: float, call):
    """What a call returns during which a worker is killed.

    when: at which time that it tells of itself, and `after` so many seconds; 0: so many seconds after the call, while
    data are read, or starts made.
    """
    pid, told = random.choice(list(client.run(os.getpid).values())), []

    def strike(_=None):
        if len(told) == when:
            threading.Timer(after, kill, (pid,)).start()
        told.append(1)

    if not when:
        strike()
    found = call(client=client, callback=strike)
    return found, len(told)


def kill(pid: int) -> None:
    """A process, unless it has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def doomed():
    """A cluster of its own, for a worker that is lost may be slow to come back."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with distributed.LocalCluster(**CLUSTER) as cluster, distributed.Client(cluster) as client:
        yield client


def fitted(X):
    return partial(sf.fit_vi, X, **FIT)


def test_a_worker_is_lost(doomed, by_rows, sim, expected):
    before = set(workers_of(doomed))
    assert same(expected, struck(doomed, 15, 0.0, fitted(sim.X))[0])
    assert before - set(workers_of(doomed))


def test_all_workers_are_lost_at_once(doomed, by_rows, sim, expected):
    """Tasks that prefer a worker would wait for it for ever."""
    told = []

    def strike(_):
        if len(told) == 15:
            for pid in doomed.run(os.getpid).values():
                kill(pid)
        told.append(1)

    assert same(expected, sf.fit_vi(sim.X, **FIT, client=doomed, callback=strike))
    assert len(told) > 15


def test_a_shared_value_outlives_the_worker_that_has_it(doomed):
    """It is in the graph, which the scheduler keeps."""
    jobs = Shared(doomed, np.arange(1000.0))
    assert jobs(np.sum) == 499500.0
    for pid in doomed.run(os.getpid).values():
        kill(pid)
    assert jobs(np.sum) == 499500.0


def test_a_scheduler_that_is_lost_is_an_error_soon(by_rows, sim):
    """Whether a worker has features or jobs."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    for settings in ({**FIT, "n_trials": 1}, {**FIT, "search": "thorough", "n_trials": "auto"}):
        cluster = distributed.LocalCluster(**CLUSTER)
        client = distributed.Client(cluster, timeout=5)
        told = []

        def close(_, told=told, cluster=cluster):
            if len(told) == 5:
                cluster.close()
            told.append(1)

        begun = time.monotonic()
        with pytest.raises(RuntimeError, match=r"connection is lost; make a new client|connected to its scheduler"):
            sf.fit_vi(sim.X, **settings, client=client, callback=close)
        assert time.monotonic() - begun < 60
        client.close()


@pytest.mark.slow
def test_a_lost_worker_of_a_state_that_was_sent_anew(doomed, by_rows, sim, expected, monkeypatch):
    monkeypatch.setattr("sparsefactor.engine.dask.futures.LINEAGE", 4)
    monkeypatch.setattr("sparsefactor.engine.dask.futures.SAVING", 1e9)
    assert same(expected, struck(doomed, 30, 0.0, fitted(sim.X))[0])


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
@pytest.mark.parametrize("what", ["a fit by rows", "a fit by trials", "draws by rows", "draws by chains"])
def test_ten_random_moments(sim, store, what, request):
    call, is_right = faulty(what, sim, store, request)
    rng, lost, length = random.Random(9), 0, 40
    for number in range(10):
        early = number % 3 == 2
        when, after = (0, rng.uniform(0.0, 1.0)) if early else (rng.randrange(1, length), rng.uniform(0, 0.02))
        with distributed.LocalCluster(**CLUSTER) as cluster, distributed.Client(cluster) as client:
            before = set(workers_of(client))
            found, length = struck(client, when, after, call)
            lost += bool(before - set(workers_of(client)))
        assert is_right(found)
    assert lost >= 7  # but for those near the end


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
