"""Write files atomically: to a temporary file beside them, which then takes their place; and folders likewise.

A temporary file is called `.NAME.sparsefactor-N.tmp` and is locked for as long as it is written, so that the next
writer of NAME can tell what a killed process left behind, which it removes, from what a live one is writing.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

TEMPORARY = re.compile(r"\..+\.sparsefactor-[0-9]+\.tmp(\.[a-z]+)?")
FILE, FOLDER = os.O_RDWR, os.O_RDONLY | os.O_DIRECTORY  # how either is opened; never through a link


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
def make_folder(path: Path) -> Iterator[Path]:
    """A new folder to fill, which is moved to `path` in the end; there may be an empty folder."""
    with _replacing(path, ".new", True, FOLDER) as (temporary, _):
        yield temporary


@contextmanager
def _replacing(path: Path, ending: str, durable: bool, kind: int = FILE) -> Iterator[tuple[Path, int]]:
    temporary, descriptor = _create(path, ending, kind)
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


def _create(path: Path, ending: str, kind: int) -> tuple[Path, int]:
    """A new temporary file or folder for `path`, open and locked; what is there under its name is never opened."""

    def name(number: int) -> Path:
        return path.with_name(f".{path.name}.sparsefactor-{number}{ending}")

    number = 0
    while True:
        temporary = name(number)
        try:
            descriptor = _new_file(temporary) if kind == FILE else _new_folder(temporary)
        except FileExistsError:
            number += not remove_stale(temporary, kind)
            continue
        try:
            with suppress(OSError):  # file systems without locks; `remove_stale` removes nothing there
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Another writer may have found the file before it was locked, and removed it.
            if _is_at(temporary, descriptor):
                later = number + 1  # of writers that were at work beside one another
                while os.path.lexists(name(later)):
                    remove_stale(name(later), kind)
                    later += 1
                return temporary, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _new_file(path: Path) -> int:
    return os.open(path, FILE | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666)


def _new_folder(path: Path) -> int:
    path.mkdir()
    try:
        return os.open(path, FOLDER | os.O_NOFOLLOW)
    except FileNotFoundError:  # another writer found it before it could be locked
        raise FileExistsError from None


def remove_stale(temporary: Path, kind: int = FILE) -> bool:
    """Remove a temporary file that no process is writing any more. False: it is in use, or not this user's file."""
    try:
        descriptor = os.open(temporary, kind | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        found = os.fstat(descriptor)
        if stat.S_IFMT(found.st_mode) not in (stat.S_IFREG, stat.S_IFDIR) or found.st_uid != os.geteuid():
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
    """Remove the open file or folder from `path`, unless another is there by now."""
    if _is_at(path, descriptor):
        if path.is_dir():
            shutil.rmtree(path)
        else:
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
