"""Slab precisions and inclusion rates with columns of loadings integrated out, by slices, in JAX (2.15)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from ..contract import ALPHA_WIDTH, RATE_WIDTH, TRIES, ColumnNoise, GibbsColumns, GibbsRows
from .gibbs_rows import gibbs_logit
from .library import jax, jnp, lax, special
from .moves import residual
from .noise import move_noise
from .problem import Kind, Problem, never_unless_real, of_real


class Slab(NamedTuple):
    """Of the prior: shape and rate, (V,), of the slab precisions, and a, b of the Beta on rates."""

    shape: Any
    rate: Any
    a: Any
    b: Any


class Column(NamedTuple):
    """What the rows of one group say of a factor; rows of other groups have no weight."""

    r: Any  # (G,)
    squared: Any  # (G,)
    logit: Any  # (1 or G,) where it is given
    own: Any  # (G,) bool
    size: Any  # ()


@partial(jax.jit, static_argnames=("kind", "learnt"))
def columns_drawn(
    problem: Problem,
    b: Any,
    rows: GibbsRows,
    columns: GibbsColumns,
    noise: ColumnNoise,
    slab: Slab,
    kind: Kind,
    learnt: bool,
) -> tuple[Any, Any, Any, Any]:
    """New Z, L (G, K), alpha (K, V) and logit; b: as in `data_products`."""
    Z, L, F = rows.Z.T == 1, rows.L.T * columns.scale[:, None], columns.F
    K, G = L.shape
    V = kind.n_groups
    member = problem.group if V > 1 else jnp.zeros(G, jnp.int64)
    given = gibbs_logit(columns.logit, rows, problem, kind)

    def one_factor(d: Any, now: Any) -> Any:
        Z, L, alpha, logit = now
        k = noise.order[d]
        r, grams = residual(problem, b, F, L, rows.tau, columns.weight, k, jnp.arange(K) == k, kind)
        squared = rows.tau * grams[k]

        def one_group(v: Any, now: Any) -> Any:
            alpha, logit = now
            own = of_real((member == v).astype(jnp.float64), problem) == 1.0
            column = Column(r, squared, given[k], own, jnp.sum(own).astype(jnp.float64))
            target = partial(density, column=column, slab=slab, v=v, learnt=learnt)
            ahead = partial(proposal_density, size=column.size, slab=slab, v=v, learnt=learnt)
            at = jnp.stack([jnp.log(alpha[k, v]), logit[v, k] if learnt else 0.0])
            proposal = noise.proposal[d, v]
            ratio = target(proposal) - ahead(proposal) - target(at) + ahead(at)
            at = jnp.where(noise.log_uniform[d, v] < ratio, proposal, at)
            for axis, width in enumerate((ALPHA_WIDTH, RATE_WIDTH)[: 1 + learnt]):
                draws = noise.log_height[d, v, axis], noise.bracket[d, v, axis], noise.tries[d, v, axis]
                at = at + slice_step(target, at, jnp.eye(2)[axis], width, *draws)
            alpha = alpha.at[k, v].set(jnp.exp(at[0]))
            return alpha, logit.at[v, k].set(at[1]) if learnt else logit

        alpha, logit = lax.fori_loop(0, V, one_group, (alpha, logit))
        precision = alpha[k, member]
        odds = never_unless_real(logit[member, k], problem) if learnt else given[k]
        c = squared + precision
        uniform, normal = move_noise(noise.stream, d, jnp.arange(G), 1)
        new_z = uniform < special.expit(odds + 0.5 * jnp.log(precision / c) + 0.5 * r**2 / c)
        new_l = jnp.where(new_z, r / c + normal[0] / jnp.sqrt(c), 0.0)
        return Z.at[k].set(new_z), L.at[k].set(new_l), alpha, logit

    begin = Z, L, columns.alpha.reshape(K, V), columns.logit
    Z, L, alpha, logit = lax.fori_loop(0, noise.order.shape[0], one_factor, begin)
    return Z.T.astype(jnp.int8), L.T, alpha, logit


def density(at: Any, column: Column, slab: Slab, v: Any, learnt: bool) -> Any:
    """log density of (log alpha, logit pi) of group v with a column integrated out, up to a constant (2.15)."""
    alpha, logit = jnp.exp(at[0]), column.logit
    total = log_gamma(alpha, slab.shape, slab.rate[v]) + at[0]
    if learnt:
        total = total + log_logit_beta(at[1], slab.a, slab.b) + column.size * jnp.log(special.expit(-at[1]))
        logit = at[1]
    c = column.squared + alpha
    inclusion = jnp.logaddexp(0.0, logit + 0.5 * jnp.log(alpha / c) + 0.5 * column.r**2 / c)
    return total + jnp.sum(jnp.where(column.own, inclusion, 0.0))


def proposal_density(at: Any, size: Any, slab: Slab, v: Any, learnt: bool) -> Any:
    """log density of the joint proposal: half of an empty factor, half of a faint one."""
    alpha = jnp.exp(at[0])
    empty = log_gamma(alpha, slab.shape, slab.rate[v]) + at[0]
    faint = log_gamma(alpha, 1.0, slab.rate[v]) + at[0]
    if learnt:
        empty = empty + log_logit_beta(at[1], slab.a, slab.b + size)
        faint = faint + log_logit_beta(at[1], slab.a, slab.b)
    return jnp.logaddexp(empty, faint) - jnp.log(2.0)


def log_gamma(x: Any, shape: Any, rate: Any) -> Any:
    return shape * jnp.log(rate) - special.gammaln(shape) + (shape - 1) * jnp.log(x) - rate * x


def log_logit_beta(y: Any, a: Any, b: Any) -> Any:
    """log density of logit pi = y where pi ~ Beta(a, b)."""
    betaln = special.gammaln(a) + special.gammaln(b) - special.gammaln(a + b)
    return -a * jnp.logaddexp(0.0, -y) - b * jnp.logaddexp(0.0, y) - betaln


def slice_step(
    target: Callable[[Any], Any], at: Any, along: Any, width: float, log_height: Any, bracket: Any, tries: Any
) -> Any:
    """A step by slice sampling: a bracket laid around the present point at random shrinks towards it."""
    height = target(at) + log_height

    def attempt(now: Any) -> Any:
        t, low, high, _, _ = now
        step = low + tries[t] * (high - low)
        good = target(at + step * along) > height
        low, high = jnp.where(step < 0.0, step, low), jnp.where(step < 0.0, high, step)
        return t + 1, low, high, good, step

    low = -width * bracket
    begin = (0, low, low + width, jnp.zeros((), bool), jnp.zeros(()))
    _, _, _, good, step = lax.while_loop(lambda now: ~now[3] & (now[0] < TRIES), attempt, begin)
    return jnp.where(good, step, 0.0) * along
