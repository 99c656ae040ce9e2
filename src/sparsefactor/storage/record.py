"""run.json and fit.json: what the run or the fit in a folder is, and which sparsefactor made it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from ..version import __version__, code_digest
from .sealed import write_atomically


class Kind(NamedTuple):
    """A kind of folder. writer: the function that makes it; parts: of its record, and their types."""

    file: str
    name: str
    writer: str
    version: int
    parts: dict[str, type]


RUN = Kind(
    "run.json",
    "run",
    "sample()",
    2,  # 1 kept its draws in zarr
    {"token": str, "chunk": int, "n_draws": int, "settings": dict, "made_by": dict},
)
FIT = Kind("fit.json", "fit", "fit_vi()", 1, {"token": str, "identity": dict})


def made_by() -> dict[str, str]:
    """This sparsefactor."""
    return {"sparsefactor": __version__, "code": code_digest()}


def write_record(folder: Path, parts: dict[str, Any], kind: Kind = RUN) -> None:
    """parts: as `kind` lists them; token is the run's own name, chunk the number of draws in one."""
    record = {"format": f"sparsefactor {kind.name}", "version": kind.version, **parts, "digest": _digest(parts)}
    write_atomically(folder / kind.file, json.dumps(record, indent=1).encode())


def read_record(folder: Path, kind: Kind = RUN) -> dict[str, Any] | None:
    """What the record says, verified; None where there is none, so that the folder is of another kind."""
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
    if record["version"] > kind.version:
        raise ValueError(
            f"this sparsefactor reads {kind.name}s of version {kind.version}; {str(folder)!r} has version "
            f"{record['version']}; upgrade sparsefactor"
        )
    if record["version"] < kind.version:
        raise ValueError(
            f"this sparsefactor reads {kind.name}s of version {kind.version}; {str(folder)!r} has version "
            f"{record['version']}, from before draws had checksums; sample again with another path, or open it with "
            "the version that made it"
        )
    parts = {name: record.get(name) for name in kind.parts}
    whole = all(isinstance(parts[name], of) for name, of in kind.parts.items())
    if not whole or _digest(parts) != record.get("digest"):
        raise _damaged(path, kind)
    return parts


def _digest(parts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _damaged(path: Path, kind: Kind) -> ValueError:
    return ValueError(
        f"a {kind.name}'s {kind.file} must be as {kind.writer} wrote it; {str(path)!r} is damaged, was "
        "edited, or is another version's or program's; restore it from a copy, or pass another path"
    )
