"""The same results as in one process, to the bit, whichever call, source and number of workers."""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
import pytest
from tests.cluster.common import CLUSTER, DRAWS, FIT, RUGGED, G, N, loadings, same

import sparsefactor as sf
from sparsefactor.executors import aligned
from sparsefactor.questions.samples import Samples

distributed = pytest.importorskip("distributed")
zarr = pytest.importorskip("zarr")
dask_array = pytest.importorskip("dask.array")


def tasks_of(client) -> set[str]:
    """What workers were asked of late."""
    logs = client.run(lambda dask_worker: list(dask_worker.state.log)[-2000:])
    return {str(call[0]).split("-")[0] for calls in logs.values() for call in calls}


def test_a_fit_is_the_same_to_the_bit(client, by_rows, sim, store, expected):
    assert same(expected, sf.fit_vi(sim.X, **FIT, client=client))
    assert {"vi_row_pass", "sums"} <= tasks_of(client)
    found = sf.fit_vi(store, **FIT, client=client)
    assert same(expected, found)
    assert found.variance_explained() == pytest.approx(expected.variance_explained(), rel=1e-12)


@pytest.mark.filterwarnings("ignore::sparsefactor.ConvergenceWarning")
def test_an_average_explains_the_same(client, by_rows, sim, store):
    settings = {"n_factors": 3, "n_trials": 2, "max_iter": 10, "average": True}
    here, there = sf.fit_vi(sim.X, **settings), sf.fit_vi(store, **settings, client=client)
    assert np.array_equal(here.reconstruct(), there.reconstruct())
    for by in (None, "feature", "factor"):
        assert there.variance_explained(by=by) == pytest.approx(here.variance_explained(by=by), rel=1e-12)


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
    """With covariates, too, no row of the data comes to the client, but of small data for the move "noise"."""
    age, moves = np.random.default_rng(0).standard_normal((N, 1)), ("rotation", "shear", "column")
    here = sf.sample(sim.X, **DRAWS, covariates=age, moves=moves)
    monkeypatch.setattr("sparsefactor.engine.dask.data.RemoteRows.__getitem__", None)
    there = sf.sample(store, **DRAWS, covariates=age, client=client, moves=moves)
    for by in ("feature", "factor"):
        assert np.array_equal(here.variance_explained(by=by), there.variance_explained(by=by))
    monkeypatch.undo()
    runs = [sf.sample(X, **DRAWS, covariates=age, client=where) for X, where in ((sim.X, None), (store, client))]
    assert "noise" in runs[1].record["settings"]["moves"]
    np.testing.assert_array_equal(*(run.draws["sample_stats"]["lp"] for run in runs))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sparsefactor.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:[0-9]+ is the largest number of factors:UserWarning")
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
    assert {"chain 0", "chain 1", "start of chain 0"} <= tasks_of(client)


def test_restarts_and_proposals_of_little_data_are_spread(client, rugged, tmp_path):
    found = sf.fit_vi(RUGGED, n_factors=3, search="thorough", client=client)
    assert same(rugged, found)
    assert found.record["search"] == rugged.record["search"]
    left = ["trial", "start", "iterations", "elbo", "status", "dropped_at", "won"]
    assert found.trials[left].equals(rugged.trials[left])
    assert {"advance", "climb", "attempt"} <= tasks_of(client)
    several = {"n_factors": 2, "n_trials": 4, "average": True, "tol": 1e-3}
    source = dask_array.from_array(RUGGED, chunks=(5, 8))
    here, there = sf.fit_vi(RUGGED, **several), sf.fit_vi(source, **several, client=client)
    assert same(here, there)
    assert np.array_equal(here.reconstruct(), there.reconstruct())
    assert same(rugged, sf.fit_vi(RUGGED, n_factors=3, search="thorough", client=client, path=tmp_path / "fit"))


