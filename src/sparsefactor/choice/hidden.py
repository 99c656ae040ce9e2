"""Entries held out of a matrix, some features at a time: which they are follows from seed and place.

A mask is never there as a whole. It is drawn again for the features that are looked at, so that a matrix that is in
memory, in a file, or read by the workers of a cluster loses the same entries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data import read_matrix
from ..data.known import Done, Known, Source, nothing
from ..data.matrix import chunks_of
from ..data.reading_blocks import Held
from ..data.sources import source_of
from ..data.tiles import LANES, slices
from ..names import checked_names

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

UNIT = LANES  # features whose mask is drawn together: whoever holds some tiles of a matrix holds whole units


class Mask(NamedTuple):
    """A way to hold entries out; every sample and feature keeps two, or what it has.

    Two, for the spread of a feature with one entry is not known.
    """

    number: int
    seed: int
    least: Array  # (n_samples,) the ranks up to which a sample's entries stay
    counts: list[int]  # entries held out of each unit

    @property
    def total(self) -> int:
        return sum(self.counts)

    def held(self, rows: slice, observed: Bools) -> Bools:
        """(features, n_samples) which of the observed entries of one unit are held out."""
        rng, rank = self.ranks(rows, observed)
        held = np.zeros(observed.shape, dtype=bool)
        free = np.flatnonzero(self.free(rank))
        held.flat[rng.choice(free, size=self.counts[rows.start // UNIT], replace=False)] = True
        return held

    def ranks(self, rows: slice, observed: Bools) -> tuple[np.random.Generator, Array]:
        """The unit's random numbers, and the ranks of its entries; those that are missing have the last."""
        rng = np.random.default_rng([self.seed, self.number, 6, rows.start // UNIT])
        return rng, np.where(observed, rng.random(observed.shape), 2.0)

    def free(self, rank: Array) -> Bools:
        """Which entries may be held out."""
        own = np.partition(rank, min(1, rank.shape[1] - 1), axis=1)[:, min(1, rank.shape[1] - 1), None]
        return (rank < 2.0) & (rank > own) & (rank > self.least)


@dataclass
class Laid(Known):
    """A matrix laid out by feature, in memory or in a file."""

    rows: Any = None  # (n_features, n_samples) as they are
    spool: Any = None
    means: Any = 0.0  # (n_features,) taken off each feature

    @classmethod
    def of(cls, X: Any) -> tuple[Laid, Source | None]:
        """X, read once; and where it was read from, unless it was in memory."""
        source = source_of(X)
        if source is None:
            given = read_matrix(X)
            rows = np.ascontiguousarray(given.values.T, dtype=np.float64)
            return cls(given.values.shape, rows.dtype, given.samples, given.features, rows), None
        N, G = source.shape
        names = checked_names(source.samples, N, "sample"), checked_names(source.features, G, "feature")
        held = Held(source, 0, G, np.float64)
        return cls((N, G), np.dtype(np.float64), *names, held.values, held.spool), source

    def fill(self, values: NDArray[Any], first: int, last: int, done: Done = nothing) -> None:
        for part in chunks_of(self.rows[first:last]):
            own = self.rows[first:last][part]
            values[:, part] = own.T
            self.release(own)
            done()

    def release(self, rows: Array) -> None:
        if self.spool is not None:
            self.spool.release(rows)

    def units(self) -> Iterator[tuple[slice, Array]]:
        """Features whose masks are drawn together, less their means."""
        means = np.broadcast_to(self.means, self.shape[1])
        for rows in slices(0, self.shape[1], UNIT):
            yield rows, self.rows[rows] - means[rows, None]
            self.release(self.rows[rows])

    def digest(self) -> str:
        """Of all entries as they are."""
        found = hashlib.sha256()
        for rows in slices(0, self.shape[1], UNIT):
            found.update(self.rows[rows])
            self.release(self.rows[rows])
        return found.hexdigest()

    def centred(self) -> Laid:
        """Each feature less its mean over what is observed; one that is not finite stays, for the fit to refuse."""
        means = np.zeros(self.shape[1])
        with np.errstate(invalid="ignore", over="ignore"):
            for rows, values in self.units():
                seen = ~np.isnan(values)
                means[rows] = np.where(seen, values, 0.0).sum(axis=1) / np.maximum(seen.sum(axis=1), 1)
        return replace(self, means=np.where(np.isfinite(means), means, 0.0))

    def in_memory(self) -> Laid:
        """The same, which can be sent to others."""
        return self if self.spool is None else replace(self, rows=np.array(self.rows), spool=None)


@dataclass
class Hidden(Known):
    """A source less its features' means, without what a mask holds out."""

    source: Any = None
    means: Any = None  # (n_features,)
    mask: Any = None

    @classmethod
    def of(cls, laid: Laid, mask: Mask, source: Source | None = None) -> Hidden:
        """source: where to read what is laid out here, if elsewhere."""
        means = np.broadcast_to(laid.means, laid.shape[1])
        return cls(laid.shape, laid.dtype, laid.samples, laid.features, source or laid, means, mask)

    def fill(self, values: NDArray[Any], first: int, last: int, done: Done = nothing) -> None:
        self.source.fill(values, first, last, done)
        for rows in slices(first, last, UNIT):
            own = values[:, rows.start - first : rows.stop - first].T
            own -= self.means[rows, None]
            own[self.mask.held(rows, ~np.isnan(own))] = np.nan
            done()

    def whole(self) -> Array:
        """(n_samples, n_features) in memory."""
        values = np.empty(self.shape[::-1]).T
        self.fill(values, 0, self.shape[1])
        return values


def drawn(laid: Laid, n_masks: int, share: float, seed: int) -> list[Mask]:
    """Masks that hold out a share of the observed entries each."""
    masks = [Mask(m, seed, np.zeros(laid.shape[0]), []) for m in range(n_masks)]
    lowest = [np.full((2, laid.shape[0]), 2.0) for _ in masks]
    for rows, values in laid.units():
        for m, mask in enumerate(masks):
            rank = mask.ranks(rows, ~np.isnan(values))[1]
            lowest[m] = np.sort(np.vstack([lowest[m], np.sort(rank, axis=0)[:2]]), axis=0)[:2]
    masks = [mask._replace(least=own[min(1, laid.shape[1] - 1)]) for mask, own in zip(masks, lowest, strict=True)]
    observed = 0
    free: list[list[int]] = [[] for _ in masks]
    for rows, values in laid.units():
        seen = ~np.isnan(values)
        observed += int(seen.sum())
        for mask, own in zip(masks, free, strict=True):
            own.append(int(mask.free(mask.ranks(rows, seen)[1]).sum()))
    return [mask._replace(counts=dealt_out(share, observed, own)) for mask, own in zip(masks, free, strict=True)]


def dealt_out(share: float, observed: int, free: list[int]) -> list[int]:
    """How many of the entries that are held out are in each unit: in proportion to what it has to spare."""
    count, most = round(share * observed), sum(free)
    if not 0 < count <= most:
        raise ValueError(
            f"share must hold out at least one entry and leave two to every sample and feature; got {share:g}; the "
            f"most is {most / max(observed, 1):.3g}"
        )
    ends = [end * count // most for end in accumulate(free, initial=0)]
    return [after - before for before, after in pairwise(ends)]
