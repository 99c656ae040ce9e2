"""What a zarr file must be before anything is made of it: its members, metadata, codecs, shapes and sizes.

Every array's metadata must be those that this version writes for its shape and type: no other codec is ever asked for.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, NamedTuple

import numpy as np

ROOT = "zarr.json"
STRING = "string"
SAFE = re.compile(r"[^/\\\0]+(/[^/\\\0]+)*")
TYPES = ("bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))
TYPES += tuple(f"float{bits}" for bits in (16, 32, 64))
DEFLATE_RATIO = 1040  # what deflate can reach at most is 1032
MOST_CHUNK = 128_000_000  # bytes of a chunk
BLOSC_HEADER = 16  # bytes: version, codec's version, flags, size of an item; then three sizes of 4 bytes
BLOSC_VERSION = 2
MOST_STRINGS = 1_000_000_000  # bytes of strings of equal width


class DamagedError(ValueError):
    """A file that is not what it should be; completes "FILE ..."."""


class ArrayInfo(NamedTuple):
    """An array of a file.

    dtype: as NumPy names it, or "string"; draws: whether draws are innermost in a chunk; packed: whether by blosc.
    """

    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dims: tuple[str, ...]
    draws: bool
    packed: bool
    attributes: dict[str, Any]

    @property
    def itemsize(self) -> int:
        return 1 if self.dtype == STRING else np.dtype(self.dtype).itemsize

    @property
    def chunk_bytes(self) -> int:
        return math.prod(self.chunks) * self.itemsize

    @property
    def order(self) -> tuple[int, ...]:
        """The axes in the order in which a chunk holds them: draws, (chain, draw, ...), last."""
        axes = tuple(range(len(self.shape)))
        return (0, *axes[2:], 1) if self.draws else axes

    @property
    def grid(self) -> tuple[int, ...]:
        return tuple(-(-n // c) for n, c in zip(self.shape, self.chunks, strict=True))

    def key(self, index: tuple[int, ...]) -> str:
        return "/".join(["c", *map(str, index)])

    def metadata(self) -> dict[str, Any]:
        """As zarr 3 has them."""
        text = self.dtype == STRING
        codecs: list[dict[str, Any]] = []
        if self.draws:
            codecs.append({"name": "transpose", "configuration": {"order": list(self.order)}})
        if text:
            codecs.append({"name": "vlen-utf8", "configuration": {}})
        else:
            codecs.append({"name": "bytes", "configuration": {"endian": "little"}})
        shuffle = "shuffle" if self.itemsize > 1 else "bitshuffle"
        blosc = {"typesize": self.itemsize, "cname": "zstd", "clevel": 5, "shuffle": shuffle, "blocksize": 0}
        codecs += [{"name": "blosc", "configuration": blosc}] if self.packed else []
        codecs.append({"name": "crc32c"})
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": list(self.shape),
            "data_type": STRING if text else np.dtype(self.dtype).name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(self.chunks)}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": "" if text else False if self.dtype == "|b1" else 0,
            "codecs": codecs,
            "attributes": self.attributes,
            "dimension_names": list(self.dims),
        }


def check_listing(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """The members of an archive by name, if they are plain, have safe names, and can be inside it."""
    members: dict[str, zipfile.ZipInfo] = {}
    for info in archive.infolist():
        name, parts = info.filename, info.filename.split("/")
        if not SAFE.fullmatch(name) or ".." in parts or "." in parts or name in members:
            raise DamagedError(f"is damaged (a member is called {name!r})")
        stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
        deflated = info.compress_type == zipfile.ZIP_DEFLATED and parts[-1] == ROOT
        if not (stored or deflated) or info.flag_bits & 1 or info.file_size > DEFLATE_RATIO * (info.compress_size + 1):
            raise DamagedError(f"is damaged ({name} has another compression or size than it should)")
        members[name] = info
    if sum(info.compress_size for info in members.values()) > size:
        raise DamagedError("is damaged (its members are larger than the file)")
    return members


def check_metadata(
    root: Any, members: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, ArrayInfo], dict[str, dict[str, Any]]]:
    """The root's attributes, the arrays, and the attributes of groups, from consolidated metadata."""
    try:
        attributes, nodes = root["attributes"], root["consolidated_metadata"]["metadata"]
        arrays, groups = {}, {}
        for name, node in nodes.items():
            if not isinstance(node["attributes"], dict):
                raise ValueError(f"attributes of {name}")
            if node["node_type"] == "group":
                groups[name] = node["attributes"]
            else:
                arrays[name] = array_info(name, node, members)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        if isinstance(problem, DamagedError):
            raise
        raise DamagedError(f"is damaged, or not a file of sparsefactor ({ROOT}: {problem})") from problem
    if not isinstance(attributes, dict):
        raise DamagedError(f"is damaged ({ROOT})")
    return attributes, arrays, groups


