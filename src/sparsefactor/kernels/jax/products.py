"""Products with the data matrix and with its mask, the only work of the size of the data.

Of float64 data they are float64. Of float32 data, Y stays as it is and the other side is rounded to it; the result is
float64 again. A mask is zeros and ones, which bfloat16 holds exactly: three bfloat16 parts of the other side then give
single precision on matrix units. Data held as float16 are multiplied by three float16 parts of the other side, so that
nothing is rounded but the data themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .library import jnp, lax
from .problem import Kind, row_parts

ALIGNED = 4  # columns: rows of 16 bytes, which a GPU reads a quarter faster (4.0 and 3.0 ms at 50 and 52 columns)
STEP = 2.0**11  # by which float16 rounds; its parts are taken at this scale, for it has few exponents
PRECISIONS: dict[str, Any] = {
    "tf32": lax.Precision.DEFAULT,
    "bf16x3": lax.DotAlgorithmPreset.BF16_BF16_F32_X3,
    "bf16x6": lax.DotAlgorithmPreset.BF16_BF16_F32_X6,
    "tf32x3": lax.DotAlgorithmPreset.TF32_TF32_F32_X3,
    "float32": lax.Precision.HIGHEST,
}


def times(Y: Any, X: Any, kind: Kind) -> Any:
    """(r, G) (Y X)'; X: (N, r)."""
    if Y.dtype == jnp.float16:
        return _halves(X, Y, (0, 1))
    r = X.shape[1]
    X = jnp.pad(X.astype(Y.dtype), ((0, 0), (0, -r % ALIGNED)))
    product = lax.dot_general(Y, X, (((1,), (0,)), ((), ())), precision=_of(Y, kind))
    return product[:, :r].astype(jnp.float64).T


def back(W: Any, Y: Any, kind: Kind) -> Any:
    """(r, N) W Y; W: (r, G)."""
    if Y.dtype == jnp.float16:
        return _halves(W.T, Y, (0, 0))
    product = lax.dot_general(W.astype(Y.dtype), Y, (((1,), (0,)), ((), ())), precision=_of(Y, kind))
    return product.astype(jnp.float64)


def _of(Y: Any, kind: Kind) -> Any:
    return lax.Precision.HIGHEST if Y.dtype == jnp.float64 else PRECISIONS[kind.precision]


def mask_times(mask: Any, X: Any, dtype: Any) -> Any:
    """(p, G) (mask X)'; X: (N, p)."""
    parts = [_masked(mask[rows], X, dtype, (0, 1)) for rows in row_parts(mask.shape[0], 8 * mask.shape[1])]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, axis=1)


def mask_back(mask: Any, W: Any, dtype: Any) -> Any:
    """(p, N) W mask; W: (p, G)."""
    total: Any = 0.0
    for rows in row_parts(mask.shape[0], 8 * mask.shape[1]):
        total = total + _masked(mask[rows], W[:, rows].T, dtype, (0, 0))
    return total


def _masked(mask: Any, X: Any, dtype: Any, over: tuple[int, int]) -> Any:
    """(p, other) the sum over the dimension over[1] of the mask and over[0] of X."""
    dims = (((over[0],), (over[1],)), ((), ()))
    if dtype == jnp.float64:
        return lax.dot_general(X, mask.astype(X.dtype), dims, precision=lax.Precision.HIGHEST)
    pieces, rest = [], X.astype(jnp.float32)
    for _ in range(3):
        # Not a conversion there and back, which the compiler takes for nothing.
        rounded = lax.reduce_precision(rest, exponent_bits=8, mantissa_bits=7)
        pieces.append(rounded.astype(jnp.bfloat16))
        rest = rest - rounded
    product = lax.dot_general(
        jnp.concatenate(pieces, axis=1), mask.astype(jnp.bfloat16), dims, preferred_element_type=jnp.float32
    )
    p = X.shape[1]
    return sum(product[i * p : (i + 1) * p].astype(jnp.float64) for i in (2, 1, 0))


def _halves(X: Any, Y: Any, over: tuple[int, int]) -> Any:
    """(r, other) the sum over the dimension over[1] of Y and over[0] of X (., r)."""
    size = jnp.max(jnp.abs(X), axis=0)
    size = jnp.where(size > 0.0, size, 1.0)
    pieces, rest = [], (X / size).astype(jnp.float32)
    for _ in range(3):
        rounded = lax.reduce_precision(rest, exponent_bits=5, mantissa_bits=10)
        pieces.append(rounded.astype(jnp.float16))
        rest = (rest - rounded) * STEP
    dims = (((over[0],), (over[1],)), ((), ()))
    product = lax.dot_general(jnp.concatenate(pieces, axis=1), Y, dims, preferred_element_type=jnp.float32)
    r = X.shape[1]
    return size[:, None] * sum(product[i * r : (i + 1) * r].astype(jnp.float64) / STEP**i for i in (2, 1, 0))


def packing(K: int) -> tuple[Any, Any, Any]:
    """Rows and columns of a symmetric matrix's lower half, (P,) each, and where each entry (K, K) lies there."""
    i, j = np.tril_indices(K)
    place = np.zeros((K, K), np.int32)
    place[i, j] = place[j, i] = np.arange(len(i))
    return i, j, place
