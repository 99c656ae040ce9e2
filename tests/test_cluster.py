"""A real cluster of processes on this machine: the same results, whatever becomes of its workers."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from functools import partial

import numpy as np
import pandas as pd
import pytest

import sparsefactor as sf
from sparsefactor.data.sources import source_of
from sparsefactor.engine.dask.gathering import ask

distributed = pytest.importorskip("distributed")
zarr = pytest.importorskip("zarr")
dask_array = pytest.importorskip("dask.array")

G, N = 5400, 40  # more than what would be fitted by the client alone
FIT = {"n_factors": 3, "n_trials": 4, "max_iter": 200}
DRAWS = {"n_factors": 3, "n_chains": 2, "n_warmup": 4, "n_draws": 6, "init": "varimax", "progress": False}
CLUSTER = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": 0}


@pytest.fixture(scope="module")
def client():
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with distributed.LocalCluster(**CLUSTER) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="module")
def sim():
    return sf.simulate(n_features=G, n_samples=N, inclusion=[0.3, 0.2, 0.1], snr=4, seed=1)


@pytest.fixture(scope="module")
def store(sim, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("store") / "x.zarr")
    zarr.create_array(path, shape=sim.X.shape, chunks=(N, 500), dtype="f8")[:] = sim.X
    return path


@pytest.fixture(scope="module")
def expected(sim):
    return sf.fit_vi(sim.X, **FIT)


def same(a: sf.VIPosterior, b: sf.VIPosterior) -> bool:
    names = ("loadings_mean", "loadings_sd", "inclusion_prob", "activations_mean", "noise_precision_mean")
    return a.elbo == b.elbo and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


def loadings(mc: sf.MCMCPosterior):
    return mc.draws["posterior"]["loadings"].values


@pytest.fixture
def by_rows(monkeypatch):
    """No data are so little that every worker has all of them."""
    monkeypatch.setattr("sparsefactor.engine.readers.LITTLE", 0)


def tasks_of(client) -> set[str]:
    """What workers were asked of late."""
    logs = client.run(lambda dask_worker: list(dask_worker.state.log)[-2000:])
    return {str(call[0]).split("-")[0] for calls in logs.values() for call in calls}


def test_a_fit_is_the_same_to_the_bit(client, by_rows, sim, store, expected):
    assert same(expected, sf.fit_vi(sim.X, **FIT, client=client))
    found = sf.fit_vi(store, **FIT, client=client)
    assert same(expected, found)
    assert found.variance_explained() == pytest.approx(expected.variance_explained(), rel=1e-12)


@pytest.mark.filterwarnings("ignore::sparsefactor.SamplingWarning")
@pytest.mark.parametrize("little", [True, False])
def test_draws_are_the_same_and_a_run_goes_on_without_the_cluster(client, sim, store, tmp_path, request, little):
    """Whether a worker has chains, or features."""
    if not little:
        request.getfixturevalue("by_rows")
    whole, few = (sf.sample(sim.X, **{**DRAWS, "n_draws": n}) for n in (6, 3))
    begun = sf.sample(store, **{**DRAWS, "n_draws": 3}, path=tmp_path / "run", client=client, precision="double")
    assert np.array_equal(loadings(begun), loadings(few))
    assert np.array_equal(begun.variance_explained(by="feature"), few.variance_explained(by="feature"))
    assert np.array_equal(begun.variance_explained(by="factor"), few.variance_explained(by="factor"))
    done = sf.sample(sim.X, **DRAWS, path=tmp_path / "run", precision="double")
    assert np.array_equal(loadings(done), loadings(whole))


@pytest.mark.filterwarnings("ignore::sparsefactor.SamplingWarning")
def test_what_draws_explain_is_summed_where_the_data_are(client, by_rows, sim, store, monkeypatch):
    """With covariates, too, no row of the data comes to the client."""
    age = np.random.default_rng(0).standard_normal((N, 1))
    here = sf.sample(sim.X, **DRAWS, covariates=age)
    monkeypatch.setattr("sparsefactor.engine.dask.cluster.Cluster.rows", None)
    there = sf.sample(store, **DRAWS, covariates=age, client=client)
    for by in ("feature", "factor"):
        assert np.array_equal(here.variance_explained(by=by), there.variance_explained(by=by))


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
    assert same(expected, struck(doomed, signal.SIGKILL, 30, 0.0, fitted(sim.X))[0])
    assert noticed(caplog)


RUGGED = np.random.default_rng(0).standard_normal((40, 8)) @ np.random.default_rng(1).standard_normal((8, 8))
LONG = {**DRAWS, "n_warmup": 30, "n_draws": 60}


@pytest.fixture(scope="module")
def rugged():
    found = sf.fit_vi(RUGGED, n_factors=3)
    assert found.record["search"]["hops"] > 8
    return found


@pytest.fixture(scope="module")
def long_run(sim):
    with warnings.catch_warnings(action="ignore"):
        return sf.sample(sim.X, **LONG)


def faulty(what: str, store, request):
    """A call that is to be struck, and whether what it returns is right."""
    if what.endswith("rows"):
        request.getfixturevalue("by_rows")
    if what.startswith("draws"):
        expected = request.getfixturevalue("long_run")
        return partial(sf.sample, store, **LONG), lambda found: np.array_equal(loadings(expected), loadings(found))
    if what == "a fit by rows":
        return fitted(store), partial(same, request.getfixturevalue("expected"))
    return partial(sf.fit_vi, RUGGED, n_factors=3), partial(same, request.getfixturevalue("rugged"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sparsefactor.SamplingWarning")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("what", ["a fit by rows", "a fit by trials", "draws by rows", "draws by chains"])
def test_ten_random_moments(store, impatient, what, how, caplog, request):
    call, is_right = faulty(what, store, request)
    rng, seen, length = random.Random(int(how)), 0, 40
    for number in range(10):
        early = number % 3 == 2
        when, after = (0, rng.uniform(0.0, 1.0)) if early else (rng.randrange(1, length), rng.uniform(0, 0.02))
        with distributed.LocalCluster(**CLUSTER) as cluster, distributed.Client(cluster) as client:
            found, length = struck(client, how, when, after, call)
        assert is_right(found)
        seen += noticed(caplog)
    if what.endswith("rows") or how == signal.SIGSTOP:  # jobs of a worker that was killed are made again by Dask itself
        assert seen >= 7  # but for those near the end


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
    settings = {**DRAWS, "n_warmup": 20, "n_draws": 100, "precision": "double"}
    told = {name: value for name, value in settings.items() if name != "progress"}
    killed_at_moments("sample", store, tmp_path, 0, 14.0, little, told | {"checkpoint_seconds": 0.1})
    found = sf.sample(sim.X, **settings, path=tmp_path / "run")
    assert np.array_equal(loadings(found), loadings(sf.sample(sim.X, **settings)))


@pytest.mark.slow
def test_a_client_is_killed_in_a_search_which_goes_on(sim, store, tmp_path):
    """What goes on has no cluster."""
    killed_at_moments("fit_vi", store, tmp_path, 1, 20.0, 0, {"n_factors": 3, "checkpoint_seconds": 0.2})
    assert same(sf.fit_vi(sim.X, n_factors=3, path=tmp_path / "run"), sf.fit_vi(sim.X, n_factors=3))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sparsefactor.ConvergenceWarning")
def test_fits_of_a_comparison_are_made_by_workers(client, sim):
    priors = {"two": sf.Prior(n_factors=2), "three": sf.Prior(n_factors=3)}
    settings = {"n_masks": 2, "n_trials": 1, "max_iter": 30}
    few = sim.X[:, :60]
    here, there = (sf.compare(few, priors, **settings, **more).runs for more in ({}, {"client": client}))
    left = ["prior", "mask", "error", "log_density", "found"]
    assert here[left].equals(there[left])


def test_a_comparison_of_what_workers_read(client, by_rows, sim, store, monkeypatch):
    """Each of them hides entries of its own features; the same ones."""
    priors, settings = {"two": sf.Prior(n_factors=2)}, {"n_masks": 2, "n_trials": 1, "max_iter": 20}
    expected = sf.compare(sim.X, priors, **settings)
    monkeypatch.setattr("sparsefactor.choice.hidden.Hidden.whole", None)
    found = sf.compare(store, priors, **settings, client=client)
    left = ["prior", "mask", "error", "log_density", "found", "held_out"]
    assert expected.runs[left].equals(found.runs[left])
    assert expected.baseline == found.baseline


@pytest.mark.filterwarnings("ignore::sparsefactor.SamplingWarning")
def test_chains_of_little_data_are_spread(client, sim):
    """Their searches for a start too, and a chain is where it is: on a worker."""
    few = sim.X[:, :200]
    settings = {"n_factors": 2, "n_chains": 3, "n_warmup": 20, "n_draws": 30, "progress": False}
    here, there = (sf.sample(few, **settings, **more) for more in ({}, {"client": client}))
    assert np.array_equal(loadings(here), loadings(there))
    assert np.array_equal(here.signal_mean, there.signal_mean)
    assert "stretch" in tasks_of(client)


def test_trials_and_hops_of_little_data_are_spread(client, rugged, tmp_path):
    found = sf.fit_vi(RUGGED, n_factors=3, client=client)
    assert same(rugged, found)
    assert found.record["search"] == rugged.record["search"]
    left = ["trial", "start", "iterations", "elbo", "status", "dropped_at", "won"]
    assert found.trials[left].equals(rugged.trials[left])
    assert "made" in tasks_of(client)
    several = {"n_factors": 2, "n_trials": 4, "average": True, "tol": 1e-3}
    source = dask_array.from_array(RUGGED, chunks=(5, 8))
    here, there = sf.fit_vi(RUGGED, **several), sf.fit_vi(source, **several, client=client)
    assert same(here, there)
    assert np.array_equal(here.reconstruct(), there.reconstruct())
    assert same(rugged, sf.fit_vi(RUGGED, n_factors=3, client=client, path=tmp_path / "fit"))


def test_whoever_looks_on_can_end_a_search_that_is_spread(client):
    told = []

    def look(now):
        told.append(now.phase)
        return len(told) > 20

    with pytest.warns(sf.ConvergenceWarning, match="callback"):
        found = sf.fit_vi(RUGGED, n_factors=3, client=client, callback=look)
    assert found.status is sf.Status.STOPPED
    assert found.n_factors == 3
    assert {"race", "climb"} <= set(told)


def test_passes_by_jax_on_workers(client, sim, store, expected):
    """On their CPUs here; whoever asks for a GPU is told that there is none."""
    pytest.importorskip("jax")
    found = sf.fit_vi(store, **FIT, client=client, backend="jax")
    assert found.elbo == pytest.approx(expected.elbo, rel=1e-10)
    assert np.allclose(found.loadings_mean, expected.loadings_mean, atol=1e-8)
    if client.submit(lambda: __import__("jax").default_backend()).result() == "cpu":
        with pytest.raises(ValueError, match=r"needs a GPU on every worker; tcp.* sees 'cpu' alone"):
            sf.fit_vi(store, **FIT, client=client, backend="gpu")


@pytest.mark.filterwarnings("ignore::sparsefactor.SamplingWarning")
@pytest.mark.parametrize("missing", [False, True])
def test_draws_by_jax_on_workers(client, sim, missing):
    """By the same random numbers, whichever worker has a row: so the first sweeps are those of the CPU."""
    pytest.importorskip("jax")
    X = sim.X.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.1 * missing] = np.nan
    here, there = (sf.sample(X, **DRAWS, **more) for more in ({}, {"client": client, "backend": "jax"}))
    assert np.allclose(loadings(here), loadings(there), atol=1e-6)
    assert not np.allclose(loadings(here)[0, 0], loadings(here)[0, 1], atol=1e-2)
    if client.submit(lambda: __import__("jax").default_backend()).result() == "cpu":
        with pytest.raises(ValueError, match=r"needs a GPU on every worker; tcp.* sees 'cpu' alone"):
            sf.sample(X, **DRAWS, client=client, backend="gpu")


@pytest.mark.filterwarnings("ignore::sparsefactor.SamplingWarning")
def test_questions_are_answered_by_workers(client, sim, store, expected, monkeypatch):
    monkeypatch.setattr("sparsefactor.questions.samples.BLOCK_ENTRIES", 9 * G)
    X = sim.X.copy()
    X[3:5, ::2] = np.nan
    for p in (expected, sf.sample(sim.X, **{**DRAWS, "n_chains": 1})):
        here, there = (p.transform(store, return_sd=True, client=who) for who in (None, client))
        assert all(np.array_equal(a, b) for a, b in zip(here, there, strict=True))
        here, there = (p.impute(X, interval=0.5, client=who) for who in (None, client))
        assert all(np.array_equal(a, b) for a, b in zip(here, there, strict=True))
    assert {"moments", "predictions"} <= tasks_of(client)


def test_little_data_are_fitted_by_the_client(client, sim, store, caplog):
    few, settings = sim.X[:, :500], {"n_factors": 2, "n_trials": 1}
    with caplog.at_level(logging.INFO, logger="sparsefactor"):
        assert same(sf.fit_vi(few, **settings), sf.fit_vi(few, **settings, client=client))
        source = dask_array.from_array(few, chunks=(N, 100))
        assert same(sf.fit_vi(few, **settings), sf.fit_vi(source, **settings, client=client))
    assert sum("fitted here, not on the cluster" in line for line in caplog.messages) == 2


def test_bad_clusters_are_refused_before_any_work(client, sim, monkeypatch):
    with pytest.raises(TypeError, match=r"client must be a dask.distributed Client; got a str"):
        sf.fit_vi(sim.X, n_factors=2, client="tcp://127.0.0.1:8786")
    closed = distributed.Client(client.scheduler.address)
    closed.close()
    with pytest.raises(RuntimeError, match="connected to its scheduler; it is closed; make a new one"):
        sf.fit_vi(sim.X, n_factors=2, client=closed)
    with pytest.raises(ValueError, match=r"workers have the engines .cpu. and .jax.; got backend='reference'"):
        sf.fit_vi(sim.X, n_factors=2, client=client, backend="reference")
    monkeypatch.setattr("sparsefactor.jobs.__version__", "99.0")
    with pytest.raises(RuntimeError, match=r"every worker must have sparsefactor 99.0.* has version"):
        sf.fit_vi(sim.X, n_factors=2, client=client)


def questions_of(X, p, client):
    """All that take what is on disk, and a client."""
    prior = sf.Prior(n_factors=2)
    return {
        "fit_vi": lambda: sf.fit_vi(X, prior, client=client),
        "sample": lambda: sf.sample(X, prior, client=client),
        "compare": lambda: sf.compare(X, {"two": prior}, n_masks=2, client=client),
        "transform": lambda: p.transform(X, client=client),
        "impute": lambda: p.impute(X, client=client),
    }


def sources(store, sim, folder):
    folder.mkdir()
    frame = pd.DataFrame(sim.X, columns=[f"g{i}" for i in range(G)])
    for number, rows in enumerate((slice(0, 15), slice(15, N))):
        frame.iloc[rows].to_parquet(folder / f"{number}.parquet", index=False)
    return {
        "zarr path": store,
        "zarr array": zarr.open(store, mode="r"),
        "dask array": dask_array.from_zarr(store),
        "Parquet folder": folder,
    }


@pytest.mark.filterwarnings("ignore::sparsefactor.SamplingWarning", "ignore::sparsefactor.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["zarr path", "zarr array", "dask array", "Parquet folder"])
@pytest.mark.parametrize("by", ["workers", "this process"])
def test_every_call_takes_every_kind_of_source(client, by_rows, sim, store, expected, tmp_path, kind, by):
    pytest.importorskip("pyarrow")
    there = client if by == "workers" else None
    X = sources(store, sim, tmp_path / "parts")[kind]
    settings = {"n_factors": 3, "n_trials": 1, "max_iter": 20}
    assert same(sf.fit_vi(sim.X, **settings), sf.fit_vi(X, **settings, client=there))
    draws = {**DRAWS, "n_chains": 1, "n_draws": 2}
    assert np.array_equal(loadings(sf.sample(sim.X, **draws)), loadings(sf.sample(X, **draws, client=there)))
    priors, compared = {"3": sf.Prior(n_factors=3)}, {"n_masks": 2, "n_trials": 1, "max_iter": 10}
    one, other = sf.compare(sim.X, priors, **compared), sf.compare(X, priors, **compared, client=there)
    assert list(one.runs["log_density"]) == list(other.runs["log_density"])
    assert np.array_equal(expected.transform(sim.X), expected.transform(X, client=there))
    assert np.array_equal(expected.impute(sim.X), expected.impute(X, client=there))


@pytest.fixture
def no_work(monkeypatch):
    """Whoever begins a fit has gone too far."""
    for place in ("engine.dask.engine.DaskEngine.__init__", "vi.cavi.CAVI.__init__"):
        monkeypatch.setattr(f"sparsefactor.{place}", None)


@pytest.mark.parametrize("who", ["workers", "workers who share", "this process"])
def test_bad_sources_are_refused_before_any_work(client, no_work, store, expected, tmp_path, who, request):
    if who == "workers who share":
        request.getfixturevalue("by_rows")
    there = None if who == "this process" else client
    array = dask_array.from_zarr(store)
    for call in questions_of(array[array[:, 0] > 0], expected, there).values():
        with pytest.raises(ValueError, match=r"chunks of a dask array must have known sizes; .*compute_chunk_sizes"):
            call()
    path = tmp_path / "x.zarr"
    shutil.copytree(store, path)
    damaged, missing = sorted(file for file in path.rglob("*") if file.is_file() and file.name != "zarr.json")[3:5]
    damaged.write_bytes(b"not a chunk")
    for call in questions_of(str(path), expected, there).values():
        with pytest.raises(ValueError, match=r"chunk of a zarr store must be readable; .*restore it, or write the"):
            call()
    missing.unlink()
    for call in questions_of(str(path), expected, there).values():
        with pytest.raises(ValueError, match=r"every chunk of a zarr store must be there; 1 of 11 are missing"):
            call()


def test_paths_are_those_of_the_client(client, by_rows, store, expected, tmp_path, monkeypatch):
    """Workers may work in another folder; where they do not see a store, they say so."""
    shutil.copytree(store, tmp_path / "x.zarr")
    monkeypatch.chdir(tmp_path)
    assert same(expected, sf.fit_vi("x.zarr", **FIT, client=client))
    source = source_of("x.zarr")
    (tmp_path / "x.zarr").rename(tmp_path / "y.zarr")
    with pytest.raises(
        FileNotFoundError, match=r"path that whoever reads it sees, each worker, too; there is no '/.*x"
    ):
        sf.fit_vi(source, **FIT, client=client)


def test_wrong_chunks_are_a_note_in_the_log(client, by_rows, sim, expected, caplog):
    with caplog.at_level(logging.INFO, logger="sparsefactor"):
        assert same(expected, sf.fit_vi(dask_array.from_array(sim.X, chunks=(7, 900)), **FIT, client=client))
    assert sum("X is chunked by samples (6 chunks of them)" in line for line in caplog.messages) == 1


def test_a_scheduler_that_is_not_there_is_an_error_soon():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(OSError, match=f"127.0.0.1:{port}"):
        distributed.Client(f"tcp://127.0.0.1:{port}", timeout=2)


def test_workers_without_the_package_or_with_another_version_are_refused(client, no_work, sim, expected):
    worker = min(client.run(os.getpid))

    def hide():
        import sys

        own = sys.modules["sparsefactor"]
        sys.modules["sparsefactor"] = None
        sys.kept = own

    def show(version=None):
        import sys

        sys.modules["sparsefactor"] = sys.kept
        before, sys.kept.__version__ = sys.kept.__version__, version or sys.kept.true_version
        sys.kept.true_version = before

    client.run(hide, workers=[worker])
    try:
        for call in questions_of(sim.X, expected, client).values():
            with pytest.raises(RuntimeError, match=rf"{worker} has none; install the same version there"):
                call()
        client.run(show, "0.0.1", workers=[worker])
        for call in questions_of(sim.X, expected, client).values():
            with pytest.raises(RuntimeError, match=rf"{worker} has version 0.0.1; install the same version there"):
                call()
    finally:
        client.run(show, workers=[worker])


def test_a_scheduler_that_is_gone_is_an_error_soon(sim):
    with distributed.LocalCluster(**{**CLUSTER, "n_workers": 1, "processes": False}) as cluster:
        client = distributed.Client(cluster.scheduler_address, timeout=5)
        cluster.close()
        begun = time.monotonic()
        with pytest.raises(RuntimeError, match=r"must be connected to its scheduler; it is .*; make a new one"):
            sf.fit_vi(sim.X, n_factors=2, client=client)
        assert time.monotonic() - begun < 30
        client.close()


def test_many_workers_add_up_among_themselves(by_rows, sim, expected, monkeypatch):
    """With threads for processes, as they come up in no time; messages travel all the same."""
    monkeypatch.setattr("sparsefactor.engine.dask.messages.FEW", 4)
    monkeypatch.setattr("sparsefactor.engine.dask.messages.MUCH", 0)
    asked = []
    monkeypatch.setattr("sparsefactor.engine.dask.gathering.ask", lambda *args: asked.append(args[2:4]) or ask(*args))
    with (
        distributed.LocalCluster(**{**CLUSTER, "n_workers": 6, "processes": False}) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert same(expected, sf.fit_vi(sim.X, **FIT, client=client))
    assert set(asked) == {(0, 2), (2, 4), (4, 6)}


def test_encrypted(by_rows, sim, expected):
    """As docs/howto/cluster.md turns on TLS, with certificates made for the occasion."""
    pytest.importorskip("cryptography")
    tls = {**CLUSTER, "n_workers": 1, "processes": False, "protocol": "tls://", "security": True}
    with distributed.LocalCluster(**tls) as cluster, distributed.Client(cluster) as client:
        assert client.scheduler.address.startswith("tls://")
        assert same(expected, sf.fit_vi(sim.X, **FIT, client=client))


def test_a_cluster_without_workers_is_refused(sim):
    with (
        distributed.LocalCluster(**{**CLUSTER, "n_workers": 0}) as cluster,
        distributed.Client(cluster) as client,
        pytest.raises(RuntimeError, match="must have workers; this one has none"),
    ):
        sf.fit_vi(sim.X, n_factors=2, client=client)
