"""Draws that are read, and relabelled, when they are looked at: xarray variables that hold no draws themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import DTypeLike, NDArray
from xarray.backends import BackendArray
from xarray.core import indexing

from ..posterior import OTHER_FACTOR, SIGNED

BLOCK_BYTES = 32e6  # of draws that are read at once

Read = Callable[[int, int, int], NDArray[Any]]


class LazyDraws(BackendArray):
    """A variable (chain, draw, ...) behind `read(chain, first, last)`, under a labelling or none.

    permutations, signs: (chain, draw, factor), of which the last axis of the variable is the factor axis.
    """

    def __init__(
        self,
        read: Read,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        permutations: NDArray[np.intp] | None = None,
        signs: NDArray[np.int8] | None = None,
        both: bool = False,
    ) -> None:
        """both: whether the last two axes of the variable run over factors."""
        self.read, self.shape, self.dtype = read, shape, np.dtype(dtype)
        self.permutations, self.signs, self.both = permutations, signs, both

    def block(self, chain: int, first: int, last: int) -> NDArray[Any]:
        """(last - first, ...) the labelled draws of one chain."""
        values = self.read(chain, first, last).astype(self.dtype, copy=False)
        if self.permutations is None:
            return values
        order = self.permutations[chain, first:last]
        signs = None if self.signs is None else self.signs[chain, first:last]
        return relabel_block(values, order, signs, self.both)

    def __getitem__(self, key: Any) -> Any:
        support = indexing.IndexingSupport.OUTER
        return indexing.explicit_indexing_adapter(key, self.shape, support, self._pick)

    def _pick(self, key: tuple[Any, ...]) -> NDArray[Any]:
        """Orthogonal indexing, read block by block, so that picking few entries of many draws needs little memory."""
        chains, draws = (np.atleast_1d(np.arange(n)[k]) for n, k in zip(self.shape, key[:2], strict=False))
        rest = key[2:]
        own = np.empty(self.shape[2:], dtype=bool)[np.ix_(*map(_indices, rest, self.shape[2:]))].shape
        out = np.empty((len(chains), len(draws), *own), dtype=self.dtype)
        step = draws_per_block(self.shape[2:], self.dtype)
        for c, chain in enumerate(chains):
            for where in _runs(draws, step):
                picked = draws[where]
                first, last = int(picked.min()), int(picked.max()) + 1
                values = self.block(int(chain), first, last)[picked - first]
                for axis, k in enumerate(rest):
                    if not isinstance(k, slice) or k != slice(None):
                        values = np.take(values, _indices(k, values.shape[axis + 1]), axis=axis + 1)
                out[c, where] = values
        scalar = tuple(axis for axis, k in enumerate(key) if isinstance(k, int | np.integer))
        return out.squeeze(scalar) if scalar else out

    def variable(self, dims: tuple[str, ...]) -> xr.Variable:
        return xr.Variable(dims, indexing.LazilyIndexedArray(self))


def _indices(key: Any, size: int) -> NDArray[np.intp]:
    return np.atleast_1d(np.arange(size)[key])


def _runs(draws: NDArray[np.intp], step: int) -> Iterator[slice]:
    """Stretches of `draws` that lie within `step` consecutive draws of the store."""
    start = 0
    while start < len(draws):
        window = draws[start : start + step]
        spread = np.maximum.accumulate(window) - np.minimum.accumulate(window)
        length = int(np.argmax(spread >= step)) if spread[-1] >= step else len(window)
        yield slice(start, start + length)
        start += length


def draws_per_block(shape: tuple[int, ...], dtype: DTypeLike) -> int:
    """Draws of this shape that fill a block; always at least one."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return max(1, int(BLOCK_BYTES // max(size, 1)))


def relabel_block(
    values: NDArray[Any], order: NDArray[np.intp], signs: NDArray[np.int8] | None, both: bool = False
) -> NDArray[Any]:
    """values: (draw, ..., factor); order, signs: (draw, factor). New factor k is signs[k] times old order[k].

    both: whether the axis before the last runs over factors, too.
    """
    if both:
        values = relabel_block(np.swapaxes(values, -1, -2), order, signs)
        values = np.swapaxes(values, -1, -2)
    wide = (len(order), *(1,) * (values.ndim - 2), order.shape[-1])
    new = np.take_along_axis(values, order.reshape(wide), axis=-1)
    return new if signs is None else new * signs.reshape(wide)


def _read(source: xr.Variable, chain: int, first: int, last: int) -> NDArray[Any]:
    return np.asarray(source[chain, first:last].values)


def relabelled_tree(draws: xr.DataTree, permutations: NDArray[np.intp], signs: NDArray[np.int8]) -> xr.DataTree:
    """`draws` under a labelling of every draw, applied when the draws are looked at."""
    groups = {path: node.to_dataset(inherit=False) for path, node in draws.subtree_with_keys}
    posterior = groups["posterior"]
    for name, array in posterior.data_vars.items():
        if "factor" in array.dims:
            source = array.variable.transpose("chain", "draw", ..., "factor")
            lazy = LazyDraws(
                partial(_read, source),
                source.shape,
                source.dtype,
                permutations,
                signs if name in SIGNED else None,
                OTHER_FACTOR in source.dims,
            )
            new = lazy.variable(tuple(str(d) for d in source.dims))
            new.attrs.update(array.attrs)
            posterior = posterior.assign({name: new})
    groups["posterior"] = posterior
    return xr.DataTree.from_dict(groups, name=draws.name)
