"""The row pass of variational inference in JAX: sequential over factors, side by side over rows (3.1, 3.3, 4.3).

Inside, arrays are factor-major, (K, G): a factor's column of loadings lies in one piece.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ..contract import Message, Sums, VIRows, VITerms
from .library import jax, jnp, lax, special
from .problem import Kind, Problem, by_row, group_sums, logit_by_row, of_real, row_parts
from .products import back, mask_back, mask_times, packing, times
from .vi_kernel import MOST_FACTORS, settled_rows


def vi_row_pass(problem: Problem, rows: VIRows, message: Message, kind: Kind) -> tuple[VIRows, Sums]:
    """q(tau), then q(l, z) factor by factor, of every row, and what the columns need of them."""
    G, K = rows.mu.shape
    b = times(problem.Y, message.F, kind)
    state = (rows.mu.T * message.scale[:, None], rows.s2.T * message.scale[:, None] ** 2, rows.eta.T, rows.tau)
    prior = (
        by_row(message.alpha, problem),
        by_row(message.log_alpha, problem),
        logit_by_row(message.logit, problem, kind),
    )
    if kind.masked:
        done = []
        for part in row_parts(G, 16 * K * K):
            own = [a if a.shape[1] == 1 else a[:, part] for a in prior]
            A = row_grams(problem.mask[part], message, problem.Y.dtype, kind)
            now = (*(a[:, part] for a in state[:3]), state[3][part])
            done.append(settle(problem.part(part), A, b[:, part], now, own, kind))
        mu, s2, eta = (jnp.concatenate([d[i] for d in done], axis=1) for i in range(3))
        tau, terms = jnp.concatenate([d[3] for d in done]), sum(d[4] for d in done)
    else:
        mu, s2, eta, tau, terms = settle(problem, message.gram, b, state, prior, kind)
    mean, square = eta * mu, eta * (mu**2 + s2)
    LL, LL_share = loading_products(problem, tau, mean, square, kind)
    sums = Sums(
        LY=back(tau * mean, problem.Y, kind),
        LL=LL,
        LL_share=LL_share,
        active=group_sums(eta, problem, kind),
        l2=group_sums(square, problem, kind),
        elbo=elbo_of(terms, problem, kind),
    )
    return VIRows(mu.T, s2.T, eta.T, tau), sums


vi_pass = partial(jax.jit, static_argnames="kind")(vi_row_pass)


def elbo_of(terms: Any, problem: Problem, kind: Kind) -> VITerms:
    """The rows' terms with their constants."""
    if not kind.feature_noise:
        return VITerms(terms[0], terms[1], jnp.zeros(()))
    return VITerms(terms[0] + problem.likelihood_constant, terms[1], terms[2] + problem.noise_constant)


def row_grams(mask: Any, message: Message, dtype: Any, kind: Kind) -> Any:
    """(K, K, G) each row's sum over its observed samples of weight times E[f f'] (4.4)."""
    i, j, place = packing(message.gram.shape[0])
    listed = mask_times(mask, message.share[:, i, j], dtype)
    packed = message.gram[i, j][:, None] - listed if kind.lists_missing else listed
    return packed[place]


def product(A: Any, l: Any) -> Any:
    """(K, G) A l of every row; A: (K, K) common, or (K, K, G)."""
    return A @ l if A.ndim == 2 else jnp.sum(A * l[None, :, :], axis=1)


def diagonal(A: Any) -> Any:
    """(K, 1 or G) the diagonal of A."""
    return jnp.diagonal(A)[:, None] if A.ndim == 2 else jnp.diagonal(A).T


def expected_rss(y_square: Any, A: Any, b: Any, mu: Any, s2: Any, eta: Any) -> Any:
    """(G,) E[sum over observed j of weight (y_ij - l_i'f_j)^2] (3.4)."""
    mean = eta * mu
    variance = eta * (mu**2 + s2) - mean**2
    quadratic = jnp.sum(mean * product(A, mean), axis=0) + jnp.sum(diagonal(A) * variance, axis=0)
    return y_square - 2.0 * jnp.sum(mean * b, axis=0) + quadratic


