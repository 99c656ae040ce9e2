"""The data matrix entry by entry, in JAX: residuals, regressions, and the matrix as starts see it.

Asked now and then, not every sweep: always in float64, over parts of the rows in turn, so that no second matrix of the
size of the data is made. Shapes are those of kernels/starts.py and data/matrix.py.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from .library import jax, jnp, lax
from .problem import ROOM, Kind, Problem
from .products import mask_times

LEAST_ROOM = 2**26  # bytes: below, parts are too small to keep a device busy
BYTES_OF_AN_ENTRY = 32  # of what is made of a part: double precision, several times
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


def room_beside(Y: Any) -> int:
    """Bytes that what is made of the data in parts may take: an eighth of the data, and never ROOM."""
    return int(min(ROOM, max(LEAST_ROOM, Y.size * Y.dtype.itemsize // 8)))


def over_parts(of_part: Any, problem: Problem, by_row: tuple[Any, ...], kind: Kind, joined: bool = False) -> Any:
    """What is made of some rows after others, added up, or joined; by_row: what else each row has its own of.

    of_part(Y, mask, *by_row), each of some rows. They are taken in turn, so that one part alone is ever in double
    precision; of rows on several devices each device takes some of its own.
    """
    arrays = problem.Y, problem.mask, *by_row
    G, D = problem.Y.shape[0], kind.n_devices
    n, most = G // D, max(1, room_beside(problem.Y) // (BYTES_OF_AN_ENTRY * problem.Y.shape[1] * D))
    step = -(-n // -(-n // most))  # of as many parts, none much smaller than the others
    if step == n:
        return of_part(*arrays)
    n_parts, rest = divmod(n, step)

    def part(first: Any, size: int) -> Any:
        own = [a.reshape(D, n, *a.shape[1:]) if a.shape[0] else a for a in arrays]
        own = [lax.dynamic_slice_in_dim(a, first, size, axis=1) if a.shape[0] else a for a in own]
        return of_part(*(a.reshape(D * size, *a.shape[2:]) if a.shape[0] else a for a in own))

    if joined:
        found = lax.map(lambda d: part(d * step, step), jnp.arange(n_parts))
        trail = found.shape[2:]
        found = jnp.moveaxis(found.reshape(n_parts, D, step, *trail), 0, 1).reshape(D, n_parts * step, *trail)
        if rest:
            last = part(n_parts * step, rest)
            found = jnp.concatenate([found, last.reshape(D, rest, *trail)], axis=1)
        return found.reshape(G, *trail)
    total = part(n_parts * step, rest) if rest else jax.tree.map(jnp.zeros_like, jax.eval_shape(part, 0, step))

    def more(d: Any, total: Any) -> Any:
        return jax.tree.map(jnp.add, total, part(d * step, step))

    return lax.fori_loop(0, n_parts, more, total)


def seen_part(Y: Any, mask: Any, base: Any, left: Any, seen: Seen, kind: Kind) -> Any:
    """Some rows of the matrix that starts see."""
    Y = Y.astype(jnp.float64)
    if base.shape[1]:
        Y = Y - base @ seen.C
    Y = Y / seen.scale
    if kind.masked:
        holes = left @ seen.right.T if left.shape[1] else 0.0
        Y = jnp.where(observed(mask, kind), Y, holes)
    return Y


def over_seen(of_part: Any, problem: Problem, seen: Seen, by_row: tuple[Any, ...], kind: Kind, **how: Any) -> Any:
    """`over_parts` of the matrix that starts see: of_part(rows, *by_row)."""

    def one(Y: Any, mask: Any, base: Any, left: Any, *own: Any) -> Any:
        return of_part(seen_part(Y, mask, base, left, seen, kind), *own)

    return over_parts(one, problem, (seen.base, seen.left, *by_row), kind, **how)


@compiled
def gram(problem: Problem, seen: Seen, kind: Kind) -> Any:
    return over_seen(lambda Y: Y.T @ Y, problem, seen, (), kind)


@compiled
def feature_gram(problem: Problem, seen: Seen, kind: Kind) -> Any:
    """By samples, of which there are many."""
    G, N = problem.Y.shape
    width = min(N, max(1, room_beside(problem.Y) // (BYTES_OF_AN_ENTRY * G)))

    def some(first: Any, n: int) -> Any:
        def own(values: Any, axis: int) -> Any:
            return lax.dynamic_slice_in_dim(values, first, n, axis=axis) if values.size else values

        few = seen._replace(C=own(seen.C, 1), right=own(seen.right, 0))
        Y = seen_part(own(problem.Y, 1), own(problem.mask, 1), seen.base, seen.left, few, kind)
        return Y @ Y.T

    total = some(N - N % width, N % width) if N % width else jnp.zeros((G, G))
    return lax.fori_loop(0, N // width, lambda d, total: total + some(d * width, width), total)


@compiled
def matrix_times(problem: Problem, seen: Seen, V: Any, kind: Kind) -> Any:
    return over_seen(lambda Y: Y @ V, problem, seen, (), kind, joined=True)


@compiled
def matrix_back(problem: Problem, seen: Seen, L: Any, kind: Kind) -> Any:
    return over_seen(lambda Y, L: Y.T @ L, problem, seen, (L,), kind)


@compiled
def sum_of_squares(problem: Problem, seen: Seen, kind: Kind) -> Any:
    """Of what is observed."""
    bare = seen._replace(left=seen.left[:, :0], right=seen.right[:, :0])
    return over_seen(lambda Y: jnp.sum(Y**2), problem, bare, (), kind)


@compiled
def change_in_holes(problem: Problem, seen: Seen, left: Any, right: Any, kind: Kind) -> tuple[Any, Any]:
    """Sums of squares of what changes in the holes when left right' comes there, and of what is there then."""

    def of_part(Y: Any, mask: Any, before: Any, after: Any) -> tuple[Any, Any]:
        gone, new = ~observed(mask, kind), after @ right.T
        old = before @ seen.right.T if before.shape[1] else 0.0
        return jnp.sum(jnp.where(gone, (new - old) ** 2, 0.0)), jnp.sum(jnp.where(gone, new**2, 0.0))

    found: tuple[Any, Any] = over_parts(of_part, problem, (seen.left, left), kind)
    return found


