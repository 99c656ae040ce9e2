"""Rows of VI as its kernel has them, neighbouring ones next to each other: those of a round's blocks at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..kernels.contract import Array, VIRows
from ..kernels.cpu.vi_rows import FactorMajor
from .blocks import Blocks, Part
from .memory import Memory


def by_factor(matrix: Array) -> Array:
    """(K, G) with neighbouring rows next to each other: a view of what an engine returned, else a copy."""
    return np.ascontiguousarray(matrix.T)


class RowsByFactor:
    """What a pass reads and writes. Of several blocks, only those in use have memory besides the states."""

    def __init__(self, blocks: Blocks, memory: Memory, before: VIRows) -> None:
        self.blocks, self.memory, self.before = blocks, memory, before
        G, K = before.mu.shape
        mu, s2, eta = memory.take(3, K, G)
        self.after = FactorMajor(mu, s2, eta, memory.take(G))
        self.used: dict[int, tuple[FactorMajor, FactorMajor]] = {}
        self.shown: tuple[int, FactorMajor] | None = None

    def block(self, b: int) -> tuple[FactorMajor, FactorMajor]:
        """A block's rows before the pass, and where those after it are to be written."""
        if b not in self.used:
            own, own_after = self.blocks.rows[b], self.after
            if len(self.blocks) > 1:
                mu, s2, eta = self.memory.take(3, len(self.after.mu), own.stop - own.start)
                own_after = FactorMajor(mu, s2, eta, self.after.tau[own])
            mu, s2, eta, tau = (array[own] for array in self.before[: len(FactorMajor._fields)])
            self.used[b] = FactorMajor(by_factor(mu), by_factor(s2), by_factor(eta), tau), own_after
        return self.used[b]

    def written(self, parts: Sequence[Part]) -> None:
        """The pass is through with a round: what it wrote goes to the new state."""
        for b in {part.block for part in parts}:
            _, own = self.used.pop(b)
            if own is not self.after:
                rows = self.blocks.rows[b]
                for whole, some in zip(self.after[:3], own[:3], strict=True):
                    whole[:, rows] = some

    def show(self, b: int) -> FactorMajor:
        """A block's rows after the pass; the last that was asked for is kept, for others ask at the same time."""
        if len(self.blocks) == 1:
            return self.after
        shown = self.shown
        if shown is None or shown[0] != b:
            rows = self.blocks.rows[b]
            mu, s2, eta = (np.ascontiguousarray(array[:, rows]) for array in self.after[:3])
            shown = self.shown = b, FactorMajor(mu, s2, eta, self.after.tau[rows])
        return shown[1]

    def rows(self) -> VIRows:
        mu, s2, eta, tau = self.after
        return VIRows(mu.T, s2.T, eta.T, tau)
