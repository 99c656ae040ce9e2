"""Runs on disk: stopped, killed, damaged or extended, they end with the bits of a run that was never stopped."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from tests.helpers.runs import PRIOR, RUN, SIM, assert_same_bits, chunk_file, sample, stopped

import sparsefactor as sf
from sparsefactor.mcmc import runner
from sparsefactor.mcmc.chain import Chain
from sparsefactor.mcmc.progress import Display
from sparsefactor.storage.checkpoint import RUN as KIND
from sparsefactor.storage.checkpoint import CheckpointWarning, Folder, read_record, sole_writer
from sparsefactor.storage.draws import Layout
from sparsefactor.storage.zarr_file import ZarrFile


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> sf.MCMCPosterior:
    return sample(tmp_path_factory.mktemp("whole") / "run")


def folder(path: Path) -> Folder:
    """The run at `path`, to look at its checkpoints."""
    return Folder(path, KIND, read_record(path, KIND))


# ---- what is on disk ----------------------------------------------------------------------------------------------


def test_disk_and_memory_hold_the_same_draws(tmp_path, whole):
    memory = sample(None)
    assert_same_bits(sample(tmp_path / "double", precision="double"), memory)
    for name in ("loadings", "activations", "noise_precision"):
        made, stored = (p.draws["posterior"][name].values for p in (memory, whole))
        assert stored.dtype == np.float64
        np.testing.assert_array_equal(stored, made.astype(np.float32))  # what "single" means
        assert not np.array_equal(stored, made)
    for name in ("inclusion", "loading_precision"):
        made, stored = (p.draws["posterior"][name].values for p in (memory, whole))
        np.testing.assert_array_equal(stored, made)


def test_draws_are_not_held_in_memory(whole):
    for name, variable in whole.draws["posterior"].data_vars.items():
        assert not variable.variable._in_memory, name


def test_moments_are_exact_over_all_kept_draws(whole):
    posterior = whole.draws["posterior"]
    for name in ("loadings", "activations"):
        values = posterior[name].values
        np.testing.assert_allclose(getattr(whole, f"{name}_mean"), values.mean((0, 1)), rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(getattr(whole, f"{name}_sd"), values.std((0, 1)), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(whole.inclusion_prob, posterior["inclusion"].values.mean((0, 1)), rtol=1e-12)
    signal = np.einsum("cdnk,cdgk->ng", posterior["activations"].values, posterior["loadings"].values) / (3 * 130)
    np.testing.assert_allclose(whole.signal_mean, signal, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    "pick",
    [
        {"chain": 1, "draw": 7},
        {"draw": slice(95, 105), "feature": 3},
        {"chain": [2, 0], "draw": [120, 3, 99], "factor": 1},
        {"draw": slice(None, None, -9), "feature": slice(2, 9, 3)},
        {"chain": 0, "draw": [], "feature": [1, 1]},
    ],
)
def test_reading_a_part_reads_what_the_whole_has(whole, pick):
    for name in ("loadings", "inclusion"):
        lazy = whole.draws["posterior"][name]
        np.testing.assert_array_equal(lazy.isel(pick).values, lazy.copy().load().isel(pick).values)


def test_reading_in_small_blocks_changes_nothing(whole, monkeypatch):
    before = whole.draws["posterior"]["loadings"].values
    monkeypatch.setattr("sparsefactor.storage.lazy.BLOCK_BYTES", 3 * 12 * 2 * 8)
    np.testing.assert_array_equal(whole.draws["posterior"]["loadings"].values, before)


def test_a_finished_run_is_loaded(tmp_path, whole, monkeypatch):
    path = tmp_path / "run"
    done = sample(path)
    assert_same_bits(sf.load(path), done)
    monkeypatch.setattr(Chain, "advance", None)  # a call that would sample fails
    assert_same_bits(sample(path), whole)
    assert_same_bits(sf.sample(SIM.X, PRIOR, **RUN, resume=path), whole)


def test_a_stored_run_can_be_saved_to_one_file(tmp_path, whole):
    whole.save(tmp_path / "one.sf")
    assert_same_bits(sf.load(tmp_path / "one.sf"), whole)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="a posterior is saved to a file"):
        whole.save(tmp_path / "folder")
    kept = whole.keep_chains([0, 2]).combine([1, 3])
    kept.save(tmp_path / "kept.sf")
    assert_same_bits(sf.load(tmp_path / "kept.sf"), kept)
    np.testing.assert_array_equal(sf.load(tmp_path / "kept.sf").weights, [0.25, 0.75])


def test_a_finished_run_is_one_file_beside_its_checkpoints(tmp_path):
    sample(tmp_path / "run")
    assert sorted(os.listdir(tmp_path / "run")) == ["checkpoints", "lock", "result.sf", "run.json"]


def test_a_damaged_result_is_named(tmp_path):
    sample(tmp_path / "run")
    result = tmp_path / "run" / "result.sf"
    result.write_bytes(result.read_bytes()[:-100])
    for call in (sample, sf.load):
        with pytest.raises(ValueError, match=r"must be whole; .*result\.sf' is damaged or cut short"):
            call(tmp_path / "run")


def test_draws_leave_for_other_software(tmp_path, whole):
    whole.draws["posterior"].to_dataset().to_netcdf(tmp_path / "draws.nc", engine="scipy")
    with xr.open_dataset(tmp_path / "draws.nc", engine="scipy") as stored:
        xr.testing.assert_equal(stored, whole.draws["posterior"].to_dataset())


def test_draws_do_not_depend_on_where_the_process_is(tmp_path, whole, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made, opened = sample("run"), sf.load("run")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert_same_bits(made, whole)
    assert_same_bits(opened, whole)


@pytest.mark.parametrize("scale", [1e60, 1e-60])
def test_single_precision_gives_way_at_an_extreme_scale(tmp_path, scale):
    options = {**RUN, "n_draws": 5}
    stored = sf.sample(SIM.X * scale, PRIOR, **options, path=tmp_path / "run")
    assert_same_bits(stored, sf.sample(SIM.X * scale, PRIOR, **options))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["precision"] == "double"
    sf.sample(SIM.X * scale, PRIOR, **{**options, "n_draws": 7}, path=tmp_path / "run")


def test_a_foreign_result_is_refused(tmp_path):
    path, other = tmp_path / "run", tmp_path / "other"
    sample(path, n_draws=5)
    sample(other, n_draws=5, seed=6)
    vi = sf.fit_vi(SIM.X, PRIOR, n_trials=1)
    vi.save(tmp_path / "vi.sf")
    for foreign in (tmp_path / "vi.sf", other / "result.sf"):
        (path / "result.sf").write_bytes(foreign.read_bytes())
        for call in (sf.load, lambda path: sample(path, n_draws=5)):
            with pytest.raises(ValueError, match=r"must be that run's own.*is something else.*put the right one back"):
                call(path)


# ---- stopped and gone on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sweep", [0, 10, 20, 21, 150, 221, 279])
def test_goes_on_after_a_failure(tmp_path, whole, monkeypatch, sweep):
    path = stopped(tmp_path / "run", monkeypatch, sweep=sweep)
    with pytest.raises(ValueError, match=r"a run must be done before it is loaded.*sample\(\.\.\., path=path\)"):
        sf.load(path)
    assert_same_bits(sample(path, n_jobs=1), whole)


def test_a_run_with_modules_goes_on(tmp_path, monkeypatch):
    prior = sf.Prior(n_factors=2, inclusion=sf.Beta(1, 1), n_modules=3)
    monkeypatch.setattr("tests.helpers.runs.PRIOR", prior)
    expected = sample(tmp_path / "whole")
    assert expected.inclusion_rate_mean.shape == (2,)
    path = stopped(tmp_path / "run", monkeypatch, sweep=150)
    assert_same_bits(sample(path, n_jobs=1), expected)
    other = sf.Prior(n_factors=2, inclusion=sf.Beta(1, 1), n_modules=4)
    with pytest.raises(ValueError, match="prior"):
        sf.sample(SIM.X, other, **{**RUN, "path": path})


def test_a_run_with_correlated_factors_goes_on_and_is_extended(tmp_path, monkeypatch):
    prior = sf.Prior(n_factors=2, inclusion=0.5, factor_correlation="learnt")
    monkeypatch.setattr("tests.helpers.runs.PRIOR", prior)
    expected = sample(tmp_path / "whole")
    assert expected.draws["posterior"]["factor_correlation"].shape == (3, 130, 2, 2)
    path = stopped(tmp_path / "run", monkeypatch, sweep=150, n_draws=110)
    sample(path, n_draws=110, n_jobs=1)
    assert_same_bits(sample(path, n_jobs=1), expected)
    expected.save(tmp_path / "one.sf")
    assert_same_bits(sf.load(tmp_path / "one.sf"), expected)


def test_a_field_that_a_checkpoint_lacks_has_its_default(tmp_path, whole, monkeypatch):
    path = stopped(tmp_path / "run", monkeypatch, sweep=150)
    run = folder(path)
    for chain in range(3):
        old = run.latest(f"chain-{chain}")
        arrays = {k: v for k, v in old.arrays.items() if k not in ("state/rows/member", "state/w")}
        run.save(f"chain-{chain}", old.facts, arrays)
    assert_same_bits(sample(path, n_jobs=1), whole)
    for chain in range(3):
        run.save(f"chain-{chain}", old.facts, {k: v for k, v in old.arrays.items() if k != "state/F"})
    (path / "result.sf").unlink()
    with pytest.raises(ValueError, match=r"must be on disk|must hold the whole state; 'state/F' is missing"):
        sample(path, n_jobs=1)


def test_number_of_jobs_changes_nothing(tmp_path, whole):
    assert_same_bits(sample(tmp_path / "a", n_jobs=1), whole)
    assert_same_bits(sample(tmp_path / "b", n_jobs=3, checkpoint_seconds=0), whole)


def test_an_interrupt_saves_every_chain_where_it_is(tmp_path, whole, monkeypatch):
    def interrupt(display: Display) -> None:
        if display.chains[0].sweep > 30:
            raise KeyboardInterrupt

    monkeypatch.setattr(runner, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(Display, "look", interrupt)
    path = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        sample(path, n_jobs=1, checkpoint_seconds=1000)
    monkeypatch.undo()
    assert folder(path).latest("chain-0").facts["sweep"] > 30
    assert_same_bits(sample(path), whole)


def test_a_finished_run_is_extended(tmp_path, whole):
    path = tmp_path / "run"
    first = sample(path, n_draws=70)
    assert first.draws["posterior"].sizes["draw"] == 70
    assert_same_bits(sample(path, n_jobs=1), whole)
    assert_same_bits(sf.load(path), whole)


def test_a_run_is_extended_after_a_failure(tmp_path, whole, monkeypatch):
    path = stopped(tmp_path / "run", monkeypatch, n_draws=60)
    assert_same_bits(sample(path), whole)


def test_a_failed_extension_leaves_what_was_done(tmp_path, whole, monkeypatch):
    path = tmp_path / "run"
    short = sample(path, n_draws=70)
    for sweep in (165, 270):
        stopped(path, monkeypatch, sweep=sweep)
        assert_same_bits(sf.load(path), short)
        with pytest.raises(ValueError, match="extended, not cut"):
            sample(path, n_draws=80)
    assert_same_bits(sample(path), whole)
    assert_same_bits(sf.load(path), whole)
    assert_same_bits(short, sample(tmp_path / "short", n_draws=70))  # its draws can be read although its file is gone


def test_a_run_is_extended_without_checkpoints(tmp_path, whole):
    """Its chains begin again, and make the same draws."""
    path = tmp_path / "run"
    sample(path, n_draws=70)
    for file in (path / "checkpoints").glob("chain-1-*"):
        file.unlink()
    assert_same_bits(sample(path), whole)


def test_draws_beyond_the_checkpoint_are_written_again(tmp_path, whole, monkeypatch):
    path = stopped(tmp_path / "run", monkeypatch, sweep=270, checkpoint_seconds=1000)
    file = chunk_file(path, 1, 0)  # chain 1 failed past its first chunk, and its only checkpoint is the start
    file.write_bytes(file.read_bytes()[:-5])
    assert_same_bits(sample(path), whole)


# ---- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"thin": 1}, r"has thin=2; got thin=1; pass thin=2, or another path"),
        ({"n_warmup": 21}, r"has n_warmup=20; got n_warmup=21"),
        ({"seed": 6}, r"has seed=5; got seed=6"),
        ({"n_chains": 2}, r"has n_chains=3; got n_chains=2"),
        ({"moves": ()}, r"has moves=\['rotation', 'shear', 'column', 'noise'\]; got moves=\[\]"),
        ({"init": "varimax"}, r"has init='random'; got init='varimax'"),
        ({"backend": "reference"}, r"has backend='cpu'; got backend='reference'; pass backend='cpu'"),
        ({"precision": "double"}, r"has precision='single'; got precision='double'"),
        ({"n_draws": 129}, r"extended, not cut.*has n_draws=130; got n_draws=129; pass at least 130"),
    ],
)
def test_other_settings_are_refused(whole_path, changes, message):
    with pytest.raises(ValueError, match=message):
        sample(whole_path, **changes)


@pytest.fixture(scope="module")
def whole_path(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("settings") / "run"
    sample(path)
    return path


def test_other_data_and_priors_are_refused(whole_path):
    options = {**RUN, "path": whole_path}
    X = SIM.X.copy()
    X[0, 0] = np.nextafter(X[0, 0], 9.0)
    with pytest.raises(ValueError, match="is resumed with the same X"):
        sf.sample(X, PRIOR, **options)
    with pytest.raises(ValueError, match="is resumed with the same prior"):
        sf.sample(SIM.X, sf.Prior(n_factors=2, inclusion=0.4), **options)
    with pytest.raises(ValueError, match="is resumed with the same prior"):
        sf.sample(SIM.X, sf.Prior(n_factors=2, inclusion=0.5, loading_rate=2e-3), **options)


def test_foreign_paths_are_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").touch()
    for name in ("file", "folder"):
        with pytest.raises(ValueError, match=r"must be new, or hold a run .*; pass another path"):
            sample(tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"
    with pytest.raises(FileNotFoundError, match="resume must hold a run"):
        sample(None, resume=tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"resume must hold a run; .* is empty; pass path="):
        sample(None, resume=tmp_path / "empty")
    with pytest.raises(ValueError, match="path and resume must agree"):
        sample(tmp_path / "file", resume=tmp_path / "folder")
    with pytest.raises(FileNotFoundError, match="directory of a run must exist"):
        sample(tmp_path / "no" / "run")
    with pytest.raises(ValueError, match="is not a run of sparsefactor"):
        sf.load(tmp_path / "folder")


def test_a_second_writer_is_refused(tmp_path):
    path = tmp_path / "run"
    sample(path, n_draws=1)
    with sole_writer(path, "run"), pytest.raises(RuntimeError, match="one process at a time may write a run"):
        sample(path)
    sample(path)


def test_two_that_begin_the_same_run(tmp_path, monkeypatch):
    """The second is refused while the first looks for its starts."""
    path = tmp_path / "run"
    save = Chain.save

    def overtaken(self, run) -> None:
        if self.number == 0 and self.sweep == 0:
            with pytest.raises(RuntimeError, match="one process at a time may write a run"):
                sample(path)
        save(self, run)

    with monkeypatch.context() as patch:
        patch.setattr(Chain, "save", overtaken)
        sample(path)
    sample(path)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"inclusion": sf.Beta(1, 1)}, {"inclusion": sf.Beta(1.0, 1.0)}),
        ({"inclusion": 0.5, "noise_rate": 1}, {"inclusion": 0.5, "noise_rate": 1.0}),
        ({"inclusion": 0.5, "noise_rate": np.float32(1)}, {"inclusion": 0.5, "noise_rate": 1.0}),
    ],
)
def test_equal_numbers_make_equal_priors(tmp_path, one, other):
    for given in (one, other):
        sf.sample(SIM.X, sf.Prior(n_factors=2, **given), **{**RUN, "n_draws": 2}, path=tmp_path / "run")


KILLED_BEGINNING = """
import os, sys
from pathlib import Path
from sparsefactor.mcmc.chain import Chain
from tests.helpers.runs import sample
Chain.save = lambda self, run: os._exit(9)
sample(Path(sys.argv[1]))
"""


def test_a_run_killed_at_its_beginning_begins_again(tmp_path, whole):
    child = subprocess.run([sys.executable, "-c", KILLED_BEGINNING, str(tmp_path / "run")], cwd=Path.cwd())
    assert child.returncode == 9
    assert_same_bits(sample(tmp_path / "run"), whole)
    assert [file.name for file in tmp_path.iterdir()] == ["run"]


def test_a_run_that_failed_at_its_beginning_begins_again(tmp_path, whole, monkeypatch):
    def full(*_args) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(Chain, "save", full)
        with pytest.raises(OSError, match="disk full"):
            sample(tmp_path / "run")
    assert_same_bits(sample(tmp_path / "run"), whole)


# ---- damaged checkpoints ------------------------------------------------------------------------------------------


def newest(path: Path, chain: int) -> Path:
    run = folder(path)
    return run.slot(f"chain-{chain}", run.latest(f"chain-{chain}").generation)


DAMAGE = {"cut": "is damaged", "flip": "is damaged", "foreign": "is damaged", "other run": "belongs to another run"}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_refused_and_the_one_before_used(tmp_path, whole, monkeypatch, caplog, damage):
    path = stopped(tmp_path / "run", monkeypatch, sweep=200, checkpoint_seconds=0)
    file = newest(path, 1)
    content = bytearray(file.read_bytes())
    if damage == "cut":
        content = content[: len(content) // 2]
    elif damage == "flip":
        content[len(content) // 2] ^= 1
    elif damage == "foreign":
        content = bytearray(b"hello")
    else:
        other = stopped(tmp_path / "other", monkeypatch, sweep=200)
        content = bytearray(newest(other, 1).read_bytes())
    file.write_bytes(content)
    with pytest.warns(CheckpointWarning, match=rf"refused: .*{DAMAGE[damage]}.*; the other one is used") as caught:
        resumed = sample(path)
    assert "checkpoint refused" in caplog.text
    assert {warning.filename for warning in caught} == {sample.__code__.co_filename}  # the user's line
    assert_same_bits(resumed, whole)


def test_a_chain_with_two_damaged_checkpoints_begins_again(tmp_path, whole, monkeypatch):
    path = stopped(tmp_path / "run", monkeypatch, checkpoint_seconds=0)
    for file in (path / "checkpoints").glob("chain-1-*"):
        file.write_bytes(file.read_bytes()[:-1])
    with pytest.warns(CheckpointWarning, match=r"chain-1-[ab].*is damaged.*; chain-1 begins again"):
        resumed = sample(path)
    assert_same_bits(resumed, whole)


ARRAYS = {"a": np.arange(6.0).reshape(3, 2) / 7, "b": np.zeros(0), "c": np.array(1, dtype=np.int8)}


def small_run(path: Path) -> Folder:
    path.mkdir()
    record = {"token": "token", "settings": {}, "made_by": {}, "sizes": {}}
    return Folder(path, KIND, record)


def test_any_changed_byte_of_a_checkpoint_is_noticed(tmp_path):
    """Or is of no consequence: a zip file has a time and permissions of each member."""
    run = small_run(tmp_path / "run")
    run.save("chain-1", {"sweep": 17, "log_joint": -1 / 3}, ARRAYS)
    file = run.slot("chain-1", 0)
    content = file.read_bytes()
    refused = 0
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 16
        file.write_bytes(changed)
        try:
            back = run._read(file, "chain-1")
        except ValueError:
            refused += 1
        else:
            assert back.facts == {"sweep": 17, "log_joint": -1 / 3}
            for name, values in ARRAYS.items():
                assert back.arrays[name].dtype == values.dtype
                assert back.arrays[name].shape == values.shape
                np.testing.assert_array_equal(back.arrays[name], values)
    assert refused > 0.7 * len(content)


def test_writing_a_checkpoint_copies_nothing(tmp_path):
    arrays = {"signal": np.zeros((1000, 2000)), "turned": np.arange(6.0).reshape(2, 3).T}
    run = small_run(tmp_path / "run")
    run.save("chain-0", {}, {})  # what is imported for it
    tracemalloc.start()
    run.save("chain-0", {}, arrays)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.2 * arrays["signal"].nbytes
    np.testing.assert_array_equal(run.latest("chain-0").arrays["turned"], arrays["turned"])


def test_a_checkpoint_of_another_version_is_refused(tmp_path, monkeypatch):
    run = small_run(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("sparsefactor.storage.checkpoint.VERSION", 4)
        run.save("chain-0", {}, {})
    with pytest.warns(CheckpointWarning, match="is not a checkpoint of this version; chain-0 begins again"):
        assert run.latest("chain-0") is None


def test_checkpoints_and_draws_are_zarr_files(tmp_path, monkeypatch):
    import zarr

    path = stopped(tmp_path / "run", monkeypatch, sweep=270)
    for file in [*(path / "checkpoints").iterdir(), *(path / "sampler").glob("*/*")]:
        ours = ZarrFile(file)
        with zarr.storage.ZipStore(file, mode="r") as store:
            group = zarr.open_group(store, mode="r")
            assert ours.arrays
            for name in ours.arrays:
                np.testing.assert_array_equal(group[name][...], ours.read(name))


def test_chunks_are_bounded():
    small, large = (
        Layout(PRIOR, sf.posterior.Labels(feature_names=np.arange(n), sample_names=np.arange(9), offset=np.zeros(n)))
        for n in (12, 2_000_000)
    )
    assert small.chunk == 100
    assert large.chunk == 1


# ---- killed -------------------------------------------------------------------------------------------------------

INTERVAL = 0.05
KILLED_RUN = {**RUN, "n_draws": 1500, "checkpoint_seconds": INTERVAL}
N_SWEEPS = KILLED_RUN["n_warmup"] + KILLED_RUN["n_draws"] * KILLED_RUN["thin"]
CHILD = """
import json, sys
import sparsefactor as sf
from sparsefactor.mcmc import runner
from sparsefactor.mcmc.progress import Display
from tests.test_resume import KILLED_RUN, PRIOR, SIM
runner.LOOK_SECONDS = 0.02

