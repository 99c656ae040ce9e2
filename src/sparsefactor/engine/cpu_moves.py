"""The sampler's moves on blocks of rows in this process's memory (math.md, 2.10, 2.11, 2.15 and 2.16)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

from ..arrays import NUMPY
from ..computed import computed
from ..data import Data
from ..kernels.contract import (
    NONE,
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


class OpenMove(NamedTuple):
    """What a move works on: copies of rows and columns, and the products that it needs."""

    rows: GibbsRows  # Z and L change in place, as do columns and slab
    blocks: list[MoveRows]
    parts: list[Part]
    sums: Array  # (tiles, 2 BATCH)
    columns: MoveColumns
    slab: Array  # (K, V) alpha
    sizes: Array  # (V,) features in each group, among all rows
    hyper: Array  # (V, 4), and
    constant: Array  # (V, 3): `slab_constants` of these

    def decide(self, driver: Any, *args: Any) -> None:
        """Run a move on the calling thread alone, or with its passes over the rows shared out."""
        hold_single_blas_thread()
        if len(self.parts) == 1:
            driver(None, self.parts[0].last, self.blocks[0], self.sums, *args)
        else:
            getattr(driver, "py_func", driver)(run_parts, self.parts, self.blocks, self.sums, *args)

    @property
    def phi(self) -> Array:
        """The columns' phi, (K, K) or none."""
        return self.columns.phi if len(self.columns.phi) else NONE

    def shear(self, noise: ShearNoise) -> tuple[Array, Array]:
        """New F (K, N) and phi."""
        batch = noise.step.shape[2] if len(self.parts) > 1 else 1
        self.decide(shear_directions, self.columns, self.slab, self.hyper, batch, *noise)
        return self.columns.F, self.phi

    def rotate(self, noise: RotationNoise) -> tuple[Array, Array, Array]:
        """New F (K, N), alpha (K, V) and phi."""
        self.decide(rotate_pairs, self.columns, self.slab, self.hyper, *noise)
        return self.columns.F, self.slab, self.phi

    def draw_columns(self, noise: ColumnNoise, learns_inclusion: bool, logit: Array) -> tuple[Array, Array]:
        """New alpha (K, V) and logit, which is (1, V or G, K) of all rows."""
        V, logit = self.slab.shape[1], logit.copy()
        learnt = learns_inclusion and len(logit) == V and not len(self.rows.member)
        rates = logit if learnt else np.zeros((V, logit.shape[1]))
        constants = self.sizes, self.hyper, self.constant
        self.decide(draw_columns, self.columns, self.slab, rates, learnt, *constants, *noise)
        return self.slab, logit


