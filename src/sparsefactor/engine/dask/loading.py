"""Data of which the workers have the values: read by them from a source, or sent to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checks import checked_flag
from ...data import Data, as_data
from ...data.known import Source
from ...data.making import Look, checked_dtype, judged, refuse_constant
from ...data.matrix import BY_ROW, OF_THE_WHOLE
from ...data.sources import source_of
from ...data.tiles import Tree
from ...jobs import check_client
from ...names import checked_names
from .cluster import Cluster, Handle
from .messages import Kept
from .workers import shard_bounds


class Elsewhere:
    """The matrix Y, or its mask, of which the workers have the rows: those asked for are fetched."""

    def __init__(self, cluster: Cluster, shape: tuple[int, int], dtype: Any, which: int) -> None:
        self.cluster, self.shape, self.dtype, self.which = cluster, shape, np.dtype(dtype), which
        self.itemsize, self.ndim = self.dtype.itemsize, 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: Any) -> NDArray[Any]:
        """Rows by a slice, one row by its number, or either and then columns."""
        rows, *rest = place if isinstance(place, tuple) else (place,)
        if not isinstance(rows, slice):
            return np.asarray(self[int(rows) : int(rows) + 1][0][tuple(rest)] if rest else self[rows : rows + 1][0])
        first, last, _ = rows.indices(self.shape[0])
        parts = self.cluster.rows(first, last, self.which)
        whole = np.concatenate(parts) if parts else np.zeros((0, self.shape[1]), self.dtype)
        return whole[(slice(None), *rest)] if rest else whole


class Less:
    """A matrix less L F, where it is observed; its rows are fetched as they are asked for."""

    def __init__(self, Y: Any, observed: Any, L: NDArray[np.float64], F: NDArray[np.float64]) -> None:
        self.Y, self.observed, self.L, self.F = Y, observed, L, F
        self.shape, self.dtype, self.itemsize = Y.shape, Y.dtype, Y.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        left = (self.Y[rows] - self.L[rows] @ self.F).astype(self.dtype)
        if self.observed is not None:
            left[~self.observed[rows]] = 0.0
        return np.asarray(left)


@dataclass(frozen=True)
class ClusterData(Data):
    """A matrix that the workers of a cluster have."""

    cluster: Any = None
    off: Any = None  # L (G, r) and F (r, N) whose product was taken off

    def at_ordinary_size(self) -> Data:
        known = {name: getattr(self, name) for name in OF_THE_WHOLE}
        ordinary = super().at_ordinary_size()
        if ordinary is self:
            self.cluster.each("divide", [(1.0, known, self.design)] * len(self.cluster.bounds), lasting=True)
        return ordinary

    def divided(self, unit: float) -> Data:
        known = {name: getattr(self, name) for name in OF_THE_WHOLE}
        parts = self.cluster.each("divide", [(unit, known, self.design)] * len(self.cluster.bounds), lasting=True)
        new = known_from(replace(self, unit=self.unit * unit), parts)
        known = {name: getattr(new, name) for name in OF_THE_WHOLE}
        self.cluster.each("divide", [(1.0, known, self.design)] * len(self.cluster.bounds), lasting=True)
        return new

    def here(self) -> Data:
        own = {field.name: getattr(self, field.name) for field in fields(Data)}
        values: Any = {"Y": self.Y[:], "observed": None if self.observed is None else self.observed[:]}
        return Data(**(own | values)).knowing(self)

    def residual(self) -> Data:
        n = len(self.cluster.bounds)
        parts = self.cluster.each("residual", [(self.design,)] * n)
        squares = self.cluster.each("residual_squares", [(self.design, biggest_of(parts))] * n)
        return with_measures(replace(self, design=None), parts, [value for own in squares for value in own])

    def fit_parts(
        self, L: NDArray[np.float64], F: NDArray[np.float64], group: Any, tallies: Sequence[tuple[Handle, float]] = ()
    ) -> tuple[Any, list[Any]]:
        """As `explained.fit_parts` of all rows, each shard its own; tallies: fits as sums that the shards have."""
        n_groups = 1 if group is None else int(group.max()) + 1
        kept = [Kept(tally.key) for tally, _ in tallies]
        divisors = [divisor for _, divisor in tallies]

        def own(rows: slice) -> tuple[Any, ...]:
            off = None if self.off is None else (self.off[0][rows], self.off[1])
            return off, L[:, rows], F, None if group is None else group[rows], n_groups, divisors, *kept

        parts = self.cluster.each("fit_parts", [own(rows) for rows in self.cluster.bounds])
        return np.concatenate([part[0] for part in parts], axis=2), [node for part in parts for node in part[1]]

    def without(self, L: NDArray[np.float64], F: NDArray[np.float64]) -> Data:
        left: Any = Less(self.Y, self.observed, L, F)
        new = replace(self, Y=left, design=None, off=(L, F))
        parts = self.cluster.each("measured_without", [(L[rows], F) for rows in self.cluster.bounds])
        vars(new).update({name: np.concatenate([part[name] for part in parts]) for name in BY_ROW})
        return new


def biggest_of(parts: list[dict[str, Any]]) -> float:
    return max(part["biggest"] for part in parts)


def known_from(data: ClusterData, parts: list[dict[str, Any]]) -> ClusterData:
    """Data that know what the shards have measured of them."""
    biggest = biggest_of(parts)
    squares = data.cluster.each("squares", [(biggest,)] * len(data.cluster.bounds)) if biggest else []
    return with_measures(data, parts, [value for own in squares for value in own])


def with_measures(data: ClusterData, parts: list[dict[str, Any]], squares: list[float]) -> ClusterData:
    own = vars(data)
    for name in BY_ROW:
        own[name] = np.concatenate([part[name] for part in parts])
    own["column_ss"] = np.asarray(Tree(node for part in parts for node in part["column_ss"]).total()[0])
    if parts[0]["column_count"] is None:
        own["column_count"] = np.full(data.n_samples, float(data.n_features))
    else:
        own["column_count"] = np.asarray(sum(part["column_count"] for part in parts), dtype=np.float64)
    biggest = biggest_of(parts)
    own["unit_scale"] = biggest * float(np.sqrt(sum(squares) / data.n_observed)) if biggest else 1.0
    return data


def reader_on(client: Any, little: int = 0) -> Callable[..., Data]:
    """As `as_data`, for data that are to be on a client's workers; those of so few bytes are read into this process."""
    check_client(client)

    def read(X: Any, *, center: bool = False, scale: bool = False, dtype: Any = np.float64) -> Data:
        source = None if isinstance(X, Data) else source_of(X)
        if source is None:
            return as_data(X, center=center, scale=scale, dtype=dtype)  # sent when the engine is built
        if source.shape[0] * source.shape[1] * np.dtype(dtype).itemsize <= little:
            return as_data(X, center=center, scale=scale, dtype=dtype).in_memory()
        return held(client, source, checked_flag("center", center), checked_flag("scale", scale), checked_dtype(dtype))

    return read