@partial(jax.jit, static_argnames=("kind", "over"))
def rss(problem: Problem, L: Any, F: Any, kind: Kind, over: int) -> Any:
    """Sums over observed entries of (Y - L F)^2, of each sample (over rows, 0) or of each row (over samples, 1)."""

    def of_part(Y: Any, mask: Any, L: Any) -> Any:
        square = (Y.astype(jnp.float64) - L @ F) ** 2
        square = square if not kind.masked else jnp.where(observed(mask, kind), square, 0.0)
        return jnp.sum(square, axis=over)

    return over_parts(of_part, problem, (L,), kind, joined=over == 1)


@compiled
def regression(problem: Problem, L: Any, F: Any, C: Any, ridge: Any, kind: Kind) -> Any:
    """(G, d) least squares of Y - L F on the directions C (d, N)."""
    d, N = C.shape

    def of_part(Y: Any, mask: Any, L: Any) -> Any:
        left = Y.astype(jnp.float64) - L @ F
        gram = jnp.broadcast_to(C @ C.T, (left.shape[0], d, d))
        if kind.masked:
            outer = (C[:, None, :] * C[None, :, :]).reshape(d * d, N).T
            listed = mask_times(mask, outer, jnp.float64).T.reshape(-1, d, d)
            gram = gram - listed if kind.lists_missing else listed
            left = jnp.where(observed(mask, kind), left, 0.0)
        return jnp.linalg.solve(gram + ridge * jnp.eye(d), (left @ C.T)[:, :, None])[:, :, 0]

    return over_parts(of_part, problem, (L,), kind, joined=True)
