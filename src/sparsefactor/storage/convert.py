"""Read results, runs and fits that versions before format 3 wrote; what is loaded can be saved again.

A result was a zip file of .npy arrays and packed draws. The draws of a run lay beside it, in sealed files: a header of
JSON, then sections of packed draws. All is read into memory.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import TooLargeError
from ..posterior import MCMCPosterior, VIPosterior
from .validation import DEFLATE_RATIO, DamagedError

MAX_META = 16_000_000  # bytes of meta.json
MAX_HEADER = 4_000_000  # bytes of a sealed file's
DTYPES = ("<f4", "<f8", "|i1", "|b1")  # of packed draws
FIELDS = {"labels/feature_names": "feature", "labels/sample_names": "observation"}
SETTINGS = ("record", "elbo", "elbo_terms", "trial_records", "status")


def is_earlier(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a result of an earlier format."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "meta.json" in archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, UnicodeDecodeError, EOFError, OSError, ValueError):
        return False


def read_file(path: str | os.PathLike[str], limit: int) -> Any:
    """The posterior in a file of format 1 or 2."""
    from .results import CLASSES, build

    try:
        meta, members = _read_members(path, limit)
        arrays = {FIELDS.get(own := name.removeprefix("fields/"), own): values for name, values in members.items()}
        settings = {name: meta[name] for name in SETTINGS if name in meta}
        prior = dict(meta["prior"])
        if "beta" in prior:
            prior |= dict(zip(("inclusion/a", "inclusion/b"), prior.pop("beta"), strict=True))
        prior = {"factor_correlation": "none"} | prior  # results from before it existed have none
        settings |= {f"prior/{name}": value for name, value in prior.items() if value is not None}
        if "labels/container" in arrays:
            settings["labels/container"] = arrays.pop("labels/container").tolist()
        for name in ("elbo_history", "trial_history", "parameters"):
            keys = [key.removeprefix(f"{name}/") for key in arrays if key.startswith(f"{name}/")]
            settings |= {name: {"keys": keys}} if keys else {}
        given = {"draws": _decode_tree(meta["draws"], members)} if meta["class"] == "MCMCPosterior" else {}
        names = [name for name in arrays if not name.startswith("draws/")]
        return build(CLASSES[meta["class"]], names, arrays.__getitem__, settings, **given)
    except TooLargeError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, EOFError, RuntimeError) as problem:
        raise _damaged(path, problem) from problem
    except (zipfile.BadZipFile, zlib.error, OSError) as problem:
        raise _damaged(path, problem) from problem


def read_folder(folder: Path, record: Mapping[str, Any], max_bytes: int | None) -> Any:
    """The result of a finished run or fit of an earlier version."""
    from .draws import Layout
    from .lazy import relabelled_tree
    from .results import LEAST_LIMIT, LIMIT_RATIO, RESULT

    path = folder / RESULT
    limit = max(LEAST_LIMIT, LIMIT_RATIO * path.stat().st_size) if max_bytes is None else max_bytes
    result = read_file(path, limit)
    if isinstance(result, VIPosterior):
        return result
    layout, (n_chains, n_draws) = Layout(result.prior, result.labels), result.permutations.shape[:2]
    variables: dict[str, list[Any]] = {}
    for chain in range(n_chains):
        parts: dict[str, list[Any]] = {}
        for first in range(0, n_draws, record["chunk"]):
            n = min(record["chunk"], n_draws - first)
            file = folder / "sampler" / f"chain-{chain}" / f"{first // record['chunk']:06d}.draws"
            facts, sections = _read_sealed(file)
            if (facts["run"], facts["chain"]) != (record["token"], chain) or facts["draws"] < n:
                raise _damaged(file, ValueError("it belongs to another run"))
            mask = None
            for name in sorted(sections, key=lambda name: name != "inclusion"):
                shape = (facts["draws"], *layout.variables[name].shape)
                if name == "inclusion":
                    values = mask = _unpack_bits(sections[name], shape, np.int8)
                else:
                    values = _unpack_floats(sections[name], shape, mask if name == "loadings" else None)
                parts.setdefault(name, []).append(values[:n].astype(layout.variables[name].dtype))
        for name, pieces in parts.items():
            variables.setdefault(name, []).append(np.concatenate(pieces))
    stored = {name: _variable(layout.variables[name].dims, values) for name, values in variables.items()}
    draws = relabelled_tree(layout.tree(n_chains, n_draws, stored), result.permutations, result.signs)
    attributes = {name: value for name, value in result.draws.attrs.items() if name != "run"}
    draws["posterior"].attrs.update(attributes)
    assert isinstance(result, MCMCPosterior)
    return replace(result, draws=draws.load())


def _variable(dims: tuple[str, ...], chains: list[Any]) -> Any:
    import xarray as xr

    return xr.Variable(("chain", "draw", *dims), np.stack(chains))


def _damaged(path: str | os.PathLike[str], problem: Exception) -> ValueError:
    return ValueError(
        f"a sparsefactor result must be whole; {str(path)!r} is damaged ({problem}); save it again or use a copy"
    )


# ---- zip files of arrays ------------------------------------------------------------------------------------------


def _read_members(path: str | os.PathLike[str], limit: int) -> tuple[dict[str, Any], dict[str, Any]]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        for info in members:
            known = info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
            if not known or info.file_size > DEFLATE_RATIO * (info.compress_size + 1):
                raise DamagedError(f"unknown compression or size of {info.filename}")
        if archive.getinfo("meta.json").file_size > MAX_META:
            raise DamagedError("meta.json is too large")
        meta = json.loads(archive.read("meta.json"))
        if meta.get("format") != "sparsefactor posterior" or meta["version"] not in (1, 2):
            raise DamagedError("not a sparsefactor result")
        total = sum(info.file_size for info in members)
        for stored in (stored for group in meta.get("draws", ()) for stored in group["variables"]):
            if "packed" in stored:
                if stored["dtype"] not in DTYPES or not all(type(n) is int and n >= 0 for n in stored["shape"]):
                    raise DamagedError(f"{stored['name']} has type {stored['dtype']!r}, shape {stored['shape']}")
                total += math.prod(stored["shape"]) * np.dtype(stored["dtype"]).itemsize
        if total > limit:
            raise TooLargeError(
                f"a sparsefactor result may unpack to {limit} bytes; {str(path)!r} says it has {total}; if you trust "
                f"it and have the memory, load it with max_bytes={total}"
            )
        bad = archive.testzip()
        if bad is not None:
            raise DamagedError(f"wrong checksum of {bad}")
        found: dict[str, Any] = {}
        for info in members:
            name, _, kind = info.filename.rpartition(".")
            if kind == "packed":
                found[name] = archive.read(info)
            elif kind == "npy":
                found[name] = _read_array(archive, info)
        return meta, found


def _read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """An array whose shape is that of its bytes: it would be allocated before they are missed."""
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    with archive.open(info) as member:
        shape, _, dtype = read[np.lib.format.read_magic(member)](member)
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != info.file_size - member.tell():
            raise DamagedError(f"{info.filename} has objects, or not the bytes of shape {shape}")
    with archive.open(info) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def _decode_tree(groups: list[dict[str, Any]], members: dict[str, Any]) -> Any:
    import xarray as xr

    datasets = {}
    for group in groups:
        parts: dict[bool, dict[str, Any]] = {True: {}, False: {}}
        masks: list[Any] = []
        for stored in sorted(group["variables"], key=lambda stored: stored["name"] != "inclusion"):
            values: Any = members.get(stored["member"])
            if "packed" in stored:
                shape, chains = stored["shape"], []
                for chain in range(shape[0]):
                    content = members[f"{stored['member']}.{chain}"]
                    if stored["packed"] == "bits":
                        chains.append(_unpack_bits(content, tuple(shape[1:]), np.dtype(stored["dtype"])))
                    else:
                        mask = masks[chain] if stored["name"] == "loadings" and masks else None
                        chains.append(_unpack_floats(content, tuple(shape[1:]), mask).astype(stored["dtype"]))
                masks = chains if stored["name"] == "inclusion" else masks
                values = np.stack(chains)
            variable = xr.Variable(tuple(stored["dims"]), values, stored["attrs"])
            parts[stored["is_coord"]][stored["name"]] = variable
        datasets[group["path"]] = xr.Dataset(parts[False], coords=parts[True], attrs=group["attrs"])
    return xr.DataTree.from_dict(datasets)


# ---- sealed files and packed draws --------------------------------------------------------------------------------


def _read_sealed(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The facts and sections of a sealed file, verified by its SHA-256."""
    try:
        content = path.read_bytes()
        end = 16 + int.from_bytes(content[8:16], "little")
        if end > MAX_HEADER or hashlib.sha256(content[:end]).digest() != content[end : end + 32]:
            raise DamagedError("wrong checksum")
        header = json.loads(content[16:end])
        sections, at = {}, end + 32
        for name, size, digest in header["sections"]:
            sections[name] = content[at : at + size]
            at += size
            if hashlib.sha256(sections[name]).hexdigest() != digest:
                raise DamagedError(f"wrong checksum of {name}")
        return dict(header["facts"]), sections
    except (OSError, ValueError, LookupError, TypeError) as problem:
        raise _damaged(path, problem) from problem


