"""A chain's checkpoint on disk: a sealed file with an array a section, in two generations; no pickle.

Generations take turns in two slots, so that the one before the newest is never touched while a new one is written.
"""

from __future__ import annotations

import io
import logging
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from ..notices import warn
from ..storage.sealed import Arrays, Sealed, SealedError, read_arrays, seal_arrays, write_atomically

logger = logging.getLogger("sparsefactor")

KIND = b"SPFSTATE"
VERSION = 2  # 1 had one checksum for the whole file
SLOTS = 2


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
            with path.open("rb") as file:
                good.append(_read(file, run, chain))
        except (CheckpointError, OSError) as problem:
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
        warn(message, CheckpointWarning)
    return best


def encode(checkpoint: Checkpoint) -> bytes:
    return b"".join(_parts(checkpoint))


def _parts(checkpoint: Checkpoint) -> list[Any]:
    """The file's content, one buffer after another; the arrays themselves are not copied."""
    facts = {
        **{name: value for name, value in checkpoint._asdict().items() if name != "arrays"},
        "version": VERSION,
        "log_joint": checkpoint.log_joint.hex(),
    }
    return seal_arrays(KIND, facts, checkpoint.arrays)


def decode(content: bytes, run: str, chain: int) -> Checkpoint:
    """The checkpoint in `content`; anything else is refused by a CheckpointError that completes "FILE ..."."""
    return _read(io.BytesIO(content), run, chain)


def _read(file: IO[bytes], run: str, chain: int) -> Checkpoint:
    try:
        sealed = Sealed(file, KIND, "a checkpoint")
        facts = sealed.facts
        if facts["version"] > VERSION:
            raise CheckpointError(
                f"has version {facts['version']}, and this sparsefactor reads up to {VERSION}: upgrade it"
            )
        if facts["run"] != run or facts["chain"] != chain:
            raise CheckpointError("belongs to another run or chain")
        log_joint = float.fromhex(facts["log_joint"])
        return Checkpoint(run, chain, int(facts["generation"]), int(facts["sweep"]), log_joint, read_arrays(sealed))
    except CheckpointError:
        raise
    except SealedError as problem:
        raise CheckpointError(str(problem)) from problem
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as problem:
        raise CheckpointError(f"has a header that cannot be read ({problem})") from problem


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
