"""The folder of a run or a fit that can be resumed: its record, its lock, its checkpoints.

lock                    held by the process that works on it
run.json, fit.json      what it is: its token, settings, digests of data and prior, which sparsefactor made it
checkpoints/            of each chain, or of the search, the newest state and the one before
sampler/                draws of a run that is not done (see draws)
result.sf               what it found, once it is done

All files carry the token and are written atomically. Checkpoints of one name take turns in two slots, so that the one
before the newest is never touched while a new one is written. A chain or a search without a checkpoint begins again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from ..atomic import TEMPORARY, open_replacing, remove_stale, sync_folder
from ..notices import warn
from ..version import __version__, code_digest
from .results import RESULT, read_result, write_posterior
from .validation import DamagedError
from .zarr_file import Stored, ZarrFile, write

logger = logging.getLogger("sparsefactor")

Arrays = dict[str, NDArray[Any]]

LOCK = "lock"
CHECKPOINTS = "checkpoints"
VERSION = 3  # of records and checkpoints
PARTS = {"token": str, "settings": dict, "made_by": dict, "sizes": dict}  # of a record


class CheckpointWarning(UserWarning):
    """A checkpoint was refused, and an older one, or none, was used instead."""


class Kind(NamedTuple):
    """A kind of folder. writer: the function that makes it."""

    file: str
    name: str
    writer: str


RUN = Kind("run.json", "run", "sample()")
FIT = Kind("fit.json", "fit", "fit_vi()")


class Checkpoint(NamedTuple):
    """A state: numbers and words, as JSON holds them, and arrays by name."""

    generation: int
    facts: dict[str, Any]
    arrays: Arrays


class Folder:
    """A run or a fit that exists. token: its own, which all of its files carry; sizes: what may grow."""

    def __init__(self, path: Path, kind: Kind, record: dict[str, Any]) -> None:
        self.path, self.kind, self.record = path, kind, record
        self.token: str = record["token"]
        self.settings: dict[str, Any] = record["settings"]
        self.sizes: dict[str, int] = record["sizes"]
        self.generations: dict[str, int] = {}

    @classmethod
    def find(cls, path: Path, kind: Kind, settings: Mapping[str, Any]) -> Folder | None:
        """What is at `path`, if it was made with these settings; None where nothing is yet, or only a lock."""
        if path.exists() and not path.is_dir():
            raise _foreign(path, kind, "is a file")
        record = read_record(path, kind) if path.is_dir() else None
        if record is None:
            for name in sorted(os.listdir(path)) if path.is_dir() else ():
                if name != LOCK and not TEMPORARY.fullmatch(name):
                    raise _foreign(path, kind, f"holds {name!r}")
            return None
        check_settings(path, kind, record["settings"], json.loads(json.dumps(settings)))
        return cls(path, kind, record)

    @classmethod
    @contextmanager
    def open(
        cls, path: Path, kind: Kind, settings: Mapping[str, Any], sizes: Mapping[str, int], force: bool = False
    ) -> Iterator[Folder]:
        """Lock the folder at `path`, which is made where there is none, and check that it was made with these settings.

        settings: all that decides the result, as JSON holds it; sizes: of a new one. force: go on although other code
        began it.
        """
        if not path.parent.is_dir():
            raise FileNotFoundError(
                f"the directory of a {kind.name} must exist; {str(path.parent)!r} does not; create it first"
            )
        cls.find(path, kind, settings)  # before a lock is left in a folder that is another's
        path.mkdir(exist_ok=True)
        with sole_writer(path, kind.name):
            folder = cls.find(path, kind, settings)
            if folder is None:
                record = {"settings": json.loads(json.dumps(settings)), "made_by": made_by(), "sizes": dict(sizes)}
                folder = cls(path, kind, {"token": secrets.token_hex(16), **record})
                folder.write()
            folder.check_code(force)
            yield folder

    def write(self) -> None:
        """The record."""
        head = {"format": f"sparsefactor {self.kind.name}", "version": VERSION}
        text = json.dumps({**head, **self.record, "digest": _digest(self.record)}, indent=1)
        with open_replacing(self.path / self.kind.file) as file:
            file.write(text.encode())

    def grow(self, **sizes: int) -> None:
        self.sizes.update(sizes)
        self.write()

    def check_code(self, force: bool) -> None:
        """Refuse to go on under other code than before, unless forced; then it is written down."""
        now, before = made_by(), self.record["made_by"]
        if all(before.get(name) == value for name, value in now.items()):
            return
        if not force:
            what = self.kind.name
            raise ValueError(
                f"a {what} is resumed by the code that began it; the one in {str(self.path)!r} was made by "
                f"sparsefactor {before.get('sparsefactor')} (code {before.get('code')}), and this is "
                f"{now['sparsefactor']} (code {now['code']}); resume it with that version, or pass another path"
                + (", or pass force=True to mix both" if self.kind == RUN else "")
            )
        earlier = {name: before.get(name) for name in now}
        self.record["made_by"] = {**now, "earlier": [*before.get("earlier", []), earlier]}
        self.write()

    # ---- checkpoints ------------------------------------------------------------------------------------------

    def slot(self, name: str, generation: int) -> Path:
        return self.path / CHECKPOINTS / f"{name}-{'ab'[generation % 2]}.zarr.zip"

    def save(self, name: str, facts: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
        """Write the state of a chain, or of the search, durably. Its arrays are not compressed, so not copied."""
        generation = self.generations.get(name, -1) + 1
        path = self.slot(name, generation)
        if not path.parent.is_dir():
            path.parent.mkdir(exist_ok=True)
            sync_folder(self.path)
        own = {"version": VERSION, "token": self.token, "name": name, "generation": generation, "facts": facts}
        stored = {key: Stored(np.asarray(values), packed=False) for key, values in arrays.items()}
        write(path, {"sparsefactor": own}, stored)
        self.generations[name] = generation

    def latest(self, name: str) -> Checkpoint | None:
        """The newest good checkpoint of this name; a damaged one is refused with a warning."""
        good, bad = [], []
        for generation in range(2):
            path = self.slot(name, generation)
            try:
                good.append(self._read(path, name))
            except FileNotFoundError:
                continue
            except (DamagedError, OSError) as problem:
                bad.append(f"{path.name} {problem}")
        best = max(good, key=lambda checkpoint: checkpoint.generation, default=None)
        for reason in bad:
            instead = "the other one is used" if best else f"{name} begins again"
            message = f"checkpoint refused: {reason}; {instead}"
            logger.warning(message)
            warn(message, CheckpointWarning)
        if best is not None:
            self.generations[name] = best.generation
        return best

    def _read(self, path: Path, name: str) -> Checkpoint:
        file = ZarrFile(path)
        own = file.attributes.get("sparsefactor")
        if not isinstance(own, dict) or own.get("version") != VERSION:
            raise DamagedError("is not a checkpoint of this version")
        if own.get("token") != self.token or own.get("name") != name:
            raise DamagedError(f"belongs to another {self.kind.name} or chain")
        if not isinstance(own.get("facts"), dict) or not isinstance(own.get("generation"), int):
            raise DamagedError("has no facts")
        if any(info.packed or info.dtype == "string" for info in file.arrays.values()):
            raise DamagedError("has arrays that are not plain numbers")
        file.check()
        return Checkpoint(own["generation"], own["facts"], {key: file.read(key) for key in file.arrays})

    # ---- the result -------------------------------------------------------------------------------------------

    def result(self, check: bool = True) -> Any:
        """The posterior, if it is done."""
        there = (self.path / RESULT).exists()
        return read_result(self.path, self.record, self.kind.name, check) if there else None

    def save_result(self, posterior: Any) -> Any:
        """Write the posterior, and return it as it is read from there."""
        write_posterior(posterior, self.path / RESULT, token=self.token)
        return self.result(check=False)

    def remove_checkpoints(self) -> None:
        """Of a fit that is done: nothing is resumed from them."""
        shutil.rmtree(self.path / CHECKPOINTS, ignore_errors=True)


# ---- the record ---------------------------------------------------------------------------------------------------


def made_by() -> dict[str, str]:
    """This sparsefactor."""
    return {"sparsefactor": __version__, "code": code_digest()}


def check_settings(path: Path, kind: Kind, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name in sorted(now.keys() | before.keys()):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if name in ("X", "prior"):
            raise ValueError(
                f"a {kind.name} is resumed with the same {name}; the one in {str(path)!r} was made with another; pass "
                f"that {name}, or another path"
            )
        option = "backend" if name == "engine" else name
        raise ValueError(
            f"a {kind.name} is resumed with the settings it began with; the one in {str(path)!r} has {option}={old!r}; "
            f"got {option}={new!r}; pass {option}={old!r}, or another path"
        )


def read_record(folder: Path, kind: Kind, earlier: bool = False) -> dict[str, Any] | None:
    """What the record says, verified; None where there is none. earlier: also one of an earlier version."""
    path = folder / kind.file
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_bytes())
        known = record["format"] == f"sparsefactor {kind.name}" and isinstance(record["version"], int)
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise _damaged(path, kind) from problem
    if not known:
        raise _damaged(path, kind)
    if record["version"] > VERSION or (record["version"] < VERSION and not earlier):
        remedy = "upgrade sparsefactor"
        if record["version"] < VERSION:
            remedy = f"sf.load(path) opens it if it is done; to go on, call {kind.writer} with another path"
        raise ValueError(
            f"this sparsefactor resumes {kind.name}s of version {VERSION}; {str(folder)!r} has version "
            f"{record['version']}; {remedy}"
        )
    head = ("format", "version", "digest")
    parts = {name: value for name, value in record.items() if name not in head}
    if record["version"] < VERSION:
        return parts | {"earlier": True}
    whole = parts.keys() == PARTS.keys() and all(isinstance(parts[name], of) for name, of in PARTS.items())
    if not whole or _digest(parts) != record.get("digest"):
        raise _damaged(path, kind)
    return parts


def _digest(parts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _damaged(path: Path, kind: Kind) -> ValueError:
    return ValueError(
        f"a {kind.name}'s {kind.file} must be as {kind.writer} wrote it; {str(path)!r} is damaged, was "
        "edited, or is another version's or program's; restore it from a copy, or pass another path"
    )


def _foreign(folder: Path, kind: Kind, found: str) -> ValueError:
    return ValueError(
        f"a path must be new, or hold a {kind.name} of sparsefactor and nothing else; {str(folder)!r} {found}; pass "
        "another path, or remove what is there"
    )


# ---- where a path leads, and that one process at a time writes there ----------------------------------------------


def resolve(path: str | PathLike[str]) -> Path:
    """The absolute path where `path` leads, whether or not anything is there yet."""
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise ValueError(f"a path must lead somewhere; {str(path)!r} leads back to itself; pass another path")
    return real


@contextmanager
def sole_writer(folder: Path, what: str) -> Iterator[None]:
    """Lock a folder for this process, and remove the temporary files that killed processes left in it.

    A second process is refused. The system releases the lock when the process ends.
    """
    from filelock import FileLock, Timeout

    refuse_links(folder, what)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RuntimeError(
            f"one process at a time may write a {what}; {str(folder)!r} is being written by another; "
            "wait for it, or pass another path"
        ) from None
    try:
        for parent, _, names in os.walk(folder):
            for name in names:
                if TEMPORARY.fullmatch(name):
                    remove_stale(Path(parent, name))
        yield
    finally:
        lock.release()


def refuse_links(folder: Path, what: str) -> None:
    """Refuse to write a folder with symbolic links in it, which lead to files of somebody else."""
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            if os.path.islink(Path(parent, name)):
                raise ValueError(
                    f"a {what} is written where its files are themselves, not links; {str(Path(parent, name))!r} is a "
                    "symbolic link; put the file or folder itself there, or pass another path"
                )


# ---- a state as named arrays --------------------------------------------------------------------------------------


def flatten(state: Any, name: str) -> Arrays:
    """The arrays and numbers of nested named tuples, by their path; what is a field's default is left out."""
    if not hasattr(state, "_fields"):
        return {} if state is None else {name: np.asarray(state)}
    arrays: Arrays = {}
    for field, value in zip(state._fields, state, strict=True):
        if field not in state._field_defaults or value is not state._field_defaults[field]:
            arrays |= flatten(value, f"{name}/{field}")
    return arrays


def unflatten(kind: Any, arrays: Mapping[str, NDArray[Any]], name: str) -> Any:
    """The named tuple that `flatten` took apart; a field that is not there has its default."""
    values: dict[str, Any] = {}
    for field, hint in get_type_hints(kind).items():
        own = f"{name}/{field}"
        if own in arrays:
            values[field] = float(arrays[own]) if hint is float else arrays[own]
        elif hasattr(hint, "_fields") and any(key.startswith(f"{own}/") for key in arrays):
            values[field] = unflatten(hint, arrays, own)
        elif field not in kind._field_defaults:
            raise ValueError(f"a checkpoint must hold the whole state; {own!r} is missing; pass another path")
    return kind(**values)
