"""Where a chain's draws go as they are made: what a draw is made of, and draws in memory (on disk: see chunks)."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray

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
from .lazy import draws_per_block, relabel_block

Arrays = dict[str, NDArray[Any]]

CHUNK_BYTES = 8e6  # of draws that wait in memory until they fill a chunk
CHUNK_DRAWS = 100
PRECISIONS = ("single", "double")
# What is kept in single precision where that is asked for: all that fills the disk.
ROUNDED = ("loadings", "activations", "noise_precision")


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
