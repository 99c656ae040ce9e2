"""What fits found before, on disk: one small file each, under a digest of all that decides it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__
from ..atomic import replacing
from ..model import Prior

Array = NDArray[np.float64]


def digest(values: Array, names: NDArray[Any], *settings: Any) -> str:
    """Of all that decides a result, but for prior and mask."""
    found = hashlib.sha256(np.ascontiguousarray(values).tobytes())
    found.update(repr((values.shape, names.tolist(), __version__, *settings)).encode())
    return found.hexdigest()


def key(base: str, prior: Prior, mask: int) -> str:
    found = hashlib.sha256(f"{base} {mask}".encode())
    for field in fields(Prior):
        value = getattr(prior, field.name)
        found.update(f"{field.name}={value.tolist() if isinstance(value, np.ndarray) else value!r};".encode())
    return found.hexdigest()[:32]


def kept(file: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def keep(file: Path, found: dict[str, Any]) -> None:
    """Whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with replacing(file, durable=False) as temporary:
        temporary.write_text(json.dumps(found))
