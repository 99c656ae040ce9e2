"""The compiled halves of an iteration: column step and row step of variational inference, and a Gibbs sweep's draw."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..kernels.columns import (
    after_activations,
    elbo_terms,
    explained,
    message,
    noise_mean,
    rescaled,
    vi_message,
)
from ..kernels.contract import NONE, GibbsColumns, GibbsRows, GibbsTerms, Message, RowStream, Sums, VIColumns, VIRows
from ..kernels.correlation import inverse_of
from ..kernels.jax.activations import draw_activations, vi_activations
from ..kernels.jax.gibbs_rows import gibbs_row_pass
from ..kernels.jax.library import JAX, jax, jnp
from ..kernels.jax.noise import normals
from ..kernels.jax.problem import Kind, Problem
from ..kernels.jax.vi_modules import module_row_pass
from ..kernels.jax.vi_rows import vi_row_pass
from ..kernels.noise import STREAM_F

Static = tuple[Any, ...]


@partial(jax.jit, static_argnames=("static", "rescale"))
def column_step(arrays: Any, columns: VIColumns, sums: Sums, static: Static, rescale: bool) -> tuple[VIColumns, Any]:
    """q(F), column-wise q(tau), q(alpha), q(pi) and the scale, from the rows' sums."""
    fixed, inclusion = (joined(*both) for both in zip(static, arrays, strict=True))
    f_mean, f_var = vi_activations(columns, sums, noise_mean(columns, fixed))
    columns = after_activations(columns._replace(f_mean=f_mean, f_var=f_var), sums, inclusion, fixed)
    if rescale:
        return rescaled(columns, fixed)
    return columns, jnp.ones(f_mean.shape[0])


@partial(jax.jit, static_argnames=("static", "kind"))
def row_step(
    problem: Problem, arrays: Any, rows: VIRows, columns: VIColumns, scale: Any, static: Static, kind: Kind
) -> tuple[VIRows, Sums, Any]:
    """The row pass, its sums, and the ELBO's terms (6,)."""
    run = module_row_pass if rows.member.shape[0] else vi_row_pass
    rows, sums = run(problem, rows, row_message(arrays, columns, scale, static), kind)
    return rows, sums, row_terms(arrays, columns, sums, static)


@partial(jax.jit, static_argnames="static")
def row_message(arrays: Any, columns: VIColumns, scale: Any, static: Static) -> Message:
    """What the rows need of the columns."""
    fixed, inclusion = (joined(*both) for both in zip(static, arrays, strict=True))
    return vi_message(columns, scale, inclusion, fixed)


@partial(jax.jit, static_argnames="static")
def row_terms(arrays: Any, columns: VIColumns, sums: Sums, static: Static) -> Any:
    """The ELBO's terms (6,) after a row pass."""
    fixed, inclusion = (joined(*both) for both in zip(static, arrays, strict=True))
    told = elbo_terms(columns, sums, inclusion, fixed)
    return jnp.stack([jnp.asarray(term, dtype=jnp.float64) for term in told])


def parted(values: Any) -> tuple[Static, dict[str, Any]]:
    """What a compilation depends on, and the arrays and numbers that it does not depend on."""
    own = values._asdict()
    arrays = {name: v for name, v in own.items() if isinstance(v, float | np.ndarray | jax.Array)}
    arrays.pop("correlation_df", None)  # which branch is compiled depends on it
    return (type(values), *((name, value) for name, value in own.items() if name not in arrays)), arrays


def joined(static: Static, arrays: dict[str, Any]) -> Any:
    """The two together again."""
    return static[0](**dict(static[1:]), **arrays)


@partial(jax.jit, static_argnames=("static", "kind", "each"))
def gibbs_step(
    problem: Problem,
    arrays: Any,
    rows: GibbsRows,
    columns: GibbsColumns,
    words: Any,
    normal: Any,
    static: Static,
    kind: Kind,
    each: bool,
) -> tuple[GibbsRows, Any, Sums, Any]:
    """The row pass, F, what the columns need of the rows, and what the host looks at, as `laid_out` has it.

    Numbers come and go in as few arrays as can be, for each costs as much as all: the scale is that of `columns` and
    then alpha (K, 1 + V); words: those of the stream, and the power of the likelihood.
    """
    told, stream, weight = gibbs_message(arrays, columns, words, static, kind)
    rows, sums = gibbs_row_pass(problem, rows, told, stream, kind)
    return rows, *gibbs_ended(arrays, sums, stream, weight, columns.phi, normal, static, each)


@partial(jax.jit, static_argnames=("static", "kind"))
def gibbs_message(
    arrays: Any, columns: GibbsColumns, words: Any, static: Static, kind: Kind
) -> tuple[Message, RowStream, Any]:
    """What the rows need, the name of the sweep's randomness, and (N,) the samples' weights."""
    fixed = joined(static, arrays)
    scale, alpha = columns.scale[:, 0], columns.scale[:, 1:]
    alpha = alpha if kind.n_groups > 1 else alpha[:, 0]
    stream = RowStream(*(words[n].astype(jnp.uint64) for n in range(3)))
    weight = words[3] * (columns.weight if columns.weight.shape[0] else fixed.ones)
    told = message(columns.F, None, weight, alpha, jnp.log(alpha), scale, {"logit": columns.logit}, fixed)
    return told, stream, weight


@partial(jax.jit, static_argnames=("static", "each"))
def gibbs_ended(
    arrays: Any, sums: Sums, stream: RowStream, weight: Any, phi: Any, normal: Any, static: Static, each: bool
) -> tuple[Any, Sums, Any]:
    """F, what the columns need of the rows, and what the host looks at."""
    K, N = sums.LY.shape
    if not normal.shape[0]:
        normal = normals(stream, jnp.arange(K)[:, None], jnp.arange(N), STREAM_F)
    F = draw_activations(sums, weight, inverse_of(phi, K, JAX), normal, each)
    own = explained(F, sums, joined(static, arrays))
    small = (sums.active, sums.l2, jnp.stack(sums.joint), own, jnp.sum(F**2, axis=1))
    small = jnp.concatenate([*map(jnp.ravel, small), jnp.max(jnp.abs(F))[None]])
    return F, sums._replace(active=NONE, l2=NONE, joint=GibbsTerms()), small


def laid_out(small: Any, K: int, N: int, V: int) -> tuple[Any, Any, GibbsTerms, Any, Any, float]:
    """Sums of z and of l^2 (K, V?), terms of the log joint, (N,) what F explains, (K,) its squares, and its largest."""
    shape = (K,) if V == 1 else (K, V)
    active, l2, joint, explained, f2, largest = np.split(small, np.cumsum([K * V, K * V, len(GibbsTerms()), N, K]))
    return active.reshape(shape), l2.reshape(shape), GibbsTerms(*joint.tolist()), explained, f2, float(largest[0])


def without_terms(sums: Sums) -> Sums:
    """What the column step looks at: other engines' and earlier states' terms are numbers."""
    return Sums(*sums[:5], members=sums.members, active_in=sums.active_in, shift=sums.shift)


def with_nones(new: VIColumns, old: VIColumns) -> VIColumns:
    """What the old columns do not have, the new ones have not either."""
    return new._replace(**{name: NONE for name, value in old._asdict().items() if value is NONE})
