"""The row pass of variational inference under a prior with modules, in JAX (3.17)."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..contract import Message, Sums, VIRows
from .library import jax, jnp, lax, special
from .problem import Kind, Problem, of_real, row_parts
from .products import back, packing, times
from .vi_rows import diagonal, elbo_of, new_tau, row_grams, safe_log, shared_out


def module_row_pass(problem: Problem, rows: VIRows, message: Message, kind: Kind) -> tuple[VIRows, Sums]:
    """q(tau), q(l, z | module) factor by factor and q(module), of every row, and the sums."""
    (G, K), M = rows.mu.shape, rows.member.shape[1]
    b = times(problem.Y, message.F, kind)
    scale = message.scale[:, None]
    state = rows.mu.T * scale, rows.s2.T * scale**2, jnp.moveaxis(rows.within, 0, 2), rows.member.T
    done = []
    for part in row_parts(G, 16 * K * (M + K * kind.masked)):
        own = problem.part(part)
        A = row_grams(own.mask, message, problem.Y.dtype, kind) if kind.masked else message.gram
        done.append(settle(own, A, b[:, part], [a[..., part] for a in state], rows.tau[part], message, kind))
    mu, s2, within, member, tau = (jnp.concatenate([d[i] for d in done], axis=-1) for i in range(5))
    everyone, member = member, of_real(member, problem)
    # Memberships add up to one but for rounding.
    eta = jnp.minimum(jnp.sum(within * member, axis=1), 1.0)
    square = eta * (mu**2 + s2)
    LL, LL_share = products(problem, tau, mu[:, None, :] * within, member, square, kind)
    sums = Sums(
        LY=back(tau * eta * mu, problem.Y, kind),
        LL=LL,
        LL_share=LL_share,
        active=jnp.sum(eta, axis=1),
        l2=jnp.sum(square, axis=1),
        elbo=elbo_of(sum(d[5] for d in done), problem, kind),
        members=jnp.sum(member, axis=1),
        active_in=jnp.einsum("kmg,mg->km", within, member),
    )
    return VIRows(mu.T, s2.T, eta.T, tau, everyone.T, jnp.moveaxis(within, 2, 0)), sums


module_pass = partial(jax.jit, static_argnames="kind")(module_row_pass)


def module_rss(y_square: Any, A: Any, b: Any, mu: Any, s2: Any, within: Any) -> Any:
    """(M, G) the expected residual sum of squares (3.4) given each module."""
    mean = mu[:, None, :] * within
    variance = within * (mu**2 + s2)[:, None, :] - mean**2
    Am = jnp.einsum("kl,lmg->kmg", A, mean) if A.ndim == 2 else jnp.einsum("klg,lmg->kmg", A, mean)
    quadratic = jnp.sum(mean * Am, axis=0) + jnp.sum(diagonal(A)[:, None, :] * variance, axis=0)
    return y_square - 2.0 * jnp.sum(mean * b[:, None, :], axis=0) + quadratic


def settle(problem: Problem, A: Any, b: Any, state: Any, tau: Any, message: Message, kind: Kind) -> tuple[Any, ...]:
    """New (mu, s2, within, member, tau) of some rows and their ELBO terms, (3,), but for constants."""
    mu, s2, within, member = state
    y_square = problem.row_ss if kind.feature_noise else 0.0
    likelihood = noise = jnp.zeros(())
    if kind.feature_noise:
        rss = jnp.sum(member * module_rss(y_square, A, b, mu, s2, within), axis=0)
        tau, likelihood, noise = new_tau(problem, rss, kind)
    logit = message.log_in - message.log_out

    def one_factor(k: Any, now: Any) -> Any:
        mu, s2, within, mean = now
        row = A[k][:, None, None] if A.ndim == 2 else A[k][:, None, :]
        linear = tau * (b[k] - (jnp.sum(row * mean, axis=0) - A[k, k] * mean[k]))
        own = 1.0 / (tau * A[k, k] + message.alpha[k])
        share = member * within[k]
        share = jnp.where(jnp.sum(share, axis=0) > 0.0, share, member)
        centre = own * jnp.sum(share * linear, axis=0) / jnp.sum(share, axis=0)
        bayes_factor = 0.5 * (message.log_alpha[k] + jnp.log(own) - centre**2 / own)
        inside = special.expit(logit[k][:, None] + bayes_factor + centre * linear)
        changed = mu.at[k].set(centre), s2.at[k].set(own), within.at[k].set(inside)
        return *changed, mean.at[k].set(centre * inside)

    mu, s2, within, _ = lax.fori_loop(0, mu.shape[0], one_factor, (mu, s2, within, mu[:, None, :] * within))
    alpha, log_alpha = message.alpha[:, None], message.log_alpha[:, None]
    slab = 0.5 * (log_alpha + jnp.log(s2) + 1.0 - alpha * (mu**2 + s2))
    outside = 1.0 - within
    gain = within * (message.log_in[:, :, None] + slab[:, None, :] - safe_log(within))
    gain = gain + outside * (message.log_out[:, :, None] - safe_log(outside))
    divergence = message.log_weight[:, None] + jnp.sum(gain, axis=0)
    rss = module_rss(y_square, A, b, mu, s2, within)
    member = jax.nn.softmax(divergence - 0.5 * tau * rss, axis=0)
    likelihood = likelihood - 0.5 * jnp.sum(tau * of_real(member, problem) * rss)
    loadings = jnp.sum(of_real(member * (divergence - safe_log(member)), problem))
    return mu, s2, within, member, tau, jnp.stack([likelihood, loadings, noise])


def products(problem: Problem, tau: Any, given: Any, member: Any, square: Any, kind: Kind) -> tuple[Any, Any]:
    """LL and LL_share (4.3), E[l l'] being the mean over modules of given given' but for its diagonal."""
    K, M = given.shape[:2]
    weighted = given * (tau * member)
    LL = jnp.einsum("kmg,lmg->kl", weighted, given)
    LL = LL + jnp.diag(jnp.sum(tau * square, axis=1) - jnp.diagonal(LL))
    if not kind.masked:
        return LL, jnp.zeros((0, K, K))
    i, j, _ = packing(K)

    def outer(part: slice) -> Any:
        own: Any = 0.0
        for m in range(M):  # one at a time: all together would be M times the room
            own = own + weighted[i, m, part] * given[j, m, part]
        return jnp.where((i == j)[:, None], (tau * square)[i, part], own)

    return shared_out(problem, outer, LL, kind)
