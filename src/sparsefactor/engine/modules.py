"""The row pass under a prior with modules, on the threads of this machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels.contract import Array, Message, Sums, VIRows
from ..kernels.cpu.tiles import Problem, TileSums, empty_tile_sums, packed_message, total_sums
from ..kernels.cpu.vi_modules import ModuleMessage, ModuleRows, ModuleTiles, module_scratch, module_tiles
from ..model import Prior
from .memory import Memory
from .threads import run_parts


class ModulePass:
    """Its working space, kept between passes."""

    def __init__(
        self, problem: Problem, prior: Prior, parts: list[tuple[int, int]], row_terms: Array, memory: Memory
    ) -> None:
        """row_terms: (3,) constants of the rows' ELBO terms."""
        self.problem, self.parts, self.row_terms, self.memory = problem, parts, row_terms, memory
        self.K, self.M = prior.K, prior.n_modules
        self.masked = len(problem.lists_missing) > 0
        self.spaces: list[tuple[TileSums, ModuleTiles, list[Any]]] = []

    def __call__(self, rows: VIRows, message: Message) -> tuple[VIRows, Sums]:
        G, K, M = len(self.problem.Y), self.K, self.M
        share, packed_gram = packed_message(message, self.masked)
        seen = ModuleMessage(
            F=np.ascontiguousarray(message.F, self.problem.Y.dtype),
            gram=np.ascontiguousarray(message.gram),
            share=share,
            packed_gram=packed_gram,
            alpha=message.alpha,
            log_alpha=message.log_alpha,
            scale=message.scale,
            logit=message.log_in - message.log_out,
            log_out=message.log_out.sum(axis=0) + message.log_weight,
        )
        before = ModuleRows(*(np.ascontiguousarray(array) for array in rows))
        take = self.memory.take
        mu, s2, eta = take(3, G, K)
        after = ModuleRows(mu, s2, eta, take(G), take(G, M), take(G, K, M))
        space = self._take()
        tiles, modules, scratch = space
        run_parts(
            module_tiles,
            [
                (first, last, self.problem, seen, before, after, tiles, modules, scratch[p], 0 if self.masked else None)
                for p, (first, last) in enumerate(self.parts)
            ],
        )
        sums = total_sums(tiles, self.row_terms)._replace(
            members=modules.members.sum(axis=0), active_in=modules.active_in.sum(axis=0)
        )
        self.spaces.append(space)
        return VIRows(*after), sums

    def _take(self) -> tuple[TileSums, ModuleTiles, list[Any]]:
        try:
            return self.spaces.pop()
        except IndexError:  # all are in use by other threads
            tiles = empty_tile_sums(self.problem, self.K)
            n = len(tiles.terms)
            modules = ModuleTiles(np.empty((n, self.M)), np.empty((n, self.K, self.M)))
            scratch = [module_scratch(self.problem.Y, self.problem.tile, self.K, self.M) for _ in self.parts]
            return tiles, modules, scratch
