"""The row pass under a prior with modules, on the threads of this machine."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels.contract import Array, Message, Sums, VIRows
from ..kernels.cpu.tiles import Problem, TileSums, add_tiles, empty_tile_sums, pack, packed_size
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
        (G, N), K, M, T = self.problem.Y.shape, self.K, self.M, packed_size(self.K)
        share, packed_gram = np.zeros((len(message.share), T)), np.zeros((1, T))
        if self.masked:
            pack(np.ascontiguousarray(message.share), share)
            pack(np.ascontiguousarray(message.gram)[None], packed_gram)
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
        LY, LL, small = np.empty((K, N)), np.empty((K, K)), np.empty(2 * K + 3)
        LL_share = np.empty((N if self.masked else 0, K, K))
        add_tiles(tiles, LY, LL, LL_share, small)
        members, active_in = modules.members.sum(axis=0), modules.active_in.sum(axis=0)
        self.spaces.append(space)
        terms = small[2 * K :] + self.row_terms
        return VIRows(*after), Sums(LY, LL, LL_share, small[:K], small[K : 2 * K], terms, members, active_in)

    def _take(self) -> tuple[TileSums, ModuleTiles, list[Any]]:
        try:
            return self.spaces.pop()
        except IndexError:  # all are in use by other threads
            tiles = empty_tile_sums(self.problem, self.K)
            n = len(tiles.terms)
            modules = ModuleTiles(np.empty((n, self.M)), np.empty((n, self.K, self.M)))
            scratch = [module_scratch(self.problem.Y, self.problem.tile, self.K, self.M) for _ in self.parts]
            return tiles, modules, scratch
