"""Where a run has come to, and a look at it: at some of its draws, or at all of them.

To label all draws and to judge them takes as long as to make them. So a run that goes on by itself looks at a few of
them each time, evenly spaced, and at all only where these are nearly good enough, or when it ends.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..posterior import MCMCPosterior
from ..storage.draws import Sink
from ..storage.lazy import relabelled_tree
from .finish import Draws

LOOKED_AT = 500  # draws of a chain


class ThinnedDraws:
    """Some of the draws of all chains, evenly spaced up to the last."""

    def __init__(self, sink: Sink, n_draws: int, most: int) -> None:
        every = -(-n_draws // most)
        self.sink, self.part = sink, slice((n_draws - 1) % every, None, every)

    def tree(self) -> xr.DataTree:
        groups = self.sink.tree().subtree_with_keys
        return xr.DataTree.from_dict(
            {path: node.to_dataset(inherit=False).isel(draw=self.part) for path, node in groups if "draw" in node.dims}
        )

    def labelled(self, permutations: NDArray[np.intp], signs: NDArray[np.int8]) -> xr.DataTree:
        return relabelled_tree(self.tree(), permutations, signs)


class Stretch:
    """A run with so many draws of each chain. make: the posterior of draws, of all or of some."""

    def __init__(self, n_draws: int, sink: Sink, draws: Draws, make: Callable[[Draws], MCMCPosterior]) -> None:
        self.n_draws, self.sink, self.draws, self.make = n_draws, sink, draws, make
        self.made: MCMCPosterior | None = None

    def result(self) -> MCMCPosterior:
        if self.made is None:
            self.made = self.make(self.draws)
        return self.made

    def look(self) -> MCMCPosterior | None:
        """The posterior of some draws; None where there are not many more."""
        if self.n_draws < 2 * LOOKED_AT:
            return None
        return self.make(ThinnedDraws(self.sink, self.n_draws, LOOKED_AT))


class Done:
    """A run whose result is known."""

    def __init__(self, result: MCMCPosterior) -> None:
        self.made = result
        self.n_draws = result.permutations.shape[1]

    def result(self) -> MCMCPosterior:
        return self.made

    def look(self) -> None:
        return None
