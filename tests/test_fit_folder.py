"""The folder of a fit: one process at a time, one fit, and all of its files belong to it."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.helpers.runs import temporary_names

import sparsefactor as sf
from sparsefactor.atomic import open_replacing
from sparsefactor.storage.sealed import seal, write_atomically
from sparsefactor.vi import search
from sparsefactor.vi.checkpoint import KIND, FitFolder, restore

SIM = sf.simulate(n_features=30, n_samples=20, inclusion=[0.5, 0.3], snr=5, seed=1)
LARGE = sf.simulate(n_features=5400, n_samples=10, inclusion=[0.5], snr=5, seed=1)  # has checkpoints
SETTINGS = {"n_factors": 2, "n_trials": 1, "max_iter": 200}


def fit(path: Path, X: np.ndarray = SIM.X, **changes) -> sf.VIPosterior:
    return sf.fit_vi(X, path=path, **SETTINGS | changes)


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path))


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "fit"
    fit(path)
    return path


@pytest.fixture
def path(finished, tmp_path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "fit"))


def test_a_fit_killed_while_it_wrote_its_first_file_starts_again(tmp_path, monkeypatch):
    """A kill cannot be cleaned up after: the temporary file of fit.json stays."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda source, target: (_ for _ in ()).throw(KeyboardInterrupt))
        patch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
        with pytest.raises(KeyboardInterrupt):
            fit(tmp_path / "fit")
    assert any(name.endswith(".tmp") for name in names(tmp_path / "fit"))
    fit(tmp_path / "fit")
    assert names(tmp_path / "fit") == ["fit.json", "lock", "result.sf"]


