"""q(l, z) of rows factor by factor in one kernel of a GPU: what the factors have settled stays in registers (3.1, 3.3).

What vi_rows.py does with all rows side by side starts some kernels for every factor, which takes longer than their
work. Here a program takes a few rows through all factors.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .library import jax, jnp, lax
from .row_kernel import pl, triton

MOST_FACTORS = 128  # whose means the registers of a program hold
ENTRIES = 2048  # of a program: rows times factors


def settled_rows(
    A: Any, alpha: Any, log_alpha: Any, logit: Any, b: Any, tau: Any, mean: Any, *, interpret: bool
) -> tuple[Any, Any]:
    """mu and eta (K, G) of rows from E[l] (K, G) before; arguments factor-major, as in vi_rows.settle.

    A: (K, K) common, or (K, K, G); alpha, log_alpha, logit: (K, 1 or G).
    """
    K, G = b.shape
    width = max(16, 1 << (K - 1).bit_length())
    rows = ENTRIES // width
    mu, eta = pl.pallas_call(
        partial(some_rows, K=K, G=G, width=width, rows=rows, load=triton.load, store=triton.store),
        grid=(-(-G // rows),),
        out_shape=(jax.ShapeDtypeStruct((K, G), jnp.float64),) * 2,
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=1),
        interpret=interpret,
        name="row_settled",
    )(A, alpha, log_alpha, logit, b, tau, mean)
    return mu, eta


def some_rows(
    A: Any,
    alpha: Any,
    log_alpha: Any,
    logit: Any,
    b: Any,
    tau: Any,
    mean: Any,
    mu: Any,
    eta: Any,
    *,
    K: int,
    G: int,
    width: int,
    rows: int,
    load: Any,
    store: Any,
) -> None:
    """The kernel: references to all rows' arrays, of which this program's rows are read and written."""
    g = pl.program_id(0) * np.int32(rows) + lax.iota(jnp.int32, rows)
    at, there = lax.iota(jnp.int32, width), g < G
    both = there[:, None] & (at < K)[None, :]

    def own(values: Any, k: Any) -> Any:
        """Of factor k, each row's, or what is common to all."""
        return values[k, 0] if values.shape[1] == 1 else load(values.at[k, g], mask=there, other=0.0)

    t = load(tau.at[g], mask=there, other=1.0)

    def one_factor(k: Any, M: Any) -> Any:
        here = (at == k)[None, :]
        if len(A.shape) == 2:
            row, square = load(A.at[k, at], mask=at < K, other=0.0)[None, :], A[k, k]
        else:
            row = load(A.at[k, at[None, :], g[:, None]], mask=both, other=0.0)
            square = load(A.at[k, k, g], mask=there, other=1.0)
        others = jnp.sum(jnp.where(here, 0.0, row) * M, axis=1)
        variance = 1.0 / (t * square + own(alpha, k))
        centre = variance * t * (own(b, k) - others)
        odds = own(logit, k) + 0.5 * (own(log_alpha, k) + jnp.log(variance) + centre * centre / variance)
        included = 1.0 / (1.0 + jnp.exp(-odds))
        store(mu.at[k, g], centre, mask=there)
        store(eta.at[k, g], included, mask=there)
        return jnp.where(here, (included * centre)[:, None], M)

    begin = load(mean.at[at[None, :], g[:, None]], mask=both, other=0.0)
    lax.fori_loop(np.int32(0), np.int32(K), one_factor, begin)
