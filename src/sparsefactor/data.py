"""The border: everything a user passes as X becomes one `Data`, checked once, transposed once.

Inside the package the data matrix is the paper's Y: G features by N samples, zero where an entry is missing.
With zeros there, the two products Y F' and (tau L)' Y need no mask; only Gram matrices do (docs/math.md, 4.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .annotated import READERS, Read
from .checks import checked_flag
from .computed import computed
from .containers import ARRAY, container_of, from_xarray
from .design import FLAT, Design, design_of
from .names import checked_names, shown

# Squares of the entries and their sums over a matrix must stay inside float64's range.
LARGEST_MAGNITUDE = 1e150
CHUNK_ENTRIES = 1_000_000
ORDINARY = (1e-3, 1e3)  # root mean squares at which data are taken as they are


@dataclass(frozen=True)
class Data:
    """A checked data matrix in the paper's orientation.

    Y: (G, N), C-contiguous, 0 where missing. observed: (G, N) bool, or None when complete.
    offset, scale: (G,), what centring took away and scaling divided by. unit: what all of Y was divided by besides, a
    power of two, so that no digit is lost. Names are strings, or integers when the user gave none.
    """

    Y: NDArray[np.floating]
    observed: NDArray[np.bool_] | None
    offset: NDArray[np.float64]
    feature_names: NDArray[Any]
    sample_names: NDArray[Any]
    container: tuple[str, ...] = ARRAY  # what X came as
    scale: Any = None  # filled with ones where nothing was scaled
    unit: float = 1.0
    design: Design | None = None  # directions in the space of samples that the model holds fixed

    def __post_init__(self) -> None:
        if self.scale is None:
            object.__setattr__(self, "scale", np.ones(len(self.Y)))

    @property
    def n_features(self) -> int:
        return self.Y.shape[0]

    @property
    def n_samples(self) -> int:
        return self.Y.shape[1]

    @property
    def is_single(self) -> bool:
        """Whether Y is of single precision."""
        return self.Y.dtype != np.float64

    @property
    def is_complete(self) -> bool:
        return self.observed is None

    @computed
    def row_count(self) -> NDArray[np.float64]:
        """(G,) observed entries of each feature."""
        if self.observed is None:
            return np.full(self.n_features, float(self.n_samples))
        return self.observed.sum(axis=1, dtype=np.float64)

    @computed
    def column_count(self) -> NDArray[np.float64]:
        """(N,) observed entries of each sample."""
        if self.observed is None:
            return np.full(self.n_samples, float(self.n_features))
        return self.observed.sum(axis=0, dtype=np.float64)

    @computed
    def n_observed(self) -> float:
        return float(self.row_count.sum())

    @computed
    def row_ss(self) -> NDArray[np.float64]:
        """(G,) sum of squares of each feature."""
        return np.einsum("ij,ij->i", self.Y, self.Y, dtype=np.float64)

    @computed
    def centred_ss(self) -> NDArray[np.float64]:
        """(G,) sum of squares of each feature around its mean; 0 where nothing but rounding is left."""
        total, largest = np.empty(self.n_features), np.empty(self.n_features)
        for rows in self.chunks():
            mean = self.Y[rows].sum(axis=1, dtype=np.float64) / self.row_count[rows]
            apart = self.Y[rows] - mean[:, None]
            total[rows] = np.sum(apart**2, axis=1, where=True if self.observed is None else self.observed[rows])
            largest[rows] = np.abs(self.Y[rows]).max(axis=1)
        rounding = 8 * np.finfo(self.Y.dtype).eps * (largest + np.abs(self.offset))
        return np.where(total > self.row_count * rounding**2, total, 0.0)

    @computed
    def column_ss(self) -> NDArray[np.float64]:
        """(N,) sum of squares of each sample."""
        return np.einsum("ij,ij->j", self.Y, self.Y, dtype=np.float64)

    @computed
    def unit_scale(self) -> float:
        """Root mean square of the observed entries; 1 for all-zero data."""
        biggest = max(float(self.Y.max()), -float(self.Y.min()))
        if biggest == 0.0:
            return 1.0
        total = sum(float(np.sum((self.Y[rows] / biggest) ** 2)) for rows in self.chunks())
        return biggest * float(np.sqrt(total / self.n_observed))

    def at_ordinary_size(self) -> Data:
        """The same data, divided by a power of two where products of squares might leave float64's range."""
        if ORDINARY[0] <= self.unit_scale <= ORDINARY[1]:
            return self
        unit = 2.0 ** round(np.log2(self.unit_scale))
        return replace(self, Y=self.Y / self.Y.dtype.type(unit), unit=self.unit * unit)

    def refuse_lost_digits(self) -> None:
        """Refuse features that vary so little beside their mean that sums of squares would not show it."""
        mean = self.Y.sum(axis=1, dtype=np.float64) / self.row_count
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
        return self if design is None else replace(self, design=design)

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

    def less(self, base: NDArray[np.float64]) -> Data:
        """The data without what loadings (G, d) on the design's directions explain, and without a design."""
        return self if self.design is None else self.without(base @ self.design.basis)

    def without(self, part: NDArray[np.float64]) -> Data:
        """The data less (G, N) of them, without a design."""
        Y = (self.Y - part).astype(self.Y.dtype)
        if self.observed is not None:
            Y[~self.observed] = 0.0
        return replace(self, Y=Y, design=None)

    def joined(self, L: NDArray[np.float64], F: NDArray[np.float64], base: NDArray[np.float64]) -> Any:
        """L (G, K + d) and F (K + d, N), the design's directions behind the factors."""
        return (L, F) if self.design is None else (np.hstack([L, base]), np.vstack([F, self.design.basis]))

    def chunks(self) -> Iterator[slice]:
        return chunks_of(self.Y)

    def column_rss(self, L: NDArray[np.float64], F: NDArray[np.float64]) -> NDArray[np.float64]:
        """(N,) sum over observed features of (Y - L F)^2; L: (G, K), F: (K, N)."""
        total = np.zeros(self.n_samples)
        for rows in self.chunks():
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