def held(client: Any, source: Source, center: bool, scale: bool, dtype: Any) -> ClusterData:
    """A source's matrix, each worker reading its own features of it."""
    N, G = source.shape
    samples, features = checked_names(source.samples, N, "sample"), checked_names(source.features, G, "feature")
    cluster = Cluster(client, (G, N))
    complete = judged(read_by(cluster, source, dtype), features, samples)
    if not complete and cluster.bounds != shard_bounds(G, N, len(cluster.bounds), masked=True):
        # Whether entries are missing is known once they are read; rows are then dealt out otherwise.
        cluster = Cluster(client, (G, N), masked=True)
        read_by(cluster, source, dtype)
    n = len(cluster.bounds)
    parts = cluster.each("prepare", [(complete, center, scale, G)] * n, lasting=True)
    offset, spread, biggest = (np.concatenate([part[place] for part in parts]) for place in range(3))
    if center:
        refuse_constant(biggest, offset)
    Y: Any = Elsewhere(cluster, (G, N), dtype, 0)
    mask: Any = None if complete else Elsewhere(cluster, (G, N), np.bool_, 1)
    data = ClusterData(Y, mask, offset, features, samples, scale=spread, cluster=cluster)
    return known_from(data, [part[3] for part in parts])


def read_by(cluster: Cluster, source: Source, dtype: Any) -> Look:
    """What a source's matrix is like, once its features are read."""
    looks: list[Look] = cluster.each("hold", [(source, dtype, None)] * len(cluster.bounds), lasting=True)
    return reduce(Look.joined, looks)


def sent(client: Any, data: Data) -> Cluster:
    """The data of this process, each worker's rows of them sent to it."""
    cluster = Cluster(client, (data.n_features, data.n_samples), masked=not data.is_complete)
    parts = [replace(data.part(rows), spool=None) for rows in cluster.bounds]
    for part in parts:
        part.knowing(data)
    cluster.each("take", [(part,) for part in parts], lasting=True)
    return cluster
