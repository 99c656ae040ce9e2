"""Which sparsefactor this is: its version, and a digest of the code that decides what it draws."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

__version__ = "0.1.0"

# What decides a draw, given data, prior and settings: folders, and files by their path without ".py".
DECIDING = (
    "kernels", "engine", "gibbs", "vi", "relabel", "mcmc", "data", "design", "groups", "model", "start", "preparation",
    "densities", "arrays", "explained", "signals", "arrange",
)  # fmt: skip


@functools.cache
def code_digest(*more: str) -> str:
    """Of the source that decides draws, and of `more` files or folders: other code has another digest."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for name in (*DECIDING, *more):
        folder = root / name
        for file in sorted(folder.rglob("*.py")) if folder.is_dir() else [root / f"{name}.py"]:
            digest.update(file.relative_to(root).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:24]
