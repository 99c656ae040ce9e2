"""Posteriors on disk: one zip file of arrays, packed draws and a meta.json, without pickle, written atomically."""

from __future__ import annotations

import errno
import json
import math
import os
import zipfile
import zlib
from os import PathLike
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..atomic import open_replacing
from ..checks import checked_choice
from ..errors import TooLargeError
from ..posterior import MCMCPosterior, Posterior, VIPosterior
from ..version import __version__
from .draws import PRECISIONS
from .parts import as_json, decode, encode
from .record import FIT
from .trees import Members, unpacked_bytes

FORMAT = "sparsefactor posterior"
RESULT = "result.sf"  # in the folder of a run or a fit
VERSION = 2  # 1 had every draw as it was in memory
# Draws are mostly noise, which no level compresses; the zeros of sparse loadings, the first level does.
COMPRESSION_LEVEL = 1
# What a file may unpack to unless its reader allows more: sparse draws reach some eighty times their packed size.
LEAST_LIMIT = 256_000_000
LIMIT_RATIO = 200
MAX_META = 16_000_000  # bytes of meta.json: a line for each member and trial
DEFLATE_RATIO = 1040  # what deflate can reach at most is 1032


def save(posterior: Posterior, path: str | PathLike[str], precision: str = "single") -> None:
    """Write a posterior to one file; a file already there is replaced whole or, on failure, left as it was.

    precision: of draws of loadings, activations and noise precisions; all else keeps every bit, and so do these
        with "double", at twice the size.
    """
    checked_choice("precision", precision, PRECISIONS)
    if not isinstance(posterior, VIPosterior | MCMCPosterior):
        raise TypeError(
            f"only a posterior can be saved; got a {type(posterior).__name__}; pass what fit_vi or sample returned"
        )
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"the directory of a saved posterior must exist; {str(target.parent)!r} does not; create it first"
        )
    if target.is_dir():
        raise IsADirectoryError(
            f"a posterior is saved to a file; {str(target)!r} is a folder; pass the name of a file (what was sampled "
            "with a path is already saved there)"
        )
    write_file(posterior, target, precision)


def write_file(posterior: VIPosterior | MCMCPosterior, target: Path, precision: str = "double") -> None:
    """Write a posterior to one file, whole or not at all."""
    name = "VIPosterior" if isinstance(posterior, VIPosterior) else "MCMCPosterior"
    meta, members = encode(posterior, precision)
    arrays = [member for member, content in members.items() if not isinstance(content, bytes)]
    head = {"format": FORMAT, "version": VERSION, "sparsefactor": __version__, "class": name, "members": arrays}
    text = json.dumps({**head, **meta}, default=as_json).encode()
    if len(text) > MAX_META:
        raise ValueError(
            f"the records and attributes of a posterior must fit into {MAX_META} bytes; got {len(text)}; shorten them"
        )
    with open_replacing(target) as file:
        _write(file, text, members)


def load(path: str | PathLike[str], *, check: bool = True, max_bytes: int | None = None) -> VIPosterior | MCMCPosterior:
    """Read back what `save` wrote, or open the folder of a finished run; refuse anything else.

    Parameters
    ----------
    path : path
        A file of `save`, or the folder (`path`) of what `sample` or `fit_vi` finished.
    check : bool
        Verify every byte of a run's draws now. False opens a large run at once, or one of which a part is damaged:
        draws are verified in any case when they are read.
    max_bytes : int, optional
        What the file may unpack to in memory. By default 200 times its size and at least 256 MB.

    Returns
    -------
    VIPosterior or MCMCPosterior
        A run's draws stay on disk and are read when they are looked at.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=20, n_samples=10, inclusion=[0.5], snr=5, seed=0)
    >>> sf.fit_vi(sim.X, sf.Prior(n_factors=1), n_trials=1).save("fit.sf")
    >>> sf.load("fit.sf").n_factors
    1
    """
    if Path(path).is_dir():
        from .result import load_fit, load_run  # they read through this file

        if (Path(path) / FIT.file).is_file():
            return load_fit(Path(path), max_bytes)
        # Its draws are read later, wherever the process may be by then.
        return load_run(Path(path).absolute(), check, max_bytes)
    return read_file(path, max_bytes)