def as_data(X: Any, *, center: bool = False, scale: bool = False, dtype: Any = np.float64) -> Data:
    """Check X (n_samples, n_features; NaN = missing) and return it as `Data`.

    Takes a NumPy array, a pandas or polars frame, an xarray DataArray (either way round, by its dims' names), a SciPy
    sparse matrix (its zeros are data), an AnnData, a MuData, or a `Data` (returned as it is).
    center: subtract each feature's mean. scale: divide by its standard deviation (about zero where not centred).
    """
    if isinstance(X, Data):
        return X
    center, scale = checked_flag("center", center), checked_flag("scale", scale)
    dtype = _checked_dtype(dtype)
    values, samples, features, fresh = read_matrix(X, dtype)
    n_samples, n_features = values.shape
    complete = _check_values(values, features, samples)

    if fresh and values.dtype == dtype and values.T.flags.c_contiguous:
        Y = values.T  # read block by block into what is held: no second copy
    else:
        Y = np.array(values.T, dtype=dtype, order="C")
    if Y.dtype != values.dtype and np.isinf(Y).any():
        raise ValueError(f"entries must lie in the range of {np.dtype(dtype)}; some do not; rescale X, or use float64")
    observed = None
    if not complete:
        observed = ~np.isnan(Y)
        np.nan_to_num(Y, copy=False, nan=0.0)

    offset = np.zeros(n_features)
    if center:
        offset = _centred(Y, values.T, observed)
        if not np.any(_largest(Y) > 1e-12 * np.abs(offset)):
            raise ValueError(
                "data must vary: after centring, every observed entry is zero, since each feature is constant; "
                "pass center=False, or check that X has samples as rows and features as columns"
            )
    return Data(
        Y=Y,
        observed=observed,
        offset=offset,
        feature_names=features,
        sample_names=samples,
        container=container_of(X),
        scale=_scaled(Y, offset, observed, n_samples) if scale else None,
    )


