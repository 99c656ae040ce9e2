"""What workers and client hold no longer than it is of use."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from sparsefactor.data import as_data
from sparsefactor.engine.dask.cluster import Handle
from sparsefactor.engine.dask.engine import DaskEngine
from sparsefactor.model import Beta, Prior
from sparsefactor.vi.cavi import CAVI

pytest.importorskip("distributed")


def begun(client, sim):
    data = as_data(sim.X, center=True)
    prior = Prior(n_factors=3, inclusion=Beta(1, 1)).in_units_of(data)
    engine = DaskEngine(data, prior, client)
    cavi = CAVI(data, prior, engine, joint=True)
    rng = np.random.default_rng(0)
    normals = rng.standard_normal((data.n_features, 3)), rng.standard_normal((3, data.n_samples))
    return engine, cavi, cavi.start(*normals)


def test_states_are_let_go_at_once_however_long_answers_take(client, sim, monkeypatch):
    engine, cavi, state = begun(client, sim)
    monkeypatch.setattr("sparsefactor.engine.dask.places.LOOK", 1e-4)  # of which an answer takes many
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            state = cavi.sweep(state, rescale=True)
        kept = [found for found in gc.get_objects() if isinstance(found, Handle) and found.cluster is engine.cluster]
    finally:
        gc.enable()
    assert len(kept) == 2  # the engine, and the rows of the last state
    assert np.isfinite(state.elbo)


def test_saved_states_come_in_pieces_and_are_in_no_memory(client, sim, monkeypatch):
    engine, _, state = begun(client, sim)
    monkeypatch.setattr("sparsefactor.engine.dask.places.PIECE", 10_000)
    cluster = engine.cluster
    sizes, ask = [], cluster.ask_one
    monkeypatch.setattr(cluster, "ask_one", lambda *args: sizes.append(len(found := ask(*args))) or found)
    before = engine.vi_fetch(state.rows)
    cluster.save()
    assert max(sizes) == 10_000 and len(sizes) > 2 * len(cluster.bounds)  # noqa: PT018
    assert not any(cluster.log)
    cluster.renew(0, "for a test")
    for was, now in zip(before, engine.vi_fetch(state.rows), strict=True):
        assert np.array_equal(was, now)
