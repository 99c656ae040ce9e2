"""What cannot be done is refused before any work."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import sys
import time

import pytest
from tests.cluster.common import CLUSTER, FIT, same

import sparsefactor as sf
from sparsefactor.data.sources import source_of

distributed = pytest.importorskip("distributed")
zarr = pytest.importorskip("zarr")
dask_array = pytest.importorskip("dask.array")


def test_bad_clusters_are_refused_before_any_work(client, sim, monkeypatch):
    with pytest.raises(TypeError, match=r"client must be a dask.distributed Client; got a str"):
        sf.fit_vi(sim.X, n_factors=2, client="tcp://127.0.0.1:8786")
    closed = distributed.Client(client.scheduler.address)
    closed.close()
    with pytest.raises(RuntimeError, match="connected to its scheduler; it is closed; make a new one"):
        sf.fit_vi(sim.X, n_factors=2, client=closed)
    for backend in ("reference", "jax", "gpu"):
        with pytest.raises(ValueError, match=rf"compute on their CPUs; got backend='{backend}' with a client"):
            sf.fit_vi(sim.X, n_factors=2, client=client, backend=backend)
    monkeypatch.setattr("sparsefactor.executors.__version__", "99.0")
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

        own = sys.modules["sparsefactor"]
        sys.modules["sparsefactor"] = None
        sys.kept = own

    def show(version=None):

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


def test_a_cluster_without_workers_is_refused(sim):
    with (
        distributed.LocalCluster(**{**CLUSTER, "n_workers": 0}) as cluster,
        distributed.Client(cluster) as client,
        pytest.raises(RuntimeError, match="must have workers; this one has none"),
    ):
        sf.fit_vi(sim.X, n_factors=2, client=client)
