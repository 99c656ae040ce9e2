"""The row pass under a prior with modules, on the threads of this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..kernels.contract import Array, Message, Sums, VIRows, VITerms
from ..kernels.cpu.packed import packed_size
from ..kernels.cpu.shares import outer_shares
from ..kernels.cpu.tiles import TileSums, empty_tile_sums, packed_message, sums_of
from ..kernels.cpu.vi_modules import ModuleMessage, ModuleRows, ModuleTiles, module_scratch, module_tiles
from ..model import Prior
from .blocks import Round
from .memory import Memory
from .passes import Passes, room_for

Shares = Callable[..., Array]


class ModulePass:
    """Its working space, kept between passes."""

    def __init__(
        self, passes: Passes, prior: Prior, rounds: list[Round], row_terms: VITerms, memory: Memory, shares: Shares
    ) -> None:
        """row_terms: constants of the rows' ELBO terms; shares: what the samples add to LL."""
        self.passes, self.blocks, self.rounds = passes, passes.blocks, rounds
        self.row_terms, self.memory, self.shares = row_terms, memory, shares
        self.K, self.M = prior.K, prior.n_modules
        self.masked, self.Y = not self.blocks.data.is_complete, self.blocks.data.Y
        self.spaces: list[tuple[TileSums, ModuleTiles, list[Any]]] = []

    def __call__(self, rows: VIRows, message: Message) -> tuple[VIRows, Sums]:
        G, K, M = len(rows.mu), self.K, self.M
        problems, dtype = self.blocks.problems, self.Y.dtype
        share, packed_gram = packed_message(message, self.masked, dtype)
        seen = ModuleMessage(
            F=np.ascontiguousarray(message.F, dtype),
            gram=np.ascontiguousarray(message.gram),
            share=share,
            packed_gram=packed_gram,
            alpha=message.alpha,
            log_alpha=message.log_alpha,
            scale=message.scale,
            logit=message.log_in - message.log_out,
            log_out=message.log_out.sum(axis=0) + message.log_weight,
        )
        before = ModuleRows(*(np.ascontiguousarray(array) for array in rows[: len(ModuleRows._fields)]))
        take = self.memory.take
        mu, s2, eta = take(3, G, K)
        after = ModuleRows(mu, s2, eta, take(G), take(G, M), take(G, K, M))
        outers = [take(len(p.row_ss) if self.masked else 0, packed_size(K), dtype=dtype) for p in problems]
        space = self._take()
        tiles, modules, scratch = space
        mask, of, of_tiles = 0 if self.masked else None, self.blocks.of, self.blocks.of_tiles

        def args(b: int, p: int, own: slice) -> tuple[Any, ...]:
            rows_of = (problems[b], seen, of(before, b), of(after, b))
            return (*rows_of, of_tiles(tiles, b, own), of_tiles(modules, b, own), outers[b], scratch[p], mask)

        totals, (members, active_in) = self.passes.run(module_tiles, self.rounds, args, [tiles, modules])
        sums, terms = sums_of(totals, self.shares(outer_shares, lambda b: (outers[b],)))
        sums = sums._replace(elbo=self.row_terms.plus(*terms.tolist()), members=members, active_in=active_in)
        self.spaces.append(space)
        return VIRows(*after), sums

    def _take(self) -> tuple[TileSums, ModuleTiles, list[Any]]:
        try:
            return self.spaces.pop()
        except IndexError:  # all are in use by other threads
            n, workers = room_for(self.rounds)
            tiles = empty_tile_sums(n, self.Y.shape[1], self.K, 1)
            modules = ModuleTiles(np.empty((n, self.M)), np.empty((n, self.K, self.M)))
            scratch = [module_scratch(self.Y, self.blocks.tile, self.K, self.M) for _ in range(workers)]
            return tiles, modules, scratch
