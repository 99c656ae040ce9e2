"""Counter-based randomness: a draw is a function of (key, sweep, row, position), so no order of work can change it.

Philox4x32 with ten rounds (Salmon and others, 2011). Every engine implements these functions and agrees with this
file: integers to the bit, floats to rounding. math.md, section 2.6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .contract import Array, RowNoise, RowStream

ROUND_0, ROUND_1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)  # Philox4x32's multipliers
WEYL_0, WEYL_1 = 0x9E3779B9, 0xBB67AE85  # and its key increments
LOW = np.uint64(0xFFFFFFFF)
STREAM_Z, STREAM_L, STREAM_TAU, STREAM_SLICE, STREAM_F = 0, 1, 2, 3, 4
UNIT = 2.0**-53
SLAB_COUNTER = 1 << 192  # where the draws of a sweep's slabs begin, far from those of its columns


def stream_key(*entropy: int) -> tuple[int, int]:
    """Two 32-bit words that name a stream, e.g. stream_key(seed, chain)."""
    words = np.random.SeedSequence(entropy).generate_state(2, np.uint32)
    return int(words[0]), int(words[1])


def philox(counter: tuple[Any, Any, Any, Any], key: tuple[Any, Any], xp: Any = np) -> tuple[NDArray[np.uint64], ...]:
    """Four 32-bit words (held in uint64) for each counter; counters broadcast. xp: the array library."""
    c0, c1, c2, c3 = xp.broadcast_arrays(*(xp.asarray(c, dtype=xp.uint64) for c in counter))
    k0, k1 = key
    for _ in range(10):
        p0, p1 = ROUND_0 * c0, ROUND_1 * c2
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ xp.asarray(k0, dtype=xp.uint64),
            p1 & LOW,
            (p0 >> np.uint64(32)) ^ c3 ^ xp.asarray(k1, dtype=xp.uint64),
            p0 & LOW,
        )
        k0, k1 = (k0 + WEYL_0) & 0xFFFFFFFF, (k1 + WEYL_1) & 0xFFFFFFFF
    return c0, c1, c2, c3


def _unit(high: NDArray[np.uint64], low: NDArray[np.uint64], xp: Any) -> Array:
    """53 random bits as a double in (0, 1]: never 0, and 1 only where all bits are set."""
    bits = (high << np.uint64(21)) ^ (low >> np.uint64(11))
    uniform: Array = xp.asarray((bits.astype(xp.float64) + 0.5) * UNIT)
    return uniform


def uniform_pair(
    position: Any, row: Any, sweep: Any, stream: int, key: tuple[Any, Any], xp: Any = np
) -> tuple[Array, Array]:
    """Two independent uniforms for each (position, row)."""
    words = philox((position, row, sweep, stream), key, xp)
    return _unit(words[0], words[1], xp), _unit(words[2], words[3], xp)


def normal_from(u1: Array, u2: Array, xp: Any = np) -> Array:
    """Box and Muller's cosine branch."""
    normal: Array = xp.sqrt(-2.0 * xp.log(u1)) * xp.cos(2.0 * np.pi * u2)
    return normal


def standard_gamma(shape: Array, rows: NDArray[np.integer], sweep: int, key: tuple[int, int]) -> Array:
    """Marsaglia and Tsang's method; attempt t of a row reads positions 2t and 2t+1, the boost reads 2^31."""
    boosted = np.where(shape < 1.0, shape + 1.0, shape)
    d = boosted - 1.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    out = np.empty(len(rows))
    waiting = np.arange(len(rows))
    attempt = 0
    while waiting.size:
        x = normal_from(*uniform_pair(2 * attempt, rows[waiting], sweep, STREAM_TAU, key))
        u, _ = uniform_pair(2 * attempt + 1, rows[waiting], sweep, STREAM_TAU, key)
        v = (1.0 + c[waiting] * x) ** 3
        with np.errstate(invalid="ignore", divide="ignore"):
            good = (v > 0) & (np.log(u) < 0.5 * x * x + d[waiting] * (1.0 - v + np.log(v)))
        out[waiting[good]] = d[waiting[good]] * v[good]
        waiting = waiting[~good]
        attempt += 1
    boost, _ = uniform_pair(2**31, rows, sweep, STREAM_TAU, key)
    return np.where(shape < 1.0, out * boost ** (1.0 / shape), out)


def row_noise(key: tuple[int, int], sweep: int, rows: NDArray[np.integer], K: int, shape: Array) -> RowNoise:
    """The randomness of the rows numbered `rows` in one sweep; shape: (len(rows),) of tau's gamma."""
    k, row = np.arange(K)[None, :], rows[:, None]
    uniform, _ = uniform_pair(k, row, sweep, STREAM_Z, key)
    normal = normal_from(*uniform_pair(k, row, sweep, STREAM_L, key))
    return RowNoise(uniform=uniform, normal=normal, gamma=standard_gamma(shape, rows, sweep, key))


def row_stream(rng: np.random.Generator) -> RowStream:
    """A stream by row that no other call has: its key comes from a generator that nothing by row is drawn from."""
    return RowStream(*rng.integers(2**32, size=3, dtype=np.uint64))


def stream_words(stream: RowStream) -> tuple[tuple[int, int], int]:
    """(key, sweep) of a stream."""
    return (int(stream.key0), int(stream.key1)), int(stream.sweep)


def move_noise(stream: RowStream, position: int, n_rows: int, n_factors: int) -> tuple[Array, Array]:
    """Uniforms (n_rows,) for the inclusions and normals (n_rows, n_factors) for the loadings that a move draws.

    position: which of the move's draws of columns this is.
    """
    key, sweep = stream_words(stream)
    rows = np.arange(n_rows)
    uniform, _ = uniform_pair(position, rows, sweep, STREAM_Z, key)
    places = n_factors * position + np.arange(n_factors)
    return uniform, normal_from(*uniform_pair(places, rows[:, None], sweep, STREAM_L, key))


def column_generator(key: tuple[int, int], sweep: int) -> np.random.Generator:
    """The generator of one sweep's column step, which no thread shares."""
    return np.random.Generator(np.random.Philox(key=[key[0] | key[1] << 32, sweep]))


def slab_generator(key: tuple[int, int], sweep: int) -> np.random.Generator:
    """The same for the precisions of a design's slabs."""
    return np.random.Generator(np.random.Philox(key=[key[0] | key[1] << 32, sweep], counter=SLAB_COUNTER))
