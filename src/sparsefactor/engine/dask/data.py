"""Data of which the workers have the values: read by them from a source, or sent to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checks import checked_flag
from ...data import Data, as_data
from ...data.known import Source
from ...data.making import Look, checked_dtype, judged, refuse_constant
from ...data.matrix import BY_ROW
from ...data.reading_blocks import Held
from ...data.sources import source_of
from ...data.tiles import Tree
from ...executors import aligned, check_client, gathered, submit
from ...explained import fit_parts
from ...names import checked_names
from .blocks import Block, Outcome
from .futures import Cluster, Parts, block_bounds

# ---- on a worker ----------------------------------------------------------------------------------------------------


def block_of(data: Data) -> Block:
    return Block(aligned(data))


def read(source: Source, first: int, last: int, dtype: Any) -> Held:
    """Some features of a source, in memory."""
    return Held(source, first, last, dtype, InMemory())


class InMemory:
    """In the place of a `Spool`."""

    def empty(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        return np.zeros(shape, dtype)

    def release(self, array: Any) -> None: ...

    def ahead(self, array: Any) -> None: ...


def look(held: Held) -> Look:
    return held.look()


def prepare(held: Held, first: int, n_rows: int, settings: tuple[bool, bool, bool]) -> tuple[Block, Any]:
    """Features centred and scaled; offsets, scales, largest magnitudes. settings: whether complete, center, scale."""
    own = copy(held)
    own.values = np.array(held.values)  # which are written over
    Y, observed, offset, spread, biggest = own.prepared(*settings)
    G, N = Y.shape
    data = Data(Y, observed, offset, np.arange(G), np.arange(N), scale=spread, first=first, n_rows=n_rows)
    return Block(data), (offset, spread, biggest)


def first_of(pair: tuple[Any, Any]) -> Any:
    return pair[0]


def second_of(pair: tuple[Any, Any]) -> Any:
    return pair[1]


def divide(block: Block, unit: float) -> Block:
    return Block(block.data.divided(unit))


def measured(data: Data) -> dict[str, Any]:
    """What is measured of some rows of a matrix; sums over rows as branches of the tree."""
    by_row = {name: getattr(data, name) for name in BY_ROW}
    seen = None if data.observed is None else sum(data.observed[rows].sum(axis=0) for rows in data.chunks())
    found = data.measures
    return by_row | {"column_ss": found.column_ss, "column_count": seen, "biggest": found.biggest}


def with_design(block: Block, design: Any) -> Data:
    """The data less what a design explains, or as they are."""
    return block.data if design is None else replace(block.data, design=design).residual()


def measure(block: Block, design: Any) -> dict[str, Any]:
    return measured(with_design(block, design))


def squares(block: Block, design: Any, biggest: float) -> list[float]:
    """What chunks of rows add to the sum of squares of the data over `biggest`."""
    return with_design(block, design).chunk_squares(biggest)


def measure_without(block: Block, L: Any, F: Any) -> dict[str, Any]:
    """What is measured of each row of the data less L F."""
    left = block.data.without(L, F)
    return {name: getattr(left, name) for name in BY_ROW}


def fit_part(
    block: Block, off: Any, L: Any, F: Any, group: Any, n_groups: int, divisors: list[float], *tallies: Outcome
) -> Any:
    """What some rows add to what fits explain: those of L and F, or sums over draws and their divisors.

    off: whose product is to be taken off the data first.
    """
    signals = [
        lambda rows, total=tally.kept, divisor=divisor: total[:, rows].T / divisor
        for tally, divisor in zip(tallies, divisors, strict=True)
    ]
    off, L, F, group = (aligned(value) for value in (off, L, F, group))
    data = block.data if off is None else block.data.without(*off)
    return fit_parts(data, signals or None, L, F, group, n_groups)


def values(block: Block, which: str, rows: slice) -> NDArray[Any]:
    return np.array(getattr(block.data, which)[rows])


# ---- on the client --------------------------------------------------------------------------------------------------


class RemoteRows:
    """The matrix Y, or its mask, of which the workers have the rows: those asked for are fetched."""

    def __init__(self, cluster: Cluster, dtype: Any, which: str) -> None:
        self.cluster, self.shape, self.dtype, self.which = cluster, cluster.shape, np.dtype(dtype), which
        self.itemsize, self.ndim = self.dtype.itemsize, 2

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: Any) -> NDArray[Any]:
        """Rows by a slice, one row by its number, or either and then columns."""
        rows, *rest = place if isinstance(place, tuple) else (place,)
        if not isinstance(rows, slice):
            return np.asarray(self[int(rows) : int(rows) + 1][0][tuple(rest)] if rest else self[rows : rows + 1][0])
        first, last, _ = rows.indices(self.shape[0])
        client, asked = self.cluster.client, []
        for block, own in zip(self.cluster.blocks, self.cluster.bounds, strict=True):
            begin, end = max(first, own.start), min(last, own.stop)
            if begin < end:
                part = slice(begin - own.start, end - own.start)
                asked.append(submit(client, values, block, self.which, part, name="values"))
        whole = np.concatenate(gathered(client, asked)) if asked else np.zeros((0, self.shape[1]), self.dtype)
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

    def divided(self, unit: float) -> Data:
        cluster = copy(self.cluster)
        cluster.blocks = cluster.map(divide, cluster.blocks, [unit] * len(cluster.bounds), name="divide")
        own: Any = {"Y": RemoteRows(cluster, self.Y.dtype, "Y"), "unit": self.unit * unit, "cluster": cluster}
        return with_measures(replace(self, **own), None)

    def here(self) -> Data:
        own = {field.name: getattr(self, field.name) for field in fields(Data)}
        arrays: Any = {"Y": self.Y[:], "observed": None if self.observed is None else self.observed[:]}
        return Data(**(own | arrays)).knowing(self)

    def residual(self) -> Data:
        return with_measures(replace(self, design=None), self.design)

    def fit_parts(
        self, L: NDArray[np.float64], F: NDArray[np.float64], group: Any, tallies: Sequence[tuple[Parts, float]] = ()
    ) -> tuple[Any, list[Any]]:
        """As `explained.fit_parts` of all rows, each block its own; tallies: fits as sums that the blocks have."""
        cluster: Cluster = self.cluster
        bounds, n_groups = cluster.bounds, 1 if group is None else int(group.max()) + 1
        off = [None if self.off is None else (self.off[0][rows], self.off[1]) for rows in bounds]
        own = [L[:, rows] for rows in bounds], cluster.shared(F, "activations")
        groups = [None if group is None else group[rows] for rows in bounds], [n_groups] * len(bounds)
        sums = [[divisor for _, divisor in tallies]] * len(bounds), *(tally.futures for tally, _ in tallies)
        parts = cluster.each(fit_part, off, *own, *groups, *sums, name="explained")
        return np.concatenate([part[0] for part in parts], axis=2), [node for part in parts for node in part[1]]

    def without(self, L: NDArray[np.float64], F: NDArray[np.float64]) -> Data:
        left: Any = Less(self.Y, self.observed, L, F)
        new = replace(self, Y=left, design=None, off=(L, F))
        own = [L[rows] for rows in self.cluster.bounds]
        parts = self.cluster.each(measure_without, own, self.cluster.shared(F, "activations"), name="measure")
        vars(new).update({name: np.concatenate([part[name] for part in parts]) for name in BY_ROW})
        return new


def with_measures(data: ClusterData, design: Any) -> ClusterData:
    """Data that know what the blocks have measured of them, less what a design explains."""
    cluster, own = data.cluster, vars(data)
    n = len(cluster.bounds)
    parts = cluster.each(measure, [design] * n, name="measure")
    for name in BY_ROW:
        own[name] = np.concatenate([part[name] for part in parts])
    own["column_ss"] = np.asarray(Tree(node for part in parts for node in part["column_ss"]).total()[0])
    if parts[0]["column_count"] is None:
        own["column_count"] = np.full(data.n_samples, float(data.n_features))
    else:
        own["column_count"] = np.asarray(sum(part["column_count"] for part in parts), dtype=np.float64)
    biggest = max(part["biggest"] for part in parts)
    own["unit_scale"] = 1.0
    if biggest:
        each = cluster.each(squares, [design] * n, [biggest] * n, name="measure")
        total = sum([value for part in each for value in part])
        own["unit_scale"] = biggest * float(np.sqrt(total / data.n_observed))
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
    parts = read_by(cluster, source, dtype)
    complete = judged(look_of(cluster, parts), features, samples)
    if not complete and cluster.bounds != block_bounds(G, N, len(cluster.bounds), masked=True):
        # Whether entries are missing is known once they are read; rows are then dealt out otherwise.
        del parts
        cluster = Cluster(client, (G, N), masked=True)
        parts = read_by(cluster, source, dtype)
    n = len(cluster.bounds)
    first, settings = [rows.start for rows in cluster.bounds], (complete, center, scale)
    prepared = cluster.map(prepare, parts, first, [G] * n, [settings] * n, name="prepare")
    cluster.blocks = cluster.map(first_of, prepared, name="block")
    facts = gathered(client, cluster.map(second_of, prepared, name="facts"))
    offset, spread, biggest = (np.concatenate(each) for each in zip(*facts, strict=True))
    if center:
        refuse_constant(biggest, offset)
    Y: Any = RemoteRows(cluster, dtype, "Y")
    mask: Any = None if complete else RemoteRows(cluster, np.bool_, "observed")
    return with_measures(ClusterData(Y, mask, offset, features, samples, scale=spread, cluster=cluster), None)


def read_by(cluster: Cluster, source: Source, dtype: Any) -> list[Any]:
    """Futures of each block's features."""
    n, bounds = len(cluster.bounds), cluster.bounds
    ends = [rows.start for rows in bounds], [rows.stop for rows in bounds]
    return cluster.map(read, [source] * n, *ends, [dtype] * n, name="read")


def look_of(cluster: Cluster, parts: list[Any]) -> Look:
    """What a source's matrix is like."""
    return reduce(Look.joined, gathered(cluster.client, cluster.map(look, parts, name="look")))


def sent(client: Any, data: Data) -> Cluster:
    """The data of this process, each worker's rows of them sent to it."""
    cluster = Cluster(client, (data.n_features, data.n_samples), masked=not data.is_complete)
    parts = [replace(data.part(rows), spool=None).knowing(data) for rows in cluster.bounds]
    cluster.blocks = cluster.map(block_of, parts, name="block")
    return cluster
