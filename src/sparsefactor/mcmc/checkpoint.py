"""A chain's checkpoint on disk: whole, checked and atomic, in two generations; no pickle.

A file is MAGIC, the header's length, a JSON header, the arrays' bytes one after another, and the SHA-256 of all that.
Generations take turns in two slots, so that the one before the newest is never touched while a new one is written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

logger = logging.getLogger("sparsefactor")

MAGIC = b"SPFCHAIN"
VERSION = 1
DIGEST = 32  # bytes of a SHA-256
SLOTS = 2

Arrays = dict[str, NDArray[Any]]


class CheckpointWarning(UserWarning):
    """A checkpoint was refused and an older one used in its place."""


class CheckpointError(ValueError):
    """No checkpoint that could be used."""


class Checkpoint(NamedTuple):
    """What a chain needs to go on. run: the token of the run it belongs to; sweep: sweeps made so far."""

    run: str
    chain: int
    generation: int
    sweep: int
    log_joint: float
    arrays: Arrays


def slot(folder: Path, chain: int, generation: int) -> Path:
    return folder / f"chain-{chain}-{'ab'[generation % SLOTS]}.checkpoint"


def write(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint into its generation's slot, whole or not at all."""
    path = slot(folder, checkpoint.chain, checkpoint.generation)
    write_atomically(path, *_parts(checkpoint))


def read_latest(folder: Path, run: str, chain: int) -> Checkpoint:
    """The newest good checkpoint of a chain; a damaged one is refused with a warning."""
    good: list[Checkpoint] = []
    bad: list[str] = []
    for generation in range(SLOTS):
        path = slot(folder, chain, generation)
        if not path.exists():
            continue
        try:
            good.append(decode(path.read_bytes(), run, chain))
        except CheckpointError as problem:
            bad.append(f"{path.name} {problem}")
    if not good:
        found = "; ".join(bad) if bad else "there is none"
        raise CheckpointError(
            f"a run goes on from a whole checkpoint of every chain; chain {chain} in {str(folder)!r} has none: "
            f"{found}; restore the folder from a copy, or sample again with another path"
        )
    best = max(good, key=lambda checkpoint: checkpoint.generation)
    for reason in bad:
        message = f"checkpoint refused: {reason}; chain {chain} goes on from the other one, at sweep {best.sweep}"
        logger.warning(message)
        warnings.warn(message, CheckpointWarning, stacklevel=_users_level())
    return best


def _users_level() -> int:
    """The stacklevel, for a warning of the caller, of the first line outside this package."""
    package = f"{Path(__file__).parents[1]}{os.sep}"
    level, frame = 0, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        level, frame = level + 1, frame.f_back
    return max(level, 1)


def encode(checkpoint: Checkpoint) -> bytes:
    return b"".join(_parts(checkpoint))


def _parts(checkpoint: Checkpoint) -> list[Any]:
    """The file's content, one buffer after another; the arrays themselves are not copied."""
    arrays = {name: np.ascontiguousarray(values) for name, values in checkpoint.arrays.items()}
    header = {
        **{name: value for name, value in checkpoint._asdict().items() if name != "arrays"},
        "version": VERSION,
        "log_joint": checkpoint.log_joint.hex(),
        "arrays": [
            [name, values.dtype.str, list(np.shape(checkpoint.arrays[name]))] for name, values in arrays.items()
        ],
    }
    text = json.dumps(header).encode()
    buffers = [values.reshape(-1).view(np.uint8).data for values in arrays.values()]
    parts: list[Any] = [MAGIC, len(text).to_bytes(8, "little"), text, *buffers]
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return [*parts, total.digest()]


def decode(content: bytes, run: str, chain: int) -> Checkpoint:
    """The checkpoint in `content`; anything else is refused by a CheckpointError that completes "FILE ..."."""
    if not content.startswith(MAGIC):
        raise CheckpointError("is not a checkpoint of sparsefactor")
    body, digest = memoryview(content)[:-DIGEST], content[-DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise CheckpointError("is damaged or cut short (its checksum is wrong)")
    start = len(MAGIC) + 8
    length = int.from_bytes(body[len(MAGIC) : start], "little")
    header = json.loads(bytes(body[start : start + length]))
    if header["version"] > VERSION:
        raise CheckpointError(
            f"has version {header['version']}, and this sparsefactor reads up to {VERSION}: upgrade it"
        )
    if header["run"] != run or header["chain"] != chain:
        raise CheckpointError("belongs to another run or chain")
    arrays: Arrays = {}
    at = start + length
    for name, dtype, shape in header["arrays"]:
        values = np.frombuffer(body, dtype=dtype, count=int(np.prod(shape, dtype=np.int64)), offset=at)
        arrays[name] = values.reshape(shape).copy()
        at += values.nbytes
    return Checkpoint(run, chain, header["generation"], header["sweep"], float.fromhex(header["log_joint"]), arrays)


def write_atomically(path: Path, *content: Any) -> None:
    """Replace a file as a whole, so that it survives a kill or a loss of power at any moment."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        for part in content:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a rename itself durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# ---- a state as named arrays --------------------------------------------------------------------------------------


def flatten(state: Any, prefix: str = "state") -> Arrays:
    """Every array in a tree of named tuples, by its path."""
    if hasattr(state, "_fields"):
        return {k: v for name in state._fields for k, v in flatten(getattr(state, name), f"{prefix}/{name}").items()}
    return {prefix: np.asarray(state)}


def unflatten(template: Any, arrays: Arrays, prefix: str = "state") -> Any:
    """A tree of named tuples like `template`, with arrays by their path."""
    if hasattr(template, "_fields"):
        parts = (unflatten(getattr(template, name), arrays, f"{prefix}/{name}") for name in template._fields)
        return type(template)(*parts)
    if prefix not in arrays and not np.size(template):
        return template  # what this run does not use, an older version did not know
    if prefix not in arrays:
        raise CheckpointError(
            f"a checkpoint must hold the sampler's whole state; {prefix!r} is missing, so another version wrote it; "
            "go on with that version, or sample again with another path"
        )
    return arrays[prefix]
