"""Whole iterations on the device: of variational inference, whose ELBO comes back, and of Gibbs sampling but for the
draws of a few numbers for each factor, whose sums come back. What has the size of the samples stays there."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data import Data
from ..kernels.columns import fixed_of
from ..kernels.contract import (
    NONE,
    NOWHERE,
    Array,
    ELBOTerms,
    GibbsColumns,
    GibbsRows,
    MoveNoise,
    RowStream,
    Sums,
    VIColumns,
    VIRows,
    VITerms,
)
from ..kernels.inclusion import inclusion_of
from ..kernels.jax.library import JAX, host, with_64_bits
from ..kernels.jax.problem import Kind, Problem
from ..kernels.protocol import Drawn
from ..model import Prior
from .jax_steps import column_step, gibbs_step, laid_out, parted, row_step, with_nones, without_terms

SMALL = ("active", "l2", "members", "active_in")  # sums that the host looks at


class JaxVI:
    """A `VIShortcut`; the equations are those of kernels/columns.py, compiled."""

    @with_64_bits
    def __init__(self, problem: Problem, kind: Kind, data: Data, prior: Prior) -> None:
        self.problem, self.kind, self.in_modules = problem, kind, prior.n_modules > 1
        parts = parted(fixed_of(data, prior, JAX)), parted(inclusion_of(prior, data, JAX))
        (self.static, self.arrays) = zip(*parts, strict=True)
        self.climbs = self.slides = False

    @with_64_bits
    def next_columns(self, rows: VIRows, columns: VIColumns, sums: Sums, rescale: bool) -> tuple[VIColumns, Array]:
        """The column step, each factor at its best scale if asked for, and what the rows are to be multiplied by."""
        new, scale = column_step(self.arrays, columns, without_terms(sums), static=self.static, rescale=rescale)
        return with_nones(new, columns), scale

    @with_64_bits
    def finish(self, rows: VIRows, columns: VIColumns, scale: Array) -> tuple[VIRows, Sums, ELBOTerms, float]:
        """The row pass, the ELBO's terms and the ELBO."""
        width = 6 if self.in_modules else 4
        after, sums, told = self.row_step(VIRows(*rows[:width]), columns, scale)
        told, small = host((told, {name: getattr(sums, name) for name in SMALL}))
        terms = ELBOTerms(*told.tolist())
        return VIRows(*after[:width]), sums._replace(**small, elbo=VITerms()), terms, terms.total

    def row_step(self, rows: VIRows, columns: VIColumns, scale: Array) -> tuple[VIRows, Sums, Any]:
        """The row pass, its sums, and the ELBO's terms (6,)."""
        own: tuple[VIRows, Sums, Any] = row_step(
            self.problem, self.arrays, rows, columns, scale, static=self.static, kind=self.kind
        )
        return own

    def climb(self, *_: Any) -> Any:
        raise NotImplementedError("iterations are made one by one here: see climbs")


class JaxGibbs:
    """A `GibbsShortcut`; the equations are those of kernels/columns.py and kernels/jax/gibbs_rows.py, compiled."""

    takes_moves, draws_normals, runs = False, True, False

    def run(self, start: Any, rule: Any, key: Any, rng: Any) -> Any:
        raise NotImplementedError("sweeps are made one at a time here: see runs")

    @with_64_bits
    def __init__(self, problem: Problem, kind: Kind, data: Data, prior: Prior) -> None:
        self.problem, self.kind, self.each = problem, kind, each_sample(kind, prior)
        self.static, self.arrays = parted(fixed_of(data, prior, JAX))
        self.weighted = prior.noise != "feature"

    @with_64_bits
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
        """tau, z and l of every row, and F."""
        K, N = columns.F.shape
        after, F, sums, small = self.step(
            GibbsRows(rows.Z, rows.L, rows.tau, member=rows.member if len(rows.member) else NOWHERE),
            GibbsColumns(
                F=columns.F,
                alpha=NONE,
                logit=columns.logit,
                weight=columns.weight if self.weighted else NONE,
                scale=np.column_stack([columns.scale, columns.alpha]),
                phi=columns.phi,
            ),
            np.array([*key, sweep, power], np.float64),
            NONE if normal is None else normal,
        )
        active, l2, joint, explained, f2, largest = laid_out(host(small), K, N, self.kind.n_groups)
        sums = sums._replace(active=active, l2=l2, joint=joint, explained=explained, f2=f2)
        return Drawn(rows._replace(Z=after.Z, L=after.L, tau=after.tau), F, sums, largest, columns.phi)

    def step(self, *args: Any) -> Any:
        """`gibbs_step` of rows, columns, words and normals."""
        return gibbs_step(self.problem, self.arrays, *args, static=self.static, kind=self.kind, each=self.each)


def stream_of(key: tuple[int, int], sweep: int) -> RowStream:
    """The name of a sweep's randomness."""
    return RowStream(np.uint64(key[0]), np.uint64(key[1]), np.uint64(sweep))


def each_sample(kind: Kind, prior: Prior) -> bool:
    """Whether samples differ in the precision of their activations."""
    return kind.masked or prior.noise == "sample"
