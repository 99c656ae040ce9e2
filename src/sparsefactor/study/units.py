"""A study is made of units, each a function of its settings; what a unit found is kept under a hash of them."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import os
import platform
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sparsefactor as sf

from .. import version
from ..atomic import open_replacing

logger = logging.getLogger("sparsefactor")

FORMAT = 2  # raised when what a unit keeps changes its meaning
DECIDING = ("simulate", "study/gauges", "study/matrix", "study/traces", "study/watch")  # beside what decides draws
EVERY = 1.0  # seconds between two reports on units under way
LIBRARIES = ("numpy", "scipy", "numba", "matplotlib")

Arrays = dict[str, NDArray[Any]]
Findings = tuple[dict[str, Any], Arrays]


def code_digest() -> str:
    """Of the source that decides what a unit finds: other code makes it another unit, even within one version."""
    return version.code_digest(*DECIDING)


@dataclass(frozen=True)
class Unit:
    """A piece of the study: `work(settings, told=..., **inputs)`. Only settings decide what it finds.

    `told` is a function that work calls now and then with the share of it that is done.
    """

    work: Callable[..., Findings]
    settings: dict[str, Any]
    inputs: dict[str, Any] = field(default_factory=dict)
    cost: float = 1.0  # of all units together, for the progress

    @property
    def key(self) -> str:
        deciding = {name: value for name, value in self.settings.items() if name != "title"}
        text = json.dumps([FORMAT, sf.__version__, code_digest(), deciding], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    @property
    def title(self) -> str:
        return str(self.settings.get("title", self.key))


@dataclass(frozen=True)
class Progress:
    """How far the study has come; `share` is of the work, known to be done before included."""

    done: int
    total: int
    share: float
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
        path = self.path(key)
        if not path.exists():
            return None
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            return json.loads(str(arrays.pop("facts"))), arrays
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as problem:
            logger.warning("%s cannot be read and is made again: %s", path, problem)
            return None

    def put(self, key: str, findings: Findings) -> None:
        facts, arrays = findings
        with open_replacing(self.path(key), durable=False) as file:
            np.savez_compressed(file, facts=np.array(json.dumps(facts)), **arrays)  # type: ignore[arg-type]


def arrays_of(arrays: Arrays, place: int) -> Arrays:
    """Those of one of the unit's traces, which are kept as name/place."""
    return {name.split("/")[0]: values for name, values in arrays.items() if name.split("/")[1] == str(place)}


def run_units(units: Sequence[Unit], cache: Cache, jobs: int, report: Report | None = None) -> list[Findings]:
    """What each unit found, in order: from the cache where it is there, else by `jobs` processes at a time."""
    found: dict[str, Findings] = {}
    waiting: dict[str, Unit] = {}
    for unit in units:
        kept = cache.get(unit.key)
        if kept is None:
            waiting[unit.key] = unit
        else:
            found[unit.key] = kept
    whole = sum(unit.cost for unit in units) or 1.0
    left = sum(unit.cost for unit in waiting.values())
    begin, last_title = time.monotonic(), "begins" if not found else f"goes on; {len(found)} units were there"

    def settle(unit: Unit, findings: Findings) -> None:
        nonlocal left, last_title
        cache.put(unit.key, findings)
        found[unit.key] = findings
        left -= unit.cost
        last_title = unit.title

    def tell(under_way: float) -> None:
        """under_way: the cost of what is done of the units that are not."""
        if report is not None:
            share = 1.0 - max(left - under_way, 0.0) / whole
            report(Progress(len(found), len(units), share, time.monotonic() - begin, last_title))

    tell(0.0)
    if jobs == 1:
        for unit in waiting.values():
            told = _now_and_then(lambda share, unit=unit: tell(share * unit.cost))  # type: ignore[misc]
            settle(unit, unit.work(unit.settings, told=told, **unit.inputs))
            tell(0.0)
    elif waiting:
        _side_by_side(list(waiting.values()), jobs, settle, tell)
    return [found[unit.key] for unit in units]


def _now_and_then(told: Callable[[float], None]) -> Callable[[float], None]:
    """Passes on at most one call in EVERY seconds."""
    last = time.monotonic()

    def maybe(share: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= EVERY:
            last = now
            told(share)

    return maybe


_shares: Any = None  # in a child process: what share of each unit is done


def _share_with(shares: Any) -> None:
    global _shares
    _shares = shares


def _work(place: int, unit: Unit) -> Findings:
    def told(share: float) -> None:
        _shares[place] = share

    return unit.work(unit.settings, told=told, **unit.inputs)


def _side_by_side(
    units: Iterable[Unit], jobs: int, settle: Callable[[Unit, Findings], None], tell: Callable[[float], None]
) -> None:
    # Spawned: a forked child would share locks with threads it does not have. The costly ones first.
    context = multiprocessing.get_context("spawn")
    ordered = sorted(units, key=lambda unit: -unit.cost)
    shares = context.Array("d", len(ordered), lock=False)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_share_with, initargs=(shares,)) as pool:
        futures: dict[Future[Findings], int] = {
            pool.submit(_work, place, unit): place for place, unit in enumerate(ordered)
        }
        pending = set(futures)
        try:
            while pending:
                done, pending = wait(pending, timeout=EVERY, return_when=FIRST_COMPLETED)
                for future in done:
                    settle(ordered[futures[future]], future.result())
                tell(sum(shares[futures[future]] * ordered[futures[future]].cost for future in pending))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def run_record(command: str, settings: dict[str, Any], seconds: float) -> dict[str, Any]:
    """How results came about: settings, versions, machine, time."""
    return {
        "command": command,
        "settings": settings,
        "versions": {"sparsefactor": sf.__version__, "python": platform.python_version(), **_versions()},
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


def _versions() -> dict[str, str]:
    versions = {}
    for name in LIBRARIES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
