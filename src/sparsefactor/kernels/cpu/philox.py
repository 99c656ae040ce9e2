"""The functions of kernels/noise.py, compiled: the same bits for uniforms, the same floats to rounding."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from ..noise import ROUND_0, ROUND_1, STREAM_TAU, UNIT, WEYL_0, WEYL_1
from .compiled import EXACT, INLINE_EXACT, njit

LOW = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
UP, DOWN = np.uint64(21), np.uint64(11)
STEP_0, STEP_1 = np.uint64(WEYL_0), np.uint64(WEYL_1)
BOOST = np.uint64(2**31)


@njit(**INLINE_EXACT)
def unit_pair(position, row, sweep, stream, key0, key1):
    """Two uniforms in (0, 1) from one call of Philox4x32-10; all arguments uint64."""
    c0, c1, c2, c3 = position, row, sweep, stream
    k0, k1 = key0, key1
    for _ in range(10):
        p0 = ROUND_0 * (c0 & LOW)
        p1 = ROUND_1 * (c2 & LOW)
        c0 = (p1 >> HALF) ^ c1 ^ k0
        c1 = p1 & LOW
        c2 = (p0 >> HALF) ^ c3 ^ k1
        c3 = p0 & LOW
        k0 = (k0 + STEP_0) & LOW
        k1 = (k1 + STEP_1) & LOW
    first = (np.float64((c0 << UP) ^ (c1 >> DOWN)) + 0.5) * UNIT
    second = (np.float64((c2 << UP) ^ (c3 >> DOWN)) + 0.5) * UNIT
    return first, second


@njit(**EXACT)
def units(row, sweep, stream, key0, key1, out):
    """The first uniform of every position 0 .. K."""
    for k in range(out.shape[0]):
        out[k] = unit_pair(np.uint64(k), row, sweep, stream, key0, key1)[0]


@njit(**EXACT)
def normal(position, row, sweep, stream, key0, key1):
    """A standard normal, by Box and Muller."""
    u1, u2 = unit_pair(position, row, sweep, stream, key0, key1)
    return math.sqrt(-2.0 * math.log(u1)) * math.cos(2.0 * math.pi * u2)


@njit(**EXACT)
def standard_gamma(shape, row, sweep, key0, key1):
    """Marsaglia and Tsang's method, reading the positions that noise.standard_gamma reads."""
    stream = np.uint64(STREAM_TAU)
    boosted = shape + 1.0 if shape < 1.0 else shape
    d = boosted - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    position = np.uint64(0)
    while True:
        x = normal(position, row, sweep, stream, key0, key1)
        u, _ = unit_pair(position + np.uint64(1), row, sweep, stream, key0, key1)
        v = (1.0 + c * x) ** 3
        if v > 0.0 and math.log(u) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
            break
        position += np.uint64(2)
    if shape < 1.0:
        u, _ = unit_pair(BOOST, row, sweep, stream, key0, key1)
        return d * v * u ** (1.0 / shape)
    return d * v