def test_a_callback_can_stop_a_search_that_is_spread(client):
    told = []

    def look(now):
        told.append(now.phase)
        return len(told) > 30

    with pytest.warns(sf.ConvergenceWarning, match="callback"):
        found = sf.fit_vi(RUGGED, n_factors=3, search="thorough", client=client, callback=look)
    assert found.status is sf.Status.STOPPED
    assert found.n_factors == 3
    assert {"race", "climb"} <= set(told)


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


def in_parquet(sim, folder):
    folder.mkdir()
    frame = pd.DataFrame(sim.X, columns=[f"g{i}" for i in range(G)])
    for number, rows in enumerate((slice(0, 15), slice(15, N))):
        frame.iloc[rows].to_parquet(folder / f"{number}.parquet", index=False)
    return folder


SOURCES = {
    "zarr path": lambda store, sim, folder: store,
    "zarr array": lambda store, sim, folder: zarr.open(store, mode="r"),
    "dask array": lambda store, sim, folder: dask_array.from_zarr(store),
    "Parquet folder": lambda store, sim, folder: in_parquet(sim, folder),
}


def answers(X, p, client=None):
    """What every call that takes data on disk makes of them."""
    fit = sf.fit_vi(X, n_factors=3, n_trials=1, max_iter=20, client=client)
    drawn = loadings(sf.sample(X, **{**DRAWS, "n_chains": 1, "n_draws": 2}, client=client))
    compared = sf.compare(X, {"3": sf.Prior(n_factors=3)}, n_masks=2, n_trials=1, max_iter=10, client=client)
    arrays = drawn, p.transform(X, client=client), p.impute(X, client=client)
    return fit, list(compared.runs["log_density"]), arrays


@pytest.fixture(scope="module")
def in_memory(sim, expected):
    return answers(sim.X, expected)


@pytest.mark.filterwarnings("ignore::sparsefactor.SamplingWarning", "ignore::sparsefactor.ConvergenceWarning")
@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("by", [pytest.param("workers", marks=pytest.mark.slow), "this process"])
def test_every_call_takes_every_kind_of_source(client, by_rows, sim, store, expected, in_memory, tmp_path, kind, by):
    pytest.importorskip("pyarrow")
    fit, compared, arrays = in_memory
    X = SOURCES[kind](store, sim, tmp_path / "parts")
    found_fit, found_compared, found_arrays = answers(X, expected, client if by == "workers" else None)
    assert same(fit, found_fit)
    assert compared == found_compared
    assert all(np.array_equal(one, other) for one, other in zip(arrays, found_arrays, strict=True))


@pytest.mark.parametrize("n_workers", [1, 6])
def test_any_number_of_workers(by_rows, sim, expected, n_workers):
    """With threads for processes, as they come up in no time."""
    with (
        distributed.LocalCluster(**{**CLUSTER, "n_workers": n_workers, "processes": False}) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert same(expected, sf.fit_vi(sim.X, **FIT, client=client))


def test_encrypted(by_rows, sim, expected):
    """As docs/howto/cluster.md turns on TLS, with certificates made for the occasion."""
    pytest.importorskip("cryptography")
    tls = {**CLUSTER, "n_workers": 1, "processes": False, "protocol": "tls://", "security": True}
    with distributed.LocalCluster(**tls) as cluster, distributed.Client(cluster) as client:
        assert client.scheduler.address.startswith("tls://")
        assert same(expected, sf.fit_vi(sim.X, **FIT, client=client))


def test_arrays_that_came_by_the_network_are_laid_where_numbers_begin():
    room = np.zeros(8 * 12 + 1, np.uint8)
    own = room[1:].view(np.float64)  # as a frame of a message may be
    own[:] = np.arange(12.0)
    assert not own.flags.aligned
    samples = Samples(*[own] * 6, known=own)
    found = aligned(samples)
    for name, array in vars(found).items():
        assert array is None or (array.flags.aligned and np.array_equal(array, np.arange(12.0))), name
