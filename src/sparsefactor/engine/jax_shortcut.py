"""A whole iteration of variational inference on the device: columns and their sums stay there, the ELBO comes back."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ..data import Data
from ..kernels.columns import after_activations, elbo_terms, fixed_of, noise_mean, rescaled, vi_message
from ..kernels.contract import NONE, Array, ELBOTerms, Sums, VIColumns, VIRows, VITerms
from ..kernels.inclusion import inclusion_of
from ..kernels.jax.activations import vi_activations
from ..kernels.jax.library import JAX, jax, jnp, with_64_bits
from ..kernels.jax.problem import Kind, Problem
from ..kernels.jax.vi_modules import module_row_pass
from ..kernels.jax.vi_rows import vi_row_pass
from ..model import Prior

Static = tuple[Any, ...]
SMALL = ("active", "l2", "members", "active_in")  # sums that the host looks at


class JaxVI:
    """A `VIShortcut`; the equations are those of kernels/columns.py, compiled."""

    @with_64_bits
    def __init__(self, problem: Problem, kind: Kind, data: Data, prior: Prior) -> None:
        self.problem, self.kind, self.in_modules = problem, kind, prior.n_modules > 1
        parts = parted(fixed_of(data, prior, JAX)), parted(inclusion_of(prior, data, JAX))
        (self.static, self.arrays) = zip(*parts, strict=True)

    @with_64_bits
    def next_columns(self, rows: VIRows, columns: VIColumns, sums: Sums, rescale: bool) -> tuple[VIColumns, Array]:
        """The column step, each factor at its best scale if asked for, and what the rows are to be multiplied by."""
        new, scale = column_step(self.arrays, columns, without_terms(sums), static=self.static, rescale=rescale)
        return with_nones(new, columns), scale

    @with_64_bits
    def finish(self, rows: VIRows, columns: VIColumns, scale: Array) -> tuple[VIRows, Sums, ELBOTerms, float]:
        """The row pass, the ELBO's terms and the ELBO."""
        width = 6 if self.in_modules else 4
        after, sums, told = row_step(
            self.problem, self.arrays, VIRows(*rows[:width]), columns, scale, static=self.static, kind=self.kind
        )
        told, small = jax.device_get((told, {name: getattr(sums, name) for name in SMALL}))
        terms = ELBOTerms(*told.tolist())
        return VIRows(*after[:width]), sums._replace(**small, elbo=VITerms()), terms, terms.total


@partial(jax.jit, static_argnames=("static", "rescale"))
def column_step(arrays: Any, columns: VIColumns, sums: Sums, static: Static, rescale: bool) -> tuple[VIColumns, Any]:
    """q(F), column-wise q(tau), q(alpha), q(pi) and the scale, from the rows' sums."""
    fixed, inclusion = (joined(*both) for both in zip(static, arrays, strict=True))
    f_mean, f_var = vi_activations(columns, sums, noise_mean(columns, fixed))
    columns = after_activations(columns._replace(f_mean=f_mean, f_var=f_var), sums, inclusion, fixed)
    return rescaled(columns, fixed) if rescale else (columns, jnp.ones(f_mean.shape[0]))


@partial(jax.jit, static_argnames=("static", "kind"))
def row_step(
    problem: Problem, arrays: Any, rows: VIRows, columns: VIColumns, scale: Any, static: Static, kind: Kind
) -> tuple[VIRows, Sums, Any]:
    """The row pass, its sums, and the ELBO's terms (6,)."""
    fixed, inclusion = (joined(*both) for both in zip(static, arrays, strict=True))
    message = vi_message(columns, scale, inclusion, fixed)
    run = module_row_pass if rows.member.shape[0] else vi_row_pass
    rows, sums = run(problem, rows, message, kind)
    told = elbo_terms(columns, sums, inclusion, fixed)
    return rows, sums, jnp.stack([jnp.asarray(term, dtype=jnp.float64) for term in told])


def parted(values: Any) -> tuple[Static, dict[str, Any]]:
    """What a compilation depends on, and the arrays and numbers that it does not depend on."""
    own = values._asdict()
    arrays = {name: value for name, value in own.items() if isinstance(value, float | np.ndarray | jax.Array)}
    return (type(values), *((name, value) for name, value in own.items() if name not in arrays)), arrays


def joined(static: Static, arrays: dict[str, Any]) -> Any:
    """The two together again."""
    return static[0](**dict(static[1:]), **arrays)


def without_terms(sums: Sums) -> Sums:
    """What the column step looks at: other engines' and earlier states' terms are numbers."""
    return Sums(*sums[:5], members=sums.members, active_in=sums.active_in, shift=sums.shift)


def with_nones(new: VIColumns, old: VIColumns) -> VIColumns:
    """What the old columns do not have, the new ones have not either."""
    return new._replace(**{name: NONE for name, value in old._asdict().items() if value is NONE})