def settle(problem: Problem, A: Any, b: Any, state: Any, prior: Any, kind: Kind) -> tuple[Any, ...]:
    """New (mu, s2, eta, tau) of some rows and their likelihood, loadings and noise terms, (3,), but for constants."""
    mu, s2, eta, tau = state
    alpha, log_alpha, logit = prior
    y_square = problem.row_ss if kind.feature_noise else 0.0
    likelihood = noise = jnp.zeros(())
    if kind.feature_noise:
        tau, likelihood, noise = new_tau(problem, expected_rss(y_square, A, b, mu, s2, eta), kind)

    own = A, alpha, log_alpha, logit, b, tau, eta * mu
    s2 = 1.0 / (tau * diagonal(A) + alpha)
    if kind.kernel and mu.shape[0] <= MOST_FACTORS:
        mu, eta = settled_rows(*own, interpret=kind.kernel == "interpreted")
    else:
        mu, eta = side_by_side(*own)
    likelihood = likelihood - 0.5 * jnp.sum(tau * expected_rss(y_square, A, b, mu, s2, eta))
    slab = 0.5 * (log_alpha + jnp.log(s2) + 1.0 - alpha * (mu**2 + s2))
    entropy = eta * safe_log(eta) + (1.0 - eta) * safe_log(1.0 - eta)
    loadings = jnp.sum(eta * (slab + logit) - entropy)
    return mu, s2, eta, tau, jnp.stack([likelihood, loadings, noise])


def side_by_side(A: Any, alpha: Any, log_alpha: Any, logit: Any, b: Any, tau: Any, mean: Any) -> tuple[Any, Any]:
    """mu and eta (K, G) factor by factor, from E[l] (K, G) before."""

    def one_factor(k: Any, now: Any) -> Any:
        mu, eta, mean = now
        others = jnp.sum((A[k][:, None] if A.ndim == 2 else A[k]) * mean, axis=0) - A[k, k] * mean[k]
        own = 1.0 / (tau * A[k, k] + alpha[k])
        centre = own * tau * (b[k] - others)
        bayes_factor = 0.5 * (log_alpha[k] + jnp.log(own) + centre**2 / own)
        included = special.expit(logit[k] + bayes_factor)
        return mu.at[k].set(centre), eta.at[k].set(included), mean.at[k].set(included * centre)

    K, none = mean.shape[0], jnp.zeros_like(mean)
    mu, eta, _ = lax.fori_loop(0, K, one_factor, (none, none, mean), unroll=unrolled(K))
    return mu, eta


def unrolled(K: int) -> int:
    """How many factors a loop takes at a time: starting a kernel takes longer than its work where rows are few."""
    return min(K, 5)


def new_tau(problem: Problem, rss: Any, kind: Kind) -> tuple[Any, Any, Any]:
    """E[tau] (G,), and the terms of the likelihood and of the noise that depend on its rate."""
    # A sum of squares formed by differences may round below zero.
    rate = problem.noise_rate + 0.5 * jnp.maximum(rss, 0.0)
    log_rate = jnp.log(rate)
    noise = of_real(kind.noise_shape * log_rate + problem.tau_shape * problem.noise_rate / rate, problem)
    return problem.tau_shape / rate, -0.5 * jnp.sum(problem.row_count * log_rate), -jnp.sum(noise)


def loading_products(problem: Problem, tau: Any, mean: Any, square: Any, kind: Kind) -> tuple[Any, Any]:
    """LL and LL_share of 4.3, E[l l'] being mean mean' but for its diagonal."""
    K, weighted = mean.shape[0], tau * mean
    LL = weighted @ mean.T
    LL = LL + jnp.diag(jnp.sum(tau * square, axis=1) - jnp.diagonal(LL))
    if not kind.masked:
        return LL, jnp.zeros((0, K, K))
    i, j, _ = packing(K)

    def outer(part: slice) -> Any:
        own = weighted[i, part] * mean[j, part]
        return jnp.where((i == j)[:, None], (tau * square)[i, part], own)

    return shared_out(problem, outer, LL, kind)


def shared_out(problem: Problem, outer: Any, LL: Any, kind: Kind) -> tuple[Any, Any]:
    """LL and LL_share, where outer(part) gives the lower halves (P, rows) of some rows' matrices, and LL their sum."""
    _, _, place = packing(LL.shape[0])
    total: Any = 0.0
    for part in row_parts(problem.row_count.shape[0], 16 * LL.shape[0] ** 2):
        total = total + mask_back(problem.mask[part], outer(part), problem.Y.dtype)
    share = total.T[:, place]
    return (LL, -share) if kind.lists_missing else (jnp.zeros_like(LL), share)


def safe_log(x: Any) -> Any:
    """log(x), and 0 at x = 0, for terms of the form x log x."""
    return jnp.log(jnp.where(x > 0, x, 1.0))
