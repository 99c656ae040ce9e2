"""What workers and scheduler hold no longer than it is of use."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tests.helpers.clusters import client_of

from sparsefactor.data import as_data
from sparsefactor.engine.dask.engine import DaskEngine
from sparsefactor.model import Beta, Prior
from sparsefactor.vi.cavi import CAVI

pytest.importorskip("distributed")


def n_tasks(client) -> int:
    return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))


def tasks_after_sweeps(client, sim, n: int) -> list[int]:
    """How many tasks the scheduler knows, after each sweep."""
    data = as_data(sim.X, center=True)
    prior = Prior(n_factors=3, inclusion=Beta(1, 1)).in_units_of(data)
    cavi = CAVI(data, prior, DaskEngine(data, prior, client), joint=True)
    rng = np.random.default_rng(0)
    state = cavi.start(rng.standard_normal((data.n_features, 3)), rng.standard_normal((3, data.n_samples)))
    found = []
    for _ in range(n):
        state = cavi.sweep(state, rescale=True)
        time.sleep(0.05)  # in which what was let go of is forgotten
        found.append(n_tasks(client))
    assert np.isfinite(state.elbo)
    return found


def test_the_scheduler_remembers_a_bounded_number_of_tasks(client, sim, monkeypatch):
    monkeypatch.setattr("sparsefactor.engine.dask.futures.LINEAGE", 5)
    monkeypatch.setattr("sparsefactor.engine.dask.futures.SAVING", 1e9)
    found = tasks_after_sweeps(client, sim, 30)
    assert max(found[20:]) <= max(found[:10]) + 3
    monkeypatch.setattr("sparsefactor.engine.dask.futures.LINEAGE", 10**6)  # the control
    assert tasks_after_sweeps(client, sim, 30)[-1] > max(found) + 20


def test_all_is_let_go_at_the_end(sim):
    client = client_of(2)
    before = n_tasks(client)
    assert tasks_after_sweeps(client, sim, 3)[-1] > before
    time.sleep(0.5)
    assert n_tasks(client) == before
