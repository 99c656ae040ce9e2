"""Fits with a folder: cut short anywhere, they end as if they never had been."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine import build_engine
from sparsefactor.kernels.protocol import Engine
from sparsefactor.kernels.verbs import Verbs
from sparsefactor.storage.journal import Journal, packed, unpacked
from sparsefactor.vi.journal import SAME, TUPLES, JournalEngine, Notes

G, N = 5400, 40  # more than what the shortcut is for
SETTINGS = {"n_factors": 3, "checkpoint_seconds": 0.0}
EVERY = 10  # calls between two checkpoints


class KilledError(Exception):
    """In the place of the end of the process."""


@pytest.fixture(scope="module")
def sim():
    return sf.simulate(n_features=G, n_samples=N, inclusion=[0.3, 0.2, 0.1], snr=1, seed=1)


@pytest.fixture(scope="module")
def holes(sim):
    X = sim.X.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    return X


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """Checkpoints by the number of calls, and not by the clock."""
    save = Notes.save
    monkeypatch.setattr("sparsefactor.vi.journal.SHARE", 0.0)
    monkeypatch.setattr(Notes, "save", lambda notes: save(notes) if notes.count % EVERY == 0 else None)


def same(a: sf.VIPosterior, b: sf.VIPosterior) -> bool:
    names = ("loadings_mean", "loadings_sd", "inclusion_prob", "activations_mean", "noise_precision_mean")
    traces = np.array_equal(a.elbo_history["elbo"], b.elbo_history["elbo"])
    return a.elbo == b.elbo and traces and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)


def cut_short(X, path, at: int, monkeypatch, **settings) -> int:
    """A fit that ends at its engine's call number `at`; how many were made, and not answered from the journal."""
    made, call = [], Notes.call

    def counted(self, engine, *rest):
        if self.count >= self.known:
            made.append(1)
        if self.count == at:
            raise KilledError
        return call(self, engine, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Notes, "call", counted)
        with pytest.raises(KilledError):
            sf.fit_vi(X, path=path, **settings)
    return len(made)


@pytest.mark.parametrize("kind", ["complete", "holes", "modules"])
def test_a_fit_that_is_cut_short_twice_ends_the_same(sim, holes, tmp_path, monkeypatch, kind):
    X = holes if kind == "holes" else sim.X
    settings = SETTINGS | {"max_iter": 60, "n_trials": 3}
    if kind == "modules":
        settings |= {"prior": sf.Prior(n_factors=3, inclusion=sf.Beta(1, 1), n_modules=2)}
        del settings["n_factors"]
    with monkeypatch.context() as patch:
        patch.setattr("warnings.warn", lambda *args, **more: None)
        expected = sf.fit_vi(X, **settings)
        cut_short(X, tmp_path / "fit", 45, monkeypatch, **settings)
        made = cut_short(X, tmp_path / "fit", 66, monkeypatch, **settings)
        assert 21 <= made <= 21 + 3 * EVERY  # the first are known, but for what could not be written down at once
        found = sf.fit_vi(X, path=tmp_path / "fit", **settings)
    assert same(found, expected)
    assert sorted(file.name for file in (tmp_path / "fit").iterdir()) == ["fit.json", "lock", "result.sf"]


@pytest.mark.slow
def test_a_whole_search_is_cut_short_anywhere(sim, tmp_path, monkeypatch):
    """Races with factors to spare, hops, crosses."""
    expected = sf.fit_vi(sim.X, **SETTINGS)
    for at in (5, 200, 500, 800, 1100):
        cut_short(sim.X, tmp_path / "fit", at, monkeypatch, **SETTINGS)
    assert same(sf.fit_vi(sim.X, path=tmp_path / "fit", **SETTINGS), expected)