def _unpack_bits(content: bytes, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    size = math.prod(shape)
    bits = np.frombuffer(_inflated(content, -(-size // 8)), np.uint8)
    return _draws_first(np.unpackbits(bits, count=size).astype(dtype, copy=False), shape)


def _unpack_floats(content: bytes, shape: tuple[int, ...], mask: NDArray[Any] | None) -> NDArray[Any]:
    """Floats by their bytes' significance; where they are zero outside the mask, only those inside."""
    kind, at = content[0], 1
    width = kind & 0x7F
    if width not in (4, 8) or (kind & 0x80 and mask is None):
        raise DamagedError("draws are not made of packed floats")
    where = np.moveaxis(mask, 0, -1) != 0 if mask is not None and kind & 0x80 else None
    size = math.prod(shape) if where is None else int(np.count_nonzero(where))
    if size > len(content):  # the plane of least significance is never compressed
        raise DamagedError(f"draws have {len(content)} bytes, too few for {size} floats")
    planes = np.empty((size, width), np.uint8)
    for rank in reversed(range(width)):
        length = int.from_bytes(content[at : at + 8], "little")
        part = content[at + 8 : at + 8 + length]
        at += 8 + length
        planes[:, rank] = np.frombuffer(part if len(part) == size else _inflated(part, size), np.uint8)
    kept = planes.reshape(-1).view(f"<f{width}")
    if where is None:
        return _draws_first(kept, shape)
    out = np.zeros(where.shape, dtype=kept.dtype)
    out[where] = kept
    return np.moveaxis(out, -1, 0)


def _draws_first(flat: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    return np.moveaxis(flat.reshape((*shape[1:], shape[0])), -1, 0)


def _inflated(content: bytes, size: int) -> bytes:
    """What was deflated, if it is of this size; never more than that is made."""
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    out = unpacker.decompress(content, size + 1)
    if len(out) != size or not unpacker.eof:
        raise DamagedError(f"draws do not unpack to {size} bytes")
    return out
