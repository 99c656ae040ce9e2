"""The compiled kernels on the threads of this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, digamma, gammaln

from ..data import Data
from ..kernels.contract import (
    Array,
    ColumnNoise,
    GibbsColumns,
    GibbsRows,
    Message,
    PrecisionNoise,
    RotationNoise,
    RowStream,
    ShearNoise,
    Sums,
    VIColumns,
    VIRows,
)
from ..kernels.cpu import columns as column_kernels
from ..kernels.cpu.column import draw_columns
from ..kernels.cpu.gibbs_rows import GibbsMessage, gibbs_scratch, gibbs_tiles
from ..kernels.cpu.moves import BATCH, FIELDS, MoveColumns, MoveRows, open_rows
from ..kernels.cpu.precision import draw_precisions, weighted_sums
from ..kernels.cpu.rotate import rotate_pairs
from ..kernels.cpu.shear import shear_directions
from ..kernels.cpu.tiles import TileSums, build_problem, empty_tile_sums, packed_message, packed_size, total_sums
from ..kernels.cpu.vi_rows import FactorMajor, VIMessage, vi_scratch, vi_tiles
from ..model import Beta, Prior
from .blas import hold_single_blas_thread
from .memory import Memory
from .modules import ModulePass
from .small import SmallVI, by_factor
from .threads import available_cores, run_parts, split

WORTH_A_THREAD = 120e3  # nanoseconds of work for each thread; waking one costs about half as much
MOST_SURE = 1e5  # of a Beta's a + b: beyond it the shortcut's logarithms of gammas would lose digits
VI_COST, GIBBS_COST = (0.0, 14.0, 0.7), (250.0, 30.0, 0.5)  # of a row pass: see _row_cost
MOVE_COST = 30.0  # nanoseconds a row takes of a move's pass over the rows


class CpuKernels:
    """Numba kernels for one data set and prior. Safe to use from several Python threads at once.

    Results do not depend on n_threads (None: every core this process may use), to the bit, inside
    `single_blas_thread`. Agreement with the oracle: 1e-9 relative for float64 data, 1e-4 for float32 data, whose
    two products with Y run in float32 and all else in float64.
    """

    def __init__(self, data: Data, prior: Prior, n_threads: int | None = None, *, _split_small: bool = False) -> None:
        prior = prior.in_units_of(data)
        self.data, self.prior = data, prior
        self.problem = build_problem(data, prior)
        self.masked = not data.is_complete
        self.n_threads = available_cores() if n_threads is None else n_threads
        self.n_tiles = -(-data.n_features // self.problem.tile)
        self.split_small = _split_small
        self.memory = Memory()
        self._vi_spaces: list[tuple[TileSums, list[Any]]] = []
        self._gibbs_spaces: list[tuple[TileSums, list[Any]]] = []
        self._module_pass: ModulePass | None = None
        self._logit_source: Array | None = None
        self._logit_by_factor = np.zeros((0, 0))
        self._no_rows, self._every_row = np.zeros(0, np.int64), np.arange(data.n_features)
        # Which halves of the row pass Numba is to compile: see vi_tiles.
        self.halves = (0 if self.masked else None, 0 if prior.grouped else None)
        self.vi_parts = split(self.n_tiles, self._threads_for(self._row_cost(*VI_COST)))
        self.gibbs_parts = split(self.n_tiles, self._threads_for(self._row_cost(*GIBBS_COST)))
        self.move_parts = split(self.n_tiles, self._threads_for(data.n_features * MOVE_COST))
        self.vi_constants = np.zeros(3)
        self.gibbs_constants = np.zeros(3)
        if self.problem.feature_noise:
            shape, half = self.problem.tau_shape, self.problem.half_count
            a, b = prior.noise_shape, self.problem.noise_rate
            self.vi_constants[0] = half @ digamma(shape)
            # model.gamma_kl less its terms in log(rate) and 1 / rate, which the rows add.
            kl = (shape - a) * digamma(shape) - gammaln(shape) + gammaln(a) - a * np.log(b) - shape
            self.vi_constants[2] = -kl.sum()
            self.gibbs_constants[1] = np.sum(a * np.log(b) - gammaln(a))

    # ---- how much work there is -------------------------------------------------------------------------------

    def _row_cost(self, per_row: float, per_loading: float, per_product: float) -> float:
        """Rough nanoseconds of a row pass on one core, from measurements that need not be good to a factor of two."""
        (G, N), K = self.problem.Y.shape, self.prior.K
        products = len(self.problem.columns) * packed_size(K)
        return G * (per_row + K * (per_loading + 0.05 * (N + K))) + per_product * products

    def _threads_for(self, nanoseconds: float) -> int:
        if self.split_small:
            return self.n_threads
        return max(1, min(self.n_threads, int(nanoseconds / WORTH_A_THREAD)))

    # ---- variational inference --------------------------------------------------------------------------------

    def vi_row_pass(self, rows: VIRows, message: Message) -> tuple[VIRows, Sums]:
        K, G = self.prior.K, self.data.n_features
        share, packed_gram = packed_message(message, self.masked)
        prior, prior_row = self._prior_odds(message)
        seen = VIMessage(
            F=np.ascontiguousarray(message.F, self.problem.Y.dtype),
            gram=np.ascontiguousarray(message.gram),
            share=share,
            packed_gram=packed_gram,
            alpha=message.alpha.reshape(K, -1),
            prior=prior,
            prior_row=prior_row,
            scale=message.scale,
        )
        before = FactorMajor(by_factor(rows.mu), by_factor(rows.s2), by_factor(rows.eta), rows.tau)
        mu, s2, eta = self.memory.take(3, K, G)
        after = FactorMajor(mu, s2, eta, self.memory.take(G))
        space = self._take(self._vi_spaces, self.vi_parts, self._vi_scratch)
        tiles, scratch = space
        run_parts(
            vi_tiles,
            [
                (first, last, self.problem, seen, before, after, tiles, scratch[p], *self.halves)
                for p, (first, last) in enumerate(self.vi_parts)
            ],
        )
        sums = total_sums(tiles, self.vi_constants)
        self._vi_spaces.append(space)
        return VIRows(after.mu.T, after.s2.T, after.eta.T, after.tau), sums

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

    def vi_module_pass(self, rows: VIRows, message: Message) -> tuple[VIRows, Sums]:
        if self._module_pass is None:
            cost = self._row_cost(*VI_COST) * self.prior.n_modules
            parts = split(self.n_tiles, self._threads_for(cost))
            self._module_pass = ModulePass(self.problem, self.prior, parts, self.vi_constants, self.memory)
        return self._module_pass(rows, message)

    def vi_shortcut(self, joint: bool) -> SmallVI | None:
        """For data so small that no number of threads would share a pass: results must not depend on that number."""
        small = self._row_cost(*VI_COST) < 2 * WORTH_A_THREAD
        given = not self.prior.learns_inclusion and len(self.prior.inclusion_matrix()) > 1
        strong = isinstance(self.prior.inclusion, Beta) and self.prior.inclusion.a + self.prior.inclusion.b > MOST_SURE
        plain = self.problem.feature_noise and not self.masked and not self.prior.grouped
        if joint or given or strong or not small or not plain:
            return None
        return SmallVI(self.problem, self.prior, self.vi_constants, self.memory)

    def _prior_odds(self, message: Message) -> tuple[Array, NDArray[np.int64]]:
        """(K, 1, V or G) what a row's odds need of the prior, and (G,) which of these a row has."""
        slab = 0.5 * (message.log_alpha - np.log(message.alpha)).reshape(self.prior.K, -1)
        logit, row = message.logit, self._logit_row(message.logit)
        if len(logit) < self.data.n_features:  # none for a row of its own
            return logit.T + slab, self.problem.group if slab.shape[1] > 1 else row
        # A full matrix of prior log odds is transposed once, for it does not change.
        if logit is not self._logit_source:
            self._logit_by_factor, self._logit_source = np.ascontiguousarray(logit.T), logit
        return self._logit_by_factor + (slab[:, self.problem.group] if slab.shape[1] > 1 else slab), row

    def _logit_row(self, logit: Array) -> NDArray[np.int64]:
        """(G,) which row of logit (1, V or G, K) each row of the data has."""
        if len(logit) == 1:
            return self._no_rows
        return self._every_row if len(logit) == self.data.n_features else self.problem.group

    def _logit_rows(self, logit: Array) -> Array:
        """(1 or G, K) of logit (1, V or G, K)."""
        return logit if len(logit) in (1, self.data.n_features) else logit[self.problem.group]

    def _vi_scratch(self) -> Any:
        return vi_scratch(self.problem.Y, self.problem.tile, self.prior.K, self.masked)

    # ---- Gibbs sampling -----------------------------------------------------------------------------------------

    def row_noise(self, key: tuple[int, int], sweep: int) -> RowStream:
        return RowStream(np.uint64(key[0]), np.uint64(key[1]), np.uint64(sweep))

    def gibbs_row_pass(self, rows: GibbsRows, message: Message, noise: RowStream) -> tuple[GibbsRows, Sums]:
        G, K = rows.L.shape
        seen = GibbsMessage(
            F=np.ascontiguousarray(message.F, self.problem.Y.dtype),
            gram=np.ascontiguousarray(message.gram),
            share=np.ascontiguousarray(message.share),
            alpha=np.ascontiguousarray(message.alpha.reshape(K, -1).T),
            logit=np.ascontiguousarray(message.logit),
            logit_row=self._logit_row(message.logit),
            scale=message.scale,
        )
        take = self.memory.take
        after = GibbsRows(Z=take(G, K, dtype=np.int8), L=take(G, K), tau=take(G))
        space = self._take(self._gibbs_spaces, self.gibbs_parts, self._gibbs_scratch)
        tiles, scratch = space
        run_parts(
            gibbs_tiles,
            [
                (first, last, self.problem, seen, rows, after, noise, tiles, scratch[p])
                for p, (first, last) in enumerate(self.gibbs_parts)
            ],
        )
        sums = total_sums(tiles, self.gibbs_constants)
        self._gibbs_spaces.append(space)
        return after, sums

    def gibbs_activations(self, sums: Sums, weight: Array, normal: Array) -> Array:
        K, _ = normal.shape
        F = np.empty(normal.shape)
        rest = (sums.LY, sums.LL, sums.LL_share, weight, normal, F)
        if self.masked or self.prior.noise == "sample":
            self._over_samples(column_kernels.draw_each, K**3 / 3, rest)
        else:
            column_kernels.draw_shared(*rest)
        return F

    # ---- moves --------------------------------------------------------------------------------------------------

    def gibbs_shear(self, rows: GibbsRows, columns: GibbsColumns, noise: ShearNoise) -> tuple[GibbsRows, Array]:
        block, own, slab = self._open(rows, columns)
        batch = noise.step.shape[2] if len(self.move_parts) > 1 else 1
        self._decide(shear_directions, block, own, slab, batch, *noise)
        return GibbsRows(block.Z, block.L, rows.tau), own.F

    def gibbs_rotate(
        self, rows: GibbsRows, columns: GibbsColumns, noise: RotationNoise
    ) -> tuple[GibbsRows, Array, Array]:
        block, own, slab = self._open(rows, columns)
        self._decide(rotate_pairs, block, own, slab, *noise)
        return GibbsRows(block.Z, block.L, rows.tau), own.F, slab.reshape(columns.alpha.shape)

    def gibbs_columns(
        self, rows: GibbsRows, columns: GibbsColumns, noise: ColumnNoise
    ) -> tuple[GibbsRows, Array, Array]:
        prior = self.prior
        block, own, slab = self._open(rows, columns)
        V = slab.shape[1]
        logit = columns.logit.copy()
        learnt = isinstance(prior.inclusion, Beta) and len(logit) == V
        a, b = (prior.inclusion.a, prior.inclusion.b) if isinstance(prior.inclusion, Beta) else (1.0, 1.0)
        sizes = np.bincount(self.problem.group, minlength=V).astype(np.float64)
        hyper, constant = np.empty((V, 4)), np.empty((V, 3))
        hyper[:] = prior.loading_shape, 0.0, a, b
        hyper[:, 1] = prior.loading_rate
        constant[:] = gammaln(prior.loading_shape), betaln(a, b), 0.0
        constant[:, 2] = betaln(a, b + sizes)
        rates = logit if learnt else np.zeros((V, logit.shape[1]))
        self._decide(draw_columns, block, own, slab, rates, learnt, sizes, hyper, constant, *noise)
        return GibbsRows(block.Z, block.L, rows.tau), slab.reshape(columns.alpha.shape), logit

    def gibbs_precisions(
        self, rows: GibbsRows, columns: GibbsColumns, noise: PrecisionNoise
    ) -> tuple[GibbsRows, Array]:
        (G, K), N = rows.L.shape, self.data.n_samples
        Z, L, tau = self.memory.take(G, K, dtype=np.int8), self.memory.take(G, K), self.memory.take(G)
        np.copyto(Z, rows.Z)
        np.multiply(rows.L, columns.scale, out=L)
        np.copyto(tau, rows.tau)
        C_tiles, M_tiles = self.memory.take(self.n_tiles, K, N), self.memory.take(self.n_tiles, K, K)
        run_parts(weighted_sums, [(*part, self.problem, L, tau, C_tiles, M_tiles) for part in self.move_parts])
        C, M = C_tiles.sum(axis=0), np.eye(K) + M_tiles.sum(axis=0)
        logit = np.ascontiguousarray(self._logit_rows(columns.logit))
        own = (self.problem, Z, L, tau, C, M, np.empty((2, K, K)), columns.alpha.reshape(K, -1), logit)
        end = noise.start + noise.n_rows
        for part in ((noise.start, min(end, G)), (0, min(end - G, noise.start))):
            draw_precisions(*part, *own, noise.stream)
        F = np.empty(noise.normal.shape)
        column_kernels.draw_shared(C, M - np.eye(K), np.zeros((0, K, K)), np.ones(N), noise.normal, F)
        return GibbsRows(Z, L, tau), F

    def _open(self, rows: GibbsRows, columns: GibbsColumns) -> tuple[MoveRows, MoveColumns, Array]:
        """Copies of rows and columns for a move to work on, and the products that it needs."""
        (G, K), problem, take = rows.L.shape, self.problem, self.memory.take
        F = columns.F.copy()
        weighted = np.ascontiguousarray((F * columns.weight).T)
        own = MoveColumns(F, np.ascontiguousarray(F.T), weighted, weighted.T @ F.T, F @ F.T)
        block = MoveRows(
            first=problem.first,
            tile=problem.tile,
            start=problem.start,
            columns=problem.columns,
            lists_missing=problem.lists_missing,
            Z=take(G, K, dtype=np.int8),
            L=take(G, K),
            tau=rows.tau,
            B=take(G, K),
            group=problem.group,
            logit=np.ascontiguousarray(self._logit_rows(columns.logit)),
            terms=take(FIELDS, G),
            sums=take(self.n_tiles, 2 * BATCH),
        )
        narrow = np.ascontiguousarray(weighted, problem.Y.dtype)
        before = (problem.Y, rows.Z, rows.L, narrow, columns.scale)
        space = [np.empty((problem.tile, K), narrow.dtype) for _ in self.move_parts]
        run_parts(
            open_rows,
            [(*part, block, *before, scratch) for part, scratch in zip(self.move_parts, space, strict=True)],
        )
        return block, own, columns.alpha.reshape(K, -1).copy()

    def _decide(self, driver: Any, block: MoveRows, *args: Any) -> None:
        """A move on the calling thread alone, or with its passes over the rows shared out."""
        hold_single_blas_thread()
        if len(self.move_parts) == 1:
            driver(None, self.n_tiles, block, block.sums, *args)
        else:
            parts = [(0, *part) for part in self.move_parts]
            getattr(driver, "py_func", driver)(run_parts, parts, [block], block.sums, *args)

    def _gibbs_scratch(self) -> Any:
        return gibbs_scratch(self.problem.Y, self.problem.tile, self.prior.K)

    # ---- what both methods share --------------------------------------------------------------------------------

    def _take(
        self, spaces: list[tuple[TileSums, list[Any]]], parts: list[tuple[int, int]], scratch: Callable[[], Any]
    ) -> tuple[TileSums, list[Any]]:
        """Working space for one pass: one that no other pass is using, or a new one."""
        try:
            return spaces.pop()
        except IndexError:
            return empty_tile_sums(self.problem, self.prior.K), [scratch() for _ in parts]

    def _over_samples(self, kernel: Callable[..., None], per_sample: float, rest: tuple[Any, ...]) -> None:
        N = self.data.n_samples
        parts = split(N, self._threads_for(N * per_sample))
        run_parts(kernel, [(*part, *rest) for part in parts])
