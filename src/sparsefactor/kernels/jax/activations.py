"""The activations' step in JAX: q(F), or a draw of F, from the sums over rows (2.5, 3.5, 3.6)."""

from __future__ import annotations

from functools import partial
from typing import Any

from ..contract import Sums, VIColumns
from ..correlation import prior_precision
from .library import JAX, jax, jnp, lax


def grams(sums: Sums) -> Any:
    """(1 or N, K, K) D_j, the sum over the rows observed in sample j of w_i E[l l'] (4.5)."""
    return sums.LL + sums.LL_share if sums.LL_share.shape[0] else sums.LL[None]


def vi_activations(columns: VIColumns, sums: Sums, weight: Any) -> tuple[Any, Any]:
    """q(f_j): coordinate by coordinate (3.5), or jointly over the factors (3.6)."""
    D, mean, prior = grams(sums), columns.f_mean, prior_precision(columns, JAX)
    K, N = mean.shape
    if columns.f_var.ndim == 3:
        own = weight[: columns.f_var.shape[0], None, None]
        covariance = inverse(prior + own * jnp.broadcast_to(D, (own.shape[0], K, K)))
        if own.shape[0] == 1:
            return weight * (covariance[0] @ sums.LY), covariance
        return weight * jnp.einsum("jkl,lj->kj", covariance, sums.LY), covariance
    by_factor = prior[:, :, None] + weight * jnp.moveaxis(D, 0, 2)  # (K, K, N)
    variance = 1.0 / jnp.diagonal(by_factor).T

    def one_factor(k: Any, mean: Any) -> Any:
        others = jnp.sum(by_factor[k] * mean, axis=0) - by_factor[k, k] * mean[k]
        return mean.at[k].set(variance[k] * (weight * sums.LY[k] - others))

    return lax.fori_loop(0, K, one_factor, mean), jnp.broadcast_to(variance, (K, N))


def inverse(Q: Any) -> Any:
    """Of positive definite matrices (n, K, K), through their Cholesky factors."""
    root = jnp.linalg.cholesky(Q)
    half = lax.linalg.triangular_solve(root, jnp.broadcast_to(jnp.eye(Q.shape[1]), Q.shape), left_side=True, lower=True)
    return jnp.swapaxes(half, 1, 2) @ half


def draw_activations(sums: Sums, weight: Any, prior: Any, normal: Any, each: bool) -> Any:
    """A draw of F, (K, N), from standard normals; prior: Phi^-1; each: whether samples differ in their precision."""
    K, N = normal.shape
    D, n = grams(sums), N if each else 1
    root = jnp.linalg.cholesky(prior + weight[:n, None, None] * jnp.broadcast_to(D, (n, K, K)))
    linear = weight * sums.LY
    right = (linear.T[:, :, None], normal.T[:, :, None]) if each else (linear[None], normal[None])

    def solve(b: Any, transposed: bool) -> Any:
        return lax.linalg.triangular_solve(root, b, left_side=True, lower=True, transpose_a=transposed)

    F = solve(solve(right[0], False) + right[1], True)
    return F[:, :, 0].T if each else F[0]


activations = jax.jit(vi_activations)
drawn_activations = partial(jax.jit, static_argnames="each")(draw_activations)
