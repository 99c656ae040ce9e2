"""What rows draw one after the other (2.16, 2.17): on the host, for there is nothing to do side by side."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..arrays import NUMPY
from ..kernels.contract import NONE, Array, GibbsColumns, GibbsRows, PrecisionNoise, Sums
from ..kernels.correlation import inverse_of
from ..kernels.jax.activations import drawn_activations
from ..kernels.jax.gibbs_rows import gibbs_logit
from ..kernels.jax.library import host, jax, jnp
from ..kernels.jax.problem import Kind, Problem
from ..kernels.jax.products import back
from ..model import Prior
from .jax_verbs import ByRow


class Taken(NamedTuple):
    """Of the n rows whose turn it is, and of all rows."""

    Y: Any  # (n, N)
    row_ss: Any  # (n,)
    noise_rate: Any  # (n,)
    group: Any  # (n,)
    Z: Any  # (n, K)
    L: Any  # (n, K)
    tau: Any  # (n,)
    logit: Any  # (n, K)
    C: Any  # (K, N) L'DY of all rows
    M: Any  # (K, K) L'DL


def in_turn(engine: Any, rows: GibbsRows, columns: GibbsColumns, noise: PrecisionNoise) -> tuple[Any, Any, Any, Any]:
    """New Z, L, tau and F."""
    turn = (noise.start + np.arange(noise.n_rows)) % engine.data.n_features
    L = rows.L * columns.scale
    C = engine.asked(back_products, ByRow(L * rows.tau[:, None]))
    Y = engine.data_rows(turn)
    rest = taken(engine.problem, rows._replace(L=L), columns.logit, turn, Y, C, kind=engine.kind)
    own = Taken(*map(np.array, host(rest)))
    M = drawn(own, turn, engine.prior, columns, noise)
    Z, L, tau = put_back(rows.Z, L, rows.tau, turn, own.Z, own.L, own.tau)
    sums = Sums(own.C, M, np.zeros((0, *M.shape)), NONE, NONE)
    inverse = inverse_of(columns.phi, len(M), NUMPY)
    return Z, L, tau, drawn_activations(sums, np.ones(own.C.shape[1]), inverse, noise.normal, each=False)


def drawn(own: Taken, turn: Any, prior: Prior, columns: GibbsColumns, noise: PrecisionNoise) -> Array:
    """The rows one after the other, in place; C follows them, and so does M, which is returned."""
    from ..kernels.cpu.precision import draw_precisions
    from ..kernels.cpu.tiles import Problem as HostProblem

    K, n = len(own.M), len(turn)
    inverse, alpha = inverse_of(columns.phi, K, NUMPY), columns.alpha
    M, state, slab = inverse + own.M, np.zeros((2, K, K)), np.ascontiguousarray(alpha.reshape(K, -1))
    empty = np.zeros(0, np.int32)
    wrapped = int(np.argmin(turn))  # where the first row follows the last
    for part in (slice(0, wrapped), slice(wrapped, n)):
        if part.start == part.stop:
            continue
        some = HostProblem(
            Y=own.Y[part],
            row_ss=own.row_ss[part],
            half_count=NONE,
            tau_shape=NONE,
            start=np.zeros(1, np.int64),
            columns=empty,
            lists_missing=np.zeros(0, bool),
            tile=n,
            feature_noise=True,
            noise_shape=float(prior.noise_shape),
            noise_rate=own.noise_rate[part],
            group=own.group[part],
            by_sample=empty.reshape(0, 1),
            listed=np.zeros(0, np.uint8),
            first=int(turn[part.start]),
        )
        state_of = own.Z[part], own.L[part], own.tau[part], own.C, M, state
        draw_precisions(0, part.stop - part.start, part.start, some, *state_of, slab, own.logit[part], noise.stream)
    return M - inverse


@partial(jax.jit, static_argnames="kind")
def back_products(problem: Problem, weighted: Any, kind: Kind) -> Any:
    """(K, N) L'DY; weighted: (G, K) D L."""
    return back(weighted.T, problem.Y, kind)


@partial(jax.jit, static_argnames="kind")
def taken(problem: Problem, rows: GibbsRows, logit: Any, turn: Any, Y: Any, C: Any, kind: Kind) -> Taken:
    """From the device; Y: (n, N), C: (K, N)."""
    odds = jnp.broadcast_to(gibbs_logit(logit, rows, problem, kind).T, rows.L.shape)
    group = problem.group[turn] if problem.group.shape[0] else jnp.zeros(turn.shape, jnp.int64)
    return Taken(
        Y=Y.astype(jnp.float32) if Y.dtype == jnp.float16 else Y,
        row_ss=problem.row_ss[turn],
        noise_rate=problem.noise_rate[turn],
        group=group,
        Z=rows.Z[turn],
        L=rows.L[turn],
        tau=rows.tau[turn],
        logit=odds[turn],
        C=C,
        M=(rows.L * rows.tau[:, None]).T @ rows.L,
    )


@jax.jit
def put_back(Z: Any, L: Any, tau: Any, turn: Any, new_Z: Any, new_L: Any, new_tau: Any) -> tuple[Any, Any, Any]:
    """To the device."""
    return Z.at[turn].set(new_Z), L.at[turn].set(new_L), tau.at[turn].set(new_tau)
