"""The files of a run: every byte is verified, none is trusted, and a run goes on under its own code only."""

from __future__ import annotations

import errno
import json
import os
import pickle
import shutil
import subprocess
import sys
import tracemalloc
import warnings
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import xarray as xr
from tests.helpers.runs import PRIOR, RUN, assert_same_bits, chunk_file, loaded, sample, stopped, temporary_names

import sparsefactor as sf
from sparsefactor.mcmc.chain import Chain
from sparsefactor.storage import chunks
from sparsefactor.storage.chunks import StoredDraws
from sparsefactor.storage.draws import Layout
from sparsefactor.storage.sealed import Sealed, seal, write_atomically
from sparsefactor.version import code_digest


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> sf.MCMCPosterior:
    return sample(tmp_path_factory.mktemp("whole") / "run")


@pytest.fixture(scope="module")
def whole_path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("settings") / "run"
    sample(path)
    return path


# ---- draws --------------------------------------------------------------------------------------------------------


def flip(file: Path, at: int, bit: int = 0) -> None:
    content = bytearray(file.read_bytes())
    content[at % len(content)] ^= 1 << bit
    file.write_bytes(content)


def remade(path: Path) -> Path:
    """Without its result, so that a call goes on with the run."""
    (path / "result.sf").unlink()
    return path


DAMAGE = {
    "gone": r"is not there",
    "cut": r"is damaged or cut short",
    "empty": r"is not a chunk of draws",
    "flipped": r"is damaged or cut short",
    "longer": r"is damaged or cut short",
    "of another chain": r"is chunk 0 of chain 2, in another's place",
    "of another place": r"is chunk 1 of chain 1, in another's place",
    "of another run": r"belongs to another run",
    "older": r"has 70 draws, not 100",
}


def damage(path: Path, other: Path, short: bytes, how: str) -> None:
    """Damage the first chunk of chain 1. short: that chunk when the run had 70 draws."""
    file = chunk_file(path, 1, 0)
    if how == "gone":
        file.unlink()
    elif how == "flipped":
        with file.open("rb") as content:
            flip(file, Sealed(content, chunks.KIND, "a chunk").sections["noise_precision"].start + 40)
    else:
        contents = {
            "cut": lambda: file.read_bytes()[:-30],
            "empty": lambda: b"",
            "longer": lambda: file.read_bytes() + b"0",
            "of another chain": chunk_file(path, 2, 0).read_bytes,
            "of another place": chunk_file(path, 1, 1).read_bytes,
            "of another run": chunk_file(other, 1, 0).read_bytes,
            "older": lambda: short,
        }
        file.write_bytes(contents[how]())


class Extended(NamedTuple):
    """A run that was extended, and what a test that damages it needs."""

    path: Path
    mc: sf.MCMCPosterior
    short: bytes  # the first chunk of chain 1 when the run had 70 draws
    kept: Path  # a copy
    other: Path  # another run

    def restored(self) -> Extended:
        shutil.rmtree(self.path)
        shutil.copytree(self.kept, self.path)
        return self


@pytest.fixture(scope="module")
def extended(tmp_path_factory) -> Extended:
    folder = tmp_path_factory.mktemp("extended")
    path = folder / "run"
    sample(path, n_draws=70)
    short = chunk_file(path, 1, 0).read_bytes()
    mc = sample(path)
    sample(folder / "other")
    return Extended(path, mc, short, shutil.copytree(path, folder / "kept"), folder / "other")


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_draws_are_named_on_load_read_resume_and_extension(extended, how):
    path, mc, short, _, other = extended.restored()
    damage(path, other, short, how)
    message = rf"must be on disk, whole.*chain-1.000000.draws' {DAMAGE[how]}.*restore it from a copy"
    with pytest.raises(ValueError, match=message):
        sf.load(path)
    for posterior in (mc, sf.load(path, check=False)):
        for name in ("loadings", "inclusion", "activations", "noise_precision"):
            draws = posterior.draws["posterior"][name]
            assert np.all(np.isfinite(draws[0].values))  # what is whole can be read
            if how != "flipped" or name == "noise_precision":  # the other variables are whole
                with pytest.raises(ValueError, match=message):
                    draws.values  # noqa: B018
    for changes in ({}, {"n_draws": 140}):
        record = (path / "run.json").read_bytes()
        with pytest.raises(ValueError, match=message):
            sample(path, **changes)
        assert (path / "run.json").read_bytes() == record