def array_info(name: str, node: Mapping[str, Any], members: Mapping[str, Any]) -> ArrayInfo:
    """An array's metadata, if this version would have written them, and if all of its chunks are there."""
    shape, chunks = node["shape"], node["chunk_grid"]["configuration"]["chunk_shape"]
    kind, codecs, dims = node["data_type"], node["codecs"], node["dimension_names"]
    if not all(type(n) is int and n >= 0 for n in shape) or not all(type(n) is int and n >= 1 for n in chunks):
        raise ValueError(f"{name} has shape {shape!r} and chunks {chunks!r}")
    if len(shape) != len(chunks) or any(c > max(n, 1) for n, c in zip(shape, chunks, strict=True)):
        raise ValueError(f"{name} has shape {shape!r} and chunks {chunks!r}")
    if kind != STRING and kind not in TYPES:
        raise ValueError(f"{name} has type {kind!r}")
    if len(dims) != len(shape) or not all(isinstance(dim, str) for dim in dims):
        raise ValueError(f"{name} has dimensions {dims!r}")
    draws = codecs[0]["name"] == "transpose" and len(shape) > 1
    dtype = STRING if kind == STRING else np.dtype(kind).newbyteorder("<").str
    packed = any(codec["name"] == "blosc" for codec in codecs)
    info = ArrayInfo(dtype, tuple(shape), tuple(chunks), tuple(dims), draws, packed, node["attributes"])
    if info.metadata() != node:
        raise ValueError(f"{name} has codecs or settings that this version does not write")
    if kind == STRING and chunks != [max(n, 1) for n in shape]:
        raise ValueError(f"{name} is in several chunks")
    if kind != STRING and info.chunk_bytes > MOST_CHUNK:
        raise ValueError(f"{name} has chunks of {info.chunk_bytes} bytes")
    if math.prod(info.grid) > len(members):
        raise DamagedError(f"is damaged (chunks of {name} are missing)")
    for index in product(*map(range, info.grid)):
        if f"{name}/{info.key(index)}" not in members:
            raise DamagedError(f"is damaged ({name}/{info.key(index)} is missing)")
    return info


def unpacked(info: ArrayInfo, name: str, content: Callable[[str], bytes]) -> int:
    """Bytes of an array in memory."""
    if info.dtype != STRING or not math.prod(info.shape):
        return math.prod(info.shape) * info.itemsize
    key = f"{name}/{info.key((0,) * len(info.shape))}"
    return int.from_bytes(content(key)[4:8], "little") + 64 * math.prod(info.shape)


def check_blosc(header: bytes, length: int, key: str, itemsize: int, size: int | None) -> None:
    """Refuse a block of this length whose header does not say what it must: the decoder goes by it.

    size: of what it unpacks to; None for strings.
    """
    n_bytes, block, packed = (int.from_bytes(header[at : at + 4], "little") for at in (4, 8, 12))
    if (
        length < BLOSC_HEADER
        or header[0] != BLOSC_VERSION
        or header[3] != itemsize
        or packed != length
        or n_bytes != (n_bytes if size is None else size)
        or not (0 < block <= max(n_bytes, 1))
    ):
        raise DamagedError(f"is damaged ({key} does not unpack to {size} bytes)")


def check_strings(content: bytes, count: int, key: str) -> list[str]:
    """The strings of a block of the codec vlen-utf8."""
    if int.from_bytes(content[:4], "little") != count or 4 * (count + 1) > len(content):
        raise DamagedError(f"is damaged ({key} does not have {count} strings)")
    texts, at, longest = [], 4, 0
    for _ in range(count):
        end = at + 4 + int.from_bytes(content[at : at + 4], "little")
        if end > len(content):
            raise DamagedError(f"is damaged ({key} is cut short)")
        try:
            texts.append(content[at + 4 : end].decode())
        except UnicodeDecodeError as problem:
            raise DamagedError(f"is damaged ({key}: {problem})") from problem
        longest, at = max(longest, len(texts[-1])), end
    if 4 * longest * count > max(MOST_STRINGS, 8 * len(content)):
        raise DamagedError(f"is damaged ({key} has strings of {longest} characters)")
    return texts


def check_posterior(values: Mapping[str, Any]) -> None:
    """Refuse fields of a posterior that do not belong to one model."""
    labels, prior = values["labels"], values["prior"]
    (G, K), (N, _) = values["loadings_mean"].shape, values["activations_mean"].shape
    by_group = (len(prior.group_names), K) if prior.grouped else (K,)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("loadings_mean", "loadings_sd", "inclusion_prob"), (G, K))
    shapes |= dict.fromkeys(("activations_mean", "activations_sd"), (N, K))
    shapes |= {"loading_precision_mean": by_group, "signal_mean": (N, G)}
    shapes |= {"noise_precision_mean": {"feature": (G,), "sample": (N,), "shared": ()}[prior.noise]}
    found = {name: values[name] for name in shapes if values.get(name) is not None}
    found |= {name: getattr(labels, name) for name in ("feature_names", "sample_names", "offset")}
    shapes |= {"feature_names": (G,), "sample_names": (N,), "offset": (G,)}
    for name, array in found.items():
        if array.shape != shapes[name]:
            raise ValueError(f"{name} has shape {array.shape}, not {shapes[name]}")
    if "permutations" in values:
        order = values["permutations"]
        if prior.K != K or order.ndim != 3 or order.shape[2] != K or values["signs"].shape != order.shape:
            raise ValueError(f"permutations have shape {order.shape} for {K} factors")
        if order.dtype.kind != "i" or (np.sort(order, axis=-1) != np.arange(K)).any():
            raise ValueError("permutations do not permute the factors")
