"""Named arrays and attributes in one file: a zip archive that is a zarr 3 group, with a checksum for every chunk.

Chunks are compressed by blosc and carry a crc32c. All metadata are consolidated in the root's zarr.json. A file is
written whole or not at all. What is read was checked before memory is allocated for it (see validation).
"""

from __future__ import annotations

import json
import math
import os
import weakref
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..atomic import open_replacing
from ..errors import TooLargeError
from .validation import (
    BLOSC_HEADER,
    ROOT,
    STRING,
    ArrayInfo,
    DamagedError,
    check_blosc,
    check_listing,
    check_metadata,
    check_strings,
    unpacked,
)

CHUNK_BYTES = 8_000_000  # of an array, before compression
MAX_METADATA = 16_000_000  # bytes of the root's zarr.json: a few hundred for each array and restart
LEVEL = 5  # of the compression
ZIP_MARK = b"PK\x03\x04"  # the first bytes of a zip file that has members
PERMISSIONS = 0o644 << 16  # of a member, where it is extracted
LOCAL_HEADER = 30  # bytes of a zip member's own header, before its name

Ranges = Sequence[tuple[int, int]]


class Stored(NamedTuple):
    """An array to write. values: an array, or whatever has its shape and dtype and is read by slices."""

    values: Any
    dims: tuple[str, ...] | None = None
    attributes: Mapping[str, Any] = {}
    dtype: Any = None  # what to store it as, if not as it is
    draws: bool = False  # (chain, draw, ...): each chunk holds some draws of one chain
    packed: bool = True


def write(
    path: Path,
    attributes: Mapping[str, Any],
    arrays: Mapping[str, Any],
    groups: Mapping[str, Mapping[str, Any]] | None = None,
    durable: bool = True,
) -> None:
    """Write arrays (or `Stored`) by name, a/b being b in group a, and the groups' attributes, atomically."""
    with open_replacing(path, durable=durable) as file:
        write_into(file, attributes, arrays, groups)


