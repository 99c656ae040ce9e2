"""Data that are read a part at a time and held in files: the same results, to the bit, as from memory."""

from __future__ import annotations

import logging
import mmap
import tracemalloc

import numpy as np
import pandas as pd
import pytest

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.data.spool import FOLDER
from sparsefactor.data.tiles import Node, Tree
from sparsefactor.engine import build_engine
from sparsefactor.questions import samples

zarr = pytest.importorskip("zarr")
da = pytest.importorskip("dask.array")

G, N = 5400, 40


@pytest.fixture(scope="module")
def sim():
    return sf.simulate(n_features=G, n_samples=N, inclusion=[0.3, 0.2, 0.1], snr=4, seed=1)


@pytest.fixture(scope="module")
def holes(sim):
    X = sim.X.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    return X


@pytest.fixture
def rounds(monkeypatch):
    """Several rounds of a pass, as large data have."""
    monkeypatch.setattr("sparsefactor.engine.blocks.ROUND_BYTES", 448 * N * 8)


def stored(path, X, chunks=(N, 500)):
    array = zarr.create_array(str(path), shape=X.shape, chunks=chunks, dtype=X.dtype)
    array[:] = X
    return str(path)


def same(a: sf.VIPosterior, b: sf.VIPosterior) -> bool:
    names = ("loadings_mean", "loadings_sd", "inclusion_prob", "activations_mean", "noise_precision_mean")
    return a.elbo == b.elbo and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


@pytest.mark.parametrize(
    ("dtype", "scale", "chunks"),
    [
        (np.float64, False, (N, 700)),
        (np.float64, True, (7, G)),
        (np.float32, True, (11, 1333)),
        (np.float32, False, (N, 700)),
    ],
)
def test_the_same_data(tmp_path, holes, dtype, scale, chunks):
    expected = as_data(holes, center=True, scale=scale, dtype=dtype)
    for X in (stored(tmp_path / "x.zarr", holes, chunks), da.from_array(holes, chunks=chunks)):
        found = as_data(X, center=True, scale=scale, dtype=dtype)
        assert found.spool is not None
        for name in ("Y", "observed", "offset", "scale", "row_ss", "column_ss", "unit_scale", "centred_ss"):
            assert np.array_equal(getattr(found, name), getattr(expected, name)), name


def test_names_of_a_parquet_folder_and_of_a_group(tmp_path, sim):
    X = sim.X[:, :300]
    frame = pd.DataFrame(X, index=[f"s{j}" for j in range(N)], columns=[f"g{i}" for i in range(300)])
    (tmp_path / "parts").mkdir()
    for number, rows in enumerate((slice(0, 15), slice(15, N))):
        frame.iloc[rows].to_parquet(tmp_path / "parts" / f"{number}.parquet")
    group = zarr.create_group(str(tmp_path / "group.zarr"))
    group.create_array("X", shape=X.shape, chunks=(N, 100), dtype="f8")[:] = X
    for which, names in (("obs", frame.index), ("var", frame.columns)):
        table = group.create_group(which, attributes={"_index": "_index"})
        numbers = np.array([int(name[1:]) for name in names])
        table.create_array("_index", data=numbers)
    expected = as_data(frame)
    found = as_data(tmp_path / "parts")
    assert np.array_equal(found.Y, expected.Y)
    assert list(found.feature_names) == list(frame.columns)
    assert list(found.sample_names) == list(frame.index)
    found = as_data(str(tmp_path / "group.zarr"))
    assert np.array_equal(found.Y, expected.Y)
    assert list(found.feature_names) == [name[1:] for name in frame.columns]


@pytest.mark.parametrize("missing", [False, True])
def test_a_fit_is_the_same_to_the_bit(rounds, tmp_path, sim, holes, missing):
    X = holes if missing else sim.X
    settings = {"n_factors": 3, "n_trials": 3, "max_iter": 60}
    expected = sf.fit_vi(X, **settings)
    assert same(expected, sf.fit_vi(stored(tmp_path / "x.zarr", X), **settings))
    other = X.copy()
    other[0, 0] = 0.1
    assert not same(expected, sf.fit_vi(stored(tmp_path / "y.zarr", other), **settings))


@pytest.mark.filterwarnings("ignore::sparsefactor.SamplingWarning")
def test_draws_are_the_same_to_the_bit(rounds, tmp_path, holes):
    settings = {"n_factors": 3, "n_chains": 2, "n_warmup": 3, "n_draws": 5, "init": "varimax"}
    a, b = (sf.sample(X, **settings) for X in (holes, stored(tmp_path / "x.zarr", holes)))
    assert np.array_equal(a.draws["posterior"]["loadings"], b.draws["posterior"]["loadings"])
    assert np.array_equal(a.signal_mean, b.signal_mean)
    assert isinstance(owner(b.signal_mean), mmap.mmap), "what has the size of the data is in a file"


def owner(array):
    """What holds an array's memory."""
    while isinstance(array, np.ndarray | memoryview):
        array = array.base if isinstance(array, np.ndarray) else array.obj
    return array


