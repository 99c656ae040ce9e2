"""The one way in which a file is written: beside its place, and then into it, whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path, *, suffix: str = "", durable: bool = True, sole: bool = False) -> Iterator[Path]:
    """A path to write to, which takes the place of `path` in the end; a failure leaves what was there.

    suffix: of the path to write to, for writers that go by it. durable: it has survived a loss of power when this ends.
    sole: nobody else writes this file, so that what a kill leaves behind is written over the next time.
    """
    own = "" if sole else f".{secrets.token_hex(6)}"
    temporary = path.with_name(f".{path.name}{own}.tmp{suffix}")
    try:
        yield temporary
        if durable:
            sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(path.parent)


def sync(path: Path) -> None:
    """Make a file's content, or a folder's names, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make a rename durable, where the file system lets a folder be opened and synced."""
    try:
        sync(folder)
    except OSError:
        return
