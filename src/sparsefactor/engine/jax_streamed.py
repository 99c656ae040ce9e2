"""Data larger than the memory of the device: rows' states are there, the matrix comes by block of rows in every pass.

While a block is computed with, the next one is on its way; two are on the device at a time. A pass needs a block once:
what the rows need of it, and what the columns need of the rows. Sums over blocks are added in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..data import Data
from ..kernels.contract import Message, Sums
from ..kernels.jax import matrix
from ..kernels.jax.gibbs_rows import gibbs_pass
from ..kernels.jax.library import jax, jnp, with_64_bits
from ..kernels.jax.problem import Problem
from ..model import Prior
from .jax_engine import JaxEngine, mask_of
from .jax_verbs import ByRow


class StreamedJaxEngine(JaxEngine):
    """`JaxEngine` whose data matrix is in the host's memory. Results are the same but for the order of summation."""

    @with_64_bits
    def __init__(
        self,
        data: Data,
        prior: Prior,
        *,
        block: int,
        half: bool = False,
        _problem: Problem | None = None,
        _Y: Any = None,
    ) -> None:
        """block: rows that come at a time; half: they come as float16."""
        self.block = block
        self.Y = (data.Y.astype(np.float16) if half else data.Y) if _Y is None else _Y
        super().__init__(data, prior, _problem=without_matrix(data, self.Y, half) if _problem is None else _problem)
        self.one_caller = True  # two would have four blocks there

    def with_prior(self, prior: Prior) -> StreamedJaxEngine:
        """The same engine under another prior."""
        return StreamedJaxEngine(self.data, prior, block=self.block, _problem=self.problem, _Y=self.Y)

    def vi_shortcut(self, joint: bool) -> None:  # type: ignore[override]
        """None: a pass is many calls."""

    def gibbs_shortcut(self) -> None:  # type: ignore[override]
        """None, as above."""

    # ---- blocks -------------------------------------------------------------------------------------------------

    def over_blocks(self, of_block: Callable[[slice, Problem], Any]) -> list[Any]:
        """What a function makes of each block; the next one comes while it does."""
        G = self.data.n_features
        bounds = [slice(first, min(first + self.block, G)) for first in range(0, G, self.block)]
        found: list[Any] = []
        Y = self.placed(bounds[0])
        for n, rows in enumerate(bounds):
            found.append(of_block(rows, self.part(rows, Y)))
            if n:
                jax.block_until_ready(found[n - 1])  # the block before it is done with, and makes room
            if n + 1 < len(bounds):
                Y = self.placed(bounds[n + 1])
        return found

    def placed(self, rows: slice) -> Any:
        """A block on its way to the device."""
        return jax.device_put(np.ascontiguousarray(self.Y[rows]))

    def part(self, rows: slice, Y: Any) -> Problem:
        """What the kernels need of a block; constants, which are of all rows, go with the first."""
        own = self.problem.part(rows)._replace(Y=Y)
        if rows.start == 0:
            return own
        none = jnp.zeros(())
        return own._replace(likelihood_constant=none, noise_constant=none, gibbs_constant=none)

    def asked(self, function: Any, *args: Any, join: int | None = None, **static: Any) -> Any:
        """What a kernel says of the data: see `JaxVerbs.asked`."""

        def of_block(rows: slice, own: Problem) -> Any:
            return function(own, *(cut(arg, rows) for arg in args), kind=self.kind, **static)

        found = self.over_blocks(of_block)
        return added(found) if join is None else jnp.concatenate(found, axis=join)

    def passed(self, run: Any, rows: Any, message: Message, *noise: Any) -> tuple[Any, Sums]:
        """A row pass."""
        by_row = len(message.logit) == self.data.n_features > 1

        def of_block(own: slice, problem: Problem) -> Any:
            told = message._replace(logit=message.logit[own]) if by_row else message
            first = {"first": own.start} if run is gibbs_pass else {}
            return run(problem, rows_of(rows, own), told, *noise, kind=self.kind, **first)

        found = self.over_blocks(of_block)
        fields = zip(*(after for after, _ in found), strict=True)
        after = type(rows)(*(jnp.concatenate(each) if each[0].shape[0] else each[0] for each in fields))
        return after, added([sums for _, sums in found])

    def data_rows(self, numbers: Any) -> Any:
        """(n, N) some rows of the data."""
        return self.Y[numbers]

    def feature_gram(self, seen: matrix.Seen) -> Any:
        """(G, G) Y Y' of the data as starts see them, by blocks of samples."""
        total: Any = 0.0
        G, N = self.data.n_features, self.data.n_samples
        width = max(1, self.block * N // G)
        for samples in (slice(first, min(first + width, N)) for first in range(0, N, width)):
            mask = self.problem.mask[:, samples] if self.kind.masked else self.problem.mask
            own = self.problem._replace(Y=jax.device_put(np.ascontiguousarray(self.Y[:, samples])), mask=mask)
            some = seen._replace(C=seen.C[:, samples], right=seen.right[samples])
            total = jax.block_until_ready(total + matrix.feature_gram(own, some, kind=self.kind))
        return total


def without_matrix(data: Data, Y: Any, half: bool) -> Problem:
    """What is on the device of the data, whatever the prior."""
    row_ss = np.concatenate([squares(Y[first : first + 1024]) for first in range(0, len(Y), 1024)])
    nothing = jnp.zeros(0)
    return Problem(
        Y=jnp.zeros((0, data.n_samples), Y.dtype),
        mask=jnp.asarray(mask_of(data)),
        row_count=jnp.asarray(data.row_count),
        row_ss=jnp.asarray(row_ss if half else data.row_ss),
        tau_shape=nothing,
        noise_rate=nothing,
        group=nothing,
        real=nothing,
        likelihood_constant=nothing,
        noise_constant=nothing,
        gibbs_constant=nothing,
    )


def squares(Y: Any) -> Any:
    return np.sum(Y.astype(np.float64) ** 2, axis=1)


def rows_of(rows: Any, own: slice) -> Any:
    """Some of the rows; what they do not have stays so."""
    return type(rows)(*(values[own] if len(values) else values for values in rows))


def cut(arg: Any, rows: slice) -> Any:
    """An argument for some of the rows."""
    if isinstance(arg, matrix.Seen):
        return arg._replace(base=arg.base[rows], left=arg.left[rows])
    return arg.values[rows] if isinstance(arg, ByRow) else arg


@jax.jit
def added(found: list[Any]) -> Any:
    """The sum of trees, in their order."""
    total = found[0]
    for one in found[1:]:
        total = jax.tree.map(lambda a, b: a + b, total, one)
    return total
