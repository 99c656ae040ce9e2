"""Elementary functions that LLVM turns into vector code, and how loops must look for that to happen.

Numba calls the C library for exp and log, one number at a time; the ones here are polynomials, seven times as fast
when a loop over rows ("lanes") uses them. Such a loop runs over a constant number of lanes and keeps all that it
reads and writes in one array at constant offsets, so that LLVM can see that nothing overlaps.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .compiled import EXACT, njit

LANES = 64  # rows updated together: eight vectors of eight doubles, enough to hide each other's latency
LARGEST_EXPONENT = 700.0  # exp of it is still finite, and odds that large are certainty
LOG2_E = 1.4426950408889634
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROUND = 6755399441055744.0  # 1.5 * 2^52: adding it leaves the rounded number in the last bits
SQRT_HALF_BITS = 0x3FE6A09E667F3BCD


@intrinsic
def float_from_bits(typing_context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), generate


@intrinsic
def bits_from_float(typing_context: Any, value: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), generate


@njit(**EXACT)
def exp_lane(x):
    """exp(x) to one unit in the last place for |x| <= 700; x beyond is taken as 700 or -700."""
    x = min(max(x, -LARGEST_EXPONENT), LARGEST_EXPONENT)
    shifted = x * LOG2_E + ROUND
    n = shifted - ROUND
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    p = 1.0 / 6227020800.0
    p = p * r + 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r * r + r + 1.0
    return p * float_from_bits((bits_from_float(shifted) << 52) + (1023 << 52))  # type: ignore[call-arg]


@njit(**EXACT)
def log_lane(x):
    """log(x) to one unit in the last place for normal x > 0; for other x the result means nothing."""
    bits: Any = bits_from_float(x)  # type: ignore[call-arg]
    exponent = (bits - SQRT_HALF_BITS) >> 52
    # x = 2^exponent * m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), by fdlibm's polynomial.
    f = float_from_bits(bits - (exponent << 52)) - 1.0
    s = f / (2.0 + f)
    z = s * s
    p = 1.479819860511658591e-01
    p = p * z + 1.531383769920937332e-01
    p = p * z + 1.818357216161805012e-01
    p = p * z + 2.222219843214978396e-01
    p = p * z + 2.857142874366239149e-01
    p = p * z + 3.999999999940941908e-01
    p = p * z + 6.666666666666735130e-01
    half_square = 0.5 * f * f
    n = float(exponent)
    return n * LN2_HIGH - ((half_square - (s * (half_square + p * z) + n * LN2_LOW)) - f)
