"""What the kernels know of data and prior: arrays on the device, and what a compilation depends on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .library import jax, jnp

NEVER = -1e300  # log odds: of probability zero, and zero times them is zero
CONSTANTS = 3  # the last fields of a Problem, which are no row's
ROOM = 2**31  # bytes that a pass over masked rows may take at once, besides the data


class Problem(NamedTuple):
    """Arrays on the device; empty where they do not apply."""

    Y: Any  # (G, N)
    mask: Any  # (G, N) bool: the entries that `Kind.lists_missing` speaks of
    row_count: Any  # (G,)
    row_ss: Any  # (G,)
    tau_shape: Any  # (G,)
    noise_rate: Any  # (G,)
    group: Any  # (G,) which group each row is in
    real: Any  # (G,) bool: which rows are any; empty where all are, and none is there to make up the number
    likelihood_constant: Any  # () of the rows' ELBO terms, and of the log joint
    noise_constant: Any
    gibbs_constant: Any

    def part(self, rows: slice) -> Problem:
        """Of some rows."""
        return Problem(*(a[rows] if a.shape[0] else a for a in self[:-CONSTANTS]), *self[-CONSTANTS:])


class Kind(NamedTuple):
    """What a compilation depends on besides shapes."""

    masked: bool
    lists_missing: bool
    feature_noise: bool
    n_groups: int  # 1: no groups
    noise_shape: float
    precision: str  # of products with single precision: see products.py
    n_devices: int = 1  # that share the rows
    kernel: str = ""  # of row_kernel.py: "" for none, "compiled", or "interpreted" (on any machine, slowly)


def placed_as(like: Any, values: Any) -> Any:
    """Values (G, ...) on the devices of `like`, dealt out along the first axis as it is; each process puts its part."""
    if len(like.sharding.device_set) == 1:
        return jnp.asarray(values)
    return dealt(values, like.sharding, like.shape[0], 0.0)


def dealt(values: Any, sharding: Any, n_rows: int | None, fill: float) -> Any:
    """Values under a sharding, with more rows behind them up to n_rows; NumPy's, or those of a device."""
    more = 0 if n_rows is None else n_rows - len(values)
    if isinstance(values, jax.Array):
        if more:
            values = jnp.pad(values, ((0, more), *((0, 0),) * (values.ndim - 1)), constant_values=fill)
        return jax.device_put(values, sharding)
    values = np.asarray(values)
    shape = values.shape if n_rows is None else (n_rows, *values.shape[1:])

    def part(index: Any) -> Any:
        own = values[index]
        lacking = 0 if n_rows is None else len(range(*index[0].indices(n_rows))) - len(own)
        if not lacking:
            return own
        return np.concatenate([own, np.full((lacking, *values.shape[1:]), fill, values.dtype)])

    return jax.make_array_from_callback(shape, sharding, part)


def by_row(values: Any, problem: Problem) -> Any:
    """(K, 1 or G) each row's own of values (K,) or (K, V)."""
    return values[:, None] if values.ndim == 1 else values[:, problem.group]


def logit_by_row(logit: Any, problem: Problem, kind: Kind) -> Any:
    """(K, 1 or G) each row's own of logit (1, V or G, K); what is no row is never included."""
    if kind.n_groups > 1 and logit.shape[0] == kind.n_groups:
        return never_unless_real(logit[problem.group].T, problem)
    if 1 < logit.shape[0] < problem.row_count.shape[0]:
        logit = jnp.pad(logit, ((0, problem.row_count.shape[0] - logit.shape[0]), (0, 0)))
    return never_unless_real(logit.T, problem)


def never_unless_real(logit: Any, problem: Problem) -> Any:
    """Log odds (K, 1 or G) that are NEVER where there is no row."""
    return jnp.where(problem.real, logit, NEVER) if problem.real.shape[0] else logit


def of_real(values: Any, problem: Problem) -> Any:
    """Values (..., G), zero where there is no row."""
    return jnp.where(problem.real, values, 0.0) if problem.real.shape[0] else values


def group_sums(values: Any, problem: Problem, kind: Kind) -> Any:
    """(K,), or (K, V) by group: sums over the rows of values (K, G)."""
    if kind.n_groups == 1:
        return jnp.sum(values, axis=1)
    return values @ (problem.group[:, None] == jnp.arange(kind.n_groups)).astype(values.dtype)


def row_parts(n_rows: int, bytes_of_a_row: int) -> list[slice]:
    """Slices of rows that fit the room there is."""
    step = max(1, ROOM // max(1, bytes_of_a_row))
    n_parts = -(-n_rows // step)
    step = -(-n_rows // n_parts)
    return [slice(first, min(first + step, n_rows)) for first in range(0, n_rows, step)]
