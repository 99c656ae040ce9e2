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
from sparsefactor.storage.checkpoint import FIT, CheckpointWarning, Folder
from sparsefactor.storage.zarr_file import Stored, write
from sparsefactor.vi import search
from sparsefactor.vi.checkpoint import restore

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
    record["settings"]["seed"] = 1
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
    assert {Path(name).name.split(".")[1] for name in written} & {"search-a", "search-b"}
    for name in {"lock", "checkpoints/search-a.zarr.zip", *written}:
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


def opened(path: Path, **changes):
    return Folder.open(path, FIT, IDENTITY | changes, {})


def assert_saved(found) -> None:
    assert found.facts == FACTS
    assert found.arrays.keys() == ARRAYS.keys()
    for name, values in ARRAYS.items():
        assert found.arrays[name].dtype == values.dtype
        assert found.arrays[name].shape == np.shape(values)
        assert found.arrays[name].tobytes() == np.ascontiguousarray(values).tobytes()


def test_a_checkpoint_keeps_every_bit(tmp_path):
    with opened(tmp_path / "fit") as folder:
        assert folder.latest("search") is None
        assert folder.result() is None
        folder.save("search", {}, {})
        folder.save("search", FACTS, ARRAYS)
    with opened(tmp_path / "fit") as folder:
        found = folder.latest("search")
        assert_saved(found)
        found.arrays["L"][:] = 0  # it can be gone on with in place
    with pytest.raises(ValueError, match=r"a fit is resumed with the settings it began with.*has seed=0; got seed=1"):
        opened(tmp_path / "fit", seed=1).__enter__()
    assert names(tmp_path / "fit") == ["checkpoints", "fit.json", "lock"]
    assert names(tmp_path / "fit" / "checkpoints") == ["search-a.zarr.zip", "search-b.zarr.zip"]


def test_the_newer_of_two_checkpoints_is_used_if_it_is_whole(tmp_path):
    with opened(tmp_path / "fit") as folder:
        folder.save("search", {}, {})
        folder.save("search", FACTS, ARRAYS)
        folder.save("search", {"iteration": 4}, {})
        assert folder.latest("search").facts == {"iteration": 4}
        file = folder.slot("search", 0)
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.warns(CheckpointWarning, match=r"search-a\.zarr\.zip is damaged .*; the other one is used"):
            assert_saved(folder.latest("search"))
        folder.save("search", {"iteration": 5}, {})
        assert folder.latest("search").facts == {"iteration": 5}


def test_the_checkpoint_goes_when_the_fit_is_done(path):
    assert names(path) == ["fit.json", "lock", "result.sf"]
    with pytest.warns(sf.ConvergenceWarning):
        fit(path.parent / "other", LARGE.X, checkpoint_seconds=0.0, callback=lambda now: now.iteration == 3)
    assert names(path.parent / "other") == ["checkpoints", "fit.json", "lock"]
    fit(path.parent / "other", LARGE.X)
    assert names(path.parent / "other") == ["fit.json", "lock", "result.sf"]


def test_the_checkpoint_of_another_fit_is_refused(tmp_path, caplog):
    for name in ("one", "other"):
        with opened(tmp_path / name) as folder:
            folder.save("search", FACTS, ARRAYS)
    shutil.copy(tmp_path / "one/checkpoints/search-a.zarr.zip", tmp_path / "other/checkpoints/search-a.zarr.zip")
    with (
        opened(tmp_path / "other") as folder,
        pytest.warns(CheckpointWarning, match="belongs to another fit or chain; search begins again"),
    ):
        assert folder.latest("search") is None


@pytest.mark.parametrize("arrays", [{"L": np.array(["words"])}, {"L": Stored(np.zeros(10**6))}])
def test_a_crafted_checkpoint_is_refused(tmp_path, arrays):
    """Strings, or arrays that take more memory than the file."""
    with opened(tmp_path / "fit") as folder:
        folder.save("search", FACTS, ARRAYS)
        own = {"version": 3, "token": folder.token, "name": "search", "generation": 0, "facts": FACTS}
        write(folder.slot("search", 0), {"sparsefactor": own}, arrays)
        with pytest.warns(CheckpointWarning, match="has arrays that are not plain numbers"):
            assert folder.latest("search") is None
        for wrong in ({"facts": [1]}, {"generation": "0"}):
            write(folder.slot("search", 0), {"sparsefactor": own | wrong}, {})
            with pytest.warns(CheckpointWarning, match="has no facts"):
                assert folder.latest("search") is None


def test_facts_that_could_not_be_read_back_are_not_written(tmp_path):
    with opened(tmp_path / "fit") as folder:
        folder.save("search", FACTS, ARRAYS)
        with pytest.raises(ValueError, match="must fit into 16000000 bytes"):
            folder.save("search", {"long": "a" * 16_000_000}, {})
        assert_saved(folder.latest("search"))


def test_a_fit_of_other_code_is_not_resumed(tmp_path, monkeypatch):
    path = unfinished(tmp_path / "fit")
    monkeypatch.setattr("sparsefactor.storage.checkpoint.code_digest", lambda: "other code")
    with pytest.raises(ValueError, match=r"a fit is resumed by the code that began it; .*or pass another path$"):
        fit(path, LARGE.X)


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
    real = Folder.latest

    def changed(self, name):
        found = real(self, name)
        return found._replace(arrays=found.arrays | {"0/state/rows/mu": found.arrays["0/state/rows/mu"] + 1e-3})

    monkeypatch.setattr(Folder, "latest", changed)
    found = sf.fit_vi(X, **own)
    assert not np.array_equal(found.elbo_trace["elbo"], expected.elbo_trace["elbo"])
