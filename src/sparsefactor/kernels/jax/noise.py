"""Randomness by row in JAX: the streams of kernels/noise.py, integers to the bit and floats to rounding (2.6)."""

from __future__ import annotations

from typing import Any

from ..contract import RowStream
from ..noise import STREAM_L, STREAM_TAU, STREAM_Z, normal_from, uniform_pair
from .library import jnp, lax


def uniforms(stream: RowStream, position: Any, rows: Any) -> Any:
    """For inclusions, positions and rows broadcast."""
    return uniform_pair(position, rows, stream.sweep, STREAM_Z, stream[:2], jnp)[0]


def normals(stream: RowStream, position: Any, rows: Any, of: int = STREAM_L) -> Any:
    """For loadings, positions and rows broadcast."""
    return normal_from(*uniform_pair(position, rows, stream.sweep, of, stream[:2], jnp), jnp)


def move_noise(stream: RowStream, position: Any, rows: Any, n_factors: int) -> tuple[Any, Any]:
    """Uniforms (rows,) for the inclusions and normals (n_factors, rows) for the loadings that a move draws."""
    places = n_factors * position + jnp.arange(n_factors)[:, None]
    return uniforms(stream, position, rows), normals(stream, places, rows)


def standard_gamma(shape: Any, rows: Any, stream: RowStream) -> Any:
    """Marsaglia and Tsang's method; attempt t of a row reads positions 2t and 2t+1, the boost reads 2^31."""
    d = jnp.where(shape < 1.0, shape + 1.0, shape) - 1.0 / 3.0
    c = 1.0 / jnp.sqrt(9.0 * d)

    def attempts(now: Any) -> Any:
        """Two at a time: the host has to look at what is left of them."""
        return attempt(attempt(now))

    def attempt(now: Any) -> Any:
        t, out, waiting = now
        x = normals(stream, 2 * t, rows, STREAM_TAU)
        u = uniform_pair(2 * t + 1, rows, stream.sweep, STREAM_TAU, stream[:2], jnp)[0]
        v = (1.0 + c * x) ** 3
        good = (v > 0) & (jnp.log(u) < 0.5 * x * x + d * (1.0 - v + jnp.log(jnp.where(v > 0, v, 1.0))))
        return t + 1, jnp.where(waiting & good, d * v, out), waiting & ~good

    begin = (jnp.zeros((), jnp.uint64), jnp.zeros_like(shape), jnp.ones(shape.shape, bool))
    _, out, _ = lax.while_loop(lambda now: jnp.any(now[2]), attempts, begin)
    boost = uniform_pair(jnp.asarray(2**31, jnp.uint64), rows, stream.sweep, STREAM_TAU, stream[:2], jnp)[0]
    return jnp.where(shape < 1.0, out * boost ** (1.0 / shape), out)
