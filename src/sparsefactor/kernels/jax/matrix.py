"""The data matrix entry by entry, in JAX: residuals, regressions, and the matrix as starts see it.

Asked now and then, not every sweep: always in float64, over parts of the rows, so that no second matrix of the size of
the data is made. Shapes are those of kernels/starts.py and data/matrix.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from .library import jax, jnp
from .problem import Kind, Problem, row_parts
from .products import mask_times

compiled = partial(jax.jit, static_argnames="kind")


class Seen(NamedTuple):
    """The data as starts see them: (Y - base C) / scale, and in its holes left right'; empty where there is none."""

    scale: Any  # ()
    base: Any  # (G, d)
    C: Any  # (d, N)
    left: Any  # (G, r)
    right: Any  # (N, r)


def observed(mask: Any, kind: Kind) -> Any:
    """Which entries are observed; None where all are."""
    if not kind.masked:
        return None
    return ~mask if kind.lists_missing else mask


def parts_of(problem: Problem) -> list[slice]:
    return row_parts(problem.Y.shape[0], 32 * problem.Y.shape[1])


def part(problem: Problem, rows: slice, seen: Seen, kind: Kind) -> Any:
    """Some rows of the matrix that starts see."""
    Y = problem.Y[rows].astype(jnp.float64)
    if seen.base.shape[1]:
        Y = Y - seen.base[rows] @ seen.C
    Y = Y / seen.scale
    if kind.masked:
        holes = seen.left[rows] @ seen.right.T if seen.left.shape[1] else 0.0
        Y = jnp.where(observed(problem.mask[rows], kind), Y, holes)
    return Y


@compiled
def gram(problem: Problem, seen: Seen, kind: Kind) -> Any:
    total: Any = 0.0
    for rows in parts_of(problem):
        Y = part(problem, rows, seen, kind)
        total = total + Y.T @ Y
    return total


@compiled
def feature_gram(problem: Problem, seen: Seen, kind: Kind) -> Any:
    Y = part(problem, slice(None), seen, kind)
    return Y @ Y.T


@compiled
def matrix_times(problem: Problem, seen: Seen, V: Any, kind: Kind) -> Any:
    return jnp.concatenate([part(problem, rows, seen, kind) @ V for rows in parts_of(problem)])


@compiled
def matrix_back(problem: Problem, seen: Seen, L: Any, kind: Kind) -> Any:
    return sum(part(problem, rows, seen, kind).T @ L[rows] for rows in parts_of(problem))


@compiled
def sum_of_squares(problem: Problem, seen: Seen, kind: Kind) -> Any:
    """Of what is observed."""
    bare = seen._replace(left=seen.left[:, :0], right=seen.right[:, :0])
    return sum(jnp.sum(part(problem, rows, bare, kind) ** 2) for rows in parts_of(problem))


@compiled
def change_in_holes(problem: Problem, seen: Seen, left: Any, right: Any, kind: Kind) -> tuple[Any, Any]:
    """Sums of squares of what changes in the holes when left right' comes there, and of what is there then."""
    change = size = jnp.zeros(())
    for rows in parts_of(problem):
        gone = ~observed(problem.mask[rows], kind)
        new = left[rows] @ right.T
        old = seen.left[rows] @ seen.right.T if seen.left.shape[1] else 0.0
        change = change + jnp.sum(jnp.where(gone, (new - old) ** 2, 0.0))
        size = size + jnp.sum(jnp.where(gone, new**2, 0.0))
    return change, size


@partial(jax.jit, static_argnames=("kind", "over"))
def rss(problem: Problem, L: Any, F: Any, kind: Kind, over: int) -> Any:
    """Sums over observed entries of (Y - L F)^2, of each sample (over rows, 0) or of each row (over samples, 1)."""
    found = []
    for rows in parts_of(problem):
        square = (problem.Y[rows].astype(jnp.float64) - L[rows] @ F) ** 2
        square = square if not kind.masked else jnp.where(observed(problem.mask[rows], kind), square, 0.0)
        found.append(jnp.sum(square, axis=over))
    return jnp.concatenate(found) if over else sum(found)


@compiled
def regression(problem: Problem, L: Any, F: Any, C: Any, ridge: Any, kind: Kind) -> Any:
    """(G, d) least squares of Y - L F on the directions C (d, N)."""
    d, N = C.shape
    found = []
    for rows in parts_of(problem):
        left = problem.Y[rows].astype(jnp.float64) - L[rows] @ F
        gram = jnp.broadcast_to(C @ C.T, (left.shape[0], d, d))
        if kind.masked:
            outer = (C[:, None, :] * C[None, :, :]).reshape(d * d, N).T
            listed = mask_times(problem.mask[rows], outer, jnp.float64).T.reshape(-1, d, d)
            gram = gram - listed if kind.lists_missing else listed
            left = jnp.where(observed(problem.mask[rows], kind), left, 0.0)
        found.append(jnp.linalg.solve(gram + ridge * jnp.eye(d), (left @ C.T)[:, :, None])[:, :, 0])
    return jnp.concatenate(found)
