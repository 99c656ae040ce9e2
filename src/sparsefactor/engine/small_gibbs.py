"""Whole sweeps of Gibbs sampling of small data, between the states of chains and the arrays of their kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels.contract import (
    TRIES,
    ColumnNoise,
    CorrelationNoise,
    GibbsColumns,
    GibbsRows,
    GibbsTerms,
    MoveNoise,
    PrecisionNoise,
    RotationNoise,
    RowStream,
    RunRule,
    ShearNoise,
    Sums,
)
from ..kernels.cpu.gibbs_run import small_run
from ..kernels.cpu.gibbs_small import Slab, SweepSpace, small_sweep, sweep_space
from ..kernels.cpu.tiles import Problem
from ..kernels.protocol import Drawn, RunStart
from ..model import Beta, Prior
from .blas import hold_single_blas_thread
from .cpu_moves import slab_constants
from .memory import Memory
from .small import matrix


class SmallGibbs:
    """A `GibbsShortcut` (kernels/cpu/gibbs_small.py)."""

    takes_moves, draws_normals = True, False

    def __init__(self, problem: Problem, prior: Prior, constant: float, memory: Memory) -> None:
        """constant: of the rows' part of the log joint."""
        self.problem, self.memory, self.constant = problem, memory, constant
        (G, self.N), self.K = problem.Y.shape, prior.K
        sizes = np.array([float(G)])
        self.slab = Slab(isinstance(prior.inclusion, Beta), sizes, *slab_constants(prior, sizes))
        self.each, self.runs = prior.noise == "sample", prior.noise == "feature"
        self.logit_rows = 1 if self.slab.learnt else len(prior.inclusion_matrix())
        self.no_share = np.zeros((0, self.K, self.K))
        self.still, self.correlated = still(self.K, self.N), prior.correlated
        self.spaces: list[SweepSpace] = []

    def draw(
        self,
        rows: GibbsRows,
        columns: GibbsColumns,
        key: tuple[int, int],
        sweep: int,
        power: float,
        normal: Any,
        moves: MoveNoise,
    ) -> Drawn:
        (G, K), N, take = rows.L.shape, self.N, self.memory.take
        space = self._space()
        Z, L, tau = take(G, K, dtype=np.int8), take(G, K), take(G)
        F, LY, LL, small, told = (
            np.empty((K, N)),
            np.empty((K, N)),
            np.empty((K, K)),
            np.empty(2 * K + 3),
            np.empty(N + K + 1),
        )
        phi = matrix(columns.phi).copy()
        due = tuple(rest if noise is None else noise for noise, rest in zip(moves, self.still, strict=True))
        hold_single_blas_thread()
        small_sweep(
            self.problem,
            space,
            (rows.Z, rows.L, rows.tau),
            (np.ascontiguousarray(columns.F), columns.alpha, columns.logit, columns.weight, columns.scale),
            phi,
            float(power),
            self.each,
            self.slab,
            due,
            RowStream(np.uint64(key[0]), np.uint64(key[1]), np.uint64(sweep)),
            normal,
            (Z, L, tau),
            F,
            LY,
            LL,
            small,
            told,
        )
        self.spaces.append(space)
        weighted_ss, noise, log_odds = small[2 * K :].tolist()
        sums = Sums(
            LY,
            LL,
            self.no_share,
            small[:K],
            small[K : 2 * K],
            joint=GibbsTerms(weighted_ss, noise + self.constant, log_odds),
            explained=told[:N],
            f2=told[N : N + K],
        )
        return Drawn(rows._replace(Z=Z, L=L, tau=tau), F, sums, float(told[N + K]), phi if len(phi) else columns.phi)

    def run(
        self, start: RunStart, rule: RunRule, key: tuple[int, int], rng: np.random.Generator
    ) -> tuple[RunStart, float]:
        """Many sweeps by one call; see `GibbsShortcut`."""
        rows, *columns = start
        own = np.array(rows.Z), np.array(rows.L), np.array(rows.tau)
        F, alpha, rate, logit, scale, _ = map(np.array, columns)
        phi = matrix(start.phi).copy()
        space = self._space()
        hold_single_blas_thread()
        known = self.problem, space, rule, own, F, alpha, rate, logit, scale, phi
        largest = small_run(*known, np.uint64(key[0]), np.uint64(key[1]), rng)
        self.spaces.append(space)
        Z, L, tau = own
        after = RunStart(rows._replace(Z=Z, L=L, tau=tau), F, alpha, rate, logit, scale, phi if len(phi) else start.phi)
        return after, float(largest)

    def _space(self) -> SweepSpace:
        try:
            return self.spaces.pop()
        except IndexError:  # all are in use by other threads
            return sweep_space(self.problem, self.K, self.logit_rows, self.correlated)


def still(K: int, N: int) -> MoveNoise:
    """Of moves that are not made."""
    none, nobody = np.zeros(0), RowStream(np.uint64(0), np.uint64(0), np.uint64(0))
    no_order = np.zeros(0, np.int64)
    return MoveNoise(
        rotation=RotationNoise(np.zeros((0, 2), np.int64), none, none, none, np.zeros((0, TRIES)), nobody),
        shear=ShearNoise(no_order, np.zeros((0, K, 1)), np.zeros((0, K, 1)), nobody),
        column=ColumnNoise(
            no_order,
            np.zeros((0, 1, 2)),
            np.zeros((0, 1)),
            np.zeros((0, 1, 2)),
            np.zeros((0, 1, 2)),
            np.zeros((0, 1, 2, TRIES)),
            nobody,
        ),
        precision=PrecisionNoise(0, 0, nobody, np.zeros((K, N))),
        correlation=CorrelationNoise(np.zeros((3, K)), np.zeros((0, K)), none, 0.0),
    )