def read_matrix(X: Any, dtype: Any = np.float64) -> Read:
    """The values of X (n_samples, n_features) as floating-point numbers, and the names of samples and features.

    dtype: of what is made dense; what is dense already keeps its own.
    """
    given = _values_and_names(X, dtype)
    values = _as_float_matrix(given.values)
    samples = checked_names(given.samples, values.shape[0], "sample")
    return Read(values, samples, checked_names(given.features, values.shape[1], "feature"), given.fresh)


def _centred(
    Y: NDArray[np.floating], values: NDArray[np.floating], observed: NDArray[np.bool_] | None
) -> NDArray[np.float64]:
    """Take each row's mean from Y, in place, in double precision whatever Y's; the means.

    In two steps: the first mean carries the rounding of a sum of large numbers, the second that of the rest alone.
    """
    offset = np.zeros(len(Y))
    for i, row in enumerate(values):
        seen = slice(None) if observed is None else observed[i]
        own = np.asarray(row[seen], dtype=np.float64)
        mean = own.mean()
        rest = own - mean
        second = rest.mean()
        Y[i, seen] = rest - second
        offset[i] = mean + second
    return offset


def _largest(Y: NDArray[np.floating]) -> NDArray[np.float64]:
    """(G,) the largest magnitude in each row."""
    return np.maximum(Y.max(axis=1), -Y.min(axis=1)).astype(np.float64)


def chunks_of(Y: NDArray[np.floating]) -> Iterator[slice]:
    """Slices of rows of about CHUNK_ENTRIES entries, so that work on the matrix needs no second copy of it."""
    step = max(1, CHUNK_ENTRIES // max(1, Y.shape[1]))
    return (slice(begin, begin + step) for begin in range(0, len(Y), step))


def _scaled(
    Y: NDArray[np.floating], offset: NDArray[np.float64], observed: NDArray[np.bool_] | None, n_samples: int
) -> NDArray[np.float64]:
    """Divide each row of Y by its root mean square, in place; a row that does not vary stays as it is."""
    biggest = _largest(Y)
    varies = biggest > 1e-12 * np.abs(offset)
    biggest = np.where(varies, biggest, 1.0)
    square = np.empty(len(Y))
    for rows in chunks_of(Y):
        part = Y[rows] / biggest[rows, None].astype(Y.dtype)
        square[rows] = np.einsum("ij,ij->i", part, part, dtype=np.float64)
    counts = n_samples if observed is None else observed.sum(axis=1)
    spread = np.where(varies, biggest * np.sqrt(np.where(varies, square, 1.0) / counts), 1.0)
    Y /= spread[:, None].astype(Y.dtype)
    return spread


def _values_and_names(X: Any, dtype: Any) -> Read:
    """Split a frame into values, sample names and feature names (None where there are none)."""
    if isinstance(X, Read):
        return X
    module = type(X).__module__.split(".")[0]
    if module == "pandas":
        if not hasattr(X, "columns"):
            raise ValueError(
                f"X must be two-dimensional (samples by features); got a {type(X).__name__}; use X.to_frame()"
            )
        bad = [str(name) for name, kind in zip(X.columns, X.dtypes, strict=True) if kind.kind not in "fiub"]
        if bad:
            raise TypeError(f"every column of X must be numeric; column {shown(bad[0])!r} is not; drop or encode it")
        named_rows = not _is_default_index(X.index)
        named_columns = not _is_default_index(X.columns)
        rows = list(X.index) if named_rows else None
        columns = list(X.columns) if named_columns else None
        return Read(X.to_numpy(dtype=np.float64, na_value=np.nan), rows, columns)
    if module == "polars":
        if type(X).__name__ != "DataFrame":
            raise TypeError(
                f"X must be a polars DataFrame; got a {type(X).__name__}; call .collect() or .to_frame() first"
            )
        bad = [name for name, kind in X.schema.items() if not (kind.is_numeric() or str(kind) in ("Boolean", "Null"))]
        if bad:
            raise TypeError(f"every column of X must be numeric; column {shown(bad[0])!r} is not; drop or encode it")
        columns_as_float = [X[name].cast(float).to_numpy() for name in X.columns]
        stacked = np.column_stack(columns_as_float) if columns_as_float else np.empty((X.height, 0))
        return Read(stacked, None, list(X.columns))
    if module == "xarray":
        return Read(*from_xarray(X))
    if module in READERS:
        return READERS[module](X, dtype)
    if isinstance(X, np.ma.MaskedArray):
        return Read(np.ma.filled(X.astype(np.float64), np.nan))
    return Read(X)


def _is_default_index(index: Any) -> bool:
    return index.dtype.kind in "iu" and bool(np.array_equal(np.asarray(index), np.arange(len(index))))


def _as_float_matrix(values: Any) -> NDArray[np.floating]:
    try:
        array = np.asarray(values)
    except ValueError as problem:
        raise ValueError(f"X must be a rectangular matrix (samples by features); {problem}") from None
    if array.dtype.kind == "O" and array.ndim:
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError) as problem:
            raise TypeError(
                f"X must be numeric; got values of type object ({problem}); convert them to float"
            ) from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"X must be real and numeric; got dtype {array.dtype}; convert it to float")
    if array.ndim != 2:
        raise ValueError(
            f"X must be two-dimensional (samples by features); got {array.ndim} dimension(s), shape {array.shape}; "
            "reshape it, e.g. X.reshape(1, -1) for one sample"
        )
    if array.shape[0] < 1 or array.shape[1] < 1:
        raise ValueError(f"X must have at least one sample and one feature; got shape {array.shape}; pass some data")
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _checked_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        chosen = np.dtype(dtype)
    except TypeError:
        chosen = None
    if chosen not in (np.float64, np.float32):
        raise ValueError(f"dtype must be float64 or float32; got {dtype!r}; leave it out") from None
    return chosen


