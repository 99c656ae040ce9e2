"""What starts ask of an engine: the oracle's verbs, and those of the CPU engine too.

Loadings of a start, (G, r), are the engine's: they are made there, turned there and become rows there. Work goes over
chunks of rows whose size depends on the shape of the data alone, and sums over tiles, so that no split of the rows
changes a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from ..arrays import NUMPY, Arrays
from ..data import Data
from ..data.tiles import slices
from .contract import Array, RowStream
from .noise import STREAM_L, normal_from, stream_words, uniform_pair
from .totals import over_tiles

Bend = Literal["cube", "tanh"]
SAMPLE_ENTRIES = 4_000_000  # of the samples that a Gram matrix of the features is added up from at a time


class StartMatrix:
    """The data as starts see them: at unit scale, less what covariates explain, holes filled; zeros at first."""

    def __init__(self, data: Data, holes: list[Array] | None = None, base: Array | None = None) -> None:
        """holes: what is in the holes of each chunk of rows; base: (G, d) loadings on a design's directions."""
        self.data, self.holes = data, holes
        self.chunks: list[slice] = []
        self.of_tile: dict[int, range] = {}  # the numbers of a tile's chunks, by the tile's first row
        for tile in data.tiles():
            before = len(self.chunks)
            self.chunks += data.chunks(tile)
            self.of_tile[tile.start] = range(before, len(self.chunks))
        known = data.design is not None and data.design.covariates is not None
        self.base = data.regression() if known and base is None else base
        self.scale = 1.0
        self.scale = data.unit_scale if self.base is None else self.root_mean_square()

    def root_mean_square(self) -> float:
        """Of what is observed; 1 where that is nothing but zeros."""
        total = self.added(lambda chunk: np.sum(self.part(chunk) ** 2), needed=True)
        return float(np.sqrt(total / self.data.n_observed)) or 1.0

    def added(self, part: Callable[[int], Any], needed: bool = False) -> Any:
        """The sum over all rows of what `part` makes of a chunk of them."""
        whole = lambda tile: (sum(map(part, self.of_tile[tile.start])),)  # noqa: E731
        return over_tiles(self.data.tiles(), self.data.first_tile, whole, needed)[0]

    def part(self, chunk: int) -> Array:
        """A chunk of rows of the matrix."""
        rows = self.chunks[chunk]
        if rows.start in self.of_tile:
            self.data.ahead(slice(rows.start + self.data.tile, rows.start + 2 * self.data.tile))
        Y = self.data.Y[rows].astype(np.float64)
        if self.base is not None and self.data.design is not None:
            Y -= self.base[rows] @ self.data.design.basis
        Y /= self.scale
        if self.data.observed is not None:
            Y[~self.data.observed[rows]] = 0.0 if self.holes is None else self.holes[chunk]
        self.data.release(rows)
        return Y

    def gram(self) -> Array:
        """(N, N) Y'Y."""

        def part(chunk: int) -> Array:
            Y = self.part(chunk)
            return np.asarray(Y.T @ Y)

        return np.asarray(self.added(part))

    def feature_gram(self) -> Array:
        """(G, G) Y Y', which is asked for where features are few."""
        G = self.data.n_features if self.data.n_rows is None else self.data.n_rows
        total = np.zeros((G, G))
        for samples in slices(0, self.data.n_samples, max(1, SAMPLE_ENTRIES // G)):
            Y = self.columns(samples)
            total += Y @ Y.T
        return total

    def columns(self, samples: slice) -> Array:
        """(G, n) some samples of the matrix."""
        parts = [self.part(c)[:, samples] for c in range(len(self.chunks))]
        return np.concatenate(parts or [np.zeros((0, samples.stop - samples.start))])

    def times(self, V: Array) -> Array:
        """Y V, as loadings of a start; V: (N, r)."""
        L = np.empty((self.data.n_features, V.shape[1]))  # at once: small arrays between large ones would keep memory
        for chunk, rows in enumerate(self.chunks):
            L[rows] = self.part(chunk) @ V
        return L

    def back(self, L: Array) -> Array:
        """(N, r) Y'L."""
        return np.asarray(self.added(lambda chunk: self.part(chunk).T @ L[self.chunks[chunk]]))

    def power(self, V: Array) -> Array:
        """(N, r) Y'Y V, in one reading of the matrix; V: (N, r)."""

        def part(chunk: int) -> Array:
            Y = self.part(chunk)
            return np.asarray(Y.T @ (Y @ V))

        return np.asarray(self.added(part))

    def filled(self, L: Array, V: Array) -> tuple[StartMatrix, float, float]:
        """The matrix with L V' in its holes; the sums of squares of what changed there, and of what is there now."""
        assert self.data.observed is not None
        seen = self.data.observed
        holes: list[Array] = []

        def part(chunk: int) -> Array:
            new = (L[self.chunks[chunk]] @ V.T)[~seen[self.chunks[chunk]]]
            old = 0.0 if self.holes is None else self.holes[chunk]
            holes.append(new)
            return np.array([np.sum((new - old) ** 2), np.sum(new**2)])

        change, size = np.asarray(self.added(part)).tolist()
        return StartMatrix(self.data, holes, self.base), change, size


class SparseStartMatrix(StartMatrix):
    """The same of data that are held sparse, by products with what is not zero."""

    def __init__(self, data: Data) -> None:
        super().__init__(data)
        Y = data.Y if self.base is None or data.design is None else data.Y.less(self.base, data.design.basis)
        self.Y = Y / self.scale

    def feature_gram(self) -> Array:
        return np.asarray(self.Y.feature_gram())

    def times(self, V: Array) -> Array:
        return np.asarray(self.Y.times(V))

    def back(self, L: Array) -> Array:
        return np.asarray(self.Y.back(L))

    def power(self, V: Array) -> Array:
        return self.back(self.times(V))


class StartVerbs:
    """The verbs for one data set, its rows in arrays of the library `on`."""

    data: Data
    on: Arrays = NUMPY

    def row_tiles(self) -> Iterator[slice]:
        """Rows whose sums are taken apart, and added along a fixed tree."""
        return self.data.tiles()

    def over_tiles(self, part: Callable[[slice], tuple[Any, ...]], needed: bool = False) -> tuple[Any, ...]:
        """The sums over all rows of what `part` makes of a tile's; needed: see kernels/totals.py."""
        return over_tiles(self.row_tiles(), self.data.first_tile, part, needed)

    def by_tile(self, part: Callable[[slice], Any]) -> Any:
        """What `part` makes of a tile's rows, of all tiles: products round as a tile's do, however rows are split."""
        return self.on.xp.concat([part(tile) for tile in self.row_tiles()] or [part(slice(0, 0))])

    @property
    def row_numbers(self) -> Any:
        """(G,) the rows' numbers among all."""
        return self.on.xp.arange(self.data.first, self.data.first + self.data.n_features, dtype=np.intp)

    def row_chunks(self) -> Iterator[slice]:
        """Slices of rows to work on one at a time, so that no second matrix of the size of the data is made."""
        return self.data.chunks()

    def start_matrix(self) -> Any:
        """The data as starts see them."""
        own = SparseStartMatrix if self.data.is_sparse and not self.data.is_part else StartMatrix
        return own(self.data)

    def start_normals(self, n: int, size: float, stream: RowStream) -> Array:
        """Loadings (G, n) of a start: normals with this standard deviation, by counter."""
        xp, (key, sweep) = self.on.xp, stream_words(stream)
        every, parts = self.row_numbers, []
        for rows in self.row_chunks():
            pair = uniform_pair(xp.arange(n), every[rows, None], sweep, STREAM_L, key, xp)
            parts.append(size * normal_from(*pair, xp))
        together: Array = xp.concat(parts) if parts else xp.zeros((0, n))
        return together

    def start_turn(self, L: Array, T: Array) -> Array:
        """Loadings L T; T: (r, any)."""
        turned: Array = self.by_tile(lambda own: L[own] @ T)
        return turned

    def start_join(self, L: Array, more: Array) -> Array:
        """Loadings on the factors of both."""
        joined: Array = self.on.xp.concat([L, more], axis=1)
        return joined

    def start_products(self, L: Array) -> Array:
        """(r, r) L'L."""
        return np.asarray(self.over_tiles(lambda own: (L[own].T @ L[own],))[0])

    def start_bend(self, L: Array, T: Array, how: Bend) -> tuple[Array, Array]:
        """(r, q) L'g(L T) and (q,) sums over the rows of g'(L T), g the cube or the hyperbolic tangent; T: (r, q)."""
        xp = self.on.xp

        def part(own: slice) -> tuple[Array, Array]:
            x = L[own] @ T
            if how == "cube":
                square = x * x
                return L[own].T @ (square * x), 3.0 * square.sum(axis=0)
            g = xp.tanh(x)
            return L[own].T @ g, (1.0 - g * g).sum(axis=0)

        bent, slopes = self.over_tiles(part)
        return bent, slopes
