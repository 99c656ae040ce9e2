"""z and l of a row in one kernel of a GPU: the small matrices of a row stay in registers (2.2 to 2.4).

What gibbs_rows.py does with rows side by side, factor by factor, reads and writes K x K numbers of every row from
factor to factor. Here a program takes one row through all of it. Factors that stay out cost nothing where they change
nothing, so that sparse rows are quick.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from .library import jax, jnp, lax

pl: Any
triton: Any
try:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton
except ImportError:  # of a JAX without it: see kernels_compile
    pl = triton = None

MOST_FACTORS = 128  # whose matrix the registers of a program hold
ENTRIES_OF_A_WARP = 1024  # of that matrix


def drawn_rows(
    A: Any, alpha: Any, odds: Any, linear: Any, tau: Any, old: Any, uniform: Any, normal: Any, *, interpret: bool
) -> tuple[Any, Any]:
    """Z (K, G) bool and L (K, G) of rows, all arguments factor-major as in gibbs_rows.draw.

    A: (K, K) common, or (K, K, G); alpha, odds (prior log odds and log(alpha) / 2): (K, 1 or G).
    """
    assert pl is not None
    assert triton is not None
    K, G = linear.shape
    width = max(16, 1 << (K - 1).bit_length())
    bar = jnp.log(uniform) - jnp.log1p(-uniform)  # log odds above which z is one
    by_row = [jnp.moveaxis(values, -1, 0) for values in (alpha, odds, linear, bar, normal)]
    A = A[None] if A.ndim == 2 else jnp.moveaxis(A, -1, 0)
    Z, L = pl.pallas_call(
        partial(one_row, K=K, width=width, load=triton.load, store=triton.store, program=pl.program_id),
        grid=(G,),
        out_shape=(jax.ShapeDtypeStruct((G, K), jnp.int32), jax.ShapeDtypeStruct((G, K), jnp.float64)),
        compiler_params=triton.CompilerParams(num_warps=max(1, width**2 // ENTRIES_OF_A_WARP), num_stages=1),
        interpret=interpret,
        name="row_draws",
    )(A, *by_row, tau, old.T.astype(jnp.int32))
    return Z.T == 1, L.T


def one_row(
    A: Any,
    alpha: Any,
    odds: Any,
    linear: Any,
    bar: Any,
    normal: Any,
    tau: Any,
    old: Any,
    Z: Any,
    L: Any,
    *,
    K: int,
    width: int,
    load: Any,
    store: Any,
    program: Any,
) -> None:
    """The kernel: references to all rows' arrays, of which this program's row is read and written."""
    g = program(0)
    at = lax.iota(jnp.int32, width)
    real = at < K

    def own(values: Any) -> Any:
        """Which of the rows' arrays is this row's, where one may be common to all."""
        return g if values.shape[0] > 1 else 0

    def vector(values: Any) -> Any:
        return load(values.at[own(values), at], mask=real, other=0)

    def gram(k: Any) -> Any:
        return load(A.at[own(A), k, at], mask=real, other=0.0)

    t, b = tau[g], vector(linear)

    def grown(k: Any, V: Any) -> Any:
        """V with factor k in, where it was."""

        def grow(V: Any) -> Any:
            here = at == k
            c, w, _ = coming(V, here, gram(k), A[own(A), k, k], t, alpha[own(alpha), k], b, linear[g, k])
            return V + (w / c)[:, None] * w[None, :]

        return lax.cond(old[g, k] == 1, grow, lambda V: V, V)

    def included(k: Any, now: Any) -> Any:
        """z_k with l integrated out (2.2), and V accordingly; it has its old value until now."""
        V, (low, high) = now
        here, active = at == k, old[g, k]
        c, w, r = lax.cond(
            active == 1,
            lambda: leaving(V, here, b),
            lambda: coming(V, here, gram(k), A[own(A), k, k], t, alpha[own(alpha), k], b, linear[g, k]),
        )
        new = (bar[g, k] < odds[own(odds), k] - 0.5 * jnp.log(c) + 0.5 * r * r / c).astype(jnp.int32)
        V = lax.cond(new == active, lambda: V, lambda: changed(V, here, w, (new - active).astype(c.dtype) / c, new))
        bit = new.astype(jnp.int64) << (k & 63).astype(jnp.int64)
        return V, (low | jnp.where(k < 64, bit, 0), high | jnp.where(k < 64, 0, bit))

    V = over(K, grown, jnp.zeros((width, width)))
    none = jnp.zeros((), jnp.int64)
    _, (low, high) = over(K, included, (V, (none, none)))

    def is_in(k: Any) -> Any:
        """From the bits: of a vector's entries each is another thread's, and asking around takes longer."""
        return (jnp.where(k < 64, low, high) >> (k & 63).astype(jnp.int64)) & 1

    z = is_in(at) * real
    both = (z[:, None] == 1) & (z[None, :] == 1)
    Q = load(A.at[own(A), at[:, None], at[None, :]], mask=both, other=0.0)
    diagonal = jnp.where(z == 1, vector(alpha), 1.0)
    Q = jnp.where(both, t * Q, 0.0) + jnp.where(at[:, None] == at[None, :], diagonal[None, :], 0.0)
    l = solved(Q, jnp.where(z == 1, b, 0.0), vector(normal), is_in, at, K)
    store(Z.at[g, at], z.astype(jnp.int32), mask=real)
    store(L.at[g, at], jnp.where(z == 1, l, 0.0), mask=real)


def over(K: int, step: Any, start: Any) -> Any:
    """A loop over the factors, whose numbers are of 32 bits."""
    return lax.fori_loop(np.int32(0), np.int32(K), step, start)


def picked(values: Any, here: Any) -> Any:
    """The entry where `here` is."""
    return jnp.sum(jnp.where(here, values, jnp.zeros_like(values)))


def row_of(V: Any, here: Any) -> Any:
    """The row of V where `here` is."""
    return jnp.sum(jnp.where(here[:, None], V, 0.0), axis=0)


def coming(V: Any, here: Any, row: Any, own: Any, tau: Any, alpha: Any, b: Any, b_own: Any) -> tuple[Any, Any, Any]:
    """(c, w, w'b) of adding a factor: c the Schur complement, w w' / c what V gains."""
    coupling = tau * jnp.sum(V * row[:, None], axis=0)
    c = tau * own + alpha - tau * jnp.sum(row * coupling)
    return c, jnp.where(here, 1.0, -coupling), b_own - jnp.sum(coupling * b)


def leaving(V: Any, here: Any, b: Any) -> tuple[Any, Any, Any]:
    """The same of a factor that is in."""
    inverse = row_of(V, here)
    c = 1.0 / picked(inverse, here)
    return c, inverse * c, c * jnp.sum(inverse * b)


def changed(V: Any, here: Any, w: Any, d: Any, new: Any) -> Any:
    """V + d w w'; but for rounding, what has left is zero."""
    V = V + (d * w)[:, None] * w[None, :]
    return jnp.where((here[:, None] | here[None, :]) & (new == 0), 0.0, V)


def solved(Q: Any, b: Any, normal: Any, is_in: Any, at: Any, K: int) -> Any:
    """A draw from N(Q^-1 b, Q^-1) of the active factors, through Q = R'R; R is kept row by row, in Q's place."""

    def factor(k: Any, now: Any) -> Any:
        """Row k of R, and b forward by it."""

        def step(Q: Any, b: Any) -> tuple[Any, Any]:
            here, later = at == k, at > k
            row = row_of(Q, here)
            root = jnp.sqrt(picked(row, here))
            row = jnp.where(at >= k, row / root, 0.0)
            first = picked(b, here) / root
            rest = jnp.where(later, row, 0.0)
            Q = jnp.where(here[:, None], row[None, :], Q - rest[:, None] * rest[None, :])
            return Q, jnp.where(here, first, b - rest * first)

        return lax.cond(is_in(k) == 1, step, lambda Q, b: (Q, b), *now)

    Q, b = over(K, factor, (Q, b))

    def back(d: Any, l: Any) -> Any:
        k = np.int32(K - 1) - d

        def step(l: Any) -> Any:
            here = at == k
            row = row_of(Q, here)
            known = jnp.sum(jnp.where(at > k, row * l, 0.0))
            return jnp.where(here, (picked(l, here) - known) / picked(row, here), l)

        return lax.cond(is_in(k) == 1, step, lambda l: l, l)

    return over(K, back, b + normal)


@cache
def kernels_compile() -> bool:
    """Whether this installation can run this kernel and vi_kernel.py's: an NVIDIA GPU, and a JAX that has Triton."""
    from .vi_kernel import settled_rows as settled

    if (
        triton is None
        or jax.default_backend() != "gpu"
        or "cuda" not in jax.local_devices()[0].client.platform_version.lower()
    ):
        return False
    one, none = jnp.ones((2, 1)), jnp.zeros((2, 1))
    try:
        made = jax.jit(partial(drawn_rows, interpret=False))(
            jnp.eye(2), one, none, one, one[0], none == 1, 0.5 * one, none
        )
        jax.block_until_ready(made)
        jax.block_until_ready(
            jax.jit(partial(settled, interpret=False))(jnp.eye(2), one, none, none, one, one[0], none)
        )
    except Exception:  # of JAX, of Triton, of the driver: the other way is slower and always there
        return False
    return True
