"""A real cluster of processes on this machine, data for it, and what is to come of them."""

from __future__ import annotations

import logging

import pytest
from tests.cluster.common import CLUSTER, FIT, RUGGED, G, N

import sparsefactor as sf


@pytest.fixture(scope="session")
def client():
    distributed = pytest.importorskip("distributed")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with distributed.LocalCluster(**CLUSTER) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="session")
def sim():
    return sf.simulate(n_features=G, n_samples=N, inclusion=[0.3, 0.2, 0.1], snr=4, seed=1)


@pytest.fixture(scope="session")
def store(sim, tmp_path_factory):
    zarr = pytest.importorskip("zarr")
    path = str(tmp_path_factory.mktemp("store") / "x.zarr")
    zarr.create_array(path, shape=sim.X.shape, chunks=(N, 500), dtype="f8")[:] = sim.X
    return path


@pytest.fixture(scope="session")
def expected(sim):
    return sf.fit_vi(sim.X, **FIT)


@pytest.fixture(scope="session")
def rugged():
    return sf.fit_vi(RUGGED, n_factors=3, search="thorough")


@pytest.fixture
def by_rows(monkeypatch):
    """No data are so little that every worker has all of them."""
    monkeypatch.setattr("sparsefactor.engine.readers.LITTLE", 0)
