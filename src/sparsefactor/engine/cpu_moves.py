"""The sampler's moves on blocks of rows in this process's memory (docs/math.md, 2.10, 2.11, 2.15 and 2.16)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

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
from ..kernels.cpu.column import draw_columns
from ..kernels.cpu.columns import draw_shared
from ..kernels.cpu.moves import BATCH, FIELDS, MoveColumns, MoveRows, open_rows
from ..kernels.cpu.precision import draw_precisions, weighted_sums
from ..kernels.cpu.rotate import rotate_pairs
from ..kernels.cpu.shear import shear_directions
from ..model import Beta, Prior
from .blas import hold_single_blas_thread
from .blocks import Blocks, Part, by_rows
from .memory import Memory
from .threads import run_parts


class CpuMoves:
    """What moves ask of the engine."""

    data: Data
    prior: Prior
    blocks: Blocks
    memory: Memory
    move_parts: list[Part]
    group: NDArray[np.int64]
    V: int

    def gibbs_shear(self, rows: GibbsRows, columns: GibbsColumns, noise: ShearNoise) -> tuple[GibbsRows, Array]:
        after, blocks, sums, own, slab = self._open(rows, columns)
        batch = noise.step.shape[2] if len(self.move_parts) > 1 else 1
        self._decide(shear_directions, blocks, sums, own, slab, batch, *noise)
        return after, own.F

    def gibbs_rotate(
        self, rows: GibbsRows, columns: GibbsColumns, noise: RotationNoise
    ) -> tuple[GibbsRows, Array, Array]:
        after, blocks, sums, own, slab = self._open(rows, columns)
        self._decide(rotate_pairs, blocks, sums, own, slab, *noise)
        return after, own.F, slab.reshape(columns.alpha.shape)

    def gibbs_columns(
        self, rows: GibbsRows, columns: GibbsColumns, noise: ColumnNoise
    ) -> tuple[GibbsRows, Array, Array]:
        prior, V = self.prior, self.V
        after, blocks, sums, own, slab = self._open(rows, columns)
        logit = columns.logit.copy()
        learnt = isinstance(prior.inclusion, Beta) and len(logit) == V and not len(rows.member)
        a, b = (prior.inclusion.a, prior.inclusion.b) if isinstance(prior.inclusion, Beta) else (1.0, 1.0)
        sizes = np.bincount(self.group, minlength=V).astype(np.float64)
        hyper, constant = np.empty((V, 4)), np.empty((V, 3))
        hyper[:] = prior.loading_shape, 0.0, a, b
        hyper[:, 1] = prior.loading_rate
        constant[:] = gammaln(prior.loading_shape), betaln(a, b), 0.0
        constant[:, 2] = betaln(a, b + sizes)
        rates = logit if learnt else np.zeros((V, logit.shape[1]))
        self._decide(draw_columns, blocks, sums, own, slab, rates, learnt, sizes, hyper, constant, *noise)
        return after, slab.reshape(columns.alpha.shape), logit

    def gibbs_precisions(
        self, rows: GibbsRows, columns: GibbsColumns, noise: PrecisionNoise
    ) -> tuple[GibbsRows, Array]:
        assert self.data.is_complete and self.prior.noise == "feature", "see moves"  # noqa: PT018
        (G, K), N, n_tiles, take = rows.L.shape, self.data.n_samples, self.blocks.n_tiles, self.memory.take
        Z, L, tau = take(G, K, dtype=np.int8), take(G, K), take(G)
        np.copyto(Z, rows.Z)
        np.multiply(rows.L, columns.scale, out=L)
        np.copyto(tau, rows.tau)
        C_tiles, M_tiles = take(n_tiles, K, N), take(n_tiles, K, K)
        places = list(zip(self.blocks.problems, self.blocks.rows, self.blocks.tiles, strict=True))
        own = [(problem, L[part], tau[part], C_tiles[tiles], M_tiles[tiles]) for problem, part, tiles in places]
        run_parts(weighted_sums, [(first, last, *own[b]) for b, first, last in self.move_parts])
        C, M = C_tiles.sum(axis=0), np.eye(K) + M_tiles.sum(axis=0)
        logit, slab = self._logit_rows(columns.logit, rows), columns.alpha.reshape(K, -1)
        common = (C, M, np.empty((2, K, K)), slab)
        end, done = noise.start + noise.n_rows, 0
        for begin, stop in ((noise.start, min(end, G)), (0, min(end - G, noise.start))):
            for problem, part, _ in places:  # a row at a time, so that blocks take their turns
                first, last = max(begin, part.start) - part.start, min(stop, part.stop) - part.start
                block = (problem, Z[part], L[part], tau[part], *common, np.ascontiguousarray(by_rows(logit, part)))
                if first < last:
                    draw_precisions(first, last, done, *block, noise.stream)
                    done += last - first
        F = np.empty(noise.normal.shape)
        draw_shared(C, M - np.eye(K), np.zeros((0, K, K)), np.ones(N), noise.normal, F)
        return rows._replace(Z=Z, L=L, tau=tau), F

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
        own = MoveColumns(F, np.ascontiguousarray(F.T), weighted, weighted.T @ F.T, F @ F.T)
        after = rows._replace(Z=take(G, K, dtype=np.int8), L=take(G, K))
        logit = self._logit_rows(columns.logit, rows)
        B, sums = take(G, K), take(self.blocks.n_tiles, 2 * BATCH)
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
                terms=take(FIELDS, len(problem.Y)),
                sums=sums[tiles],
            )
            for problem, part, tiles in zip(self.blocks.problems, self.blocks.rows, self.blocks.tiles, strict=True)
        ]
        narrow = np.ascontiguousarray(weighted, self.data.Y.dtype)
        before = [
            (block, problem.Y, rows.Z[part], rows.L[part], narrow, columns.scale)
            for block, problem, part in zip(blocks, self.blocks.problems, self.blocks.rows, strict=True)
        ]
        run_parts(
            open_rows,
            [
                (first, last, *before[b], np.empty((self.blocks.tile, K), narrow.dtype))
                for b, first, last in self.move_parts
            ],
        )
        return after, blocks, sums, own, columns.alpha.reshape(K, -1).copy()

    def _decide(self, driver: Any, blocks: list[MoveRows], sums: Array, *args: Any) -> None:
        """A move on the calling thread alone, or with its passes over the rows shared out."""
        hold_single_blas_thread()
        if len(self.move_parts) == 1:
            driver(None, self.blocks.n_tiles, blocks[0], sums, *args)
        else:
            getattr(driver, "py_func", driver)(run_parts, self.move_parts, blocks, sums, *args)
