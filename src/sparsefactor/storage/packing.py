"""Draws as few bytes: inclusions as bits, loadings only where they are included, floats by their bytes' significance.

A packed array is a function of its values, and is unpacked only into the shape and type that the reader expects: no
size is taken from what was stored.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LENGTH = 8  # bytes that say how long a plane is
MASKED = 0x80  # in the first byte, beside a float's width: zeros are left out
# Sign and exponent vary little from draw to draw; what follows them is noise, which nothing compresses.
COMPRESSED_PLANES = 2
SMALLEST = np.finfo(np.float32).tiny  # of full precision in four bytes


class PackingError(ValueError):
    """Bytes that are not the packed form of an array of this shape and type."""


def pack_bits(values: Array) -> bytes:
    """values: (draw, ...) of zeros and ones. A run of draws that agree becomes a run of bits."""
    return _deflated(np.packbits(_draws_last(values != 0)).tobytes())


def unpack_bits(content: bytes, shape: tuple[int, ...], dtype: Any) -> Array:
    size = _count(shape)
    bits = _inflated(content, -(-size // 8))
    flat = np.unpackbits(np.frombuffer(bits, np.uint8), count=size)
    return _draws_first(flat.astype(dtype, copy=False), shape)


def pack_floats(values: Array, mask: Array | None = None) -> bytes:
    """values: (draw, ...) of floats; where all outside `mask` are zero, those are left out.

    No digit is lost; four bytes are used where they hold all values, else eight.
    """
    last = _draws_last(values)
    where = None if mask is None or values[mask == 0].any() else _draws_last(mask) != 0
    kept = np.ascontiguousarray(last.reshape(-1) if where is None else last[where])
    single = _as_single(kept)
    kept = single.astype("<f4") if np.array_equal(single, kept, equal_nan=True) else kept.astype("<f8")
    planes = kept.view(np.uint8).reshape(len(kept), kept.itemsize)
    parts = [bytes([kept.itemsize | (0 if where is None else MASKED)])]
    for rank, plane in enumerate(reversed(planes.T)):
        content = plane.tobytes()
        if rank < COMPRESSED_PLANES:
            content = min(content, _deflated(content), key=len)  # as it is, unless that is shorter
        parts += [len(content).to_bytes(LENGTH, "little"), content]
    return b"".join(parts)


def unpack_floats(content: bytes, shape: tuple[int, ...], mask: Array | None = None) -> Array:
    """(draw, ...) floats of single or double precision, as they were packed."""
    kind, at = content[0] if content else 0, 1
    width = kind & ~MASKED
    if width not in (4, 8) or (kind & MASKED and mask is None):
        raise PackingError("is not made of packed floats")
    where = _draws_last(mask) != 0 if mask is not None and kind & MASKED else None
    size = _count(shape) if where is None else int(np.count_nonzero(where))
    if size > len(content):  # the plane of least significance is never compressed
        raise PackingError(f"has {len(content)} bytes, too few for {size} floats")
    planes = np.empty((size, width), np.uint8)
    for rank in reversed(range(width)):
        length = int.from_bytes(content[at : at + LENGTH], "little")
        part = content[at + LENGTH : at + LENGTH + length]
        at += LENGTH + length
        planes[:, rank] = np.frombuffer(part if len(part) == size else _inflated(part, size), np.uint8)
    if at != len(content):
        raise PackingError(f"has {len(content)} bytes, not {at}")
    kept = planes.reshape(-1).view(f"<f{width}")
    if where is None:
        return _draws_first(kept, shape)
    out = np.zeros(where.shape, dtype=kept.dtype)
    out[where] = kept
    return np.moveaxis(out, -1, 0)


def rounded(values: Array) -> Array:
    """Each value to single precision, but for those beyond its range."""
    single = _as_single(values)
    beyond = (np.isinf(single) & np.isfinite(values)) | ((np.abs(single) < SMALLEST) & (values != 0))
    return np.where(beyond, values, single)


def _as_single(values: Array) -> Array:
    with np.errstate(over="ignore", under="ignore"):
        return values.astype(np.float32)


def _draws_last(values: Array) -> Array:
    return np.moveaxis(values, 0, -1)


def _draws_first(flat: Array, shape: tuple[int, ...]) -> Array:
    return np.moveaxis(flat.reshape((*shape[1:], shape[0])), -1, 0)


def _count(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))


def _deflated(content: bytes) -> bytes:
    # Runs of the same byte are what there is to find: the search for longer repetitions costs more than it gains.
    packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS, 9, zlib.Z_RLE)
    return packer.compress(content) + packer.flush()


def _inflated(content: bytes, size: int) -> bytes:
    """What was deflated, if it is of this size; never more than that is made."""
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        out = unpacker.decompress(content, size + 1)
    except zlib.error as problem:
        raise PackingError(f"cannot be unpacked ({problem})") from problem
    if len(out) != size or not unpacker.eof or unpacker.unused_data:
        raise PackingError(f"does not unpack to {size} bytes")
    return out
