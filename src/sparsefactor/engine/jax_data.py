"""Data whose matrix is on the device already: made there, or too large to hold twice."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..computed import computed
from ..data import Data
from ..kernels.jax.library import jax, jnp, with_64_bits
from ..kernels.jax.problem import row_parts


class DeviceData(Data):
    """`Data` of a JAX array (G, N), zero where missing; sums over it are made where it is."""

    @computed
    def row_ss(self) -> NDArray[np.float64]:
        """(G,) sum of squares of each feature."""
        return np.asarray(moments(self.Y, 1)[1])

    @computed
    def column_ss(self) -> NDArray[np.float64]:
        """(N,) sum of squares of each sample."""
        return np.asarray(moments(self.Y, 0)[1])

    @computed
    def centred_ss(self) -> NDArray[np.float64]:
        """(G,) sum of squares of each feature around its mean."""
        total, square = (np.asarray(a) for a in moments(self.Y, 1))
        return np.asarray(np.maximum(square - total**2 / self.row_count, 0.0))

    @computed
    def unit_scale(self) -> float:
        """Root mean square of the observed entries; 1 for all-zero data."""
        return float(np.sqrt(self.row_ss.sum() / self.n_observed)) or 1.0


def device_data(Y: Any, observed: NDArray[np.bool_] | None = None) -> DeviceData:
    """Data of a JAX array (G, N), which is taken as it is: centred, zero where missing."""
    G, N = Y.shape
    return DeviceData(Y, observed, np.zeros(G), np.arange(G), np.arange(N))


@with_64_bits
def moments(Y: Any, axis: int) -> tuple[Any, Any]:
    """Sums, and sums of squares, along an axis, in double precision."""
    return _moments(Y, axis=axis)


@partial(jax.jit, static_argnames="axis")
def _moments(Y: Any, axis: int) -> tuple[Any, Any]:
    found = []
    for rows in row_parts(Y.shape[0], 8 * Y.shape[1]):
        part = Y[rows].astype(jnp.float64)
        found.append((jnp.sum(part, axis=axis), jnp.sum(part**2, axis=axis)))
    join = jnp.concatenate if axis else sum
    return join([f[0] for f in found]), join([f[1] for f in found])
