"""Data larger than the memory of the device: rows' states are there, the matrix comes by block of rows in every pass.

While a block is computed with, the next ones are on their way: several, since a single transfer does not fill the bus.
A pass needs a block once: what the rows need of it, and what the columns need of the rows. Sums over blocks are added
in their order.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

import numpy as np

from ..data import Data
from ..kernels.contract import Array, GibbsColumns, GibbsRows, Message, Sums, VIColumns, VIRows
from ..kernels.jax import matrix
from ..kernels.jax.gibbs_rows import gibbs_pass
from ..kernels.jax.library import jax, jnp, lax, with_64_bits
from ..kernels.jax.problem import CONSTANTS, Kind, Problem
from ..kernels.jax.vi_modules import module_pass
from ..kernels.jax.vi_rows import vi_pass
from ..model import Prior
from .devices import BLOCKS
from .jax_engine import JaxEngine, mask_of
from .jax_shortcut import JaxGibbs, JaxVI
from .jax_steps import gibbs_ended, gibbs_message, row_message, row_terms
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
        self.one_caller = True  # two would have twice as many blocks there

    def with_prior(self, prior: Prior) -> StreamedJaxEngine:
        """The same engine under another prior."""
        return StreamedJaxEngine(self.data, prior, block=self.block, _problem=self.problem, _Y=self.Y)

    def vi_shortcut(self, joint: bool) -> StreamedVI:
        """Whole iterations on the device but for the blocks."""
        return StreamedVI(self)

    def gibbs_shortcut(self) -> StreamedGibbs:
        """Row pass and activations, the same."""
        return StreamedGibbs(self)

    # ---- blocks -------------------------------------------------------------------------------------------------

    def over_blocks(self, function: Any, *args: Any, **static: Any) -> list[Any]:
        """What a kernel makes of each block; the next ones come while it does."""
        G = self.data.n_features
        bounds = [slice(first, min(first + self.block, G)) for first in range(0, G, self.block)]
        coming = deque(map(self.placed, bounds[: BLOCKS - 1]))
        found: list[Any] = []
        for n, rows in enumerate(bounds):
            here = self.problem, coming.popleft(), np.int64(rows.start), args
            found.append(of_block(*here, function=function, static=tuple(static.items()), kind=self.kind))
            if n:
                jax.block_until_ready(found[n - 1])  # the block before it is done with, and makes room
            if n + BLOCKS - 1 < len(bounds):
                coming.append(self.placed(bounds[n + BLOCKS - 1]))
        return found

    def placed(self, rows: slice) -> Any:
        """A block on its way to the device."""
        return jax.device_put(np.ascontiguousarray(self.Y[rows]))

    def asked(self, function: Any, *args: Any, join: int | None = None, **static: Any) -> Any:
        """What a kernel says of the data: see `JaxVerbs.asked`."""
        found = self.over_blocks(function, *args, **static)
        return added(found) if join is None else jnp.concatenate(found, axis=join)

    def passed(self, run: Any, rows: Any, message: Message, *noise: Any) -> tuple[Any, Sums]:
        """A row pass."""
        found = self.over_blocks(run, ByRow(rows), message, *noise)
        return joined_blocks(found)

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


@partial(jax.jit, static_argnames=("function", "static", "kind"))
def of_block(problem: Problem, Y: Any, first: Any, args: Any, function: Any, static: Any, kind: Kind) -> Any:
    """What a kernel makes of the block Y, whose first row is `first`; problem and arguments are of all rows."""
    G, n = problem.row_count.shape[0], Y.shape[0]

    def own(values: Any) -> Any:
        return lax.dynamic_slice_in_dim(values, first, n) if values.shape[0] else values

    def cut(arg: Any) -> Any:
        if isinstance(arg, ByRow):
            return jax.tree.map(own, arg.values)
        if isinstance(arg, matrix.Seen):
            return arg._replace(base=own(arg.base), left=own(arg.left))
        if isinstance(arg, Message) and arg.logit.shape[0] == G > 1:
            return arg._replace(logit=own(arg.logit))
        return arg

    # Constants, which are of all rows, go with the first block.
    constants = [jnp.where(first == 0, value, 0.0) for value in problem[-CONSTANTS:]]
    part = Problem(Y, *map(own, problem[1:-CONSTANTS]), *constants)
    more = {"first": first} if function is gibbs_pass else {}
    return function(part, *map(cut, args), kind=kind, **dict(static), **more)


class StreamedVI(JaxVI):
    """`JaxVI` of data that come by blocks."""

    def __init__(self, engine: StreamedJaxEngine) -> None:
        super().__init__(engine.problem, engine.kind, engine.data, engine.prior)
        self.engine, self.climbs = engine, False

    def row_step(self, rows: VIRows, columns: VIColumns, scale: Array) -> tuple[VIRows, Sums, Any]:
        """The row pass, its sums, and the ELBO's terms (6,)."""
        message = row_message(self.arrays, columns, scale, static=self.static)
        after, sums = self.engine.passed(module_pass if self.in_modules else vi_pass, rows, message)
        return after, sums, row_terms(self.arrays, columns, sums, static=self.static)


class StreamedGibbs(JaxGibbs):
    """`JaxGibbs` of data that come by blocks."""

    def __init__(self, engine: StreamedJaxEngine) -> None:
        super().__init__(engine.problem, engine.kind, engine.data, engine.prior)
        self.engine = engine

    def step(self, rows: GibbsRows, columns: GibbsColumns, words: Any, normal: Any) -> Any:
        """`gibbs_step`."""
        message, stream, weight = gibbs_message(self.arrays, columns, words, static=self.static, kind=self.kind)
        after, sums = self.engine.passed(gibbs_pass, rows, message, stream)
        ended = gibbs_ended(self.arrays, sums, stream, weight, columns.phi, normal, static=self.static, each=self.each)
        return after, *ended


@jax.jit
def joined_blocks(found: list[Any]) -> tuple[Any, Sums]:
    """The rows of all blocks, and their sums added up."""
    each = [after for after, _ in found]
    fields = zip(*each, strict=True)
    rows = type(each[0])(*(jnp.concatenate(own) if own[0].shape[0] else own[0] for own in fields))
    return rows, added([sums for _, sums in found])


@jax.jit
def added(found: list[Any]) -> Any:
    """The sum of trees, in their order."""
    total = found[0]
    for one in found[1:]:
        total = jax.tree.map(lambda a, b: a + b, total, one)
    return total
