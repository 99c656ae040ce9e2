"""Where a chain's draws go as they are made: what a draw is made of, draws in memory, and draws on disk."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..atomic import sync
from ..model import Prior
from ..posterior import (
    CORRELATION_DIMS,
    COVARIATE_DIMS,
    DIMS,
    GROUP_DIMS,
    NOISE_DIMS,
    OTHER_FACTOR,
    SIGNED,
    Labels,
    MCMCPosterior,
)
from .lazy import LazyDraws, draws_per_block, relabel_block, relabelled_tree
from .validation import DamagedError
from .zarr_file import CHUNK_BYTES, Stored, ZarrFile, write

Arrays = dict[str, NDArray[Any]]

CHUNK_DRAWS = 100  # that wait in memory until they are written, at most
FOLDER = "sampler"  # the name says whose labels the draws carry
PRECISIONS = ("single", "double")
# What is kept in single precision where that is asked for: all that fills the disk.
ROUNDED = ("loadings", "activations", "noise_precision")
SMALLEST = np.finfo(np.float32).tiny  # of full precision in four bytes


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
        if prior.grouped:
            self.coords["group"] = prior.group_names
            dims |= GROUP_DIMS
        if prior.correlated:
            self.coords[OTHER_FACTOR] = self.coords["factor"]
            dims |= CORRELATION_DIMS
        if labels.intercept:
            dims["intercept"] = ("feature",)
        if len(labels.covariate_names):
            self.coords["covariate"] = labels.covariate_names
            dims |= COVARIATE_DIMS
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

    def grown(self, n_draws: int, labelled: MCMCPosterior | None = None) -> MemoryDraws:
        """Room for more draws behind these, under the sampler's own labels; labelled: whose labels these have now."""
        more = MemoryDraws(self.layout, self.n_chains, n_draws)
        if labelled is not None:
            back = np.argsort(labelled.permutations, axis=-1)
            signs = np.take_along_axis(labelled.signs, back, axis=-1)
        for name, kept in self.layout.variables.items():
            for c in range(self.n_chains):
                draws = self.arrays[name][c]
                if labelled is not None and "factor" in kept.dims:
                    draws = relabel_block(
                        draws, back[c], signs[c] if name in SIGNED else None, OTHER_FACTOR in kept.dims
                    )
                more.arrays[name][c, : self.n_draws] = draws
        return more

    def labelled(self, permutations: NDArray[np.intp], signs: NDArray[np.int8]) -> xr.DataTree:
        """The draws relabelled where they lie: they are too many for a copy."""
        for name, kept in self.layout.variables.items():
            if "factor" in kept.dims:
                step = draws_per_block(kept.shape, kept.dtype)
                for c, first in np.ndindex(self.n_chains, -(-self.n_draws // step)):
                    at = slice(first * step, (first + 1) * step)
                    draws = self.arrays[name][c, at]
                    own_signs = signs[c, at] if name in SIGNED else None
                    draws[...] = relabel_block(draws, permutations[c, at], own_signs, OTHER_FACTOR in kept.dims)
        return self.tree()


class StoredDraws:
    """The draws of an unfinished run in its folder: files of some draws of one chain each, which know their place.

    Draws of an unfinished file wait in memory, and in the chain's checkpoint. Nothing else says which files there are:
    a chain's checkpoint knows how many draws it has, and those beyond are made again. size: draws in a file; finished:
    the result of the run when it was last done, which has the draws up to then.
    """

    def __init__(
        self,
        layout: Layout,
        folder: Path,
        token: str,
        size: int,
        n_chains: int,
        n_draws: int,
        precision: str,
        finished: MCMCPosterior | None = None,
    ) -> None:
        self.layout, self.folder, self.token, self.size = layout, folder / FOLDER, token, size
        self.n_chains, self.n_draws, self.precision = n_chains, n_draws, precision
        self.before = None if finished is None else finished.unlabelled_draws()
        self.n_before = 0 if finished is None else finished.permutations.shape[1]
        self.buffers: list[Arrays] = [{} for _ in range(n_chains)]
        self.unsettled: list[list[Path]] = [[] for _ in range(n_chains)]

    def path(self, chain: int, part: int) -> Path:
        return self.folder / f"chain-{chain}" / f"{part:06d}.zarr.zip"

    def keep(self, chain: int, t: int, values: dict[str, Any]) -> None:
        for name, waiting in self._buffer(chain).items():
            single = name in ROUNDED and self.precision == "single"
            waiting[t % self.size] = rounded(np.asarray(values[name])) if single else values[name]
        if (t + 1) % self.size == 0:
            self._write(chain, t // self.size, self.size)

    def pending(self, chain: int, kept: int) -> Arrays:
        return {name: waiting[: kept % self.size] for name, waiting in self._buffer(chain).items()}

    def restore(self, chain: int, kept: int, pending: Arrays) -> None:
        for name, waiting in self._buffer(chain).items():
            waiting[: kept % self.size] = pending[name]

    def settle(self, chain: int) -> None:
        for path in self.unsettled[chain]:
            sync(path)
        if self.unsettled[chain]:
            sync(self.path(chain, 0).parent)
        self.unsettled[chain].clear()

    def finish(self, chain: int, kept: int) -> None:
        if kept % self.size:
            self._write(chain, kept // self.size, kept % self.size)

    def remove(self) -> None:
        """Once the result has the draws."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _buffer(self, chain: int) -> Arrays:
        if not self.buffers[chain]:
            self.buffers[chain] = {
                name: np.empty((self.size, *kept.shape), dtype=kept.dtype)
                for name, kept in self.layout.variables.items()
            }
        return self.buffers[chain]

    def _write(self, chain: int, part: int, n: int) -> None:
        path = self.path(chain, part)
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True)
            sync(self.folder)
            sync(self.folder.parent)
        arrays = {}
        for name, waiting in self._buffer(chain).items():
            dims = ("chain", "draw", *self.layout.variables[name].dims)
            single = np.float32 if waiting.dtype.kind == "f" and is_single(waiting[:n]) else None
            arrays[name] = Stored(waiting[None, :n], dims, dtype=single, draws=True)
        facts = {"token": self.token, "chain": chain, "first": part * self.size, "draws": n}
        write(path, {"sparsefactor": facts}, arrays, durable=False)
        self.unsettled[chain].append(path)

    def tree(self) -> xr.DataTree:
        """All draws under the sampler's own labels, read when looked at."""
        variables = {}
        for name, kept in self.layout.variables.items():
            lazy = LazyDraws(partial(self.read, name), (self.n_chains, self.n_draws, *kept.shape), kept.dtype)
            variables[name] = lazy.variable(("chain", "draw", *kept.dims))
        return self.layout.tree(self.n_chains, self.n_draws, variables)

    def labelled(self, permutations: NDArray[np.intp], signs: NDArray[np.int8]) -> xr.DataTree:
        return relabelled_tree(self.tree(), permutations, signs)

    def read(self, name: str, chain: int, first: int, last: int) -> NDArray[Any]:
        """Some draws of one chain, verified; damage is a ValueError that names the file."""
        kept, size = self.layout.variables[name], self.size
        out: NDArray[Any] = np.empty((last - first, *kept.shape), dtype=kept.dtype)
        if first < self.n_before and self.before is not None:
            draws = self.before["sample_stats" if name == "lp" else "posterior"].to_dataset()[name]
            out[: self.n_before - first] = draws[chain, first : min(last, self.n_before)].values
        begin = max(first, self.n_before)
        for part in range(begin // size, -(-last // size)) if begin < last else ():
            start, end = max(begin, part * size), min(last, (part + 1) * size)
            file = self._opened(chain, part, end - part * size)
            info = file.arrays.get(name)
            if info is None or info.shape[0] != 1 or info.shape[1] > size or info.shape[2:] != kept.shape:
                raise _lost(file.path, DamagedError(f"has no draws of {name} of shape {kept.shape}"))
            ranges = [(0, 1), (start - part * size, end - part * size), *((0, n) for n in kept.shape)]
            try:
                out[start - first : end - first] = file.read(name, ranges)[0]
            except DamagedError as problem:
                raise _lost(file.path, problem) from problem
        return out

    def check(self, kept: Iterable[int]) -> None:
        """Verify every byte of the files that hold the first draws of each chain; kept: how many, by chain."""
        for chain, n in enumerate(kept):
            for part in range(self.n_before // self.size, -(-n // self.size)):
                file = self._opened(chain, part, min(self.size, n - part * self.size))
                try:
                    file.check()
                except DamagedError as problem:
                    raise _lost(file.path, problem) from problem

    def _opened(self, chain: int, part: int, least: int) -> ZarrFile:
        """A file that says that it is the one that belongs here."""
        path = self.path(chain, part)
        try:
            file = ZarrFile(path)
            facts = file.attributes.get("sparsefactor")
            wanted = {"token": self.token, "chain": chain, "first": part * self.size}
            if not isinstance(facts, dict) or facts | wanted != facts:
                raise DamagedError("belongs to another run, or another place")
            if not isinstance(facts.get("draws"), int) or not least <= facts["draws"] <= self.size:
                raise DamagedError(f"has {facts.get('draws')!r} draws, not {least}")
        except (DamagedError, OSError) as problem:
            raise _lost(path, problem) from problem
        return file


def _lost(path: Path, problem: Exception) -> ValueError:
    what = "is not there" if isinstance(problem, FileNotFoundError) else str(problem)
    return ValueError(
        f"all draws of a run must be on disk, whole and where they were written; {str(path)!r} {what}; "
        "restore it from a copy, or sample again with another path"
    )


def rounded(values: NDArray[Any]) -> NDArray[Any]:
    """Each value to single precision, but for those beyond its range."""
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
    beyond = (np.isinf(single) & np.isfinite(values)) | ((np.abs(single) < SMALLEST) & (values != 0))
    return np.where(beyond, values, single)


def is_single(values: NDArray[Any]) -> bool:
    """Whether single precision holds all of the values exactly."""
    with np.errstate(over="ignore", under="ignore"):
        return np.array_equal(values.astype(np.float32), values, equal_nan=True)
