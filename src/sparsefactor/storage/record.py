"""run.json: what the run in a folder is, and which sparsefactor made it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ..version import __version__, code_digest
from .sealed import write_atomically

NAME = "run.json"
FORMAT = "sparsefactor run"
VERSION = 2  # 1 kept its draws in zarr
PARTS = {"token": str, "chunk": int, "n_draws": int, "settings": dict, "made_by": dict}


def made_by() -> dict[str, str]:
    """This sparsefactor."""
    return {"sparsefactor": __version__, "code": code_digest()}


def write_record(folder: Path, parts: dict[str, Any]) -> None:
    """parts: token (the run's own name), chunk (draws in one), n_draws, settings, made_by."""
    record = {"format": FORMAT, "version": VERSION, **parts, "digest": _digest(parts)}
    write_atomically(folder / NAME, json.dumps(record, indent=1).encode())


def read_record(folder: Path) -> dict[str, Any] | None:
    """What run.json says, verified; None where there is none, so that the folder is no run."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_bytes())
        known = record["format"] == FORMAT and isinstance(record["version"], int)
    except (ValueError, KeyError, TypeError, RecursionError) as problem:
        raise _damaged(path) from problem
    if not known:
        raise _damaged(path)
    if record["version"] > VERSION:
        raise ValueError(
            f"this sparsefactor reads runs of version {VERSION}; {str(folder)!r} has version {record['version']}; "
            "upgrade sparsefactor"
        )
    if record["version"] < VERSION:
        raise ValueError(
            f"this sparsefactor reads runs of version {VERSION}; {str(folder)!r} has version {record['version']}, "
            "from before draws had checksums; sample again with another path, or open it with the version that made it"
        )
    parts = {name: record.get(name) for name in PARTS}
    if not all(isinstance(parts[name], kind) for name, kind in PARTS.items()) or _digest(parts) != record.get("digest"):
        raise _damaged(path)
    return parts


def _digest(parts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _damaged(path: Path) -> ValueError:
    return ValueError(
        f"a run's {NAME} must be as sample() wrote it; {str(path)!r} is damaged, was edited, or is something else's; "
        "restore it from a copy, or pass another path"
    )
