"""The sampler's moves on blocks of rows in this process's memory (docs/math.md, 2.10, 2.11, 2.15 and 2.16)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

from ..arrays import NUMPY
from ..computed import computed
from ..data import Data
from ..kernels.contract import (
    Array,
    ColumnNoise,
    GibbsColumns,
    GibbsRows,
    PrecisionNoise,
    RotationNoise,
    ShearNoise,
)
from ..kernels.correlation import inverse_of
from ..kernels.cpu.column import draw_columns
from ..kernels.cpu.columns import draw_shared
from ..kernels.cpu.moves import BATCH, FIELDS, MoveColumns, MoveRows, open_rows
from ..kernels.cpu.precision import draw_precisions, weighted_sums
from ..kernels.cpu.rotate import rotate_pairs
from ..kernels.cpu.shear import shear_directions
from ..kernels.exchange import HERE, Exchange
from ..model import Beta, Prior
from .blas import hold_single_blas_thread
from .blocks import Blocks, Part, Round, by_rows
from .memory import Memory
from .own_parts import OwnParts, is_small
from .passes import Passes, room_for
from .threads import run_parts


def slab_constants(prior: Prior, sizes: Array) -> tuple[Array, Array]:
    """(V, 4) and (V, 3) as draw_columns takes them; sizes: (V,) of the groups."""
    a, b = (prior.inclusion.a, prior.inclusion.b) if isinstance(prior.inclusion, Beta) else (1.0, 1.0)
    hyper, constant = np.empty((len(sizes), 4)), np.empty((len(sizes), 3))
    hyper[:] = prior.loading_shape, 0.0, a, b
    hyper[:, 1] = prior.loading_rate
    constant[:] = gammaln(prior.loading_shape), betaln(a, b), 0.0
    constant[:, 2] = betaln(a, b + sizes)
    return hyper, constant


class WeightedTiles(NamedTuple):
    """What tiles add to C = L'DY and M = L'DL."""

    C: Array  # (tiles, K, N)
    M: Array  # (tiles, K, K)


class Together:
    """Passes of a move over our rows, whose sums by tile become those of all rows."""

    def __init__(self, exchange: Exchange, sums: Array, own: slice) -> None:
        self.exchange, self.sums, self.own = exchange, sums, own

    def __call__(self, kernel: Any, parts: Sequence[tuple[Any, ...]]) -> None:
        if parts:
            run_parts(kernel, parts)

    def share(self) -> None:
        """After a pass that leaves sums."""
        self.sums[:] = self.exchange.gather(self.sums[self.own])


class CpuMoves:
    """What moves ask of the engine."""

    data: Data
    prior: Prior
    blocks: Blocks
    memory: Memory
    exchange: Exchange
    passes: Passes
    move_rounds: list[Round]
    move_parts: list[Part]
    group: NDArray[np.int64]
    V: int

    def gibbs_shear(self, rows: GibbsRows, columns: GibbsColumns, noise: ShearNoise) -> tuple[GibbsRows, Array, Array]:
        after, blocks, sums, own, slab = self._open(rows, columns)
        batch = noise.step.shape[2] if len(self.move_parts) > 1 or self.exchange is not HERE else 1
        self._decide(shear_directions, blocks, sums, own, slab, self._slab()[1], batch, *noise)
        return after, own.F, own.phi if len(columns.phi) else columns.phi

    def gibbs_rotate(
        self, rows: GibbsRows, columns: GibbsColumns, noise: RotationNoise
    ) -> tuple[GibbsRows, Array, Array, Array]:
        after, blocks, sums, own, slab = self._open(rows, columns)
        self._decide(rotate_pairs, blocks, sums, own, slab, self._slab()[1], *noise)
        return after, own.F, slab.reshape(columns.alpha.shape), own.phi if len(columns.phi) else columns.phi

    def gibbs_columns(
        self, rows: GibbsRows, columns: GibbsColumns, noise: ColumnNoise
    ) -> tuple[GibbsRows, Array, Array]:
        V = self.V
        after, blocks, sums, own, slab = self._open(rows, columns)
        logit = columns.logit.copy()
        learnt = isinstance(self.prior.inclusion, Beta) and len(logit) == V and not len(rows.member)
        sizes, hyper, constant = self._slab()
        rates = logit if learnt else np.zeros((V, logit.shape[1]))
        self._decide(draw_columns, blocks, sums, own, slab, rates, learnt, sizes, hyper, constant, *noise)
        return after, slab.reshape(columns.alpha.shape), logit

    def _slab(self) -> tuple[Array, Array, Array]:
        """(V,) features in each group, and `slab_constants` of these."""
        sizes = self.prior.group_sizes if self.V > 1 else np.array([float(self.data.n_rows or self.data.n_features)])
        return sizes, *slab_constants(self.prior, sizes)

    def gibbs_precisions(
        self, rows: GibbsRows, columns: GibbsColumns, noise: PrecisionNoise
    ) -> tuple[GibbsRows, Array]:
        assert self.prior.noise == "feature", "see moves"
        if not self.data.is_complete:
            return self.own_parts.draw(rows, columns, noise)
        (G, K), N, take = rows.L.shape, self.data.n_samples, self.memory.take
        Z, L, tau = take(G, K, dtype=np.int8), take(G, K), take(G)
        np.copyto(Z, rows.Z)
        np.multiply(rows.L, columns.scale, out=L)
        np.copyto(tau, rows.tau)
        n_tiles, _ = room_for(self.move_rounds)
        tiles = WeightedTiles(take(n_tiles, K, N), take(n_tiles, K, K))

        def args(b: int, p: int, own: slice) -> tuple[Any, ...]:
            part = self.blocks.rows[b]
            return (self.blocks.problems[b], L[part], tau[part], *self.blocks.of_tiles(tiles, b, own))

        ((C, M),) = self.passes.run(weighted_sums, self.move_rounds, args, [tiles], needed=True)
        prior = inverse_of(columns.phi, K, NUMPY)
        M = prior + M
        logit, slab = self._logit_rows(columns.logit, rows), columns.alpha.reshape(K, -1)
        state, mine = np.zeros((2, K, K)), slice(self.data.first, self.data.first + G)
        end, done, everyone = noise.start + noise.n_rows, 0, self.data.n_rows or G
        for begin, stop in ((noise.start, min(end, everyone)), (0, min(end - everyone, noise.start))):
            for turn, held in self.exchange.turns(mine):  # a row at a time, so that holders and blocks take their turns
                first, last = max(begin, held.start), min(stop, held.stop)
                if first >= last:
                    continue
                if held == mine:
                    self._draw_precisions(first, last, done, (Z, L, tau), (C, M, state, slab), logit, noise)
                done += last - first
                C, M, state = self.exchange.pass_on(turn, (C, M, state))
        F = np.empty(noise.normal.shape)
        draw_shared(C, M - prior, np.ones(N), prior, noise.normal, F)
        return rows._replace(Z=Z, L=L, tau=tau), F

    @computed
    def own_parts(self) -> OwnParts:
        """Where entries are missing."""
        return OwnParts(self.data, self.prior)

    @property
    def has_own_parts(self) -> bool:
        return is_small(self.data, self.prior) and self.exchange is HERE

    def precisions_of(self, data: Data, prior: Prior) -> Any:
        """`gibbs_precisions` of these data, which are ours with a design; None where they are too large."""
        return OwnParts(data, prior).draw if is_small(data, prior) and self.exchange is HERE else None

    def _draw_precisions(
        self,
        begin: int,
        stop: int,
        done: int,
        rows: tuple[Any, ...],
        common: tuple[Any, ...],
        logit: Array,
        noise: PrecisionNoise,
    ) -> None:
        """Of our rows begin .. stop, by their numbers among all; rows: Z, L, tau, and common: C, M, ..., in place."""
        begin, stop = begin - self.data.first, stop - self.data.first
        for problem, part in zip(self.blocks.problems, self.blocks.rows, strict=True):
            first, last = max(begin, part.start) - part.start, min(stop, part.stop) - part.start
            if first < last:
                own = tuple(values[part] for values in rows)
                odds = np.ascontiguousarray(by_rows(logit, part))
                draw_precisions(first, last, done, problem, *own, *common, odds, noise.stream)
                done += last - first

    def _logit_rows(self, logit: Array, rows: GibbsRows) -> Array:
        """(1 or G, K) of logit (1, V or G, K), or (M, K) where rows are in modules."""
        if len(rows.member):
            return logit[rows.member]
        return logit if len(logit) in (1, self.data.n_features) else logit[self.group]

    def _open(
        self, rows: GibbsRows, columns: GibbsColumns
    ) -> tuple[GibbsRows, list[MoveRows], Array, MoveColumns, Array]:
        """Copies of rows and columns for a move to work on, the products that it needs, and (K, V) alpha."""
        (G, K), take = rows.L.shape, self.memory.take
        F = columns.F.copy()
        weighted = np.ascontiguousarray((F * columns.weight).T)
        phi = columns.phi.copy() if len(columns.phi) else np.zeros((0, 0))
        inverse = np.ascontiguousarray(np.linalg.inv(phi))
        own = MoveColumns(F, np.ascontiguousarray(F.T), weighted, weighted.T @ F.T, F @ F.T, phi, inverse)
        after = rows._replace(Z=take(G, K, dtype=np.int8), L=take(G, K))
        logit = self._logit_rows(columns.logit, rows)
        B, sums, before_us = take(G, K), take(self.blocks.all_tiles, 2 * BATCH), self.blocks.first_tile
        blocks = [
            MoveRows(
                first=problem.first,
                tile=problem.tile,
                start=problem.start,
                columns=problem.columns,
                lists_missing=problem.lists_missing,
                Z=after.Z[part],
                L=after.L[part],
                tau=rows.tau[part],
                B=B[part],
                group=problem.group,
                logit=np.ascontiguousarray(by_rows(logit, part)),
                terms=take(FIELDS, len(problem.row_ss)),
                sums=sums[before_us + tiles.start : before_us + tiles.stop],
            )
            for problem, part, tiles in zip(self.blocks.problems, self.blocks.rows, self.blocks.tiles, strict=True)
        ]
        narrow = np.ascontiguousarray(weighted, self.data.Y.dtype)
        before = [
            (block, problem.Y, rows.Z[part], rows.L[part], narrow, columns.scale)
            for block, problem, part in zip(blocks, self.blocks.problems, self.blocks.rows, strict=True)
        ]
        for _, parts in self.move_rounds:
            product = (self.blocks.tile, K), narrow.dtype
            run_parts(open_rows, [(first, last, *before[b], np.empty(*product)) for b, first, last in parts])
            self.blocks.release(parts)
        return after, blocks, sums, own, columns.alpha.reshape(K, -1).copy()

    def _decide(self, driver: Any, blocks: list[MoveRows], sums: Array, *args: Any) -> None:
        """A move on the calling thread alone, or with its passes over the rows shared out."""
        hold_single_blas_thread()
        if self.exchange is not HERE:
            first = self.blocks.first_tile
            run = Together(self.exchange, sums, slice(first, first + self.blocks.n_tiles))
            getattr(driver, "py_func", driver)(run, self.move_parts, blocks, sums, *args)
        elif len(self.move_parts) == 1:
            driver(None, self.blocks.n_tiles, blocks[0], sums, *args)
        else:
            getattr(driver, "py_func", driver)(run_parts, self.move_parts, blocks, sums, *args)
