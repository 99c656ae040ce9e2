"""Where a chain's draws go as they are made: to memory, or to chunks of a zarr store on disk.

On disk a chunk holds so many draws of one chain and is laid out with the draws side by side, since a loading that is
zero in one draw is mostly zero in the next: that halves what zeros cost. Draws of an unfinished chunk wait in memory.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..model import Prior
from ..posterior import DIMS, NOISE_DIMS, SIGNED, Labels
from .lazy import LazyDraws, draws_per_block, relabel_block, relabelled_tree

Arrays = dict[str, NDArray[Any]]

CHUNK_BYTES = 8e6  # of draws that wait in memory until they fill a chunk
CHUNK_DRAWS = 100
GROUP = "sampler"  # the store's group of draws: the name says whose labels they carry
PRECISIONS = ("single", "double")
# What is kept in single precision where that is asked for: the two that fill the disk.
ROUNDED = ("loadings", "noise_precision")


class Kept(NamedTuple):
    """A variable that is kept: its own dims and shape (without chain and draw), and its type.

    Inclusions are 0 and 1, since ArviZ takes no differences of booleans.
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: type


class Layout:
    """The variables of a model's draws, with their names and sizes."""

    def __init__(self, prior: Prior, labels: Labels) -> None:
        self.coords = {
            "feature": labels.feature_names,
            "observation": labels.sample_names,
            "factor": np.arange(prior.K),
        }
        dims = {**DIMS, "noise_precision": NOISE_DIMS[prior.noise]}
        if not prior.learns_inclusion:
            del dims["inclusion_rate"]
        self.variables = {
            name: Kept(own, tuple(len(self.coords[d]) for d in own), np.int8 if name == "inclusion" else float)
            for name, own in dims.items()
        }
        self.variables["lp"] = Kept((), (), float)

    @property
    def chunk(self) -> int:
        """Draws in a chunk: a function of the sizes alone, so that it is the same whenever a run goes on."""
        size = sum(np.prod(kept.shape) * np.dtype(kept.dtype).itemsize for kept in self.variables.values())
        return int(min(max(CHUNK_BYTES // size, 1), CHUNK_DRAWS))

    def tree(self, n_chains: int, n_draws: int, variables: dict[str, xr.Variable]) -> xr.DataTree:
        """Groups posterior and sample_stats, as ArviZ has them."""
        coords = {"chain": np.arange(n_chains), "draw": np.arange(n_draws)}
        stats = xr.Dataset({"lp": variables.pop("lp")}, coords=coords)
        posterior = xr.Dataset(variables, coords={**coords, **self.coords})
        return xr.DataTree.from_dict({"posterior": posterior, "sample_stats": stats})


class Sink(Protocol):
    """Takes the draws of all chains; chains may call it from different threads."""

    def keep(self, chain: int, t: int, values: dict[str, Any]) -> None: ...

    def pending(self, chain: int, kept: int) -> Arrays:
        """The draws that would be lost if the process ended now, and were not made again."""
        ...

    def restore(self, chain: int, kept: int, pending: Arrays) -> None: ...

    def settle(self, chain: int) -> None:
        """Return when all draws but the pending ones would survive a loss of power."""
        ...

    def finish(self, chain: int, kept: int) -> None: ...

    def tree(self) -> xr.DataTree:
        """All draws under the sampler's own labels."""
        ...

    def labelled(self, permutations: NDArray[np.intp], signs: NDArray[np.int8]) -> xr.DataTree: ...


class MemoryDraws:
    """Draws in memory."""

    def __init__(self, layout: Layout, n_chains: int, n_draws: int) -> None:
        self.layout, self.n_chains, self.n_draws = layout, n_chains, n_draws
        self.arrays: Arrays = {
            name: np.empty((n_chains, n_draws, *kept.shape), dtype=kept.dtype)
            for name, kept in layout.variables.items()
        }

    def keep(self, chain: int, t: int, values: dict[str, Any]) -> None:
        for name, array in self.arrays.items():
            array[chain, t] = values[name]

    def pending(self, chain: int, kept: int) -> Arrays:
        return {}

    def restore(self, chain: int, kept: int, pending: Arrays) -> None:
        raise NotImplementedError("draws in memory end with their process; pass a path")

    def settle(self, chain: int) -> None:
        pass

    def finish(self, chain: int, kept: int) -> None:
        pass

    def tree(self) -> xr.DataTree:
        variables = {
            name: xr.Variable(("chain", "draw", *kept.dims), self.arrays[name])
            for name, kept in self.layout.variables.items()
        }
        return self.layout.tree(self.n_chains, self.n_draws, variables)

    def labelled(self, permutations: NDArray[np.intp], signs: NDArray[np.int8]) -> xr.DataTree:
        """The draws relabelled where they lie: they are too many for a copy."""
        for name, kept in self.layout.variables.items():
            if "factor" in kept.dims:
                step = draws_per_block(kept.shape, kept.dtype)
                for c, first in np.ndindex(self.n_chains, -(-self.n_draws // step)):
                    at = slice(first * step, (first + 1) * step)
                    draws = self.arrays[name][c, at]
                    draws[...] = relabel_block(draws, permutations[c, at], signs[c, at] if name in SIGNED else None)
        return self.tree()


class ZarrDraws:
    """Draws on disk, written chunk by chunk; each chunk is written whole."""

    def __init__(self, layout: Layout, folder: Path, n_chains: int, n_draws: int) -> None:
        zarr = import_zarr()
        self.layout, self.folder, self.n_chains, self.n_draws = layout, folder, n_chains, n_draws
        # A chunk of zeros is written like any other, so that one that is not there is known to be lost.
        with zarr.config.set({"array.write_empty_chunks": True}):
            group = zarr.open_group(folder, path=GROUP, mode="r+")
            self.arrays = {name: group[name] for name in layout.variables}
        self.buffers: list[Arrays] = [{} for _ in range(n_chains)]
        self.unsettled: list[list[Path]] = [[] for _ in range(n_chains)]
        for array in self.arrays.values():
            if array.shape[1] != n_draws:
                array.resize((n_chains, n_draws, *array.shape[2:]))

    @staticmethod
    def create(layout: Layout, folder: Path, n_chains: int, n_draws: int, precision: str) -> None:
        """An empty store of this size in `folder`."""
        from zarr.codecs import BloscCodec, TransposeCodec

        group = import_zarr().create_group(folder, zarr_format=3).create_group(GROUP)
        for name, kept in layout.variables.items():
            axes = 2 + len(kept.shape)
            group.create_array(
                name,
                shape=(n_chains, n_draws, *kept.shape),
                chunks=(1, layout.chunk, *kept.shape),
                dtype=np.float32 if precision == "single" and name in ROUNDED else kept.dtype,
                filters=[TransposeCodec(order=(*range(2, axes), 1, 0))],
                # Bytes of the same significance side by side, except where whole zeros are what there is to find.
                compressors=BloscCodec(
                    cname="zstd", clevel=1, shuffle="noshuffle" if name in ("loadings", "inclusion") else "shuffle"
                ),
                dimension_names=("chain", "draw", *kept.dims),
            )

    def keep(self, chain: int, t: int, values: dict[str, Any]) -> None:
        buffer, size = self._buffer(chain), self.layout.chunk
        for name, waiting in buffer.items():
            waiting[t % size] = values[name]
        if (t + 1) % size == 0:
            self._write(chain, t + 1 - size, t + 1)

    def pending(self, chain: int, kept: int) -> Arrays:
        return {name: waiting[: kept % self.layout.chunk] for name, waiting in self._buffer(chain).items()}

    def restore(self, chain: int, kept: int, pending: Arrays) -> None:
        for name, waiting in self._buffer(chain).items():
            waiting[: kept % self.layout.chunk] = pending[name]

    def settle(self, chain: int) -> None:
        for path in self.unsettled[chain]:
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        self.unsettled[chain].clear()

    def finish(self, chain: int, kept: int) -> None:
        rest = kept % self.layout.chunk
        if rest:
            self._write(chain, kept - rest, kept)

    def tree(self) -> xr.DataTree:
        return stored_tree(self.layout, self.folder, self.arrays, self.n_draws)

    def labelled(self, permutations: NDArray[np.intp], signs: NDArray[np.int8]) -> xr.DataTree:
        return relabelled_tree(self.tree(), permutations, signs)

    def _buffer(self, chain: int) -> Arrays:
        if not self.buffers[chain]:
            self.buffers[chain] = {
                name: np.empty((self.layout.chunk, *kept.shape), dtype=kept.dtype)
                for name, kept in self.layout.variables.items()
            }
        return self.buffers[chain]

    def _write(self, chain: int, first: int, last: int) -> None:
        for name, array in self.arrays.items():
            array[chain, first:last] = _rounded(name, self._buffer(chain)[name][: last - first], array.dtype)
            self.unsettled[chain].append(_chunk_path(self.folder, array, name, chain, first))


def _rounded(name: str, values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    if name not in ROUNDED or dtype == values.dtype:
        return values
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(dtype)
    finite = np.isfinite(rounded)
    if not finite.all():
        raise ValueError(
            f"draws kept in single precision must lie within its range; {name} has {values[~finite].flat[0]:g}; "
            'sample with precision="double" and another path, or bring all features to a similar scale'
        )
    return rounded


def stored_tree(layout: Layout, folder: Path, arrays: dict[str, Any], n_draws: int) -> xr.DataTree:
    """The first draws of a store under the sampler's own labels, read when looked at."""
    n_chains = arrays["lp"].shape[0]
    variables = {}
    for name, kept in layout.variables.items():
        read = partial(_read, folder, name, arrays[name])
        lazy = LazyDraws(read, (n_chains, n_draws, *kept.shape), kept.dtype)
        variables[name] = lazy.variable(("chain", "draw", *kept.dims))
    return layout.tree(n_chains, n_draws, variables)


def _read(folder: Path, name: str, array: Any, chain: int, first: int, last: int) -> NDArray[Any]:
    """Some draws of one chain; a chunk that is not there would otherwise be read as zeros."""
    size = array.chunks[1]
    for start in range(first - first % size, last, size):
        path = _chunk_path(folder, array, name, chain, start)
        if not path.is_file():
            raise _lost(path, "is not there")
    try:
        return np.asarray(array[chain, first:last])
    except (RuntimeError, ValueError, TypeError, OSError, EOFError) as problem:
        where = folder / GROUP / name
        raise _lost(where, f"has a damaged chunk among draws {first} to {last - 1} of chain {chain} ({problem})") from (
            problem
        )


def _lost(path: Path, what: str) -> ValueError:
    return ValueError(
        f"all draws of a run must be on disk, whole and where they were written; {str(path)!r} {what}; "
        "restore the folder from a copy (or load it where it is now), or sample again with another path"
    )


def _chunk_path(folder: Path, array: Any, name: str, chain: int, draw: int) -> Path:
    key = array.metadata.encode_chunk_key((chain, draw // array.chunks[1], *(0,) * (array.ndim - 2)))
    return folder / GROUP / name / str(key)


def open_tree(layout: Layout, folder: Path, n_chains: int, n_draws: int) -> xr.DataTree:
    """The first draws in `folder`, for reading only."""
    try:
        group = import_zarr().open_group(folder, path=GROUP, mode="r")
        arrays = {name: group[name] for name in layout.variables}
    except (OSError, KeyError, ValueError) as problem:
        raise _lost(folder / GROUP, f"cannot be opened ({problem})") from problem
    for name, kept in layout.variables.items():
        chains, draws, *own = arrays[name].shape
        if chains != n_chains or draws < n_draws or tuple(own) != kept.shape:
            raise _lost(
                folder / GROUP / name, f"has shape {arrays[name].shape}, not {(n_chains, n_draws, *kept.shape)}"
            )
    return stored_tree(layout, folder, arrays, n_draws)


def import_zarr() -> Any:
    import zarr

    if int(zarr.__version__.split(".")[0]) < 3:
        raise ImportError(
            f"draws on disk need zarr 3 or newer; got {zarr.__version__}; pip install --upgrade zarr, or leave path out"
        )
    return zarr