def test_blocks_keep_no_more_than_their_rows(rounds, sim):
    """Parts of arrays of all rows, one for each block, once took more memory than the states."""
    data = as_data(da.from_array(sim.X, chunks=(N, 700)), center=True)
    problems = build_engine(data, sf.Prior(n_factors=3).in_units_of(data)).blocks.problems
    arrays = [array for problem in problems for array in (problem.noise_rate, problem.group)]
    whole = {id(own): own.nbytes for own in (array if array.base is None else array.base for array in arrays)}
    assert len(problems) > 3
    assert sum(whole.values()) == 2 * 8 * G


def test_covariates_and_views(rounds, tmp_path, sim):
    prior = sf.Prior(n_factors=3, inclusion=sf.Beta(1, 1), groups=np.where(np.arange(G) % 3, "a", "b"))
    age = np.random.default_rng(0).standard_normal((N, 1))
    settings = {"n_trials": 1, "max_iter": 30, "tol": 1e-6, "covariates": age, "covariate_loadings": "slab"}
    path = stored(tmp_path / "x.zarr", sim.X)
    with pytest.warns(sf.ConvergenceWarning):
        expected = sf.fit_vi(sim.X, prior, **settings)
    with pytest.warns(sf.ConvergenceWarning):
        assert same(expected, sf.fit_vi(path, prior, **settings))


@pytest.mark.parametrize("n", [1, 2, 5, 7, 8, 13])
def test_any_split_of_the_tiles_has_the_same_sum(n):
    rng = np.random.default_rng(n)
    values = rng.standard_normal((n, 3)) * 10.0 ** rng.integers(-8, 8, (n, 1))
    whole = Tree(Node(0, t, (values[t],)) for t in range(n)).total()[0]
    for cut in range(1, n):
        parts = [Tree(Node(0, t, (values[t],)) for t in own) for own in (range(cut), range(cut, n))]
        assert np.array_equal(Tree(node for part in parts for node in part.nodes).total()[0], whole)


def test_bad_input_is_refused_before_any_work(tmp_path, sim, monkeypatch):
    with pytest.raises(FileNotFoundError, match="zarr store or a Parquet folder; there is no"):
        sf.fit_vi(str(tmp_path / "nothing.zarr"), n_factors=2)
    with pytest.raises(ValueError, match="is neither; read a table first"):
        sf.fit_vi(tmp_path, n_factors=2)
    unknown = da.from_array(sim.X, chunks=(10, 100))
    unknown = unknown[unknown[:, 0] > 0]
    with pytest.raises(ValueError, match=r"known sizes; got shape .*compute_chunk_sizes"):
        sf.fit_vi(unknown, n_factors=2)
    with pytest.raises(ValueError, match="two-dimensional"):
        sf.fit_vi(da.zeros(5), n_factors=2)
    path = tmp_path / "x.zarr"
    stored(path, sim.X)
    chunks = sorted(file for file in path.rglob("*") if file.is_file() and file.name != "zarr.json")
    chunks[3].write_bytes(b"not a chunk")
    with pytest.raises(ValueError, match="must be readable; that of samples 0 to 39, features"):
        sf.fit_vi(str(path), n_factors=2)
    chunks[3].unlink()
    with pytest.raises(ValueError, match="chunk of a zarr store must be there; 1 of 11 are missing"):
        sf.fit_vi(str(path), n_factors=2)
    (path / "zarr.json").write_text("{")
    with pytest.raises(ValueError, match=r"must say what it holds; .*x.zarr' does not .*write the store again"):
        sf.fit_vi(str(path), n_factors=2)
    monkeypatch.setenv(FOLDER, str(tmp_path / "nowhere"))
    with pytest.raises(OSError, match=r"could not be had .*set SPARSEFACTOR_SCRATCH"):
        sf.fit_vi(unknown.persist().compute_chunk_sizes(), n_factors=2)


@pytest.fixture(scope="module")
def fitted(sim):
    return sf.fit_vi(sim.X, n_factors=3, n_trials=1)


def test_questions_take_what_is_on_disk(tmp_path, fitted, holes):
    path = stored(tmp_path / "x.zarr", holes)
    assert np.array_equal(fitted.transform(path), fitted.transform(holes))
    assert np.array_equal(fitted.impute(da.from_array(holes, chunks=(10, 300))), fitted.impute(holes))


