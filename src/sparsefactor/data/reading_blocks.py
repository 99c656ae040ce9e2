"""A source's matrix as `Data` in files: read once, a part at a time, laid out by feature, centred and scaled there."""

from __future__ import annotations

import logging
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import out_of_range
from ..names import checked_names
from .known import Source
from .making import Look, centred, judged, largest, look_at, refuse_constant, scaled
from .matrix import Data, chunks_of
from .spool import Spool
from .tiles import slices

logger = logging.getLogger("sparsefactor")

LOOK_ENTRIES = 16_000_000  # that are looked at together
AHEAD = 16  # chunks that are read ahead


class Held:
    """Some of a source's features before they are centred, in files or where else a spool has them."""

    def __init__(self, source: Source, first: int, last: int, dtype: Any, spool: Any = None) -> None:
        self.spool, self.dtype = Spool() if spool is None else spool, np.dtype(dtype)
        single = source.dtype.kind == "f" and source.dtype.itemsize <= 4
        # Means are taken from the values as they are given, so these are kept until then.
        exact = np.dtype(np.float32 if single and self.dtype == np.float32 else np.float64)
        shape = (last - first, source.shape[0])
        self.values = self.spool.empty(shape, exact)
        logger.info("reading features %d to %d of %d", first + 1, last, source.shape[1])
        source.fill(self.values.T, first, last, self.release)

    def __sizeof__(self) -> int:
        return int(self.values.nbytes)

    def release(self) -> None:
        """What is in memory of the files may leave it."""
        self.spool.release(self.values)

    def look(self) -> Look:
        """A few features at a time."""
        looks, (G, N) = [], self.values.shape
        for rows in slices(0, G, max(1, LOOK_ENTRIES // N)):
            self.spool.ahead(self.values[rows.stop : 2 * rows.stop - rows.start])
            looks.append(look_at(self.values[rows].T))
            self.spool.release(self.values[rows])
        return reduce(Look.joined, looks)

    def prepared(
        self, complete: bool, center: bool, scale: bool
    ) -> tuple[NDArray[Any], Any, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Y, the mask, offsets, scales and (G,) largest magnitudes after centring."""
        G, N = self.values.shape
        Y = self.values if self.dtype == self.values.dtype else self.spool.empty((G, N), self.dtype)
        observed = None if complete else self.spool.empty((G, N), np.bool_)
        offset, spread, biggest = np.zeros(G), np.ones(G), np.zeros(G)
        for rows in chunks_of(Y):
            values, further = self.values[rows], AHEAD * (rows.stop - rows.start)
            self.spool.ahead(self.values[rows.start + further : rows.stop + further])
            seen = None
            if observed is not None:
                observed[rows] = ~np.isnan(values)
                seen = observed[rows]
            with np.errstate(over="ignore"):
                part = values.astype(self.dtype)
            if part.dtype != values.dtype and np.isinf(part).any():
                raise out_of_range(self.dtype)
            np.nan_to_num(part, copy=False, nan=0.0)
            if center:
                offset[rows] = centred(part, values, seen)
            biggest[rows] = largest(part)
            if scale:
                spread[rows] = scaled(part, offset[rows], seen, N)
            Y[rows] = part
            for array in (Y, self.values, observed):
                if array is not None:
                    self.spool.release(array[rows])
        self.values = Y
        return Y, observed, offset, spread, biggest


def spooled(source: Source, *, center: bool, scale: bool, dtype: Any) -> Data:
    """All of a source, in files."""
    samples = checked_names(source.samples, source.shape[0], "sample")
    features = checked_names(source.features, source.shape[1], "feature")
    held = Held(source, 0, source.shape[1], dtype)
    complete = judged(held.look(), features, samples)
    Y, observed, offset, spread, biggest = held.prepared(complete, center, scale)
    if center:
        refuse_constant(biggest, offset)
    return Data(
        Y=Y,
        observed=observed,
        offset=offset,
        feature_names=features,
        sample_names=samples,
        scale=spread,
        spool=held.spool,
    )