def tell(display):
    print(json.dumps([chain.sweep for chain in display.chains]), flush=True)

Display.look = tell
print("ready", flush=True)
sf.sample(SIM.X, PRIOR, **{**KILLED_RUN, "progress": False}, path=sys.argv[1], n_jobs=int(sys.argv[2]))
"""


def run_and_kill(path: Path, n_jobs: int, share: float, sampling: bool) -> bool:
    """Start or go on with the run in a process and kill it.

    When it has made this share of the sweeps that are left, or after so many times two seconds of all it does. True
    where it was killed in time. Nothing that a chain had saved before is made again.
    """
    before = sweeps_saved(path)
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(path), str(n_jobs)], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    first = []
    if sampling:
        goal = sum(before) + share * (N_SWEEPS * RUN["n_chains"] - sum(before))
        for line in child.stdout:
            first.append(line)
            if sum(json.loads(line)) >= goal:
                break
    try:
        child.wait(0.0 if sampling else 2.0 * share)
    except subprocess.TimeoutExpired:
        os.kill(child.pid, signal.SIGKILL)
    child.wait()
    seen = [json.loads(line) for line in [*first, *child.stdout] if line.startswith("[") and line.endswith("]\n")]
    child.stdout.close()
    if seen and before:
        assert all(now >= then for now, then in zip(seen[0], before, strict=True))  # nothing saved was made again
    if child.returncode == 0:
        return False
    assert child.returncode == -signal.SIGKILL
    return True


def sweeps_saved(path: Path) -> list[int]:
    if not (path / "run.json").exists():
        return []
    found = [folder(path).latest(f"chain-{chain}") for chain in range(RUN["n_chains"])]
    return [0 if one is None else one.facts["sweep"] for one in found]


def kill_many(tmp_path: Path, n_kills: int) -> None:
    """Kill runs at random moments, a third of them half-way through sampling, and see each end with the same bits."""
    rng = random.Random(n_kills)
    uninterrupted = sf.sample(SIM.X, PRIOR, **KILLED_RUN, path=tmp_path / "whole")
    kills = runs = midway = 0
    # How many kills fall half-way depends on the machine; go on until there are enough, or something is wrong.
    while (kills < n_kills or midway <= n_kills // 3) and runs < 20 * n_kills:
        path = tmp_path / f"run-{runs}"
        runs += 1
        alive = True
        while alive and (kills < n_kills or midway <= n_kills // 3):
            sampling = kills % 3 != 2  # the others may fall into the set-up
            alive = run_and_kill(path, rng.choice([1, 2, 3]), rng.uniform(0.0, 0.9 if sampling else 1.0), sampling)
            kills += alive
            midway += any(0 < sweep < N_SWEEPS for sweep in sweeps_saved(path))
        assert_same_bits(sf.sample(SIM.X, PRIOR, **KILLED_RUN, path=path), uninterrupted)
    assert midway > n_kills // 3  # or this test would show nothing


@pytest.mark.slow
def test_killed_thirty_times(tmp_path):
    kill_many(tmp_path, 30)


def test_a_kill_loses_at_most_the_sweep_since_the_last_checkpoint(tmp_path):
    """With a checkpoint after every sweep, what a chain had reported is on disk, but for the sweep in hand."""
    path = tmp_path / "run"
    code = CHILD.replace("**KILLED_RUN,", "**KILLED_RUN, 'checkpoint_seconds': 0.0,")
    assert code != CHILD
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(path), "3"], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    seen: list[int] = [0] * RUN["n_chains"]
    while min(seen) < 5:  # every chain is at work
        seen = json.loads(child.stdout.readline())
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    later = [json.loads(line) for line in child.stdout if line.startswith("[") and line.endswith("]\n")]
    child.stdout.close()
    assert child.returncode == -signal.SIGKILL
    last = later[-1] if later else seen
    assert all(saved >= told - 1 for saved, told in zip(sweeps_saved(path), last, strict=True))
