"""The files of a run: every byte is verified, none is trusted, and a run goes on under its own code only."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from tests.helpers.runs import PRIOR, RUN, assert_same_bits, chunk_file, loaded, sample, stopped, temporary_names

import sparsefactor as sf
from sparsefactor.mcmc.chain import Chain
from sparsefactor.storage.draws import Layout, StoredDraws
from sparsefactor.storage.zarr_file import Stored, write
from sparsefactor.version import code_digest


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> sf.MCMCPosterior:
    return sample(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def whole_path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("settings") / "run"
    sample(path)
    return path


@pytest.fixture
def whole_copy(tmp_path, whole_path) -> Path:
    return Path(shutil.copytree(whole_path, tmp_path / "copy"))


@pytest.fixture(scope="module")
def stopped_path(tmp_path_factory) -> Path:
    """A run that failed with chain 0 done and 125 draws of chain 1."""
    with pytest.MonkeyPatch.context() as patch:
        return stopped(tmp_path_factory.mktemp("stopped") / "run", patch, sweep=270, n_jobs=1, checkpoint_seconds=0)


@pytest.fixture
def stopped_copy(tmp_path, stopped_path) -> Path:
    return Path(shutil.copytree(stopped_path, tmp_path / "copy"))


# ---- draws --------------------------------------------------------------------------------------------------------


def flip(file: Path, at: int, bit: int = 0) -> None:
    content = bytearray(file.read_bytes())
    content[at % len(content)] ^= 1 << bit
    file.write_bytes(content)


DAMAGE = {
    "gone": r"is not there",
    "cut": r"is damaged or cut short",
    "empty": r"is damaged or cut short",
    "flipped": r"is damaged \(wrong checksum of loadings/c/0/0/0/0",
    "of another chain": r"belongs to another run, or another place",
    "of another place": r"belongs to another run, or another place",
    "of another run": r"belongs to another run",
    "shorter": r"has 70 draws, not 100",
}


def damage(path: Path, other: Path, how: str) -> None:
    """Damage the first draws of chain 1. other: another run, stopped early."""
    file = chunk_file(path, 1, 0)
    content = file.read_bytes()
    if how == "gone":
        file.unlink()
    elif how == "flipped":
        flip(file, content.index(b"loadings/c/0/0/0/0") + 60)
    elif how == "shorter":
        facts = {"token": json.loads((path / "run.json").read_text())["token"], "chain": 1, "first": 0, "draws": 70}
        write(file, {"sparsefactor": facts}, {})
    else:
        contents = {
            "cut": lambda: content[:-30],
            "empty": lambda: b"",
            "of another chain": chunk_file(path, 0, 0).read_bytes,
            "of another place": chunk_file(path, 0, 1).read_bytes,
            "of another run": chunk_file(other, 1, 0).read_bytes,
        }
        file.write_bytes(contents[how]())


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_draws_are_named_before_a_run_goes_on(stopped_copy, tmp_path, monkeypatch, how):
    other = stopped(tmp_path / "other", monkeypatch, sweep=270) if "run" in how else tmp_path
    damage(stopped_copy, other, how)
    for changes in ({}, {"n_draws": 140}):
        record = (stopped_copy / "run.json").read_bytes()
        with pytest.raises(
            ValueError, match=rf"must be on disk, whole.*chain-1.000000.zarr.zip' {DAMAGE[how]}.*restore"
        ):
            sample(stopped_copy, **changes)
        assert (stopped_copy / "run.json").read_bytes() == record


def test_a_damaged_part_that_waits_in_a_checkpoint_is_written_again(stopped_copy, whole):
    file = chunk_file(stopped_copy, 0, 1)
    file.write_bytes(file.read_bytes()[:30])
    assert_same_bits(sample(stopped_copy), whole)


def test_any_changed_byte_of_the_result_is_named_or_harmless(tmp_path):
    path = tmp_path / "run"
    mc = sample(path, n_draws=3, n_chains=1)
    file, refused = path / "result.sf", 0
    content = file.read_bytes()
    for at in range(0, len(content), 23):
        flip(file, at, at % 8)
        try:
            back = sf.load(path)
        except ValueError as problem:
            assert "result.sf" in str(problem)  # noqa: PT017
            refused += 1
        else:
            assert_same_bits(back, mc)
        file.write_bytes(content)
    assert refused > 0.7 * len(content) / 23


def test_what_is_whole_of_damaged_draws_can_be_read(whole_copy, whole):
    """Where the check is left out, a chunk is verified when it is read."""
    file = whole_copy / "result.sf"
    flip(file, file.read_bytes().index(b"posterior/loadings/c/1/0/0/0") + 200)
    with pytest.raises(ValueError, match=r"result\.sf' is damaged \(wrong checksum of posterior/loadings/c/1/0/0/0"):
        sf.load(whole_copy)
    opened = sf.load(whole_copy, check=False)
    for name in ("activations", "inclusion", "noise_precision"):
        values = opened.draws["posterior"][name].values
        np.testing.assert_array_equal(values, whole.draws["posterior"][name].values)
    loadings = opened.draws["posterior"]["loadings"]
    np.testing.assert_array_equal(loadings[0].values, whole.draws["posterior"]["loadings"][0].values)
    with pytest.raises(ValueError, match=r"must be on disk, whole; .*result\.sf' is damaged .*restore it from a copy"):
        loadings[1].values  # noqa: B018


@pytest.mark.parametrize("value", [0.0, 1e39, 1e-300])
def test_draws_of_zeros_and_beyond_single_precision_are_kept(tmp_path, value):
    """Stopped or not: what waits in a checkpoint is rounded as it would have been."""
    labels = sf.posterior.Labels(feature_names=np.arange(3), sample_names=np.arange(2), offset=np.zeros(3))
    layout = Layout(PRIOR, labels)
    values = {name: np.full(kept.shape, 1 / 3) for name, kept in layout.variables.items()} | {
        "inclusion": np.ones((3, 2), dtype=np.int8)
    }
    odd = {**values, "loadings": np.full((3, 2), value)}
    trees = []
    for stopped_after in (None, 1):
        store = StoredDraws(layout, tmp_path / str(stopped_after), "token", layout.chunk, 1, 2, "single")
        store.keep(0, 0, values)
        if stopped_after:
            pending = store.pending(0, 1)
            store = StoredDraws(layout, tmp_path / str(stopped_after), "token", layout.chunk, 1, 2, "single")
            store.restore(0, 1, pending)
        store.keep(0, 1, odd)
        store.finish(0, 2)
        store.settle(0)
        trees.append(loaded(store.tree())["posterior"])
    xr.testing.assert_identical(*trees)
    np.testing.assert_array_equal(trees[0]["loadings"][0, 0], np.float32(1 / 3))
    np.testing.assert_array_equal(trees[0]["loadings"][0, 1], value)


# ---- run.json, and what is crafted --------------------------------------------------------------------------------


def rewrite_record(path: Path, **changes) -> None:
    record = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**record, **changes}))


@pytest.mark.parametrize("call", [sample, sf.load])
def test_a_run_of_another_format_is_refused(whole_copy, call):
    rewrite_record(whole_copy, version=4)
    with pytest.raises(ValueError, match=r"runs of version 3; .* has version 4; upgrade"):
        call(whole_copy)


@pytest.mark.parametrize("call", [sample, sf.load])
@pytest.mark.parametrize("change", [{"sizes": {"n_draws": 131}}, {"format": "other"}, {"token": "0"}, {"settings": {}}])
def test_an_edited_record_is_refused(whole_copy, call, change):
    rewrite_record(whole_copy, **change)
    with pytest.raises(ValueError, match=r"run.json must be as sample\(\) wrote it; .*is damaged.*restore it"):
        call(whole_copy)


@pytest.mark.parametrize("call", [sample, sf.load])
def test_every_flipped_bit_of_the_record_is_noticed_or_harmless(whole_copy, whole, call, monkeypatch):
    monkeypatch.setattr(Chain, "advance", None)
    content = (whole_copy / "run.json").read_bytes()
    for at in range(0, len(content), 7):
        flip(whole_copy / "run.json", at, at % 7)
        try:
            back = call(whole_copy)
        except ValueError as problem:
            assert "run.json" in str(problem) or "version" in str(problem)  # noqa: PT017
        else:
            assert back.n_chains == whole.n_chains  # white space
        (whole_copy / "run.json").write_bytes(content)


def other_code(monkeypatch, digest: str = "other code") -> None:
    monkeypatch.setattr("sparsefactor.storage.checkpoint.code_digest", lambda: digest)


@pytest.mark.parametrize("changed", ["code", "version"])
def test_a_run_goes_on_under_other_code_only_by_force(tmp_path, whole, monkeypatch, changed):
    path = stopped(tmp_path / "run", monkeypatch)
    made = json.loads((path / "run.json").read_text())["made_by"]
    assert made == {"sparsefactor": sf.__version__, "code": code_digest()}
    if changed == "code":
        other_code(monkeypatch)
    else:
        monkeypatch.setattr("sparsefactor.storage.checkpoint.__version__", "99.0")
    for n_draws in (RUN["n_draws"], 140):
        with pytest.raises(ValueError, match=r"by the code that began it; .* was made by sparsefactor .*force=True"):
            sample(path, n_draws=n_draws)
    assert_same_bits(sample(path, force=True), whole)  # the same code under another name
    record = json.loads((path / "run.json").read_text())["made_by"]
    assert record.pop("earlier") == [made]
    assert record != made


def test_a_finished_run_is_read_under_any_code(whole_copy, whole, monkeypatch):
    other_code(monkeypatch)
    assert_same_bits(sample(whole_copy), whole)
    assert_same_bits(sf.load(whole_copy), whole)
    with pytest.raises(ValueError, match="by the code that began it"):
        sample(whole_copy, n_draws=140)


def test_a_finished_run_is_read_where_nothing_can_be_written(whole_copy, whole, monkeypatch):
    def read_only(*_args, **_kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("sparsefactor.storage.checkpoint.sole_writer", read_only)
    monkeypatch.setattr("sparsefactor.storage.zarr_file.open_replacing", read_only)
    assert_same_bits(sample(whole_copy), whole)
    with pytest.raises(OSError, match="Read-only"):
        sample(whole_copy, n_draws=140)


def test_symbolic_links_are_followed(tmp_path, whole):
    (tmp_path / "empty").mkdir()
    (tmp_path / "to-empty").symlink_to(tmp_path / "empty")
    (tmp_path / "dangling").symlink_to(tmp_path / "later")
    (tmp_path / "lost").symlink_to(tmp_path / "no" / "such")
    (tmp_path / "round").symlink_to(tmp_path / "round")
    for link, target in (("to-empty", "empty"), ("dangling", "later")):
        assert_same_bits(sample(tmp_path / link), whole)
        assert (tmp_path / link).is_symlink()
        assert (tmp_path / target / "run.json").is_file()
        assert_same_bits(sample(tmp_path / target), whole)
    with pytest.raises(FileNotFoundError, match="directory of a run must exist"):
        sample(tmp_path / "lost")
    with pytest.raises(ValueError, match="leads back to itself"):
        sample(tmp_path / "round")


def test_a_run_does_not_write_through_links(tmp_path, monkeypatch):
    """Links where temporary files would be written; the names are those of another run."""
    runs = [stopped(tmp_path / name, monkeypatch) for name in ("one", "other")]
    names = temporary_names(monkeypatch, runs[0], lambda: sample(runs[0], checkpoint_seconds=0))
    assert {Path(name).name.split(".")[1] for name in names} >= {"run", "result", "chain-0-a", "000001"}
    outside = tmp_path / "outside"
    outside.write_text("mine")
    for name in names:
        link = runs[1] / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(outside)
        with pytest.raises(ValueError, match=r"files are themselves, not links; .* is a symbolic link; put the file"):
            sample(runs[1])
        assert outside.read_text() == "mine"
        link.unlink()
    assert_same_bits(sample(runs[1]), sample(runs[0]))


@pytest.mark.parametrize("name", ["checkpoints", "sampler", "sampler/chain-1", "lock"])
def test_a_run_does_not_write_into_linked_folders(tmp_path, stopped_copy, name):
    path = stopped_copy
    (path / name).rename(tmp_path / "outside")
    (path / name).symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match="is a symbolic link; put the file or folder itself there"):
        sample(path)


def test_links_in_a_finished_run_are_read(whole_copy, whole, tmp_path):
    (whole_copy / "result.sf").rename(tmp_path / "elsewhere")
    (whole_copy / "result.sf").symlink_to(tmp_path / "elsewhere")
    assert_same_bits(sf.load(whole_copy), whole)
    assert_same_bits(sample(whole_copy), whole)


@pytest.mark.parametrize("shape", [(1, 10**6, 12, 2), (1, 100, 10**5, 2), (3, 100, 12, 2), (100,)])
def test_draws_that_would_fill_memory_are_refused(stopped_copy, shape):
    """Crafted draws, with right checksums, of many more numbers than the run has."""
    file = chunk_file(stopped_copy, 1, 0)
    facts = {"token": json.loads((stopped_copy / "run.json").read_text())["token"], "chain": 1, "first": 0}
    crafted = Stored(np.broadcast_to(0.0, shape), draws=len(shape) > 1)
    write(file, {"sparsefactor": {**facts, "draws": 100}}, {"loadings": crafted})
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"has no draws of (loadings|activations|inclusion) of shape"):
        sample(stopped_copy)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


# ---- in numbers ---------------------------------------------------------------------------------------------------


def run_files(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file() and file.name != "lock")


@pytest.mark.slow
def test_four_hundred_flipped_bits(tmp_path, whole_path, whole, monkeypatch):
    """In any file of a finished run: named on load, or without effect; extending carries nothing on."""
    expected = sample(tmp_path / "longer", n_draws=140)
    rng = np.random.default_rng(0)
    named = harmless = 0
    for trial in range(400):
        path = Path(shutil.copytree(whole_path, tmp_path / f"run-{trial}"))
        files = run_files(path)
        file = files[rng.choice(len(files), p=_shares([f.stat().st_size for f in files]))]
        flip(file, int(rng.integers(file.stat().st_size)), int(rng.integers(8)))
        try:
            assert_same_bits(sf.load(path), whole)
            harmless += 1  # a checkpoint, which a finished run does not need; white space; a time in the archive
            assert file.suffix in (".zip", ".json", ".sf")
        except ValueError as problem:
            named += 1
            assert file.name in str(problem) or "run.json" in str(problem) or "version" in str(problem)  # noqa: PT017
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sf.CheckpointWarning)
            if trial % 4 == 0:
                try:
                    assert_same_bits(sample(path, n_draws=140), expected)
                except ValueError as problem:
                    assert "a copy" in str(problem) or "version" in str(problem)  # noqa: PT017
        shutil.rmtree(path)
    assert named > 120
    assert named + harmless == 400


def _shares(sizes: list[int]) -> np.ndarray:
    """Half by file, half by byte, so that small files are met too."""
    share = np.array(sizes) / np.sum(sizes)
    return share / 2 + 0.5 / len(sizes)


FULL = """
import errno, shutil, subprocess, sys
from pathlib import Path
import sparsefactor as sf
from tests.helpers.runs import assert_same_bits, sample

