"""Trials of variational inference side by side on the device: the iterations of `Trial.advance`, for all at once.

Every step is made for all trials; one that has ended keeps its state. What comes back is each trial's own.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..kernels.contract import Sums, VIColumns, VIRows
from ..kernels.jax.library import jax, jnp, lax, with_64_bits
from ..kernels.jax.problem import ROOM, Kind, Problem
from .jax_steps import column_step, row_step

STRETCH = 512  # iterations between two looks of the host, which take longer than as many iterations
SMALL = 2**25  # bytes of a trial's states that a device is done with before the host has asked for more


class Climb(NamedTuple):
    """A trial between two iterations; of several trials, each array has one axis more in front."""

    rows: Any
    columns: Any
    sums: Any
    terms: Any  # (6,) of the ELBO
    elbo: Any
    t: Any  # of the momentum's sequence
    previous: Any  # activations of the last plain step
    moving: Any  # whether there are any
    iterations: Any
    until: Any  # iterations
    converged: Any  # bool


def most_together(problem: Problem, kind: Kind, K: int) -> int:
    """How many trials fit the room that a pass may take; 1 where a single one keeps the device busy."""
    G, N = problem.Y.shape
    of_one = 8 * (20 * G * K + 8 * N * K + (2 * (G + N) * K * K if kind.masked else 0))
    return int(ROOM // of_one) if of_one <= SMALL else 1


@with_64_bits
def climbed(problem: Problem, arrays: Any, climb: Climb, tolerance: Any, keep: float, **static: Any) -> Any:
    """The trials after up to STRETCH iterations; of each of these, (STRETCH, B): number, ELBO, whether it was made."""
    return _climbed(problem, arrays, climb, *map(np.float64, tolerance), np.float64(keep), **static)


@partial(jax.jit, static_argnames=("static", "kind", "accelerate"))
def _climbed(
    problem: Problem,
    arrays: Any,
    climb: Climb,
    absolute: Any,
    relative: Any,
    keep: Any,
    static: Any,
    kind: Kind,
    accelerate: bool,
) -> tuple[Climb, tuple[Any, Any, Any]]:
    one = partial(step, problem=problem, arrays=arrays, keep=keep, static=static, kind=kind, accelerate=accelerate)
    B = climb.elbo.shape[0]
    trace = jnp.zeros((STRETCH, B), jnp.int64), jnp.zeros((STRETCH, B)), jnp.zeros((STRETCH, B), bool)

    def running(climb: Climb) -> Any:
        return ~climb.converged & (climb.iterations < climb.until)

    def body(now: Any) -> Any:
        n, climb, trace = now
        going, before = running(climb), climb.elbo
        new = one(climb)
        change = jnp.abs(new.elbo - before)
        new = new._replace(converged=(change < absolute) | (change < relative * jnp.abs(new.elbo)))
        climb = jax.tree.map(lambda a, b: jnp.where(going.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, climb)
        told = climb.iterations, climb.elbo, going
        return n + 1, climb, tuple(all_.at[n].set(own) for all_, own in zip(trace, told, strict=True))

    def going_on(now: Any) -> Any:
        return (now[0] < STRETCH) & jnp.any(running(now[1]))

    _, climb, trace = lax.while_loop(going_on, body, (0, climb, trace))
    return climb, trace


def step(climb: Climb, problem: Problem, arrays: Any, keep: Any, static: Any, kind: Kind, accelerate: bool) -> Climb:
    """One iteration of every trial: `Trial.step`."""
    columns, scale = jax.vmap(partial(column_step, static=static, rescale=accelerate), (None, 0, 0))(
        arrays, climb.columns, climb.sums
    )
    rows_of = jax.vmap(partial(row_step, static=static, kind=kind), (None, None, 0, 0, 0))

    def finished(columns: VIColumns) -> tuple[VIRows, VIColumns, Sums, Any, Any]:
        rows, sums, terms = rows_of(problem, arrays, climb.rows, columns, scale)
        elbo: Any = 0.0
        for n in range(terms.shape[1]):  # in this order, as `ELBOTerms.total` has it
            elbo = elbo + terms[:, n]
        return rows, columns, sums, terms, elbo

    def chosen(which: Any, one: Any, other: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(which.reshape(-1, *(1,) * (a.ndim - 1)), a, b), one, other)

    before = climb.rows, climb.columns, climb.sums, climb.terms, climb.elbo
    if not accelerate:
        plain = finished(columns)
        return with_state(climb, chosen(plain[4] >= climb.elbo, plain, before))._replace(
            iterations=climb.iterations + 1
        )
    here, t = columns.f_mean, next_t(climb.t)
    weight = (climb.t - 1.0) / t
    moving = climb.moving & (weight != 0.0)
    further = here + jnp.where(moving, weight, 0.0)[:, None, None] * (here - climb.previous)
    first = finished(columns._replace(f_mean=further))
    rejected = moving & ~(first[4] >= climb.elbo)
    going = ~climb.converged & (climb.iterations < climb.until)
    plain = lax.cond(jnp.any(rejected & going), lambda: finished(columns), lambda: first)
    new = chosen(rejected, plain, first)
    # What was extrapolated is only taken where it is higher; the plain step can be lower by rounding alone.
    new = chosen(new[4] >= climb.elbo, new, before)
    return with_state(climb, new)._replace(
        t=jnp.where(rejected, next_t(jnp.maximum(1.0, keep * t)), t),
        previous=here,
        moving=jnp.ones_like(climb.moving),
        iterations=climb.iterations + jnp.where(rejected, 2, 1),
    )


def next_t(t: Any) -> Any:
    """Of Nesterov's sequence."""
    return (1.0 + jnp.sqrt(1.0 + 4.0 * t**2)) / 2.0


def with_state(climb: Climb, state: Any) -> Climb:
    rows, columns, sums, terms, elbo = state
    return climb._replace(rows=rows, columns=columns, sums=sums, terms=terms, elbo=elbo)