def test_the_draws_of_another_run_are_refused(tmp_path):
    sample(tmp_path / "one")
    sample(tmp_path / "other", seed=6)
    (tmp_path / "one" / "sampler").rename(tmp_path / "gone")
    (tmp_path / "other" / "sampler").rename(tmp_path / "one" / "sampler")
    for call in (sf.load, sample, lambda path: sample(remade(path))):
        with pytest.raises(ValueError, match="belongs to another run"):
            call(tmp_path / "one")


def test_any_changed_byte_of_a_chunk_is_noticed(tmp_path):
    path = tmp_path / "run"
    mc = sample(path, n_draws=3, n_chains=1)
    file = chunk_file(path, 0, 0)
    content = file.read_bytes()
    for at in range(0, len(content), 3):
        flip(file, at, at % 8)
        with pytest.raises(ValueError, match=r"000000.draws' (is damaged|is not a chunk|has a header)"):
            sf.load(path)
        file.write_bytes(content)
    assert_same_bits(sf.load(path), mc)


def test_a_damaged_chunk_that_waits_in_a_checkpoint_is_written_again(tmp_path, whole):
    sample(tmp_path / "run")
    remade(tmp_path / "run")
    file = chunk_file(tmp_path / "run", 1, 1)
    file.write_bytes(file.read_bytes()[:30])
    assert_same_bits(sample(tmp_path / "run"), whole)


def test_a_lost_store_is_an_error(tmp_path):
    sample(tmp_path / "run", n_draws=5)
    (tmp_path / "run" / "sampler").rename(tmp_path / "gone")
    with pytest.raises(ValueError, match=r"must be on disk.*sampler.*restore"):
        sf.load(tmp_path / "run")


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
    rewrite_record(whole_copy, version=3)
    with pytest.raises(ValueError, match=r"runs of version 2; .* has version 3; upgrade"):
        call(whole_copy)
    rewrite_record(whole_copy, version=1)
    with pytest.raises(ValueError, match=r"has version 1, from before draws had checksums; sample again with another"):
        call(whole_copy)


@pytest.fixture
def whole_copy(tmp_path, whole_path) -> Path:
    return Path(shutil.copytree(whole_path, tmp_path / "copy"))


@pytest.mark.parametrize("call", [sample, sf.load])
@pytest.mark.parametrize("change", [{"n_draws": 131}, {"format": "other"}, {"token": "0"}, {"chunk": 10**9}])
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
    monkeypatch.setattr("sparsefactor.storage.record.code_digest", lambda: digest)


@pytest.mark.parametrize("changed", ["code", "version"])
def test_a_run_goes_on_under_other_code_only_by_force(tmp_path, whole, monkeypatch, changed):
    path = stopped(tmp_path / "run", monkeypatch)
    made = json.loads((path / "run.json").read_text())["made_by"]
    assert made == {"sparsefactor": sf.__version__, "code": code_digest()}
    if changed == "code":
        other_code(monkeypatch)
    else:
        monkeypatch.setattr("sparsefactor.storage.record.__version__", "99.0")
    for n_draws in (RUN["n_draws"], 140):
        with pytest.raises(ValueError, match=r"under the code that began it; .* was made by sparsefactor .*force=True"):
            sample(path, n_draws=n_draws)
    assert_same_bits(sample(path, force=True), whole)  # the same code under another name
    record = json.loads((path / "run.json").read_text())["made_by"]
    assert record.pop("earlier") == [made]
    assert record != made


def test_a_finished_run_is_read_under_any_code(whole_copy, whole, monkeypatch):
    other_code(monkeypatch)
    assert_same_bits(sample(whole_copy), whole)
    assert_same_bits(sf.load(whole_copy), whole)
    with pytest.raises(ValueError, match="under the code that began it"):
        sample(whole_copy, n_draws=140)