disk, n = Path(sys.argv[1]), int(sys.argv[2])
whole = sample(disk.parent / "whole", n_jobs=1)
size = sum(file.stat().st_size for file in (disk.parent / "whole").rglob("*") if file.is_file())
full = 0
for trial in range(n):
    room = int(size * 1.6 * (trial + 1) / n) // 4096 + 1  # in pages
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={4 * room}k", "none", str(disk)], check=True)
    try:
        sample(disk / "run", n_jobs=1, checkpoint_seconds=0.001)
    except OSError as problem:
        assert problem.errno == errno.ENOSPC, problem
        full += 1
    assert not list(disk.rglob("*.tmp")), list(disk.rglob("*.tmp"))
    subprocess.run(["mount", "-o", "remount,size=100m", str(disk)], check=True)
    assert_same_bits(sample(disk / "run"), whole)
    assert_same_bits(sf.load(disk / "run"), whole)
    subprocess.run(["umount", str(disk)], check=True)
print(full)
"""


@pytest.mark.slow
def test_thirty_full_disks(tmp_path):
    """Disks that fill at any moment of a run: it stops with the system's error, and goes on once there is room."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("a disk to fill needs a mount of one's own, which this system does not allow")
    (tmp_path / "disk").mkdir()
    done = subprocess.run(
        ["unshare", "-rm", sys.executable, "-W", "ignore", "-c", FULL, str(tmp_path / "disk"), "30"],
        capture_output=True,
        text=True,
        cwd=Path.cwd(),
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 10


@pytest.mark.parametrize("allowed", [0, 3, 20, 200])
def test_a_disk_that_fills_stops_a_run_and_loses_nothing(tmp_path, whole, monkeypatch, allowed):
    """The same without a mount: after so many writes, no file can be replaced."""
    left = allowed
    replace = os.replace

    def full(source, target) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            sample(tmp_path / "run", checkpoint_seconds=0)
    assert not list(tmp_path.rglob("*.tmp"))
    assert_same_bits(sample(tmp_path / "run"), whole)
