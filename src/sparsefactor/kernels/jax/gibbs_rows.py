"""The row pass of Gibbs sampling in JAX: z with l integrated out, factor by factor, rows side by side (2.1 to 2.4).

Each row keeps the inverse V of its active block, grown and shrunk by rank one. With w = e_k - V_rest Q_rest,k, adding k
to the active set adds w w' / c to V, c being the Schur complement; taking it out subtracts the same.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..contract import GibbsRows, GibbsTerms, Message, RowStream, Sums
from .library import jax, jnp, lax, special
from .noise import normals, standard_gamma, uniforms
from .problem import Kind, Problem, by_row, group_sums, logit_by_row, never_unless_real, of_real, row_parts
from .products import back, times
from .row_kernel import MOST_FACTORS, drawn_rows
from .vi_rows import diagonal, loading_products, product, row_grams

BLOCK = 6  # factors between two passes over the inverses


def gibbs_row_pass(
    problem: Problem, rows: GibbsRows, message: Message, stream: RowStream, kind: Kind, first: Any = 0
) -> tuple[GibbsRows, Sums]:
    """tau, z and l of every row, and what the columns need of them; first: the number of the first row."""
    G, K = rows.L.shape
    b, L, numbers = times(problem.Y, message.F, kind), rows.L.T * message.scale[:, None], first + jnp.arange(G)
    alpha, logit = by_row(message.alpha, problem), gibbs_logit(message.logit, rows, problem, kind)
    done = []
    kernel = kind.kernel and K <= MOST_FACTORS
    for part in row_parts(G, 40 * K * (K if kind.masked or not kernel else 4)):
        own = problem.part(part)
        A = row_grams(own.mask, message, problem.Y.dtype, kind) if kind.masked else message.gram
        prior = [a if a.shape[1] == 1 else a[:, part] for a in (alpha, logit)]
        state = rows.Z[part].T == 1, L[:, part], rows.tau[part]
        done.append(draw(own, A, b[:, part], state, prior, numbers[part], stream, kind))
    Z, L, tau = (jnp.concatenate([d[i] for d in done], axis=-1) for i in range(3))
    LL, LL_share = loading_products(problem, tau, L, L**2, kind)
    joint = GibbsTerms(jnp.zeros(()), jnp.zeros(()), jnp.sum(jnp.where(Z, logit, 0.0)))
    if kind.feature_noise:
        log_tau = jnp.log(tau)
        density = (kind.noise_shape - 1.0) * log_tau - problem.noise_rate * tau
        noise = jnp.sum(of_real(0.5 * problem.row_count * log_tau + density, problem)) + problem.gibbs_constant
        joint = joint._replace(weighted_ss=jnp.sum(tau * problem.row_ss), noise=noise)
    sums = Sums(
        LY=back(tau * L, problem.Y, kind),
        LL=LL,
        LL_share=LL_share,
        active=group_sums(Z.astype(jnp.float64), problem, kind),
        l2=group_sums(L**2, problem, kind),
        joint=joint,
    )
    return rows._replace(Z=Z.T.astype(jnp.int8), L=L.T, tau=tau), sums


gibbs_pass = partial(jax.jit, static_argnames="kind")(gibbs_row_pass)


def gibbs_logit(logit: Any, rows: GibbsRows, problem: Problem, kind: Kind) -> Any:
    """(K, 1 or G) each row's own prior log odds, of logit (1, V or G, K), or (M, K) where rows are in modules."""
    if rows.member.shape[0]:
        return never_unless_real(logit[rows.member].T, problem)
    return logit_by_row(logit, problem, kind)


def draw(
    problem: Problem, A: Any, b: Any, state: Any, prior: Any, numbers: Any, stream: RowStream, kind: Kind
) -> tuple[Any, Any, Any]:
    """Z (K, G), L (K, G) and tau (G,) of some rows."""
    Z, L, tau = state
    alpha, logit = prior
    K = L.shape[0]
    if kind.feature_noise:
        rss = problem.row_ss - 2.0 * jnp.sum(L * b, axis=0) + jnp.sum(L * product(A, L), axis=0)
        gamma = standard_gamma(problem.tau_shape, numbers, stream)
        tau = gamma / (problem.noise_rate + 0.5 * jnp.maximum(rss, 0.0))
    factor = jnp.arange(K)[:, None]
    uniform, normal = uniforms(stream, factor, numbers), normals(stream, factor, numbers)
    linear, odds = tau * b, logit + 0.5 * jnp.log(alpha)
    if kind.kernel and K <= MOST_FACTORS:
        own = A, alpha, odds, linear, tau, Z, uniform, normal
        return *drawn_rows(*own, interpret=kind.kernel == "interpreted"), tau
    Z = inclusions(A, alpha, odds, linear, tau, Z, uniform)
    return Z, draw_loadings(A, alpha, linear, tau, Z, normal), tau