def test_questions_look_at_a_block_of_samples_at_a_time(tmp_path, fitted, holes, monkeypatch):
    path = stored(tmp_path / "x.zarr", holes)
    whole = fitted.transform(holes, return_sd=True), fitted.impute(holes, return_sd=True, interval=0.9)
    monkeypatch.setattr("sparsefactor.questions.samples.BLOCK_ENTRIES", 7 * G)
    seen = []
    checked = samples.checked
    monkeypatch.setattr(samples, "checked", lambda values, *rest: seen.append(values.shape) or checked(values, *rest))
    blocks = fitted.transform(path, return_sd=True), fitted.impute(path, return_sd=True, interval=0.9)
    assert seen == 2 * ([(7, G)] * 5 + [(5, G)])
    for one, other in zip(whole, blocks, strict=True):
        for a, b in zip(one, other, strict=True):
            assert np.allclose(a, b, rtol=1e-10, atol=1e-12)
    in_memory = fitted.impute(holes, return_sd=True, interval=0.9)
    assert all(np.array_equal(a, b) for a, b in zip(in_memory, blocks[1], strict=True))


def test_questions_need_little_memory(tmp_path, sim, monkeypatch):
    """A fraction of X, which is answered from disk to disk."""
    monkeypatch.setattr("sparsefactor.questions.samples.BLOCK_ENTRIES", 300_000)
    p = sf.fit_vi(sim.X[:, :1000], n_factors=2, n_trials=1)
    n = 30_000
    store = zarr.create_array(str(tmp_path / "x.zarr"), shape=(n, 1000), chunks=(3000, 100), dtype="f4")
    for first in range(0, n, 3000):
        store[first : first + 3000] = 1.0
        store[first, 0] = np.nan
    tracemalloc.start()
    try:
        found = p.impute(str(tmp_path / "x.zarr"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.isfinite(found[::3000, 0]).all()
    assert found[1, 1] == 1.0
    assert peak < found.nbytes / 5


def test_a_note_says_that_samples_are_laid_out_anew(sim, caplog):
    with caplog.at_level(logging.INFO, logger="sparsefactor"):
        as_data(da.from_array(sim.X, chunks=(10, G)))
    assert any("chunked by samples" in line for line in caplog.messages)


def test_nothing_is_left_in_the_folder(tmp_path, sim, monkeypatch):
    monkeypatch.setenv(FOLDER, str(tmp_path))
    data = as_data(da.from_array(sim.X, chunks=(N, 100)))
    assert data.Y.shape == (G, N)
    assert not list(tmp_path.iterdir())


COMPARED = {"n_masks": 2, "share": 0.05, "n_trials": 1, "max_iter": 20}
MEASURED = ["prior", "mask", "error", "log_density", "found", "held_out"]


@pytest.mark.filterwarnings("ignore:[0-9]+ is the largest number of factors:UserWarning")
@pytest.mark.parametrize("options", [{}, {"dtype": np.float32, "scale": True}])
def test_a_comparison_is_the_same_and_never_has_all_in_memory(rounds, tmp_path, holes, monkeypatch, options):
    X = holes + 3.0
    priors = {str(k): sf.Prior(n_factors=k) for k in (2, 3)}
    expected = sf.compare(X, priors, **COMPARED, **options)
    monkeypatch.setattr("sparsefactor.data.reading._read_whole", None)
    monkeypatch.setattr("sparsefactor.choice.hidden.Hidden.whole", None)
    for source in (stored(tmp_path / "x.zarr", X), da.from_array(X, chunks=(7, 400))):
        found = sf.compare(source, priors, **COMPARED, **options)
        pd.testing.assert_frame_equal(found.runs[MEASURED], expected.runs[MEASURED], check_exact=True)
        assert found.baseline == expected.baseline


def test_what_a_comparison_found_in_memory_is_known_on_disk(tmp_path, sim):
    X, priors = sim.X[:, :200], {"1": sf.Prior(n_factors=1)}
    expected = sf.compare(X, priors, **COMPARED, path=tmp_path / "kept")
    before = sorted((tmp_path / "kept").iterdir())
    found = sf.compare(stored(tmp_path / "x.zarr", X, (N, 50)), priors, **COMPARED, path=tmp_path / "kept")
    assert found.runs.equals(expected.runs)  # seconds, too
    assert sorted((tmp_path / "kept").iterdir()) == before


def test_a_comparison_needs_little_memory(tmp_path, monkeypatch):
    """A fraction of X, beside what a fit itself needs."""
    n, g = 500, 20_000
    store = zarr.create_array(str(tmp_path / "x.zarr"), shape=(n, g), chunks=(n, 200), dtype="f4")
    rng = np.random.default_rng(0)
    f = rng.standard_normal(n)
    for first in range(0, g, 2000):
        store[:, first : first + 2000] = np.outer(f, rng.standard_normal(2000)) + rng.standard_normal((n, 2000))
    monkeypatch.setattr("sparsefactor.data.stores.BLOCK_ENTRIES", 500_000)
    monkeypatch.setattr("sparsefactor.choice.masks.TOGETHER", 50_000)
    monkeypatch.setattr("sparsefactor.engine.blocks.ROUND_BYTES", 2**22)
    tracemalloc.start()
    try:
        found = sf.compare(str(tmp_path / "x.zarr"), {"1": sf.Prior(n_factors=1)}, n_masks=2, n_trials=1, max_iter=3)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.table["error"].iloc[0] < 0.9
    assert peak < 8 * n * g / 2
