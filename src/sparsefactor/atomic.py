"""Write files atomically: to a temporary file beside them, which then takes their place.

A temporary file is called `.NAME.sparsefactor-N.tmp` and is locked for as long as it is written, so that the next
writer of NAME can tell what a killed process left behind, which it removes, from what a live one is writing.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

TEMPORARY = re.compile(r"\..+\.sparsefactor-[0-9]+\.tmp(\.[a-z]+)?")


@contextmanager
def replacing(path: Path, *, suffix: str = "", durable: bool = True) -> Iterator[Path]:
    """A path to write to, for writers that take no open file; the file there replaces `path` in the end.

    A failure leaves what was at `path`. suffix: of the temporary path, for writers that go by it. durable: the new file
    has survived a loss of power when this ends.
    """
    with _replacing(path, f".tmp{suffix}", durable) as (temporary, _):
        yield temporary


@contextmanager
def open_replacing(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """An open file to write to, which replaces `path` in the end; see `replacing`."""
    with _replacing(path, ".tmp", durable) as (_, descriptor), os.fdopen(os.dup(descriptor), "wb") as file:
        yield file


@contextmanager
def _replacing(path: Path, ending: str, durable: bool) -> Iterator[tuple[Path, int]]:
    temporary, descriptor = _create(path, ending)
    try:
        yield temporary, descriptor
        if durable:
            sync(temporary)
        os.replace(temporary, path)
    except BaseException:
        _remove(temporary, descriptor)
        raise
    finally:
        os.close(descriptor)  # and with it the lock, which nobody needs any more
    if durable:
        sync_folder(path.parent)


def _create(path: Path, ending: str) -> tuple[Path, int]:
    """A new temporary file for `path`, open and locked; what is there under its name is never opened."""

    def name(number: int) -> Path:
        return path.with_name(f".{path.name}.sparsefactor-{number}{ending}")

    number = 0
    while True:
        temporary = name(number)
        try:
            descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)
        except FileExistsError:
            number += not remove_stale(temporary)
            continue
        try:
            with suppress(OSError):  # file systems without locks; `remove_stale` removes nothing there
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Another writer may have found the file before it was locked, and removed it.
            if _is_at(temporary, descriptor):
                later = number + 1  # of writers that were at work beside one another
                while os.path.lexists(name(later)):
                    remove_stale(name(later))
                    later += 1
                return temporary, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def remove_stale(temporary: Path) -> bool:
    """Remove a temporary file that no process is writing any more. False: it is in use, or not this user's file."""
    try:
        descriptor = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            return False
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove(temporary, descriptor)
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove(path: Path, descriptor: int) -> None:
    """Remove the open file from `path`, unless another is there by now."""
    if _is_at(path, descriptor):
        path.unlink(missing_ok=True)


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
