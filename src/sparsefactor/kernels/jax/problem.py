"""What the kernels know of data and prior: arrays on the device, and what a compilation depends on."""

from __future__ import annotations

from typing import Any, NamedTuple

from .library import jax, jnp

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
    likelihood_constant: Any  # () of the rows' ELBO terms, and of the log joint
    noise_constant: Any
    gibbs_constant: Any

    def part(self, rows: slice) -> Problem:
        """Of some rows."""
        constants = 3
        return Problem(*(a[rows] if a.shape[0] else a for a in self[:-constants]), *self[-constants:])


class Kind(NamedTuple):
    """What a compilation depends on besides shapes."""

    masked: bool
    lists_missing: bool
    feature_noise: bool
    n_groups: int  # 1: no groups
    noise_shape: float
    precision: str  # of products with single precision: see products.py
    kernel: str = ""  # of row_kernel.py: "" for none, "compiled", or "interpreted" (on any machine, slowly)


def placed_as(like: Any, values: Any) -> Any:
    """NumPy's values on the devices of `like`, dealt out along the first axis as it is; each process puts its part."""
    if len(like.sharding.device_set) == 1:
        return jnp.asarray(values)
    return jax.make_array_from_callback(values.shape, like.sharding, lambda index: values[index])


def by_row(values: Any, problem: Problem) -> Any:
    """(K, 1 or G) each row's own of values (K,) or (K, V)."""
    return values[:, None] if values.ndim == 1 else values[:, problem.group]


def logit_by_row(logit: Any, problem: Problem) -> Any:
    """(K, 1 or G) each row's own of logit (1, V or G, K)."""
    own = logit.shape[0] not in (1, problem.Y.shape[0])
    return logit[problem.group].T if own else logit.T


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