def _check_values(values: NDArray[np.floating], features: NDArray[Any], samples: NDArray[Any]) -> bool:
    """Refuse what cannot be fitted, looking at a part of the matrix at a time; whether no entry is missing."""
    turned = not values.flags.c_contiguous  # parts lie along memory
    lines = values.T if turned else values
    counts = np.zeros(len(lines), dtype=np.intp), np.zeros(lines.shape[1], dtype=np.intp)
    low, high, infinite, first = np.inf, -np.inf, 0, (0, 0)
    step = max(1, CHUNK_ENTRIES // lines.shape[1])
    for begin in range(0, len(lines), step):
        part = lines[begin : begin + step]
        missing = np.isnan(part)
        counts[0][begin : begin + step] = missing.sum(axis=1)
        counts[1][:] += missing.sum(axis=0)
        low, high = (
            float(fold(found, fold.reduce(part, axis=None))) for fold, found in ((np.fmin, low), (np.fmax, high))
        )
        if np.isinf([low, high]).any() and (strange := np.isinf(part)).any():
            row, column = np.argwhere(strange)[0]
            first = first if infinite else (int(begin + row), int(column))
            infinite += int(strange.sum())
    if infinite:
        row, column = first[::-1] if turned else first
        raise ValueError(
            f"X must be finite (NaN marks a missing entry); {infinite} entries are infinite, the first at "
            f"sample {shown(samples[row])}, feature {shown(features[column])}; replace them by NaN or by numbers"
        )
    by_sample, by_feature = counts[::-1] if turned else counts
    for empty, names, what in (
        (by_feature == len(samples), features, "feature"),
        (by_sample == len(features), samples, "sample"),
    ):
        if empty.any():
            raise ValueError(
                f"every {what} must have at least one observed entry; {what} {shown(names[int(np.argmax(empty))])} has "
                f"none ({int(empty.sum())} such in all); drop them"
            )
    if low == high:
        raise ValueError(f"data must vary; every observed entry equals {low:g}; check how X was made")
    if max(-low, high) > LARGEST_MAGNITUDE:
        raise ValueError(
            f"entries must not exceed {LARGEST_MAGNITUDE:g} in magnitude, since their squares are summed; "
            f"got {max(-low, high):g}; rescale X"
        )
    return not by_feature.any()
