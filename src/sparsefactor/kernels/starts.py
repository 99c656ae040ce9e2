"""What starts ask of an engine: the oracle's verbs, and those of the CPU engine too.

Loadings of a start, (G, r), are the engine's: they are made there, turned there and become rows there. Work goes over
chunks of rows whose size depends on the shape of the data alone, so that no split into blocks changes a bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

from ..arrays import NUMPY, Arrays
from ..data import Data
from .contract import Array, RowStream
from .noise import STREAM_L, normal_from, stream_words, uniform_pair

Bend = Literal["cube", "tanh"]


class StartMatrix:
    """The data as starts see them: at unit scale, less what covariates explain, holes filled; zeros at first."""

    def __init__(self, data: Data, holes: list[Array] | None = None, base: Array | None = None) -> None:
        """holes: what is in the holes of each chunk of rows; base: (G, d) loadings on a design's directions."""
        self.data, self.holes, self.chunks = data, holes, list(data.chunks())
        known = data.design is not None and data.design.covariates is not None
        self.base = data.regression() if known and base is None else base
        self.scale = 1.0
        self.scale = data.unit_scale if self.base is None else self.root_mean_square()

    def root_mean_square(self) -> float:
        """Of what is observed; 1 where that is nothing but zeros."""
        total = sum(float(np.sum(self.part(chunk) ** 2)) for chunk in range(len(self.chunks)))
        return float(np.sqrt(total / self.data.n_observed)) or 1.0

    def part(self, chunk: int) -> Array:
        """A chunk of rows of the matrix."""
        rows = self.chunks[chunk]
        Y = self.data.Y[rows].astype(np.float64)
        if self.base is not None and self.data.design is not None:
            Y -= self.base[rows] @ self.data.design.basis
        Y /= self.scale
        if self.data.observed is not None:
            Y[~self.data.observed[rows]] = 0.0 if self.holes is None else self.holes[chunk]
        return Y

    def gram(self) -> Array:
        """(N, N) Y'Y."""
        total = np.zeros((self.data.n_samples, self.data.n_samples))
        for chunk in range(len(self.chunks)):
            Y = self.part(chunk)
            total += Y.T @ Y
        return total

    def feature_gram(self) -> Array:
        """(G, G) Y Y', which is asked for where features are few."""
        Y = np.concatenate([self.part(chunk) for chunk in range(len(self.chunks))])
        return np.asarray(Y @ Y.T)

    def times(self, V: Array) -> Array:
        """Y V, as loadings of a start; V: (N, r)."""
        return np.concatenate([self.part(chunk) @ V for chunk in range(len(self.chunks))])

    def back(self, L: Array) -> Array:
        """(N, r) Y'L."""
        total = np.zeros((self.data.n_samples, L.shape[1]))
        for chunk, rows in enumerate(self.chunks):
            total += self.part(chunk).T @ L[rows]
        return total

    def filled(self, L: Array, V: Array) -> tuple[StartMatrix, float, float]:
        """The matrix with L V' in its holes; the sums of squares of what changed there, and of what is there now."""
        assert self.data.observed is not None
        holes, change, size = [], 0.0, 0.0
        for chunk, rows in enumerate(self.chunks):
            new = (L[rows] @ V.T)[~self.data.observed[rows]]
            old = 0.0 if self.holes is None else self.holes[chunk]
            change += float(np.sum((new - old) ** 2))
            size += float(np.sum(new**2))
            holes.append(new)
        return StartMatrix(self.data, holes, self.base), change, size


class StartVerbs:
    """The verbs for one data set, its rows in arrays of the library `on`."""

    data: Data
    on: Arrays = NUMPY

    def row_chunks(self) -> Iterator[slice]:
        """Slices of rows to work on one at a time, so that no second matrix of the size of the data is made."""
        return self.data.chunks()

    def start_matrix(self) -> Any:
        """The data as starts see them."""
        return StartMatrix(self.data)

    def start_normals(self, n: int, size: float, stream: RowStream) -> Array:
        """Loadings (G, n) of a start: normals with this standard deviation, by counter."""
        xp, (key, sweep) = self.on.xp, stream_words(stream)
        every, parts = xp.arange(self.data.n_features), []
        for rows in self.row_chunks():
            pair = uniform_pair(xp.arange(n), every[rows, None], sweep, STREAM_L, key, xp)
            parts.append(size * normal_from(*pair, xp))
        together: Array = xp.concat(parts)
        return together

    def start_turn(self, L: Array, T: Array) -> Array:
        """Loadings L T; T: (r, any)."""
        turned: Array = self.on.xp.asarray(L @ T)
        return turned

    def start_join(self, L: Array, more: Array) -> Array:
        """Loadings on the factors of both."""
        joined: Array = self.on.xp.concat([L, more], axis=1)
        return joined

    def start_products(self, L: Array) -> Array:
        """(r, r) L'L."""
        return np.asarray(L.T @ L)

    def start_bend(self, L: Array, T: Array, how: Bend) -> tuple[Array, Array]:
        """(r, q) L'g(L T) and (q,) sums over the rows of g'(L T), g the cube or the hyperbolic tangent; T: (r, q)."""
        x = L @ T
        if how == "cube":
            square = x * x
            return np.asarray(L.T @ (square * x)), np.asarray(3.0 * square.sum(axis=0))
        g = self.on.xp.tanh(x)
        return np.asarray(L.T @ g), np.asarray((1.0 - g * g).sum(axis=0))