def write_into(
    file: IO[bytes],
    attributes: Mapping[str, Any],
    arrays: Mapping[str, Any],
    groups: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    nodes: dict[str, Any] = {}
    with zipfile.ZipFile(file, "w") as archive:
        for name, given in arrays.items():
            stored = given if isinstance(given, Stored) else Stored(np.asarray(given))
            info = _describe(name, stored)
            nodes[name] = info.metadata()
            for key, parts in _chunks(info, stored):
                member = zipfile.ZipInfo(f"{name}/{key}")
                member.external_attr = PERMISSIONS
                with archive.open(member, "w") as chunk:
                    for part in parts:
                        chunk.write(part)
        for name in (*(groups or {}), *nodes):
            for parent in Path(name).parents:
                nodes.setdefault(parent.as_posix(), {})
        nodes |= {name: {"attributes": dict(own)} for name, own in (groups or {}).items()}
        # Sorted, since zarr takes what lies in one group from nodes that follow each other.
        nodes = {name: _group() | node for name, node in sorted(nodes.items()) if name != "."}
        inner = {"kind": "inline", "must_understand": False, "metadata": nodes}
        root = _group() | {"attributes": dict(attributes), "consolidated_metadata": inner}
        for name, node in ({"": root} | nodes).items():
            text = json.dumps(_finite(node), default=_as_json, allow_nan=False).encode()
            if len(text) > MAX_METADATA:
                raise ValueError(
                    f"the records and attributes of a file must fit into {MAX_METADATA} bytes; got {len(text)}; "
                    "shorten them"
                )
            archive.writestr(f"{name}/{ROOT}".lstrip("/"), text, zipfile.ZIP_DEFLATED)


def _group() -> dict[str, Any]:
    return {"zarr_format": 3, "node_type": "group", "attributes": {}}


def _describe(name: str, stored: Stored) -> ArrayInfo:
    values = stored.values
    dtype, shape = np.dtype(stored.dtype or values.dtype), tuple(values.shape)
    if dtype.kind not in "biufUTO" or (dtype.kind == "O" and not all(isinstance(v, str) for v in values.flat)):
        raise TypeError(f"only numbers and strings can be saved; {name!r} holds {dtype}; convert it")
    text = dtype.kind in "UTO"
    chunks = tuple(max(n, 1) for n in shape) if text else chunk_shape(shape, dtype.itemsize, stored.draws)
    dims = stored.dims or tuple(f"{name.replace('/', '_')}_{axis}" for axis in range(len(shape)))
    kind = STRING if text else dtype.newbyteorder("<").str
    return ArrayInfo(kind, shape, chunks, dims, stored.draws, stored.packed, dict(stored.attributes))


def chunk_shape(shape: tuple[int, ...], itemsize: int, draws: bool = False) -> tuple[int, ...]:
    """The shape of chunks of at most CHUNK_BYTES: split along the first axes, draws one chain at a time."""
    chunk = [max(n, 1) for n in shape]
    for axis, n in enumerate(chunk):
        if draws and axis == 0:
            chunk[axis] = 1
            continue
        rest = itemsize * math.prod(chunk[axis + 1 :])
        most = min(n, max(1, CHUNK_BYTES // rest))
        chunk[axis] = -(-n // -(-n // most))  # of equal size
        if rest * most <= CHUNK_BYTES and most > 1:
            break
    return tuple(chunk)


def _chunks(info: ArrayInfo, stored: Stored) -> Iterator[tuple[str, list[Any]]]:
    """Each chunk's key and content, as buffers; what is not packed is not copied either."""
    values = stored.values
    for index in product(*map(range, info.grid)):
        where = tuple(slice(i * c, (i + 1) * c) for i, c in zip(index, info.chunks, strict=True))
        part = np.asarray(values[where] if where else values)
        if info.dtype == STRING:
            part = np.frombuffer(_pack_strings(part), np.uint8)
        else:
            missing = [(0, c - n) for c, n in zip(info.chunks, part.shape, strict=True)]
            part = np.pad(part, missing) if any(after for _, after in missing) else part
            part = np.ascontiguousarray(part.transpose(info.order), dtype=info.dtype)
        yield info.key(index), pack(part.reshape(-1), info)


def pack(flat: NDArray[Any], info: ArrayInfo) -> list[Any]:
    """Compressed by blosc where that is asked for, and the crc32c of that."""
    import google_crc32c
    from numcodecs import blosc

    content: Any = flat.view(np.uint8)
    if info.packed:
        content = blosc.compress(flat, b"zstd", LEVEL, blosc.SHUFFLE if info.itemsize > 1 else blosc.BITSHUFFLE)
    return [content, google_crc32c.value(content).to_bytes(4, "little")]


def _pack_strings(values: NDArray[Any]) -> bytes:
    """As the codec vlen-utf8 has them: how many there are, and each with its length."""
    parts = [np.uint32(values.size).tobytes()]
    for text in values.flat:
        encoded = str(text).encode()
        parts += [np.uint32(len(encoded)).tobytes(), encoded]
    return b"".join(parts)


def _finite(value: Any) -> Any:
    """JSON has no numbers that are not finite."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def _as_json(value: Any) -> Any:
    raise TypeError(f"only numbers, strings and lists can be saved as attributes; got {value!r}; convert it")


def _number(value: dict[str, Any]) -> Any:
    return float(value["float"]) if value.keys() == {"float"} else value


# ---- reading ------------------------------------------------------------------------------------------------------


class ZarrFile:
    """A file that `write` made, open for reading: its metadata are checked now, chunks when they are read.

    It stays readable when the file is replaced, and in forked processes. A `DamagedError` completes "FILE ...".
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        weakref.finalize(self, os.close, self.descriptor)
        try:
            begins = os.pread(self.descriptor, len(ZIP_MARK), 0)
            with os.fdopen(os.dup(self.descriptor), "rb") as file, zipfile.ZipFile(file) as archive:
                self.members = check_listing(archive, os.fstat(self.descriptor).st_size)
                root = self._metadata(archive)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, UnicodeDecodeError, EOFError) as problem:
            what = "is" if begins in (b"", ZIP_MARK) else "is not a sparsefactor result, or is"
            raise DamagedError(f"{what} damaged or cut short ({problem})") from problem
        except OSError as problem:
            raise DamagedError(f"cannot be read ({problem})") from problem
        self.attributes, self.arrays, self.groups = check_metadata(root, self.members)

    def __reduce__(self) -> Any:
        return ZarrFile, (self.path,)

    def _metadata(self, archive: zipfile.ZipFile) -> Any:
        info = self.members.get(ROOT)
        if info is None or info.file_size > MAX_METADATA:
            raise DamagedError("is not a file of sparsefactor")
        try:
            return json.loads(archive.read(info), object_hook=_number)
        except zipfile.BadZipFile:
            raise
        except Exception as problem:  # of zlib and of json
            raise DamagedError(f"is damaged ({ROOT}: {problem})") from problem

    def content(self, key: str) -> bytes:
        """The bytes of a member that is not compressed by zip."""
        if key not in self.members:
            raise DamagedError(f"is damaged ({key} is missing)")
        info = self.members[key]
        head = os.pread(self.descriptor, LOCAL_HEADER, info.header_offset)
        lengths = int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        content = os.pread(self.descriptor, info.file_size, info.header_offset + LOCAL_HEADER + lengths)
        while 0 < len(content) < info.file_size:  # a read of more than 2 GB comes in parts
            at = info.header_offset + LOCAL_HEADER + lengths + len(content)
            more = os.pread(self.descriptor, info.file_size - len(content), at)
            if not more:
                break
            content += more
        return content

    def check(self) -> None:
        """Verify every byte."""
        with os.fdopen(os.dup(self.descriptor), "rb") as file, zipfile.ZipFile(file) as archive:
            for name, info in self.members.items():
                try:
                    with archive.open(info) as member:
                        while member.read(CHUNK_BYTES):
                            pass
                except Exception as problem:  # of zipfile and zlib
                    raise DamagedError(f"is damaged (wrong checksum of {name}: {problem})") from problem

    def check_size(self, names: Iterable[str], limit: int) -> None:
        """Refuse arrays that take more memory than that, before any is allocated."""
        total = sum(unpacked(self.arrays[name], name, self.content) for name in names)
        if total > limit:
            raise TooLargeError(
                f"a sparsefactor file may unpack to {limit} bytes; {str(self.path)!r} says it has {total}; if you "
                f"trust it and have the memory, load it with max_bytes={total}"
            )

    def read(self, name: str, ranges: Ranges | None = None) -> NDArray[Any]:
        """An array, or what lies in these ranges (first, last) of its axes."""
        if name not in self.arrays:
            raise DamagedError(f"is damaged ({name} is missing)")
        info = self.arrays[name]
        if info.dtype == STRING:
            return self._strings(name, info)
        bounds = [(0, n) for n in info.shape] if ranges is None else list(ranges)
        out: NDArray[Any] = np.empty([last - first for first, last in bounds], dtype=info.dtype)
        steps = list(zip(bounds, info.chunks, strict=True))
        for index in product(*(range(first // c, -(-last // c)) for (first, last), c in steps)):
            chunk = self._chunk(name, info, index)
            target, source = [], []
            for i, ((first, last), c) in zip(index, steps, strict=True):
                begin, end = max(first, i * c), min(last, (i + 1) * c)
                target.append(slice(begin - first, end - first))
                source.append(slice(begin - i * c, end - i * c))
            out[tuple(target)] = chunk[tuple(source)]
        return out

    def _chunk(self, name: str, info: ArrayInfo, index: tuple[int, ...]) -> NDArray[Any]:
        content = self._unpacked(f"{name}/{info.key(index)}", info, info.chunk_bytes)
        turned = np.frombuffer(content, info.dtype).reshape([info.chunks[axis] for axis in info.order])
        return turned.transpose(np.argsort(info.order))

    def _strings(self, name: str, info: ArrayInfo) -> NDArray[Any]:
        if not math.prod(info.shape):
            return np.zeros(info.shape, dtype=str)
        key = f"{name}/{info.key((0,) * len(info.shape))}"
        texts = check_strings(self._unpacked(key, info, None), math.prod(info.shape), key)
        return np.array(texts).reshape(info.shape)

    def _unpacked(self, key: str, info: ArrayInfo, size: int | None) -> Any:
        """What `pack` was given, verified; size: how many bytes that must be."""
        import google_crc32c
        from numcodecs import blosc

        whole = self.content(key)
        content = np.frombuffer(whole, np.uint8)[:-4]  # not copied
        if len(whole) < 5 or google_crc32c.value(content) != int.from_bytes(whole[-4:], "little"):
            raise DamagedError(f"is damaged (wrong checksum of {key})")
        if not info.packed:
            if len(content) != size:
                raise DamagedError(f"is damaged ({key} does not have {size} bytes)")
            return content
        check_blosc(whole[:BLOSC_HEADER], len(content), key, info.itemsize, size)
        try:
            return blosc.decompress(content)
        except RuntimeError as problem:
            raise DamagedError(f"is damaged ({key}: {problem})") from problem
