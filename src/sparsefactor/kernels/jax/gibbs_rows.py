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
from .problem import Kind, Problem, by_row, group_sums, logit_by_row, row_parts
from .products import back, times
from .vi_rows import diagonal, loading_products, product, row_grams


def gibbs_row_pass(
    problem: Problem, rows: GibbsRows, message: Message, stream: RowStream, kind: Kind
) -> tuple[GibbsRows, Sums]:
    """tau, z and l of every row, and what the columns need of them."""
    G, K = rows.L.shape
    b, L, numbers = times(problem.Y, message.F, kind), rows.L.T * message.scale[:, None], jnp.arange(G)
    alpha, logit = by_row(message.alpha, problem), gibbs_logit(message.logit, rows, problem)
    done = []
    for part in row_parts(G, 40 * K * K):
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
        noise = jnp.sum(0.5 * problem.row_count * log_tau + density) + problem.gibbs_constant
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


def gibbs_logit(logit: Any, rows: GibbsRows, problem: Problem) -> Any:
    """(K, 1 or G) each row's own prior log odds, of logit (1, V or G, K), or (M, K) where rows are in modules."""
    return logit[rows.member].T if rows.member.shape[0] else logit_by_row(logit, problem)


def draw(
    problem: Problem, A: Any, b: Any, state: Any, prior: Any, numbers: Any, stream: RowStream, kind: Kind
) -> tuple[Any, Any, Any]:
    """Z (K, G), L (K, G) and tau (G,) of some rows."""
    Z, L, tau = state
    alpha, logit = prior
    K, G = L.shape
    if kind.feature_noise:
        rss = problem.row_ss - 2.0 * jnp.sum(L * b, axis=0) + jnp.sum(L * product(A, L), axis=0)
        gamma = standard_gamma(problem.tau_shape, numbers, stream)
        tau = gamma / (problem.noise_rate + 0.5 * jnp.maximum(rss, 0.0))
    factor = jnp.arange(K)
    uniform, normal = uniforms(stream, factor[:, None], numbers), normals(stream, factor[:, None], numbers)
    linear = tau * b
    prior_odds = logit + 0.5 * jnp.log(alpha)

    def flipped(k: Any, now: Any, included: Any) -> Any:
        """included: the new z_k given its log odds."""
        Z, V = now
        row = A[k][:, None] if A.ndim == 2 else A[k]
        coupling = tau * jnp.sum(row[:, None, :] * V, axis=0)  # used where k is out of V
        here = (factor == k)[:, None]
        spread = V[k, k]
        schur = tau * A[k, k] + alpha[k] - tau * jnp.sum(row * coupling, axis=0)
        c = jnp.where(Z[k], 1.0 / jnp.where(Z[k], spread, 1.0), schur)
        w = jnp.where(Z[k], jnp.where(here, 1.0, V[k] * c), jnp.where(here, 1.0, 0.0) - coupling)
        r = jnp.sum(w * linear, axis=0)
        new = included(k, prior_odds[k] - 0.5 * jnp.log(c) + 0.5 * r**2 / c)
        V = V + w[:, None, :] * (w * ((new.astype(c.dtype) - Z[k].astype(c.dtype)) / c))[None, :, :]
        gone = (Z[k] & ~new) & (here[:, None, :] | here[None, :, :])  # what rounding left there
        return Z.at[k].set(new), jnp.where(gone, 0.0, V)

    empty = jnp.zeros((K, G), bool), jnp.zeros((K, K, G))
    _, V = lax.fori_loop(0, K, lambda k, now: flipped(k, now, lambda k, _: Z[k]), empty)
    Z, _ = lax.fori_loop(0, K, lambda k, now: flipped(k, now, lambda k, odds: uniform[k] < special.expit(odds)), (Z, V))
    return Z, draw_loadings(A, alpha, linear, tau, Z, normal), tau


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
