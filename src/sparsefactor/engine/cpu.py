"""Rows in this process's memory, blocks of them run by compiled kernels on the threads of this machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln

from ..data import Data
from ..kernels.contract import (
    Array,
    GibbsRows,
    GibbsTerms,
    Message,
    RowStream,
    Sums,
    VIRows,
    VITerms,
)
from ..kernels.cpu.gibbs_rows import GibbsMessage, gibbs_scratch, gibbs_tiles
from ..kernels.cpu.packed import packed_size
from ..kernels.cpu.profiles import CompiledShears
from ..kernels.cpu.shares import gibbs_shares, vi_shares
from ..kernels.cpu.tiles import TileSums, empty_tile_sums, packed_message, sums_of
from ..kernels.cpu.vi_rows import VIMessage, vi_scratch, vi_tiles
from ..kernels.rows import RowVerbs
from ..model import Beta, Prior
from .blocks import Blocks, Round, by_rows
from .by_factor import RowsByFactor
from .cpu_moves import CpuMoves
from .cpu_samples import CpuSamples
from .memory import Memory
from .modules import ModulePass
from .passes import Passes, room_for
from .small import SmallVI
from .small_gibbs import SmallGibbs
from .small_masked import SmallMaskedVI
from .threads import available_cores

WORTH_A_THREAD = 120e3  # nanoseconds of work for each thread; waking one costs about half as much
MOST_SURE = 1e5  # of a Beta's a + b: beyond it the shortcut's logarithms of gammas would lose digits
VI_COST, GIBBS_COST = (0.0, 14.0, 0.1), (250.0, 30.0, 0.1)  # of a row pass: see _row_cost
MOVE_COST = 30.0  # nanoseconds a row takes of a move's pass over the rows


def is_small(data: Data, K: int) -> bool:
    """Whether a row pass over complete data is so little work that no number of threads would share it."""
    per_row, per_loading, _ = VI_COST
    cost = data.n_features * (per_row + K * (per_loading + 0.05 * (data.n_samples + K)))
    return data.is_complete and cost < 2 * WORTH_A_THREAD


class CpuEngine(CpuSamples, CpuMoves, RowVerbs):
    """Numba kernels for one data set and prior. Safe to use from several Python threads at once.

    Results do not depend on n_threads (None: every core this process may use), to the bit, inside
    `single_blas_thread`. Agreement with the oracle: 1e-9 relative for float64 data, 1e-4 for float32 data, whose
    two products with Y, and sums of matrices over missing entries, run in float32 and all else in float64.
    """

    shears = CompiledShears

    def __init__(
        self,
        data: Data,
        prior: Prior,
        n_threads: int | None = None,
        *,
        cuts: Sequence[int] = (),
        _split_small: bool = False,
        _blocks: Blocks | None = None,
    ) -> None:
        """cuts: the tiles at which blocks of rows end, where there is to be more than one block."""
        prior = prior.in_units_of(data)
        self.data, self.prior = data, prior
        self.blocks = _blocks or Blocks(data, prior, cuts)
        self.masked, self.dtype = not data.is_complete, data.Y.dtype
        self.n_threads = available_cores() if n_threads is None else n_threads
        self.passes = Passes(self.blocks)
        self.group = prior.group_index if prior.grouped else np.zeros(data.n_features, np.int64)
        self.V = len(prior.group_names) if prior.grouped else 1
        self.split_small = _split_small
        self.memory = Memory()
        self._vi_spaces: list[tuple[TileSums, list[Any]]] = []
        self._gibbs_spaces: list[tuple[TileSums, list[Any]]] = []
        self._logit_source: Array | None = None
        self._logit_by_factor = np.zeros((0, 0))
        self._no_rows, self._every_row = np.zeros(0, np.int64), np.arange(data.n_features)
        # Which halves of the row pass Numba is to compile: see vi_tiles.
        self.halves = (0 if self.masked else None, 0 if prior.grouped else None)
        self.vi_rounds = self.blocks.rounds(self._threads_for(self._row_cost(*VI_COST)))
        self.gibbs_rounds = self.blocks.rounds(self._threads_for(self._row_cost(*GIBBS_COST)))
        self.move_rounds = self.blocks.rounds(self._threads_for(data.n_features * MOVE_COST))
        self.move_parts = [part for own in self.move_rounds for part in own.parts]
        self.vi_constants, self.gibbs_constant = self.noise_constants()
        self._module_pass: ModulePass | None = None
        if prior.n_modules > 1:
            rounds = self.blocks.rounds(self._threads_for(self._row_cost(*VI_COST) * prior.n_modules))
            self._module_pass = ModulePass(self.passes, prior, rounds, self.vi_constants, self.memory, self._shares)

    name = "cpu"

    def with_prior(self, prior: Prior) -> CpuEngine:
        """The same engine under another prior, which has the same noise and groups; the data are not copied."""
        own = prior.in_units_of(self.data)
        same = own.noise_shape == self.prior.noise_shape and np.array_equal(own.noise_rate, self.prior.noise_rate)
        shared = same and own.noise == self.prior.noise and own.grouped == self.prior.grouped
        return type(self)(
            self.data,
            prior,
            self.n_threads,
            _split_small=self.split_small,
            _blocks=self.blocks if shared else None,
        )

    def with_threads(self, n_threads: int) -> CpuEngine:
        """The same engine on so many threads."""
        return type(self)(
            self.data,
            self.prior,
            n_threads,
            _split_small=self.split_small,
            _blocks=self.blocks,
        )

    def noise_constants(self) -> tuple[VITerms, float]:
        """What is to be added to the rows' terms of VI, and to the term `noise` of Gibbs sampling."""
        prior, data = self.prior, self.data
        if prior.noise != "feature":
            return VITerms(), 0.0
        half = 0.5 * data.row_count
        a, b = prior.noise_shape, np.broadcast_to(prior.noise_rate, data.n_features)
        shape = a + half
        # densities.gamma_kl less its terms in log(rate) and 1 / rate, which the rows add.
        kl = (shape - a) * digamma(shape) - gammaln(shape) + gammaln(a) - a * np.log(b) - shape
        each = np.stack([half * digamma(shape), kl, a * np.log(b) - gammaln(a)])
        likelihood, divergence, density = self.over_tiles(lambda own: (each[:, own].sum(axis=1),))[0].tolist()
        return VITerms(likelihood=likelihood, noise=-divergence), density

    # ---- how much work there is -------------------------------------------------------------------------------

    def _row_cost(self, per_row: float, per_loading: float, per_product: float) -> float:
        """Rough nanoseconds of a row pass on one core, from measurements that need not be good to a factor of two."""
        (G, N), K = self.data.Y.shape, self.prior.K
        products = self._listed() * packed_size(K)
        return G * (per_row + K * (per_loading + 0.05 * (N + K))) + per_product * products

    def _listed(self) -> int:
        """Entries that the rows list as missing, or as observed."""
        return sum(len(problem.columns) for problem in self.blocks.problems)

    def _threads_for(self, nanoseconds: float) -> int:
        if self.split_small:
            return self.n_threads
        return max(1, min(self.n_threads, int(nanoseconds / WORTH_A_THREAD)))

    # ---- variational inference --------------------------------------------------------------------------------

    def vi_row_pass(self, rows: VIRows, message: Message) -> tuple[VIRows, Sums]:
        if self._module_pass is not None:
            return self._module_pass(rows, message)
        K = self.prior.K
        share, packed_gram = packed_message(message, self.masked, self.dtype)
        prior, prior_row = self._prior_odds(message)
        seen = VIMessage(
            F=np.ascontiguousarray(message.F, self.dtype),
            gram=np.ascontiguousarray(message.gram),
            share=share,
            packed_gram=packed_gram,
            alpha=message.alpha.reshape(K, -1),
            prior=prior,
            prior_row=prior_row,
            scale=message.scale,
        )
        state = RowsByFactor(self.blocks, self.memory, rows)
        space = self._take(self._vi_spaces, self.vi_rounds, self._vi_scratch)
        tiles, scratch = space
        seen_by = [seen._replace(prior_row=by_rows(prior_row, own)) for own in self.blocks.rows]

        def args(b: int, p: int, own: slice) -> tuple[Any, ...]:
            rows_of = (self.blocks.problems[b], seen_by[b], *state.block(b))
            return (*rows_of, self.blocks.of_tiles(tiles, b, own), scratch[p], *self.halves)

        (totals,) = self.passes.run(vi_tiles, self.vi_rounds, args, [tiles], done=state.written)
        shares = self._shares(vi_shares, lambda b: (state.show(b), packed_size(K)))
        sums, terms = sums_of(totals, shares)
        sums = sums._replace(elbo=self.vi_constants.plus(*terms.tolist()))
        self._vi_spaces.append(space)
        return state.rows(), sums

    def vi_shortcut(self, joint: bool) -> SmallVI | SmallMaskedVI | None:
        """For data so small that no number of threads would share a pass: results must not depend on that number."""
        return self.shortcut_of(self.data, self.prior, joint)

    def shortcut_of(self, data: Data, prior: Prior, joint: bool) -> SmallVI | SmallMaskedVI | None:
        """The same for these data and this prior, which may be ours without a design's directions."""
        given = not prior.learns_inclusion and len(prior.inclusion_matrix()) > 1
        strong = isinstance(prior.inclusion, Beta) and prior.inclusion.a + prior.inclusion.b > MOST_SURE
        plain = prior.noise == "feature" and not prior.grouped and prior.n_modules == 1
        plain = plain and len(self.blocks) == 1 and not data.is_part and not data.is_sparse
        if given or strong or not plain or not self._row_cost(*VI_COST) < 2 * WORTH_A_THREAD:
            return None
        if self.masked:
            return SmallMaskedVI(self, data, prior) if joint else None
        if data.design is not None:
            return None
        own = self.blocks.problems[0], prior, self.vi_constants, self.memory
        return SmallVI(*own, joint=joint)

    def _prior_odds(self, message: Message) -> tuple[Array, NDArray[np.int64]]:
        """(K, 1, V or G) what a row's odds need of the prior, and (G,) which of these a row has."""
        slab = 0.5 * (message.log_alpha - np.log(message.alpha)).reshape(self.prior.K, -1)
        logit, row = message.logit, self._logit_row(message.logit)
        if len(logit) < self.data.n_features:  # none for a row of its own
            return logit.T + slab, self.group if slab.shape[1] > 1 else row
        # A full matrix of prior log odds is transposed once, for it does not change.
        if logit is not self._logit_source:
            self._logit_by_factor, self._logit_source = np.ascontiguousarray(logit.T), logit
        return self._logit_by_factor + (slab[:, self.group] if slab.shape[1] > 1 else slab), row

    def _logit_row(self, logit: Array) -> NDArray[np.int64]:
        """(G,) which row of logit (1, V or G, K) each row of the data has."""
        if len(logit) == 1:
            return self._no_rows
        return self._every_row if len(logit) == self.data.n_features else self.group

    def _vi_scratch(self) -> Any:
        return vi_scratch(self.data.Y, self.blocks.tile, self.prior.K, self.masked)

    # ---- Gibbs sampling -----------------------------------------------------------------------------------------

    def gibbs_shortcut(self) -> SmallGibbs | None:
        """For data so small that Python between the kernels takes longer than threads would save."""
        prior, data = self.prior, self.data
        plain = not prior.grouped and prior.n_modules == 1 and len(self.blocks) == 1 and not data.is_part
        plain = plain and not self.masked and not data.is_sparse and self.dtype == np.float64 and data.design is None
        if not plain or self.split_small or not self._row_cost(*GIBBS_COST) < 4 * WORTH_A_THREAD:
            return None
        return SmallGibbs(self.blocks.problems[0], prior, self.gibbs_constant, self.memory)

    def row_noise(self, key: tuple[int, int], sweep: int) -> RowStream:
        return RowStream(np.uint64(key[0]), np.uint64(key[1]), np.uint64(sweep))

    def gibbs_row_pass(self, rows: GibbsRows, message: Message, noise: RowStream) -> tuple[GibbsRows, Sums]:
        G, K = rows.L.shape
        share, packed_gram = packed_message(message, self.masked, self.dtype)
        seen = GibbsMessage(
            F=np.ascontiguousarray(message.F, self.dtype),
            gram=np.ascontiguousarray(message.gram),
            share=share,
            packed_gram=packed_gram,
            alpha=np.ascontiguousarray(message.alpha.reshape(K, -1).T),
            logit=np.ascontiguousarray(message.logit),
            logit_row=rows.member if len(rows.member) else self._logit_row(message.logit),
            scale=message.scale,
        )
        take = self.memory.take
        after = GibbsRows(Z=take(G, K, dtype=np.int8), L=take(G, K), tau=take(G))
        space = self._take(self._gibbs_spaces, self.gibbs_rounds, self._gibbs_scratch)
        tiles, scratch = space
        of = self.blocks.of
        seen_by = [seen._replace(logit_row=by_rows(seen.logit_row, own)) for own in self.blocks.rows]

        def args(b: int, p: int, own: slice) -> tuple[Any, ...]:
            rows_of = (self.blocks.problems[b], seen_by[b], of(rows, b)[:3], of(after, b)[:3], noise)
            return (*rows_of, self.blocks.of_tiles(tiles, b, own), scratch[p])

        (totals,) = self.passes.run(gibbs_tiles, self.gibbs_rounds, args, [tiles])
        by_block = self.blocks.rows
        shares = self._shares(gibbs_shares, lambda b: (after.L[by_block[b]], after.tau[by_block[b]]))
        sums, terms = sums_of(totals, shares)
        weighted_ss, noise_part, log_odds = terms.tolist()
        sums = sums._replace(joint=GibbsTerms(weighted_ss, noise_part + self.gibbs_constant, log_odds))
        self._gibbs_spaces.append(space)
        return after._replace(member=rows.member), sums

    def _gibbs_scratch(self) -> Any:
        return gibbs_scratch(self.data.Y, self.blocks.tile, self.prior.K, self.masked)

    # ---- what both methods share --------------------------------------------------------------------------------

    def _take(
        self, spaces: list[tuple[TileSums, list[Any]]], rounds: list[Round], scratch: Callable[[], Any]
    ) -> tuple[TileSums, list[Any]]:
        """Working space for one pass: one that no other pass is using, or a new one."""
        try:
            return spaces.pop()
        except IndexError:
            n_tiles, workers = room_for(rounds)
            tiles = empty_tile_sums(n_tiles, self.data.n_samples, self.prior.K, self.V)
            return tiles, [scratch() for _ in range(workers)]
