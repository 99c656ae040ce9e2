"""What belongs to samples, on the threads of this machine: activations, and Gram matrices of masked data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..data import Data
from ..data.tiles import Tree
from ..kernels.contract import Array, Sums, VIColumns
from ..kernels.cpu import columns as column_kernels
from ..kernels.cpu import sample_lanes
from ..kernels.cpu.correlation import prior_precision
from ..kernels.cpu.lanes import LANES
from ..kernels.cpu.packed import packed_size
from ..kernels.cpu.shares import add_shares, gibbs_shares, unpack_shares
from ..kernels.totals import is_whole, total
from ..model import Prior
from .blocks import Blocks, Part
from .memory import Memory
from .threads import run_parts, split

SHARE_COST = 0.1  # nanoseconds of an entry's part in a sample's matrix, for each of its numbers


class Way:
    """A thread's way up the tree of spans: its samples in arrays that all threads share. Each takes the same turns."""

    def __init__(self, part: tuple[int, int], spare: list[Any]) -> None:
        self.part, self.spare = part, list(spare)
        free = self.spare

        def added(left: tuple[Any, ...], right: tuple[Any, ...]) -> tuple[Any, ...]:
            add_shares(*part, *right, *left)
            free.extend(right)
            return left

        self.tree = Tree(added=added)  # not a method: a cycle would keep the arrays until it is collected


class CpuSamples:
    """The samples' part of the engine."""

    data: Data
    prior: Prior
    blocks: Blocks
    memory: Memory
    masked: bool
    dtype: Any
    _threads_for: Callable[[float], int]
    _listed: Callable[[], int]

    def vi_activations(self, columns: VIColumns, sums: Sums, weight: Array) -> tuple[Array, Array]:
        K, N = columns.f_mean.shape
        mean = np.empty((K, N))
        prior = np.empty((K, K))
        phi = np.ascontiguousarray(columns.phi) if len(columns.phi) else np.zeros((0, 0))
        prior_precision(phi, float(len(phi)), prior)
        common = (sums.LY, sums.LL, sums.LL_share, weight, prior)
        if columns.f_var.ndim == 2:
            variance = np.empty((K, N))
            if self.masked:
                rest = (columns.f_mean, *common, mean, variance)
                self._over_samples(column_kernels.independent_each, K * K, rest)
            else:
                column_kernels.independent_shared(columns.f_mean, sums.LY, sums.LL, weight, prior, mean, variance)
            return mean, variance
        covariance = self.memory.take(len(columns.f_var), K, K)
        if len(covariance) < N:
            column_kernels.joint_shared(sums.LY, sums.LL, weight, prior, mean, covariance)
        else:
            self._over_samples(sample_lanes.joint_each, 2 * K**3, (*common, mean, covariance))
        return mean, covariance

    def gibbs_activations(self, sums: Sums, weight: Array, prior: Array, normal: Array) -> Array:
        K, _ = normal.shape
        F = np.empty(normal.shape)
        if self.masked or self.prior.noise == "sample":
            rest = (sums.LY, sums.LL, sums.LL_share, weight, prior, normal, F)
            self._over_samples(sample_lanes.draw_each, K**3 / 3, rest)
        else:
            column_kernels.draw_shared(sums.LY, sums.LL, weight, prior, normal, F)
        return F

    def _shares(self, kernel: Callable[..., None], rows: Callable[[int], tuple[Any, ...]]) -> Array:
        """(N*, K, K) what to add to LL for each sample (4.5); rows: a block's; they take their turns in a span."""
        N, K = self.data.n_samples if self.masked else 0, self.prior.K
        square = np.empty((N, K, K))
        if self.masked:
            exact = kernel is gibbs_shares  # whose entries add little, here and there
            parts = split(N, self._threads_for(self._listed() * packed_size(K) * SHARE_COST))
            spans, lanes, problems = self.blocks.spans(), self.blocks.tile // LANES, self.blocks.problems
            dtype = np.float64 if exact else self.dtype
            most = min(len(spans), 2 * len(spans).bit_length() + 1)  # branches of the tree that are there at once
            spare = [self.memory.take(N, packed_size(K), dtype=dtype) for _ in range(most)]
            ways = [Way(part, spare) for part in parts]

            def climb(way: Way, some: list[tuple[int, list[Part]]]) -> None:
                """Some spans one after another, of a thread's samples."""
                for number, span in some:
                    own = way.spare.pop()
                    for turn, (b, first, last) in enumerate(span):
                        groups = (first * lanes, min(last * lanes, len(problems[b].by_sample)))
                        kernel(*way.part, *groups, problems[b], *rows(b), turn == 0, own)
                    way.tree.add(number, (own,))

            # Threads meet once, but where data are read anew for each span: that is done once for all of them.
            for some in [[span] for span in spans] if self.blocks.by_round else [spans]:
                run_parts(climb, [(way, some) for way in ways])
                self.blocks.release([part for _, span in some for part in span])
            whole = None if is_whole() else total(ways[0].tree.nodes)

            def unpacked(way: Way) -> None:
                unpack_shares(*way.part, *(whole or way.tree.total()), square)

            run_parts(unpacked, [(way,) for way in ways])
        return square

    def _over_samples(self, kernel: Callable[..., None], per_sample: float, rest: tuple[Any, ...]) -> None:
        N = self.data.n_samples
        parts = split(N, self._threads_for(N * per_sample))
        run_parts(kernel, [(*part, *rest) for part in parts])
