"""Results of finished fits on disk: one small file each, named by a digest of everything that decides the result.

The solution of a fit is stored beside it while the next one may start from there.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from .. import __version__
from ..atomic import open_replacing
from ..model import Prior
from ..start import Start
from .hidden import Laid


def digest(laid: Laid, *settings: Any) -> str:
    """Of everything that decides a result except prior and mask."""
    known = (laid.digest(), laid.shape, laid.features.tolist(), __version__, *settings)
    return hashlib.sha256(repr(known).encode()).hexdigest()


def all_values(value: Any) -> Any:
    """Settings with every number of their arrays and frames, which a printed one may abbreviate."""
    if isinstance(value, dict):
        return {name: all_values(inner) for name, inner in value.items()}
    if hasattr(value, "to_dict") or hasattr(value, "to_dicts"):  # of pandas, and of polars
        index = list(getattr(value, "index", ()))
        return (type(value).__name__, [str(name) for name in index], np.asarray(value).tolist())
    return value.tolist() if isinstance(value, np.ndarray) else value


def key(base: str, prior: Prior, mask: int, before: str) -> str:
    """The key of one fit; before: that of the fit it starts from."""
    found = hashlib.sha256(f"{base} {mask} {before}".encode())
    for field in fields(Prior):
        value = getattr(prior, field.name)
        found.update(f"{field.name}={value.tolist() if isinstance(value, np.ndarray) else value!r};".encode())
    return found.hexdigest()[:32]


def read_result(file: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def write_result(file: Path, found: dict[str, Any]) -> None:
    """Write a result atomically."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with open_replacing(file, durable=False) as stream:
        stream.write(json.dumps(found).encode())


def read_end(file: Path) -> Start | None:
    try:
        with np.load(file, allow_pickle=False) as found:
            return Start("neighbour", found["L"], found["F"])
    except (OSError, ValueError, KeyError, BadZipFile):
        return None


def write_end(file: Path, end: Start) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with open_replacing(file, durable=False) as stream:
        np.savez(stream, L=end.L, F=end.F)
