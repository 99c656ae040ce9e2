"""The folder of a run or a fit: where its path leads, and that one process at a time writes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from ..atomic import TEMPORARY, remove_stale

LOCK = "lock"


def resolve(path: str | PathLike[str]) -> Path:
    """The absolute path where `path` leads, whether or not anything is there yet."""
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise ValueError(f"a path must lead somewhere; {str(path)!r} leads back to itself; pass another path")
    return real


@contextmanager
def sole_writer(folder: Path, kind: str = "run") -> Iterator[None]:
    """Lock a folder for this process, and remove the temporary files that killed processes left in it.

    A second process is refused. The system releases the lock when the process ends. kind: what messages call it.
    """
    from filelock import FileLock, Timeout

    refuse_links(folder, kind)
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise RuntimeError(
            f"one process at a time may write a {kind}; {str(folder)!r} is being written by another; "
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


def refuse_links(folder: Path, kind: str) -> None:
    """Refuse to write a folder with symbolic links in it, which lead to files of somebody else."""
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            if os.path.islink(Path(parent, name)):
                raise ValueError(
                    f"a {kind} is written where its files are themselves, not links; {str(Path(parent, name))!r} is a "
                    "symbolic link; put the file or folder itself there, or pass another path"
                )