HOLD = """
import sys, time
from pathlib import Path
from filelock import FileLock
Path(sys.argv[1]).mkdir()
with FileLock(sys.argv[1] + "/lock"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_told_that_another_is_at_work(tmp_path):
    """Also before the first has written what it is working on."""
    path = tmp_path / "fit"
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as first:
        assert first.stdout.readline() == b"held\n"
        with pytest.raises(RuntimeError, match=r"one process at a time.*is being written by another"):
            fit(path)
        first.stdin.close()
    fit(path)


@pytest.mark.parametrize("other", ["data", "seed", "file"])
def test_the_result_of_another_fit_is_refused(path, tmp_path, other):
    if other == "file":
        sf.fit_vi(SIM.X, **SETTINGS).save(path / "result.sf")
    else:
        fit(tmp_path / "other", **({"X": SIM.X * 2} if other == "data" else {"seed": 1}))
        shutil.copy(tmp_path / "other" / "result.sf", path / "result.sf")
    for call in (fit, sf.load):
        with pytest.raises(ValueError, match=r"result\.sf.* must be that fit's own.*remove it"):
            call(path)
    (path / "result.sf").unlink()
    fit(path)


def test_the_result_of_a_run_is_refused(path, tmp_path):
    run = {"n_factors": 2, "n_chains": 1, "n_warmup": 2, "n_draws": 4, "init": "random", "progress": False}
    with pytest.warns(sf.SamplingWarning):
        mc = sf.sample(SIM.X, path=tmp_path / "run", **run)
    mc.save(tmp_path / "mc.sf")
    for file in (tmp_path / "run" / "result.sf", tmp_path / "mc.sf"):
        shutil.copy(file, path / "result.sf")
        for call in (fit, sf.load):
            with pytest.raises(ValueError, match=r"result\.sf.* must be that fit's own"):
                call(path)


def test_a_found_result_is_what_was_returned(path):
    expected = sf.fit_vi(SIM.X, **SETTINGS)
    for found in (fit(path), sf.load(path)):
        assert found.elbo == expected.elbo
        assert found.record.keys() == expected.record.keys()
        np.testing.assert_array_equal(found.loadings_mean, expected.loadings_mean)


def test_other_folders_are_refused_and_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"must be new, or hold a fit .*holds 'notes.txt'; pass another path"):
        fit(tmp_path)
    with pytest.raises(ValueError, match=r"must be new, or hold a fit .*is a file"):
        fit(tmp_path / "notes.txt")
    assert names(tmp_path) == ["notes.txt"]
    with pytest.raises(FileNotFoundError, match="the directory of a fit must exist"):
        fit(tmp_path / "none" / "fit")


@pytest.mark.parametrize("content", ["[1]", "{", "{}", '{"seed": 0, "X": "0", "sparsefactor": "0.1"}'])
def test_a_record_of_another_version_or_program_is_refused(path, content):
    (path / "fit.json").write_text(content)
    for call in (fit, sf.load):
        with pytest.raises(
            ValueError, match=r"fit\.json must be as fit_vi\(\) wrote it.*another version.*pass another"
        ):
            call(path)


def test_an_edited_record_is_refused(path):
    record = json.loads((path / "fit.json").read_text())
    record["identity"]["seed"] = 1
    (path / "fit.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"fit\.json must be as fit_vi\(\) .* edited"):
        fit(path, seed=1)


def test_a_result_without_a_record_is_refused(path):
    (path / "fit.json").unlink()
    with pytest.raises(ValueError, match=r"must be new, or hold a fit .*holds 'result.sf'"):
        fit(path)


def test_what_a_live_process_writes_is_left_alone(path):
    with open_replacing(path / "result.sf") as file:
        fit(path)
        file.write(b"another result")
    assert (path / "result.sf").read_bytes() == b"another result"


def unfinished(path: Path) -> Path:
    with pytest.warns(sf.ConvergenceWarning):
        fit(path, LARGE.X, checkpoint_seconds=0.0, callback=lambda now: now.iteration == 3)
    return path


def test_a_fit_does_not_write_through_links(tmp_path, monkeypatch):
    """Links where the fit would write; the names are those of another fit."""
    folders = [unfinished(tmp_path / name) for name in ("one", "other")]
    written = temporary_names(monkeypatch, folders[0], lambda: fit(folders[0], LARGE.X, checkpoint_seconds=0.0))
    outside = tmp_path / "outside"
    outside.write_text("mine")
    for name in {"lock", "checkpoint", *written}:
        link = folders[1] / name
        link.unlink(missing_ok=True)
        link.symlink_to(outside)
        with pytest.raises(ValueError, match=r"files are themselves, not links; .* is a symbolic link"):
            fit(folders[1], LARGE.X)
        assert outside.read_text() == "mine"
        link.unlink()
    fit(folders[1], LARGE.X)


# ---- checkpoints ----------------------------------------------------------------------------------------------------

FACTS = {"iteration": 3, "elbo": -0.1, "worst": float("-inf"), "phases": ["race", None], "nested": {"a": [1.5, True]}}
ARRAYS = {
    "L": np.asfortranarray(np.arange(6.0).reshape(2, 3) / 7),
    "labels": np.array([1, 2, 3], np.int8)[::2],
    "single": np.float32(0.1),
    "none": np.zeros((0, 4)),
    "odd": np.array([-0.0, np.nan]),
}
IDENTITY = {"seed": 0, "X": "digest", "init": ["a", "b"]}


def assert_saved(found) -> None:
    facts, arrays = found
    assert facts == FACTS
    assert arrays.keys() == ARRAYS.keys()
    for name, values in ARRAYS.items():
        assert arrays[name].dtype == values.dtype
        assert arrays[name].shape == np.shape(values)
        assert arrays[name].tobytes() == np.ascontiguousarray(values).tobytes()


def test_a_checkpoint_keeps_every_bit(tmp_path):
    with FitFolder.open(tmp_path / "fit", IDENTITY) as folder:
        assert folder.checkpoint() is None
        assert folder.result() is None
        folder.save_checkpoint({}, {})
        folder.save_checkpoint(FACTS, ARRAYS)
    with FitFolder.open(tmp_path / "fit", IDENTITY) as folder:
        assert_saved(folder.checkpoint())
        folder.checkpoint()[1]["L"][:] = 0  # it can be gone on with in place
    with (
        pytest.raises(ValueError, match=r"a fit goes on with the data, .*has seed=0; got 1"),
        FitFolder.open(tmp_path / "fit", IDENTITY | {"seed": 1}),
    ):
        pass
    assert names(tmp_path / "fit") == ["checkpoint", "fit.json", "lock"]


def test_the_checkpoint_goes_when_the_fit_is_done(tmp_path):
    result = sf.fit_vi(SIM.X, **SETTINGS)
    with FitFolder.open(tmp_path / "fit", IDENTITY) as folder:
        folder.save_checkpoint(FACTS, ARRAYS)
        folder.save_result(result)
        assert folder.checkpoint() is None
        assert folder.result().record == result.record
    assert names(tmp_path / "fit") == ["fit.json", "lock", "result.sf"]


def test_any_changed_byte_of_a_checkpoint_means_that_there_is_none(tmp_path, caplog):
    with FitFolder.open(tmp_path / "fit", IDENTITY) as folder:
        folder.save_checkpoint(FACTS, ARRAYS)
        file = folder.path / "checkpoint"
        content = file.read_bytes()
        damaged = [bytes([*content[:at], content[at] ^ 1, *content[at + 1 :]]) for at in range(len(content))]
        for number, bad in enumerate([*damaged, content[:-1], content + b"0", b""]):
            file.write_bytes(bad)
            assert folder.checkpoint() is None
            assert len(caplog.messages) == number + 1
        assert "checkpoint is damaged or cut short" in caplog.text
        assert "the fit begins again" in caplog.text
        file.write_bytes(content)
        assert_saved(folder.checkpoint())


def test_the_checkpoint_of_another_fit_means_that_there_is_none(tmp_path, caplog):
    for name in ("one", "other"):
        with FitFolder.open(tmp_path / name, IDENTITY) as folder:
            folder.save_checkpoint(FACTS, ARRAYS)
    shutil.copy(tmp_path / "one" / "checkpoint", tmp_path / "other" / "checkpoint")
    with FitFolder.open(tmp_path / "other", IDENTITY) as folder:
        assert folder.checkpoint() is None
    assert "belongs to another fit" in caplog.text


@pytest.mark.parametrize("dtype", ["|O", "<f8", "<i4,<i4", "nonsense", 3, "<U2"])
def test_a_crafted_checkpoint_is_refused(tmp_path, caplog, dtype):
    """Right digests, but objects instead of numbers, or a shape of terabytes."""
    with FitFolder.open(tmp_path / "fit", IDENTITY) as folder:
        facts = {"version": 1, "fit": folder.token, "facts": {}, "arrays": {"L": [dtype, [10**12]]}}
        write_atomically(folder.path / "checkpoint", *seal(KIND, facts, {"L": bytes(16)}))
        assert folder.checkpoint() is None
        for wrong in ({}, {"facts": [1]}, {"facts": {}, "arrays": 1}):
            write_atomically(folder.path / "checkpoint", *seal(KIND, {**facts, "facts": None, **wrong}, {}))
            assert folder.checkpoint() is None
    assert len(caplog.messages) == 4


def test_facts_that_could_not_be_read_back_are_not_written(tmp_path):
    with FitFolder.open(tmp_path / "fit", IDENTITY) as folder:
        folder.save_checkpoint(FACTS, ARRAYS)
        with pytest.raises(ValueError, match="must fit into 4000000 bytes"):
            folder.save_checkpoint({"long": "a" * 4_000_000}, {})
        assert_saved(folder.checkpoint())


# ---- killed ---------------------------------------------------------------------------------------------------------

KILLED = {"n_trials": 4, "checkpoint_seconds": 0.0}
CHILD = """
import sys
from pathlib import Path
from tests.test_fit_folder import KILLED, LARGE, fit
print("ready", flush=True)
fit(Path(sys.argv[1]), LARGE.X, **KILLED)
"""


@pytest.mark.slow
def test_a_fit_killed_thirty_times(tmp_path):
    """At random moments, some of them before it has written what it is: each ends as one that was never stopped."""
    begun = time.monotonic()
    expected = fit(tmp_path / "whole", LARGE.X, **KILLED)
    seconds = time.monotonic() - begun
    rng, kills, number = random.Random(0), 0, 0
    while kills < 30 and number < 300:
        path = tmp_path / str(number)
        for early in (True, False, False):
            child = subprocess.Popen([sys.executable, "-c", CHILD, str(path)], stdout=subprocess.PIPE, cwd=Path.cwd())
            assert child.stdout.readline() == b"ready\n"
            try:
                child.wait(rng.uniform(0.0, 0.1 if early else seconds))
            except subprocess.TimeoutExpired:
                child.kill()
                kills += 1
            assert child.wait() in (0, -9)
            child.stdout.close()
        found = fit(path, LARGE.X, **KILLED)
        assert found.elbo == expected.elbo
        np.testing.assert_array_equal(found.loadings_mean, expected.loadings_mean)
        assert names(path) == ["fit.json", "lock", "result.sf"]
        number += 1
    assert kills >= 30


# ---- resuming -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize(
    "settings",
    [{}, {"tol": 1e-6}, {"n_trials": 4}, {"search": "thorough", "n_trials": 3}, {"n_trials": 2, "accelerate": False}],
    ids=str,
)
def test_a_stopped_fit_resumes_to_the_same_bits(tmp_path, monkeypatch, settings, missing):
    monkeypatch.setattr("sparsefactor.vi.checkpoint.SHARE", 0.0)  # a checkpoint at every call, whatever it costs
    monkeypatch.setattr("sparsefactor.vi.search.PATIENCE", 2)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((30, 4)) @ rng.standard_normal((4, 12)) + rng.standard_normal((30, 12))
    X = np.where(rng.random(X.shape) < 0.1, np.nan, X) if missing else X
    calls = []
    expected = sf.fit_vi(X, n_factors=4, callback=lambda now: calls.append(now.phase), **settings)
    resumed = []
    monkeypatch.setattr("sparsefactor.vi.checkpoint.restore", lambda *args: resumed.append(1) or restore(*args))
    for number, share in enumerate((0.01, 0.3, 0.6, 0.9)):
        stop, seen = max(2, int(share * len(calls))), []
        path = tmp_path / str(number)
        own = {"n_factors": 4, "path": path, "checkpoint_seconds": 0.0, **settings}
        with pytest.warns(sf.ConvergenceWarning, match="stopped by the callback"):
            sf.fit_vi(X, callback=lambda _, seen=seen, stop=stop: seen.append(1) or len(seen) == stop, **own)
        assert not (path / "result.sf").exists()
        found = sf.fit_vi(X, **own)
        assert found.elbo == expected.elbo
        np.testing.assert_array_equal(found.loadings_mean, expected.loadings_mean)
        np.testing.assert_array_equal(found.elbo_trace["elbo"], expected.elbo_trace["elbo"])
        assert found.record["search"] == expected.record["search"]
        assert found.trials["iterations"].tolist() == expected.trials["iterations"].tolist()
    assert len(resumed) >= 3  # from a checkpoint, not from the beginning


def test_a_search_that_time_ended_is_resumed(tmp_path, monkeypatch):
    """Its best state has converged, but the search goes on when the call is made again."""
    monkeypatch.setattr("sparsefactor.vi.checkpoint.SHARE", 0.0)
    monkeypatch.setattr("sparsefactor.vi.search.PATIENCE", 3)
    X = np.random.default_rng(0).standard_normal((60, 12)) @ np.random.default_rng(1).standard_normal((12, 12))
    own = {"n_factors": 5, "scale": True, "search": "thorough", "checkpoint_seconds": 0.0, "n_threads": 1}
    expected = sf.fit_vi(X, **own)
    calls = []
    real = search.propose
    monkeypatch.setattr(search, "propose", lambda *args: calls.append(1) or real(*args))
    monkeypatch.setattr("sparsefactor.vi.fit.time_limit", lambda seconds: seconds and (lambda: len(calls) > 5))
    cut = sf.fit_vi(X, path=tmp_path / "fit", max_seconds=60, **own)
    assert cut.converged
    assert cut.record["search"]["ended"] == "time_limit"
    assert cut.certainty.startswith("The search was ended early")
    found = sf.fit_vi(X, path=tmp_path / "fit", **own)
    assert found.record["search"] == expected.record["search"]
    assert found.elbo == expected.elbo
    np.testing.assert_array_equal(found.loadings_mean, expected.loadings_mean)


def test_a_fit_interrupted_in_its_last_climb_resumes_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr("sparsefactor.vi.checkpoint.SHARE", 0.0)
    X = sf.simulate(n_features=80, n_samples=60, inclusion=[0.4, 0.4, 0.3, 0.3, 0.2, 0.2], snr=0.3, seed=3).X
    own = {"n_factors": 8, "n_trials": 5, "checkpoint_seconds": 0.0}
    expected = sf.fit_vi(X, **own)
    for number in (1, 3, 9):
        path, seen = tmp_path / str(number), []

        def stop(now, seen=seen, number=number):
            seen.extend([1] if now.phase == "polish" else [])
            return len(seen) == number

        with pytest.warns(sf.ConvergenceWarning, match="stopped by the callback"):
            sf.fit_vi(X, path=path, callback=stop, **own)
        found = sf.fit_vi(X, path=path, **own)
        np.testing.assert_array_equal(found.loadings_mean, expected.loadings_mean)
        np.testing.assert_array_equal(found.elbo_trace["elbo"], expected.elbo_trace["elbo"])


def test_another_engine_state_is_not_resumed_from_a_changed_checkpoint(tmp_path, monkeypatch):
    """Negative control: a checkpoint with one number changed, and sealed again, leads elsewhere."""
    monkeypatch.setattr("sparsefactor.vi.checkpoint.SHARE", 0.0)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((30, 4)) @ rng.standard_normal((4, 12)) + rng.standard_normal((30, 12))
    own = {"n_factors": 4, "tol": 1e-6, "path": tmp_path / "fit", "checkpoint_seconds": 0.0}
    expected = sf.fit_vi(X, n_factors=4, tol=1e-6)
    with pytest.warns(sf.ConvergenceWarning, match="stopped by the callback"):
        sf.fit_vi(X, callback=lambda now: now.iteration == 15, **own)
    real = FitFolder.checkpoint

    def changed(self):
        facts, arrays = real(self)
        return facts, arrays | {"0.rows.mu": arrays["0.rows.mu"] + 1.0}

    monkeypatch.setattr(FitFolder, "checkpoint", changed)
    found = sf.fit_vi(X, **own)
    assert not np.array_equal(found.elbo_trace["elbo"], expected.elbo_trace["elbo"])
