"""Whole iterations on the device: of variational inference, whose ELBO comes back, and of Gibbs sampling but for the
draws of a few numbers for each factor, whose sums come back. What has the size of the samples stays there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data import Data
from ..kernels.columns import fixed_of
from ..kernels.contract import (
    NONE,
    NOWHERE,
    Array,
    Climber,
    ELBOTerms,
    GibbsColumns,
    GibbsRows,
    GibbsTerms,
    MoveNoise,
    RowStream,
    Sums,
    VIColumns,
    VIRows,
    VITerms,
)
from ..kernels.inclusion import inclusion_of
from ..kernels.jax.library import JAX, host, jax, with_64_bits
from ..kernels.jax.problem import Kind, Problem
from ..kernels.protocol import Drawn
from ..model import Prior
from .jax_batch import Climb, climbed, most_together
from .jax_steps import column_step, gibbs_step, laid_out, parted, row_step, with_nones, without_terms

SMALL = ("active", "l2", "members", "active_in")  # sums that the host looks at


class JaxVI:
    """A `VIShortcut`; the equations are those of kernels/columns.py, compiled."""

    @with_64_bits
    def __init__(self, problem: Problem, kind: Kind, data: Data, prior: Prior) -> None:
        self.problem, self.kind, self.in_modules = problem, kind, prior.n_modules > 1
        parts = parted(fixed_of(data, prior, JAX)), parted(inclusion_of(prior, data, JAX))
        (self.static, self.arrays) = zip(*parts, strict=True)
        self.alone = self.slides = False
        self.most_together = 1 if self.in_modules else most_together(problem, kind, prior.K)

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

    @with_64_bits
    def together(
        self, climbers: Sequence[Climber], tolerance: tuple[float, float], keep: float | None, room: int
    ) -> list[tuple[Climber, bool, list[tuple[int, float]]]]:
        """Iterations of several trials at once; see `VIShortcut`. Between two calls these are on the host: see ROOM."""
        own = [climb_of(climber) for climber in climbers]
        own += [own[0]._replace(converged=np.bool_(True))] * (room - len(own))
        climb = jax.tree.map(lambda *each: np.stack(each), *host(own))
        after, trace = host(
            climbed(
                self.problem,
                self.arrays,
                climb,
                tolerance,
                keep or 0.0,
                static=self.static,
                kind=self.kind,
                accelerate=keep is not None,
            )
        )
        rows = jax.device_put([VIRows(*(a[b] for a in after.rows[:4])) for b in range(len(climbers))])
        return [told_of(climber, after, trace, b, rows[b]) for b, climber in enumerate(climbers)]


def climb_of(climber: Climber) -> Climb:
    """A trial as the device takes it."""
    rows, columns, sums, terms, elbo = climber.state
    moving = climber.previous is not None
    return Climb(
        rows=VIRows(*rows[:4]),
        columns=columns,
        sums=without_terms(sums),
        terms=np.array(terms),
        elbo=np.float64(elbo),
        t=np.float64(climber.t),
        previous=climber.previous if moving else columns.f_mean,
        moving=np.bool_(moving),
        iterations=np.int64(climber.iterations),
        until=np.int64(climber.until),
        converged=np.bool_(False),
    )


def told_of(
    climber: Climber, after: Climb, trace: Any, b: int, rows: VIRows
) -> tuple[Climber, bool, list[tuple[int, float]]]:
    """Trial b as the host takes it."""
    rows_before, columns_before = climber.state[:2]
    columns = with_nones(jax.tree.map(lambda a: a[b], after.columns), columns_before)
    sums = jax.tree.map(lambda a: a[b], after.sums)._replace(elbo=VITerms(), joint=GibbsTerms())
    terms = ELBOTerms(*after.terms[b].tolist())
    state = (VIRows(*rows[:4], *rows_before[4:]), columns, sums, terms, terms.total)
    made = np.flatnonzero(trace[2][:, b])
    points = [(int(trace[0][n, b]), float(trace[1][n, b])) for n in made]
    new = Climber(
        state=state,
        t=float(after.t[b]),
        previous=after.previous[b] if after.moving[b] else None,
        iterations=int(after.iterations[b]),
        until=climber.until,
    )
    return new, bool(after.converged[b]), points


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
            ),
            np.array([*key, sweep, power], np.float64),
            NONE if normal is None else normal,
        )
        active, l2, joint, explained, f2, largest = laid_out(host(small), K, N, self.kind.n_groups)
        sums = sums._replace(active=active, l2=l2, joint=joint, explained=explained, f2=f2)
        return Drawn(rows._replace(Z=after.Z, L=after.L, tau=after.tau), F, sums, largest)

    def step(self, *args: Any) -> Any:
        """`gibbs_step` of rows, columns, words and normals."""
        return gibbs_step(self.problem, self.arrays, *args, static=self.static, kind=self.kind, each=self.each)


def stream_of(key: tuple[int, int], sweep: int) -> RowStream:
    """The name of a sweep's randomness."""
    return RowStream(np.uint64(key[0]), np.uint64(key[1]), np.uint64(sweep))


def each_sample(kind: Kind, prior: Prior) -> bool:
    """Whether samples differ in the precision of their activations."""
    return kind.masked or prior.noise == "sample"
