"""From a matrix as a user has it to `Data`: the checks of its values, the only transpose, centring and scaling."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..annotated import is_sparse
from ..checks import checked_flag, out_of_range
from ..containers import container_of
from ..names import shown
from .matrix import Data, chunks_of
from .reading import read_matrix
from .sources import source_of
from .sparse import SparseRows
from .sparse_making import extremes, first_infinite, less_means, over_spreads, sparse_rows

# Squares of the entries and their sums over a matrix must stay inside float64's range.
LARGEST_MAGNITUDE = 1e150


def as_data(X: Any, *, center: bool = False, scale: bool = False, dtype: Any = np.float64) -> Data:
    """Check X (n_samples, n_features; NaN = missing) and return it as `Data`.

    Takes a NumPy array, a pandas or polars frame, an xarray DataArray (either way round, by its dims' names), a SciPy
    sparse matrix (its zeros are data, and it stays sparse unless entries are NaN), an AnnData, a MuData, or a `Data`
    (returned as it is); and, read a part at a time and held in a file, a dask array, a zarr array or path, a Parquet
    folder, or an AnnData backed by a file unless it is sparse there.
    center: subtract each feature's mean. scale: divide by its standard deviation (about zero where not centred).
    """
    if isinstance(X, Data):
        return X
    center, scale = checked_flag("center", center), checked_flag("scale", scale)
    dtype = checked_dtype(dtype)
    source = source_of(X)
    if source is not None and not is_sparse(getattr(X, "X", None)):
        from .reading_blocks import spooled

        return spooled(source, center=center, scale=scale, dtype=dtype)
    values, samples, features, fresh = read_matrix(X, dtype, sparse=True)
    if not isinstance(values, np.ndarray):
        return _sparse_data(values, samples, features, center, scale, dtype)
    n_samples, n_features = values.shape
    complete = _check_values(values, features, samples)

    if fresh and values.dtype == dtype and values.T.flags.c_contiguous:
        Y = values.T  # read block by block into what is held: no second copy
    else:
        Y = np.array(values.T, dtype=dtype, order="C")
    observed = None
    if not complete:
        observed = ~np.isnan(Y)
        Y[~observed] = 0.0
    if Y.dtype != values.dtype and (np.isinf(Y).any() or not Y.any()):  # beyond the largest number, or below all
        raise out_of_range(np.dtype(dtype))

    offset = np.zeros(n_features)
    if center:
        offset = centred(Y, values.T, observed)
        refuse_constant(largest(Y), offset)
    return Data(
        Y=Y,
        observed=observed,
        offset=offset,
        feature_names=features,
        sample_names=samples,
        container=container_of(X),
        scale=scaled(Y, offset, observed, n_samples) if scale else None,
    )


def is_in_memory(X: Any) -> bool:
    """Whether `as_data` has all of X in the memory of this process."""
    if isinstance(X, Data):
        return X.spool is None and isinstance(X.Y, np.ndarray | SparseRows)
    return source_of(X) is None or is_sparse(getattr(X, "X", None))


def _sparse_data(
    matrix: Any, samples: NDArray[Any], features: NDArray[Any], center: bool, scale: bool, dtype: Any
) -> Data:
    """Of a SciPy matrix in columns, complete, which stays sparse."""
    Y, offset, spread = sparse_rows(matrix, dtype), np.zeros(len(features)), None
    low, high = extremes(Y)
    if np.isinf([low, high]).any() and np.isfinite(matrix.data).all():
        raise out_of_range(dtype)
    none = [np.zeros(len(names), np.intp) for names in (samples, features)]
    judged(Look(none[0], none[1], low, high, *first_infinite(Y)), features, samples)
    if center:
        Y, offset = less_means(Y)
        refuse_constant(Y.largest(), offset)
    if scale:
        Y, spread = over_spreads(Y, offset)
    return Data(Y, None, offset, features, samples, scale=spread)


def refuse_constant(biggest: NDArray[np.float64], offset: NDArray[np.float64]) -> None:
    """After centring; biggest: (G,) the largest magnitude in each row."""
    if not np.any(biggest > 1e-12 * np.abs(offset)):
        raise ValueError(
            "data must vary: after centring, every observed entry is zero, since each feature is constant; "
            "pass center=False, or check that X has samples as rows and features as columns"
        )


def centred(
    Y: NDArray[np.floating], values: NDArray[np.floating], observed: NDArray[np.bool_] | None
) -> NDArray[np.float64]:
    """Take each row's mean from Y, in place, in double precision whatever Y's; the means.

    In two steps: the first mean carries the rounding of a sum of large numbers, the second that of the rest alone.
    """
    offset = np.zeros(len(Y))
    if observed is None:
        for rows in chunks_of(Y):
            own = np.array(values[rows], dtype=np.float64, order="C")
            mean = own.mean(axis=1)
            own -= mean[:, None]
            second = own.mean(axis=1)
            Y[rows] = own - second[:, None]
            offset[rows] = mean + second
        return offset
    for i, row in enumerate(values):
        seen = slice(None) if observed is None else observed[i]
        own = np.asarray(row[seen], dtype=np.float64)
        mean = own.mean()
        rest = own - mean
        second = rest.mean()
        Y[i, seen] = rest - second
        offset[i] = mean + second
    return offset


def largest(Y: NDArray[np.floating]) -> NDArray[np.float64]:
    """(G,) the largest magnitude in each row."""
    return np.maximum(Y.max(axis=1), -Y.min(axis=1)).astype(np.float64)


def scaled(
    Y: NDArray[np.floating], offset: NDArray[np.float64], observed: NDArray[np.bool_] | None, n_samples: int
) -> NDArray[np.float64]:
    """Divide each row of Y by its root mean square, in place; a row that does not vary stays as it is."""
    biggest = largest(Y)
    varies = biggest > 1e-12 * np.abs(offset)
    biggest = np.where(varies, biggest, 1.0)
    square = np.empty(len(Y))
    for rows in chunks_of(Y):
        part = Y[rows] / biggest[rows, None].astype(Y.dtype)
        wide = part.astype(np.float64)  # not by einsum, whose buffers make a row's sum depend on its neighbours
        square[rows] = np.einsum("ij,ij->i", wide, wide)
    counts = n_samples if observed is None else observed.sum(axis=1)
    spread = np.where(varies, biggest * np.sqrt(np.where(varies, square, 1.0) / counts), 1.0)
    Y /= spread[:, None].astype(Y.dtype)
    return spread


def checked_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        chosen = np.dtype(dtype)
    except TypeError:
        chosen = None
    if chosen not in (np.float64, np.float32):
        raise ValueError(f"dtype must be float64 or float32; got {dtype!r}; leave it out") from None
    return chosen


class Look(NamedTuple):
    """What the values of a matrix are like."""

    by_sample: NDArray[np.intp]  # missing entries
    by_feature: NDArray[np.intp]
    low: float
    high: float
    infinite: int  # entries
    first: tuple[int, int]  # sample and feature of the first of them

    def joined(self, more: Look) -> Look:
        """With a look at the features that follow."""
        shift = (more.first[0], more.first[1] + len(self.by_feature))
        return Look(
            self.by_sample + more.by_sample,
            np.concatenate([self.by_feature, more.by_feature]),
            float(np.fmin(self.low, more.low)),
            float(np.fmax(self.high, more.high)),
            self.infinite + more.infinite,
            self.first if self.infinite else shift,
        )


def _check_values(values: NDArray[np.floating], features: NDArray[Any], samples: NDArray[Any]) -> bool:
    """Refuse what cannot be fitted; whether no entry is missing."""
    return judged(look_at(values), features, samples)


def look_at(values: NDArray[np.floating]) -> Look:
    """At a part of the matrix at a time."""
    turned = not values.flags.c_contiguous  # parts lie along memory
    lines = values.T if turned else values
    counts = np.zeros(len(lines), dtype=np.intp), np.zeros(lines.shape[1], dtype=np.intp)
    low, high, infinite, first = np.inf, -np.inf, 0, (0, 0)
    for rows in chunks_of(lines):
        part = lines[rows]
        missing = np.isnan(part)
        counts[0][rows] = missing.sum(axis=1)
        counts[1][:] += missing.sum(axis=0)
        low, high = (
            float(fold(found, fold.reduce(part, axis=None))) for fold, found in ((np.fmin, low), (np.fmax, high))
        )
        if np.isinf([low, high]).any() and (strange := np.isinf(part)).any():
            row, column = np.argwhere(strange)[0]
            first = first if infinite else (int(rows.start + row), int(column))
            infinite += int(strange.sum())
    by_sample, by_feature = counts[::-1] if turned else counts
    return Look(by_sample, by_feature, low, high, infinite, (first[1], first[0]) if turned else first)


def judged(look: Look, features: NDArray[Any], samples: NDArray[Any]) -> bool:
    """Refuse what cannot be fitted; whether no entry is missing."""
    by_sample, by_feature, low, high, infinite, (row, column) = look
    if infinite:
        raise ValueError(
            f"X must be finite (NaN marks a missing entry); {infinite} entries are infinite, the first at "
            f"sample {shown(samples[row])}, feature {shown(features[column])}; replace them by NaN or by numbers"
        )
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
