"""Units of a study: functions of their settings, run by several processes, with their results cached on disk."""

from __future__ import annotations

import functools
import hashlib
import json
import multiprocessing
import os
import platform
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sparsefactor as sf

FORMAT = 3  # raised when what a unit stores changes its meaning
LIBRARIES = ("numpy", "scipy", "numba", "matplotlib")

Arrays = dict[str, NDArray[Any]]
Findings = tuple[dict[str, Any], Arrays]


@functools.cache
def code_digest() -> str:
    """Of the source of the package and the study: a unit found by other code is another unit."""
    digest = hashlib.sha256()
    for root in (Path(sf.__file__).parent, Path(__file__).parent):
        for file in sorted(root.rglob("*.py")):
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:24]


@dataclass(frozen=True)
class Unit:
    """A piece of the study: `work(settings, **inputs)`, whose result depends on the settings alone."""

    work: Callable[..., Findings]
    settings: dict[str, Any]
    inputs: dict[str, Any] = field(default_factory=dict)
    cost: float = 1.0  # relative; the costly ones begin first

    @property
    def key(self) -> str:
        settings = {name: value for name, value in self.settings.items() if name != "title"}
        text = json.dumps([FORMAT, sf.__version__, code_digest(), settings], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def title(self) -> str:
        return str(self.settings.get("title", self.key))


@dataclass(frozen=True)
class Progress:
    """Units that are done, of all; the last title is that of the unit done last."""

    done: int
    total: int
    seconds: float
    title: str


Report = Callable[[Progress], None]


class Cache:
    """Findings on disk, one file a unit, written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, key: str) -> Path:
        return self.folder / f"{key}.npz"

    def get(self, key: str) -> Findings | None:
        """None where there is no file, or one that cannot be read."""
        try:
            with np.load(self.path(key), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            return json.loads(str(arrays.pop("facts"))), arrays
        except (OSError, ValueError, KeyError, zipfile.BadZipFile):
            return None

    def put(self, key: str, findings: Findings) -> None:
        facts, arrays = findings
        partial = self.path(key).with_suffix(f".{os.getpid()}.partial")
        with partial.open("wb") as file:
            np.savez_compressed(file, facts=np.array(json.dumps(facts)), **arrays)
        partial.replace(self.path(key))


def arrays_of(arrays: Arrays, place: int) -> Arrays:
    """The arrays of one of a unit's traces, which are stored as name/place."""
    return {name.split("/")[0]: values for name, values in arrays.items() if name.split("/")[1] == str(place)}


def run_units(units: Sequence[Unit], cache: Cache, jobs: int, report: Report | None = None) -> list[Findings]:
    """The findings of each unit, in order: from the cache where they are there, else by `jobs` processes."""
    findings = {unit.key: stored for unit in units if (stored := cache.get(unit.key)) is not None}
    waiting = sorted((unit for unit in units if unit.key not in findings), key=lambda unit: -unit.cost)
    begin = time.monotonic()

    def tell(title: str) -> None:
        if report is not None:
            report(Progress(len(findings), len(units), time.monotonic() - begin, title))

    tell(f"{len(findings)} found in the cache" if findings else "started")
    for unit, found in _run(waiting, jobs):
        cache.put(unit.key, found)
        findings[unit.key] = found
        tell(unit.title)
    return [findings[unit.key] for unit in units]


def _run(units: Sequence[Unit], jobs: int) -> Iterator[tuple[Unit, Findings]]:
    """Findings as they come."""
    if jobs == 1 or not units:
        yield from ((unit, unit.work(unit.settings, **unit.inputs)) for unit in units)
        return
    # Spawned: a forked child would hold locks of threads that it does not have.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        pending = {pool.submit(unit.work, unit.settings, **unit.inputs): unit for unit in units}
        try:
            while pending:
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    yield pending.pop(future), future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def run_record(command: str, settings: dict[str, Any], seconds: float) -> dict[str, Any]:
    """How results came about: settings, versions, machine, time."""
    return {
        "command": command,
        "settings": settings,
        "versions": {
            "sparsefactor": sf.__version__,
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in LIBRARIES},
        },
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "processor": _processor(),
            "cores": os.cpu_count(),
        },
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "seconds_of_this_run": round(seconds, 2),
        "clock": "CPU seconds of inference on one core; measuring, loading and compiling do not count",
        "arguments": sys.argv[1:],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
