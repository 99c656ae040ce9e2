"""What belongs to samples, on the threads of this machine: activations, and Gram matrices of masked data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..data import Data
from ..data.tiles import Tree
from ..kernels.contract import Array, Sums, VIColumns
from ..kernels.cpu import columns as column_kernels
from ..kernels.cpu.lanes import LANES
from ..kernels.cpu.packed import packed_size
from ..kernels.cpu.shares import add_shares, gibbs_shares, unpack_shares
from ..kernels.exchange import HERE, Exchange
from ..model import Prior
from .blocks import Blocks, Part
from .memory import Memory
from .threads import run_parts, split

SHARE_COST = 0.1  # nanoseconds of an entry's part in a sample's matrix, for each of its numbers


class CpuSamples:
    """The samples' part of the engine."""

    data: Data
    prior: Prior
    blocks: Blocks
    memory: Memory
    exchange: Exchange
    masked: bool
    dtype: Any
    _threads_for: Callable[[float], int]
    _listed: Callable[[], int]

    def vi_activations(self, columns: VIColumns, sums: Sums, weight: Array) -> tuple[Array, Array]:
        K, N = columns.f_mean.shape
        mean = np.empty((K, N))
        common = (sums.LY, sums.LL, sums.LL_share, weight)
        if columns.f_var.ndim == 2:
            variance = np.empty((K, N))
            if self.masked:
                rest = (columns.f_mean, *common, mean, variance)
                self._over_samples(column_kernels.independent_each, K * K, rest)
            else:
                column_kernels.independent_shared(columns.f_mean, sums.LY, sums.LL, weight, mean, variance)
            return mean, variance
        covariance = np.empty((len(columns.f_var), K, K))
        if len(covariance) < N:
            column_kernels.joint_shared(*common, mean, covariance)
        else:
            self._over_samples(column_kernels.joint_each, 2 * K**3, (*common, mean, covariance))
        return mean, covariance

    def gibbs_activations(self, sums: Sums, weight: Array, normal: Array) -> Array:
        K, _ = normal.shape
        F = np.empty(normal.shape)
        rest = (sums.LY, sums.LL, sums.LL_share, weight, normal, F)
        if self.masked or self.prior.noise == "sample":
            self._over_samples(column_kernels.draw_each, K**3 / 3, rest)
        else:
            column_kernels.draw_shared(*rest)
        return F

    def _shares(self, kernel: Callable[..., None], rows: Sequence[tuple[Any, ...]]) -> Array:
        """(N*, K, K) what to add to LL for each sample (4.5); rows: each block's, which take their turns in a span."""
        N, K = self.data.n_samples if self.masked else 0, self.prior.K
        square = np.empty((N, K, K))
        if self.masked:
            exact = kernel is gibbs_shares  # whose entries add little, here and there
            parts = split(N, self._threads_for(self._listed() * packed_size(K) * SHARE_COST))
            lanes = self.blocks.tile // LANES

            def added(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
                run_parts(add_shares, [(*part, *right, *left) for part in parts])
                return left

            tree = Tree(added=added)
            for number, span in self.blocks.spans():
                own = self.memory.take(N, packed_size(K), dtype=np.float64 if exact else self.dtype)
                for turn, (b, first, last) in enumerate(span):
                    problem = self.blocks.problems[b]
                    groups = (first * lanes, min(last * lanes, len(problem.by_sample)))
                    run_parts(kernel, [(*part, *groups, problem, *rows[b], turn == 0, own) for part in parts])
                    self.blocks.release([Part(b, first, last)])
                tree.add(number, (own,))
                del own
            (packed,) = tree.total() if self.exchange is HERE else self.exchange.total(tree.nodes)
            run_parts(unpack_shares, [(*part, packed, square) for part in parts])
        return square

    def _over_samples(self, kernel: Callable[..., None], per_sample: float, rest: tuple[Any, ...]) -> None:
        N = self.data.n_samples
        parts = split(N, self._threads_for(N * per_sample))
        run_parts(kernel, [(*part, *rest) for part in parts])
