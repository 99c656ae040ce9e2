"""The data matrix inside the package: the paper's Y, G features by N samples, zero where an entry is missing.

With zeros there, the two products Y F' and (tau L)' Y need no mask; only Gram matrices do (math.md, 4.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..computed import computed
from ..containers import ARRAY
from ..design import FLAT, Design, design_of
from .measures import Measures, measures_of
from .sparse import SparseRows
from .tiles import Tree, slices, tile_rows

CHUNK_ENTRIES = 1_000_000
# What is computed of the whole matrix, and of each row.
OF_THE_WHOLE = ("n_observed", "column_count", "column_ss", "unit_scale")
BY_ROW = ("row_count", "row_sum", "row_ss", "centred_ss")
ORDINARY = (1e-3, 1e3)  # root mean squares at which data are taken as they are
SMALLEST = 1e-151  # root mean square: one over its square, the unit of precisions, must be inside float64's range


@dataclass(frozen=True)
class Data:
    """A checked data matrix in the paper's orientation.

    Y: (G, N), C-contiguous, 0 where missing; or `SparseRows`, of complete data alone.
    observed: (G, N) bool, or None when complete.
    offset, scale: (G,), what centring took away and scaling divided by. unit: what all of Y was divided by besides, a
    power of two, so that no digit is lost. Names are strings, or integers when the user gave none.
    """

    Y: Any
    observed: NDArray[np.bool_] | None
    offset: NDArray[np.float64]
    feature_names: NDArray[Any]
    sample_names: NDArray[Any]
    container: tuple[str, ...] = ARRAY  # what X came as
    scale: Any = None  # filled with ones where nothing was scaled
    unit: float = 1.0
    design: Design | None = None  # directions in the space of samples that the model holds fixed
    # Of a part of a larger matrix: the number of its first row, with which a tile begins, and all rows there are.
    first: int = 0
    n_rows: int | None = None
    spool: Any = None  # the files that hold Y and the mask, where they are not in memory: see data/spool.py

    def release(self, rows: slice) -> None:
        """What was read of these rows may leave memory."""
        if self.spool is not None:
            for array in (self.Y, self.observed):
                if array is not None:
                    self.spool.release(array[rows])

    def ahead(self, rows: slice) -> None:
        """These rows are read next."""
        if self.spool is not None:
            for array in (self.Y, self.observed):
                if array is not None:
                    self.spool.ahead(array[rows])

    def __post_init__(self) -> None:
        if self.scale is None:
            object.__setattr__(self, "scale", np.ones(len(self.Y)))

    @property
    def n_features(self) -> int:
        return len(self.Y)

    @property
    def n_samples(self) -> int:
        return int(self.Y.shape[1])

    @property
    def is_single(self) -> bool:
        """Whether Y is of single precision."""
        return bool(self.Y.dtype != np.float64)

    @property
    def is_sparse(self) -> bool:
        """Whether Y is held as `SparseRows`."""
        return isinstance(self.Y, SparseRows)

    def dense(self) -> Data:
        """The same data, for whoever cannot read them sparse."""
        return replace(self, Y=self.Y.dense()) if self.is_sparse else self

    def single(self) -> Data:
        """The same data in single precision."""
        return replace(self.dense(), Y=self.dense().Y.astype(np.float32))

    @property
    def is_complete(self) -> bool:
        return self.observed is None

    @property
    def is_part(self) -> bool:
        """Whether these are some of the rows of a larger matrix."""
        return self.n_rows is not None

    @property
    def tile(self) -> int:
        """Rows per tile."""
        return tile_rows(self.n_features if self.n_rows is None else self.n_rows, self.n_samples)

    @property
    def first_tile(self) -> int:
        """The number of the first tile."""
        return self.first // self.tile

    @property
    def row_numbers(self) -> NDArray[np.intp]:
        """(G,) the rows' numbers in the whole matrix."""
        return np.arange(self.first, self.first + self.n_features)

    @computed
    def row_count(self) -> NDArray[np.float64]:
        """(G,) observed entries of each feature."""
        total = np.full(self.n_features, float(self.n_samples))
        if self.observed is not None:
            for rows in self.chunks():
                total[rows] = self.observed[rows].sum(axis=1, dtype=np.float64)
        return total

    @computed
    def column_count(self) -> NDArray[np.float64]:
        """(N,) observed entries of each sample."""
        if self.observed is None:
            return np.full(self.n_samples, float(self.n_features))
        return np.asarray(sum(self.observed[rows].sum(axis=0, dtype=np.float64) for rows in self.chunks()))

    @computed
    def n_observed(self) -> float:
        return float(self.row_count.sum())

    @computed
    def measures(self) -> Measures:
        """What one reading of the matrix tells of it."""
        return measures_of(self)

    @computed
    def row_ss(self) -> NDArray[np.float64]:
        """(G,) sum of squares of each feature."""
        return self.measures.row_ss

    @computed
    def row_sum(self) -> NDArray[np.float64]:
        """(G,) sum of each feature."""
        return self.measures.row_sum

    @computed
    def centred_ss(self) -> NDArray[np.float64]:
        """(G,) sum of squares of each feature around its mean; 0 where nothing but rounding is left."""
        return self.measures.centred_ss

    @computed
    def column_ss(self) -> NDArray[np.float64]:
        """(N,) sum of squares of each sample."""
        return np.asarray(Tree(self.measures.column_ss).total()[0])

    @computed
    def unit_scale(self) -> float:
        """Root mean square of the observed entries; 1 for all-zero data."""
        biggest = self.measures.biggest
        if biggest == 0.0:
            return 1.0
        return biggest * float(np.sqrt(sum(self.chunk_squares(biggest)) / self.n_observed))

    def chunk_squares(self, biggest: float) -> list[float]:
        """Sums of squares of each chunk of rows, all entries divided by `biggest`."""
        return [float(np.sum((self.Y[rows] / biggest) ** 2)) for rows in self.chunks()]

    def at_ordinary_size(self) -> Data:
        """The same data, divided by a power of two where products of squares might leave float64's range."""
        if ORDINARY[0] <= self.unit_scale <= ORDINARY[1]:
            return self
        if self.unit_scale < SMALLEST:
            raise ValueError(
                f"the root mean square of the data, after centring, must be at least {SMALLEST:g}, since its square is "
                f"divided by; got {self.unit_scale:.2g}; rescale X"
            )
        return self.divided(2.0 ** round(np.log2(self.unit_scale)))

    def divided(self, unit: float) -> Data:
        """The same data over `unit`."""
        if self.is_sparse:
            return replace(self, Y=self.Y / self.Y.dtype.type(unit), unit=self.unit * unit)
        Y = self.room()
        for rows in self.chunks():
            Y[rows] = self.Y[rows] / self.Y.dtype.type(unit)
        return replace(self, Y=Y, unit=self.unit * unit)

    def refuse_lost_digits(self) -> None:
        """Refuse features that vary so little beside their mean that sums of squares would not show it."""
        mean = self.row_sum / self.row_count
        variance = np.maximum(self.row_ss / self.row_count - mean**2, 0.0)
        lost = np.finfo(self.Y.dtype).eps * mean**2 > np.sqrt(np.finfo(self.Y.dtype).eps) * variance
        near = np.array(
            [
                np.ptp(self.Y[i] if self.observed is None else self.Y[i, self.observed[i]]) > 0
                for i in np.flatnonzero(lost)
            ],
            dtype=bool,
        )
        if near.any():
            name = self.feature_names[np.flatnonzero(lost)[near][0]]
            raise ValueError(
                f"a feature's mean must not drown its variation when it is not removed; that of feature {name!s} does "
                f"({int(near.sum())} such in all); pass center=True"
                + ("" if self.Y.dtype == np.float64 else ", or dtype=float64")
            )

    # ---- a design ------------------------------------------------------------------------------------------------

    def with_design(self, covariates: Any, center: bool, loadings: str = "flat") -> Data:
        """The same with covariates, and an intercept where there are holes and the data are centred."""
        design = design_of(covariates, self.sample_names, center=center, holes=not self.is_complete, loadings=loadings)
        return self if design is None else self.with_this(design)

    @property
    def base_precision(self) -> float:
        """Of the loadings on a design's directions, but for those that have a slab."""
        given = None if self.design is None else self.design.precision
        return FLAT / self.unit_scale**2 if given is None else given

    def regression(self, L: NDArray[np.float64] | None = None, F: NDArray[np.float64] | None = None) -> Any:
        """(G, d) least squares of Y - L F on the design's directions; (G, 0) where there is no design."""
        if self.design is None:
            return np.zeros((self.n_features, 0))
        C = self.design.basis
        base = np.empty((self.n_features, len(C)))
        outer = np.einsum("pj,qj->jpq", C, C).reshape(C.shape[1], -1)
        for rows in self.chunks():
            left = self.Y[rows] if L is None or F is None else self.Y[rows] - L[rows] @ F
            seen = np.ones(left.shape) if self.observed is None else self.observed[rows].astype(np.float64)
            gram = (seen @ outer).reshape(-1, len(C), len(C)) + FLAT * np.eye(len(C))
            base[rows] = np.linalg.solve(gram, ((left * seen) @ C.T)[:, :, None])[:, :, 0]
        return base

    def residual(self) -> Data:
        """The data without what their design explains by least squares, and without a design."""
        return self.less(self.regression())

    def less(self, base: NDArray[np.float64]) -> Data:
        """The data without what loadings (G, d) on the design's directions explain, and without a design."""
        return self if self.design is None else self.without(base, self.design.basis)

    def without(self, L: NDArray[np.float64], F: NDArray[np.float64]) -> Data:
        """The data less L F, without a design; L: (G, r), F: (r, N)."""
        if self.is_sparse:
            return replace(self, Y=self.Y.less(L, F), design=None)
        Y = self.room()
        for rows in self.chunks():
            Y[rows] = self.Y[rows] - L[rows] @ F
            if self.observed is not None:
                Y[rows][~self.observed[rows]] = 0.0
        return replace(self, Y=Y, design=None)

    def room(self) -> NDArray[Any]:
        """A matrix for other values of Y, where Y is: in memory, or in a file."""
        return np.empty_like(self.Y) if self.spool is None else self.spool.empty(self.Y.shape, self.Y.dtype)

    def here(self) -> Data:
        """The same data in this process, where others have them."""
        return self

    def in_memory(self) -> Data:
        """The same data, which are in no file."""
        if self.spool is None:
            return self
        observed = None if self.observed is None else np.array(self.observed)
        return replace(self, Y=np.array(self.Y), observed=observed, spool=None)

    def part(self, rows: slice) -> Data:
        """Some of the rows, which begin with a tile; what is known of the whole matrix is known of it there, too."""
        own = replace(
            self,
            Y=self.Y.part(rows) if self.is_sparse else self.Y[rows],
            observed=None if self.observed is None else self.observed[rows],
            offset=self.offset[rows],
            feature_names=self.feature_names[rows],
            scale=self.scale[rows],
            first=self.first + rows.start,
            n_rows=self.n_features if self.n_rows is None else self.n_rows,
        )
        return own.knowing(self)

    def knowing(self, whole: Data) -> Data:
        """The same, with what is known of the whole matrix that it is a part of."""
        for name in OF_THE_WHOLE:
            vars(self)[name] = getattr(whole, name)
        return self

    def without_design(self) -> Data:
        """The same without directions that are held fixed."""
        return self.with_this(None)

    def with_this(self, design: Design | None) -> Data:
        """The same with another design; what is known of the values stays known."""
        own = replace(self, design=design)
        known = (*OF_THE_WHOLE, *BY_ROW, "measures")
        vars(own).update({name: vars(self)[name] for name in known if name in vars(self)})
        return own

    def joined(self, L: NDArray[np.float64], F: NDArray[np.float64], base: NDArray[np.float64]) -> Any:
        """L (G, K + d) and F (K + d, N), the design's directions behind the factors."""
        return (L, F) if self.design is None else (np.hstack([L, base]), np.vstack([F, self.design.basis]))

    def tiles(self) -> Iterator[slice]:
        """The rows of each tile."""
        return slices(0, self.n_features, self.tile)

    def chunks(self, tile: slice | None = None) -> Iterator[slice]:
        """The rows, or a tile's, in chunks of about CHUNK_ENTRIES entries that end where a tile does."""
        step = max(1, CHUNK_ENTRIES // max(1, self.n_samples))
        for own in self.tiles() if tile is None else (tile,):
            if tile is None:
                self.ahead(slice(own.stop, own.stop + self.tile))
            yield from slices(own.start, own.stop, step)
            self.release(own)

    def column_rss(self, tile: slice, L: NDArray[np.float64], F: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N,) sum over a tile's observed features of (Y - L F)^2; L: (G, K), F: (K, N)."""
        total = np.zeros(self.n_samples)
        for rows in self.chunks(tile):
            square = (self.Y[rows] - L[rows] @ F) ** 2
            total += np.sum(square, axis=0, where=True if self.observed is None else self.observed[rows])
        return total

    def row_rss(self, L: NDArray[np.float64], F: NDArray[np.float64]) -> NDArray[np.float64]:
        """(G,) sum over observed samples of (Y - L F)^2; L: (G, K), F: (K, N)."""
        total = np.empty(self.n_features)
        for rows in self.chunks():
            square = (self.Y[rows] - L[rows] @ F) ** 2
            total[rows] = np.sum(square, axis=1, where=True if self.observed is None else self.observed[rows])
        return total


def chunks_of(Y: Any) -> Iterator[slice]:
    """Slices of rows of about CHUNK_ENTRIES entries, so that work on the matrix needs no second copy of it."""
    step = max(1, CHUNK_ENTRIES // max(1, Y.shape[1]))
    return (slice(begin, begin + step) for begin in range(0, len(Y), step))