def read_file(path: str | PathLike[str], max_bytes: int | None = None) -> VIPosterior | MCMCPosterior:
    """The posterior in one file. Nothing is made of what it says of itself before that was checked."""
    try:
        with zipfile.ZipFile(path) as archive:
            limit = max(LEAST_LIMIT, LIMIT_RATIO * os.path.getsize(path)) if max_bytes is None else max_bytes
            _check_compression(archive)
            meta = _read_meta(archive, path)
            try:
                _check_sizes(archive, meta, path, limit)
                return decode(meta, _read_members(archive, meta))
            except TooLargeError:
                raise
            except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, EOFError) as problem:
                raise _damaged(path, problem) from problem
    except zipfile.BadZipFile as problem:
        if zipfile.is_zipfile(path):
            raise _damaged(path, problem) from problem
        raise ValueError(
            f"a sparsefactor result is a zip file; {str(path)!r} is none, or was cut short; "
            "pass a file that save() wrote"
        ) from problem
    except (zlib.error, NotImplementedError, RuntimeError, UnicodeDecodeError) as problem:
        raise _damaged(path, problem) from problem
    except OSError as problem:
        # A damaged table of contents points outside the file; all else is about the file as a whole.
        if problem.errno != errno.EINVAL:
            raise
        raise _damaged(path, problem) from problem


def _damaged(path: str | PathLike[str], problem: Exception) -> ValueError:
    return ValueError(
        f"a sparsefactor result must be whole; {str(path)!r} is damaged ({problem}); save it again or use a copy"
    )


# ---- files --------------------------------------------------------------------------------------------------------


def _write(file: IO[bytes], text: bytes, members: Members) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=COMPRESSION_LEVEL) as archive:
        archive.writestr("meta.json", text)
        for name, values in members.items():
            if isinstance(values, bytes):
                archive.writestr(f"{name}.packed", values, zipfile.ZIP_STORED)
                continue
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)


def _read_meta(archive: zipfile.ZipFile, path: str | PathLike[str]) -> dict[str, Any]:
    try:
        if archive.getinfo("meta.json").file_size > MAX_META:
            raise ValueError
        meta = json.loads(archive.read("meta.json"))
    except (KeyError, ValueError, RecursionError):
        meta = None
    if not isinstance(meta, dict) or meta.get("format") != FORMAT or not isinstance(meta.get("version"), int):
        raise ValueError(
            f"{str(path)!r} is not a sparsefactor result: its meta.json does not say so; pass a file that save() wrote"
        )
    if meta["version"] > VERSION:
        raise ValueError(
            f"this sparsefactor reads results up to format version {VERSION}; {str(path)!r} has version "
            f"{meta['version']}; upgrade sparsefactor"
        )
    return meta


def _check_sizes(archive: zipfile.ZipFile, meta: dict[str, Any], path: str | PathLike[str], limit: int) -> None:
    """Refuse what the file cannot hold, and what would take more memory than its reader allows."""
    members = archive.infolist()
    for info in members:
        if info.file_size > DEFLATE_RATIO * (info.compress_size + 1):
            raise ValueError(f"{info.filename} cannot hold {info.file_size} bytes")
    total = sum(info.file_size for info in members)
    if meta["class"] == "MCMCPosterior":
        total += unpacked_bytes(meta["draws"])
    if total > limit:
        raise TooLargeError(
            f"a sparsefactor result may unpack to {limit} bytes; {str(path)!r} says it has {total}; if you trust it "
            f"and have the memory, load it with max_bytes={total}"
        )


def _check_compression(archive: zipfile.ZipFile) -> None:
    """Refuse methods that save() does not use: their libraries have errors and sizes of their own."""
    for info in archive.infolist():
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise zipfile.BadZipFile(f"unknown compression of {info.filename}")


def _read_members(archive: zipfile.ZipFile, meta: dict[str, Any]) -> dict[str, Any]:
    # Every checksum is verified before any array is made of what was read.
    bad = archive.testzip()
    if bad is not None:
        raise zipfile.BadZipFile(f"wrong checksum of {bad}")
    members: dict[str, Any] = {}
    for name in meta["members"]:
        info = archive.getinfo(f"{name}.npy")
        with archive.open(info) as member:
            _check_header(member, info)
        with archive.open(info) as member:
            members[name] = np.lib.format.read_array(member, allow_pickle=False)
    packed = (info for info in archive.infolist() if info.filename.endswith(".packed"))
    return members | {info.filename.removesuffix(".packed"): archive.read(info) for info in packed}


def _check_header(member: IO[bytes], info: zipfile.ZipInfo) -> None:
    """Refuse an array whose shape is not that of its bytes: it would be allocated before they are missed."""
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    shape, _, dtype = read[np.lib.format.read_magic(member)](member)
    if dtype.hasobject:
        raise ValueError(f"{info.filename}: Object arrays cannot be loaded")
    if math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
        raise ValueError(f"{info.filename} has not the bytes of shape {shape}")