class CpuMoves:
    """What moves ask of the engine."""

    data: Data
    prior: Prior
    blocks: Blocks
    memory: Memory
    passes: Passes
    move_rounds: list[Round]
    move_parts: list[Part]
    group: NDArray[np.int64]
    V: int

    def gibbs_shear(self, rows: GibbsRows, columns: GibbsColumns, noise: ShearNoise) -> tuple[GibbsRows, Array, Array]:
        move = self.open_move(rows, columns)
        return move.rows, *move.shear(noise)

    def gibbs_rotate(
        self, rows: GibbsRows, columns: GibbsColumns, noise: RotationNoise
    ) -> tuple[GibbsRows, Array, Array, Array]:
        move = self.open_move(rows, columns)
        F, alpha, phi = move.rotate(noise)
        return move.rows, F, alpha.reshape(columns.alpha.shape), phi

    def gibbs_columns(
        self, rows: GibbsRows, columns: GibbsColumns, noise: ColumnNoise
    ) -> tuple[GibbsRows, Array, Array]:
        move = self.open_move(rows, columns)
        alpha, logit = move.draw_columns(noise, self.prior.learns_inclusion, columns.logit)
        return move.rows, alpha.reshape(columns.alpha.shape), logit

    def gibbs_precisions(
        self, rows: GibbsRows, columns: GibbsColumns, noise: PrecisionNoise
    ) -> tuple[GibbsRows, Array]:
        assert self.prior.noise == "feature", "see moves"
        if not self.data.is_complete:
            return self.own_parts.draw(rows, columns, noise)
        after, C, M = self.open_precisions(rows, columns)
        prior = inverse_of(columns.phi, len(M), NUMPY)
        state, done = precision_state(C, M, prior), 0
        for first, last in turns_of(noise, self.data.n_features):
            self.draw_precisions(first, last, done, after, state, columns, noise)
            done += last - first
        return after, activations_given(state, prior, noise.normal)

    def open_precisions(self, rows: GibbsRows, columns: GibbsColumns) -> tuple[GibbsRows, Array, Array]:
        """Copies of rows at scale one, and L'DY (K, N) and L'DL (K, K) of all rows."""
        (G, K), N, take = rows.L.shape, self.data.n_samples, self.memory.take
        after = rows._replace(Z=take(G, K, dtype=np.int8), L=take(G, K), tau=take(G))
        np.copyto(after.Z, rows.Z)
        np.multiply(rows.L, columns.scale, out=after.L)
        np.copyto(after.tau, rows.tau)
        n_tiles, _ = room_for(self.move_rounds)
        tiles = WeightedTiles(take(n_tiles, K, N), take(n_tiles, K, K))

        def args(b: int, p: int, own: slice) -> tuple[Any, ...]:
            part = self.blocks.rows[b]
            return (self.blocks.problems[b], after.L[part], after.tau[part], *self.blocks.of_tiles(tiles, b, own))

        ((C, M),) = self.passes.run(weighted_sums, self.move_rounds, args, [tiles])
        return after, C, M

    def draw_precisions(
        self,
        begin: int,
        stop: int,
        done: int,
        rows: GibbsRows,
        state: tuple[Array, ...],
        columns: GibbsColumns,
        noise: PrecisionNoise,
    ) -> None:
        """Update rows begin .. stop of this block; done: rows drawn before them. Rows and state change in place."""
        logit, slab = self._logit_rows(columns.logit, rows), columns.alpha.reshape(len(columns.alpha), -1)
        for problem, part in zip(self.blocks.problems, self.blocks.rows, strict=True):
            first, last = max(begin, part.start) - part.start, min(stop, part.stop) - part.start
            if first < last:
                own = rows.Z[part], rows.L[part], rows.tau[part]
                odds = np.ascontiguousarray(by_rows(logit, part))
                draw_precisions(first, last, done, problem, *own, *state, slab, odds, noise.stream)
                done += last - first

    @computed
    def own_parts(self) -> OwnParts:
        """Where entries are missing."""
        return OwnParts(self.data, self.prior)

    @property
    def has_own_parts(self) -> bool:
        return is_small(self.data, self.prior) and not self.data.is_part

    def precisions_of(self, data: Data, prior: Prior) -> Any:
        """`gibbs_precisions` of these data, which are ours with a design; None where they are too large."""
        return OwnParts(data, prior).draw if is_small(data, prior) and not self.data.is_part else None

    def _logit_rows(self, logit: Array, rows: GibbsRows) -> Array:
        """(1 or G, K) of logit (1, V or G, K), or (M, K) where rows are in modules."""
        if len(rows.member):
            return logit[rows.member]
        return logit if len(logit) in (1, self.data.n_features) else logit[self.group]

    def open_move(self, rows: GibbsRows, columns: GibbsColumns) -> OpenMove:
        """Copies of rows and columns for a move to work on, and the products that it needs."""
        (G, K), take = rows.L.shape, self.memory.take
        F = columns.F.copy()
        weighted = np.ascontiguousarray((F * columns.weight).T)
        phi = columns.phi.copy() if len(columns.phi) else np.zeros((0, 0))
        inverse = np.ascontiguousarray(np.linalg.inv(phi))
        own = MoveColumns(F, np.ascontiguousarray(F.T), weighted, weighted.T @ F.T, F @ F.T, phi, inverse)
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
                terms=take(FIELDS, len(problem.row_ss)),
                sums=sums[tiles],
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
        slab = columns.alpha.reshape(K, -1).copy()
        sizes = self.prior.group_sizes if self.V > 1 else np.array([float(self.data.n_rows or self.data.n_features)])
        constants = slab_constants(self.prior, sizes)
        return OpenMove(after, blocks, self.move_parts, sums, own, slab, sizes, *constants)


def turns_of(noise: PrecisionNoise, n_features: int) -> list[tuple[int, int]]:
    """The rows whose precisions are drawn: from the first one on, and after the last row from the beginning."""
    end = noise.start + noise.n_rows
    return [(noise.start, min(end, n_features)), (0, max(0, min(end - n_features, noise.start)))]


def precision_state(C: Array, M: Array, prior: Array) -> tuple[Array, Array, Array]:
    """What passes from row to row while precisions are drawn; C, M: L'DY and L'DL of all rows, prior: (K, K) Phi^-1."""
    return C, prior + M, np.zeros((2, *M.shape))


def activations_given(state: tuple[Array, ...], prior: Array, normal: Array) -> Array:
    """A draw of F (K, N) given the rows, from standard normals."""
    C, M, _ = state
    F = np.empty(normal.shape)
    draw_shared(C, M - prior, np.ones(normal.shape[1]), prior, normal, F)
    return F
