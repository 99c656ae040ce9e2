"""Engine compile whatever becomes of the cache on disk: no folder, no room, damaged files, files of another."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from numba.core import config

from sparsefactor.kernels.cpu import compiled
from sparsefactor.kernels.cpu.compiled import CacheWarning, KernelFile

KERNELS = """
from sparsefactor.kernels.cpu.compiled import OPTIONS, njit

@njit(**OPTIONS)
def twice(x):
    return 2 * x

@njit(**OPTIONS)
def thrice(x):
    return 3 * x
"""
names = (f"kernels_{n}" for n in itertools.count())


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """An empty cache, and a process that has not warned yet."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "cache"), raising=False)
    monkeypatch.setattr(compiled, "_warned", False)
    (tmp_path / "kernels.py").write_text(KERNELS)
    return tmp_path


def fresh(folder: Path):
    """The kernels as a new process has them."""
    spec = importlib.util.spec_from_file_location(next(names), folder / "kernels.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def files(folder: Path, ending: str, kernel: str = "twice") -> list[Path]:
    return sorted((folder / "cache").rglob(f"*{kernel}*{ending}"))


def hits(kernel) -> int:
    return sum(kernel.stats.cache_hits.values())


def test_a_good_cache_is_used_without_a_word(folder):
    assert fresh(folder).twice(2.0) == 4.0
    again = fresh(folder)
    assert again.twice(2.0) == 4.0
    assert hits(again.twice) == 1


def test_without_any_folder_kernels_compile_in_memory_with_one_warning(folder, monkeypatch):
    (folder / "__pycache__").write_text("a file where Numba would make a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "__pycache__"))
    monkeypatch.setattr(config, "CACHE_DIR", str(folder / "__pycache__" / "own"))
    with pytest.warns(CacheWarning, match=r"__pycache__/own does not serve.*set NUMBA_CACHE_DIR") as said:
        kernels = fresh(folder)
    assert (kernels.twice(2.0), kernels.thrice(2.0)) == (4.0, 6.0)
    assert len(said) == 1


def test_a_full_disk_is_one_warning(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    kernels = fresh(folder)
    monkeypatch.setattr(KernelFile, "_open_for_write", full)
    with pytest.warns(CacheWarning, match=r"cache/.* does not serve \(OSError: .*No space left") as said:
        assert (kernels.twice(2.0), kernels.thrice(2.0)) == (4.0, 6.0)
    assert len(said) == 1


def truncated(content: bytes) -> bytes:
    return content[: len(content) // 2]


def emptied(content: bytes) -> bytes:
    return b""


def flipped(content: bytes) -> bytes:
    at = len(content) // 2
    return content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]


DAMAGE = [(".nbi", truncated), (".nbi", emptied), (".nbc", truncated), (".nbc", emptied), (".nbc", flipped)]


@pytest.mark.parametrize(("ending", "damage"), DAMAGE)
def test_a_damaged_file_is_named_and_made_anew(folder, ending, damage):
    fresh(folder).twice(2.0)
    (path,) = files(folder, ending)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(CacheWarning, match="NUMBA_CACHE_DIR"):
        assert fresh(folder).twice(2.0) == 4.0
    mended = fresh(folder)
    assert mended.twice(2.0) == 4.0
    assert hits(mended.twice) == 1


@pytest.mark.parametrize("places", [10, pytest.param(300, marks=pytest.mark.slow)])
def test_every_byte_of_compiled_code_counts(folder, places):
    fresh(folder).twice(2.0)
    (path,) = files(folder, ".nbc")
    good = path.read_bytes()
    for at in range(0, len(good), len(good) // places):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            again = fresh(folder)
            assert again.twice(2.0) == 4.0
            assert hits(again.twice) == 0


def test_code_of_another_signature_is_not_run(folder):
    kernels = fresh(folder)
    kernels.twice(2.0)
    kernels.twice(2)
    first, second = files(folder, ".nbc")
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    again = fresh(folder)
    assert (again.twice(2.5), again.twice(3)) == (5.0, 6)
    assert hits(again.twice) == 0


def test_a_change_in_any_kernel_file_makes_all_anew(folder, monkeypatch):
    fresh(folder).twice(2.0)
    monkeypatch.setattr(compiled, "_stamp", "of other sources")
    again = fresh(folder)
    assert again.twice(2.0) == 4.0
    assert hits(again.twice) == 0


@pytest.mark.slow
def test_a_fit_needs_no_cache():
    script = (
        "import sparsefactor as sf; sim = sf.simulate_paper(seed=0);"
        "print(sf.fit_vi(sim.X, sf.Prior(inclusion=[.1] * 5 + [.9]), n_trials=1, seed=0).converged)"
    )
    nowhere = {"NUMBA_CACHE_DIR": "/dev/null/numba", "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=os.environ | nowhere, check=False
    )
    assert done.stdout.strip() == "True", done.stderr
    assert done.stderr.count("CacheWarning") == 1


def test_an_index_of_other_sources_is_not_read(folder, monkeypatch):
    """It may name classes that are gone; that is no damage, and no reason to warn."""
    assert fresh(folder).twice(2.0) == 4.0
    (index,) = files(folder, ".nbi")
    with index.open("rb") as file:
        version = pickle.load(file)
    index.write_bytes(pickle.dumps(version) + b"csparsefactor.gone\nGone\n.")
    monkeypatch.setattr(compiled, "_stamp", "of other sources")
    assert fresh(folder).twice(2.0) == 4.0
