"""What a run has when its callback stops it: as many draws of as many chains as make the most draws in all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..signals import add_signal
from ..storage.draws import Sink
from ..storage.lazy import relabelled_tree
from .chain import Chain
from .finish import Signal


class CutDraws:
    """The first draws of some of the chains, which keep their numbers."""

    def __init__(self, sink: Sink, chains: Sequence[int], n_draws: int) -> None:
        self.sink, self.chains, self.n_draws = sink, list(chains), n_draws

    def tree(self) -> xr.DataTree:
        whole = self.sink.tree()
        groups = {
            path: node.to_dataset(inherit=False).isel(chain=self.chains, draw=slice(self.n_draws))
            for path, node in whole.subtree_with_keys
            if "draw" in node.dims
        }
        return xr.DataTree.from_dict(groups)

    def labelled(self, permutations: NDArray[np.intp], signs: NDArray[np.int8]) -> xr.DataTree:
        return relabelled_tree(self.tree(), permutations, signs)


def most_draws(kept: Sequence[int]) -> tuple[list[int], int]:
    """Which chains, and how many draws of each; kept: by chain."""
    order = sorted(range(len(kept)), key=lambda chain: (-kept[chain], chain))
    count = max(range(1, len(kept) + 1), key=lambda m: (m * kept[order[m - 1]], m))
    return sorted(order[:count]), kept[order[count - 1]]


def cut(chains: Sequence[Chain], sink: Sink) -> tuple[CutDraws, list[Signal]]:
    """The draws, and each chain's sum of signals over them."""
    numbers, n_draws = most_draws([chain.kept for chain in chains])
    if n_draws == 0:
        at = ", ".join(str(chain.sweep) for chain in chains)
        raise RuntimeError(
            f"a run must have a draw before it is stopped; the callback returned True after {at} sweeps of the chains, "
            f"of which {chains[0].plan.n_warmup} warm up; return True once progress.kept is positive"
        )
    for number in numbers:
        sink.finish(number, chains[number].kept)
    draws = CutDraws(sink, numbers, n_draws)
    return draws, [_signal(chains[number], draws, place) for place, number in enumerate(numbers)]


def _signal(chain: Chain, draws: CutDraws, place: int) -> Signal:
    if chain.kept == draws.n_draws:
        return Signal(chain.signal, chain.kept)
    total = np.zeros_like(chain.signal)
    kept = draws.tree()["posterior"]
    for t in range(draws.n_draws):
        one = kept.isel(chain=place, draw=t)
        F = one["activations"].transpose("observation", "factor").values
        add_signal(total, F, one["loadings"].transpose("feature", "factor").values)
    return Signal(total, draws.n_draws)