def inclusions(A: Any, alpha: Any, prior_odds: Any, linear: Any, tau: Any, old: Any, uniform: Any) -> Any:
    """(K, G) z of every row, factor by factor, l integrated out (2.2); old: (K, G) bool.

    BLOCK factors at a time: V is read for all of them at once, and what they change of it is kept as outer products
    d w w' until the block ends, for V is many times the size of all else. A first round builds V from the old z.
    """
    (K, G), one = old.shape, jnp.ones(())
    n_blocks = -(-K // BLOCK)
    factor = jnp.arange(K)[:, None]

    def block(i: Any, now: Any) -> Any:
        Z, V = now
        building = i < n_blocks
        places = (i % n_blocks) * BLOCK + jnp.arange(BLOCK)
        own = jnp.minimum(places, K - 1)  # behind the last factor nothing happens
        rows = A[own]
        contract = jnp.tensordot(rows, V, 1) if A.ndim == 2 else jnp.einsum("blg,lmg->bmg", rows, V)
        changes: list[tuple[Any, Any]] = []
        for n in range(BLOCK):
            k, row = own[n], rows[n][:, None] if A.ndim == 2 else rows[n]
            here, active = factor == k, Z[k]
            inverse, coupling = V[k], tau * contract[n]
            for w, d in changes:
                inverse = inverse + d * w[k] * w
                coupling = coupling + tau * d * jnp.sum(row * w, axis=0) * w
            schur = tau * A[k, k] + alpha[k] - tau * jnp.sum(row * coupling, axis=0)
            c = jnp.where(active, one / jnp.where(active, inverse[k], one), schur)
            w = jnp.where(here, one, jnp.where(active, inverse * c, -coupling))
            r = jnp.sum(w * linear, axis=0)
            drawn = uniform[k] < special.expit(prior_odds[k] - 0.5 * jnp.log(c) + 0.5 * r**2 / c)
            new = jnp.where(places[n] < K, jnp.where(building, old[k], drawn), active)
            changes.append((w, (new.astype(c.dtype) - active.astype(c.dtype)) / c))
            Z = Z.at[k].set(new)
        V = V + sum(w[:, None, :] * (d * w)[None, :, :] for w, d in changes)
        return Z, jnp.where(Z[:, None, :] & Z[None, :, :], V, 0.0)  # but for rounding it is

    Z, _ = lax.fori_loop(0, 2 * n_blocks, block, (jnp.zeros((K, G), bool), jnp.zeros((K, K, G))))
    return Z


def draw_loadings(A: Any, alpha: Any, linear: Any, tau: Any, Z: Any, normal: Any) -> Any:
    """(K, G) l of every row given its active factors, through Q = C C'; the rest of Q is a unit matrix."""
    K = Z.shape[0]
    Q = tau * (A[:, :, None] if A.ndim == 2 else A)
    Q = jnp.where(Z[:, None, :] & Z[None, :, :], Q, 0.0)
    own = jnp.where(Z, tau * diagonal(A) + alpha, 1.0)
    Q = jnp.moveaxis(jnp.where(jnp.eye(K, dtype=bool)[:, :, None], own[:, None, :], Q), 2, 0)
    root = jnp.linalg.cholesky(Q)

    def solve(right: Any, transposed: bool) -> Any:
        return lax.linalg.triangular_solve(root, right, left_side=True, lower=True, transpose_a=transposed)

    drawn = solve(solve(jnp.where(Z, linear, 0.0).T[:, :, None], False) + normal.T[:, :, None], True)
    return jnp.where(Z, drawn[:, :, 0].T, 0.0)