def test_a_finished_run_is_read_where_nothing_can_be_written(whole_copy, whole, monkeypatch):
    def read_only(*_args, **_kwargs):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("sparsefactor.mcmc.run_folder.sole_writer", read_only)
    monkeypatch.setattr("sparsefactor.storage.sealed.write_atomically", read_only)
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
def test_a_run_does_not_write_into_linked_folders(tmp_path, whole_copy, name):
    path = remade(whole_copy)
    (path / name).rename(tmp_path / "outside")
    (path / name).symlink_to(tmp_path / "outside")
    with pytest.raises(ValueError, match="is a symbolic link; put the file or folder itself there"):
        sample(path)


def test_links_in_a_finished_run_are_read(whole_copy, whole, tmp_path):
    (whole_copy / "sampler").rename(tmp_path / "elsewhere")
    (whole_copy / "sampler").symlink_to(tmp_path / "elsewhere")
    assert_same_bits(sf.load(whole_copy), whole)
    assert_same_bits(sample(whole_copy), whole)


def test_a_crafted_zarr_store_runs_nothing(whole_copy):
    """A folder as earlier versions wrote it, whose filter would unpickle: it is refused before anything is opened."""
    shutil.rmtree(whole_copy / "sampler")
    store = whole_copy / "sampler" / "loadings"
    store.mkdir(parents=True)
    (store.parent / ".zgroup").write_text('{"zarr_format": 2}')
    array = {"shape": [3, 130, 12, 2], "chunks": [1, 100, 12, 2], "dtype": "|O", "fill_value": None, "order": "C"}
    (store / ".zarray").write_text(
        json.dumps({**array, "zarr_format": 2, "filters": [{"id": "pickle", "protocol": 5}], "compressor": None})
    )
    witness = whole_copy / "witness"
    (store / "0.0.0.0").write_bytes(f"cos\nsystem\n(S'touch {witness}'\ntR.".encode())
    pickle.loads((store / "0.0.0.0").read_bytes())  # it would work
    assert witness.exists()
    witness.unlink()
    for version in (2, 1):
        if version == 1:
            rewrite_record(whole_copy, version=1)
        for call in (sf.load, sample, lambda path: sf.load(path, check=False).diagnostics()):
            with pytest.raises(ValueError, match=r"is not there|from before draws had checksums"):
                call(whole_copy)
    assert not witness.exists()


def test_a_chunk_that_would_fill_memory_is_refused(whole_copy):
    """A crafted chunk, with right digests, whose bits would unpack to gigabytes."""
    file = chunk_file(whole_copy, 0, 0)
    with file.open("rb") as content:
        sealed = Sealed(content, chunks.KIND, "a chunk")
        facts, sections = sealed.facts, {name: sealed.read(name) for name in sealed.sections}
    bomb = zlib.compressobj(9, zlib.DEFLATED, -15)
    sections["inclusion"] = bomb.compress(bytes(200_000_000)) + bomb.flush()
    sections["activations"] = b"\4" + (10**12).to_bytes(8, "little")
    for draws, message in ((100, r"does not unpack to|too few for"), (10**9, r"has 1000000000 draws")):
        write_atomically(file, *seal(chunks.KIND, {**facts, "draws": draws}, sections))
        opened = sf.load(whole_copy, check=False).draws["posterior"]
        tracemalloc.start()
        for name in ("inclusion", "loadings", "activations"):
            with pytest.raises(ValueError, match=message):
                opened[name][0].values  # noqa: B018
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
            assert file.suffix in (".checkpoint", ".json", ".sf")
        except ValueError as problem:
            named += 1
            assert file.name in str(problem) or "run.json" in str(problem) or "version" in str(problem)  # noqa: PT017
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sf.CheckpointWarning)
            if trial % 4 == 0:
                try:
                    assert_same_bits(sample(path, n_draws=140), expected)
                except ValueError as problem:
                    assert "restore" in str(problem) or "version" in str(problem)  # noqa: PT017
        shutil.rmtree(path)
    assert named > 200
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
