"""The rows' part of a search for shears, in JAX (math.md, 3.15); kernels/shears.py is the oracle.

All rows take part in every profile, those that do not use the factor with weight zero: shapes then never change.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..contract import Array, VIRows
from ..shears import SURE
from .library import host, jax, jnp, with_64_bits


class View(NamedTuple):
    """The likelihood's own view of each loading given the others, factor-major: (K, G), or (K, 1)."""

    alpha: Any
    logit: Any
    v: Any  # variance
    m: Any  # estimate
    mean: Any  # E[l]
    used: Any  # zero or one


@jax.jit
def view_of(rows: VIRows, alpha: Any, logit: Any) -> tuple[View, Any]:
    """And (K, K) rows that use both factors."""
    own = 1.0 / rows.s2
    v = 1.0 / jnp.maximum(own - alpha, 1e-12 * own)
    used = (rows.eta > SURE).astype(jnp.float64)
    view = View(alpha.T, logit.T, v.T, (rows.mu * own * v).T, (rows.eta * rows.mu).T, used.T)
    return view, used.T @ used


@jax.jit
def profile_of(view: View, k: Any, q: Any, steps: Any) -> Any:
    v, m, used = view.v[q], view.m[q], view.used[k]
    wide = v + 1.0 / view.alpha[q]
    offset = view.logit[q] + 0.5 * jnp.log(v / wide)
    square = (m - view.mean[k] * steps[:, None]) ** 2
    odds = offset + (0.5 / v - 0.5 / wide) * square
    inclusion = jnp.maximum(odds, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(odds)))
    return jnp.sum(jnp.where(used > 0, inclusion - (0.5 / v) * square, 0.0), axis=1)


@jax.jit
def sheared(view: View, k: Any, q: Any, step: Any) -> View:
    return view._replace(m=view.m.at[q].add(-step * view.mean[k] * view.used[k]))


class JaxShears:
    """Profiles over shears, which change as shears are applied."""

    @with_64_bits
    def __init__(self, rows: VIRows, alpha: Array, logit: Array) -> None:
        """alpha, logit: (1 or G, K)."""
        self.view, shared = view_of(VIRows(*rows[:4]), alpha, logit)
        self.shared = np.asarray(host(shared))

    @with_64_bits
    def profile(self, k: int, q: int, steps: Array) -> Array:
        """(len(steps),) the rows' part of the ELBO along shears of factor q onto factor k, up to a constant."""
        return np.asarray(host(profile_of(self.view, k, q, steps)))

    @with_64_bits
    def apply(self, k: int, q: int, step: float) -> None:
        """Take a shear of q onto k into account."""
        self.view = sheared(self.view, k, q, step)