def test_a_fit_that_is_done_is_found_again(sim, tmp_path, monkeypatch):
    settings = SETTINGS | {"n_trials": 1}
    found = sf.fit_vi(sim.X, path=tmp_path / "fit", **settings)
    monkeypatch.setattr("sparsefactor.vi.fit._fit", None)
    assert same(sf.fit_vi(sim.X, path=tmp_path / "fit", **settings), found)
    assert same(sf.load(tmp_path / "fit"), found)
    with pytest.raises(ValueError, match=r"a fit goes on with the data, settings and code .* has seed=0; got 1"):
        sf.fit_vi(sim.X, path=tmp_path / "fit", **settings, seed=1)
    other = sim.X.copy()
    other[3, 4] += 1e-9
    with pytest.raises(ValueError, match=r"goes on with the data, .* has X="):
        sf.fit_vi(other, path=tmp_path / "fit", **settings)


def test_what_a_callback_stops_is_gone_on_with(sim, tmp_path):
    settings, told = SETTINGS | {"n_trials": 2}, []
    with pytest.warns(sf.ConvergenceWarning):
        sf.fit_vi(sim.X, path=tmp_path / "fit", **settings, callback=lambda now: now.iteration == 9)
    with pytest.raises(ValueError, match="a fit must be done before it is loaded"):
        sf.load(tmp_path / "fit")
    found = sf.fit_vi(sim.X, path=tmp_path / "fit", **settings, callback=lambda now: told.append(now.iteration))
    assert told[0] > 5  # what was told is not told again
    assert same(found, sf.fit_vi(sim.X, **settings))


def test_a_damaged_checkpoint_means_another_beginning(sim, tmp_path, monkeypatch, caplog):
    settings = SETTINGS | {"n_trials": 1}
    cut_short(sim.X, tmp_path / "fit", 30, monkeypatch, **settings)
    rows = tmp_path / "fit" / "rows.checkpoint"
    rows.write_bytes(rows.read_bytes()[:-40])
    found = sf.fit_vi(sim.X, path=tmp_path / "fit", **settings)
    assert any("the search begins again" in line for line in caplog.messages)
    assert same(found, sf.fit_vi(sim.X, **settings))


def test_a_noted_engine_has_every_verb(sim, tmp_path):
    data = as_data(sim.X, center=True)
    with closing(Notes(tmp_path, 60.0)) as notes:
        engine = JournalEngine(build_engine(data, sf.Prior(n_factors=3)), notes)
        names = {name for kind in (Verbs, Engine) for name, value in vars(kind).items() if callable(value)}
        assert [name for name in sorted(names) if not name.startswith("_") and not hasattr(engine, name)] == []


def test_a_journal_drops_its_torn_end(tmp_path):
    journal = Journal(tmp_path / "journal")
    for record in (b"one", b"", b"three" * 1000):
        journal.add(record)
    journal.close()
    whole = (tmp_path / "journal").read_bytes()
    (tmp_path / "journal").write_bytes(whole[:-1])
    journal = Journal(tmp_path / "journal")
    assert [journal[i] for i in range(len(journal))] == [b"one", b""]
    journal.cut(1)
    journal.add(b"two")
    journal.close()
    journal = Journal(tmp_path / "journal")
    assert [journal[0], journal[1]] == [b"one", b"two"]
    journal.close()


def test_values_keep_every_bit():
    terms = TUPLES["VITerms"](0.1, float("nan"), -0.0)
    value = [
        np.arange(6.0).reshape(2, 3)[:, ::2],
        terms,
        None,
        3,
        np.float32(0.1),
        SAME["NONE"],
        (1, [np.zeros((0, 4))]),
    ]
    found = unpacked(packed(value, SAME), SAME, TUPLES)
    assert found[5] is SAME["NONE"]
    assert np.array_equal(found[0], value[0])
    assert found[1][0] == 0.1
    assert np.isnan(found[1][1])
    assert np.signbit(found[1][2])
    assert found[4] == np.float32(0.1)
    assert found[6][1][0].shape == (0, 4)
    with pytest.raises(TypeError, match="a journal holds numbers and arrays"):
        packed(object(), SAME)
