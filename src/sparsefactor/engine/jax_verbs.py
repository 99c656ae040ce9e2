"""The verbs of an engine whose rows are on a device: those of kernels/rows.py, but for what reads data or rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..design import FLAT
from ..kernels.contract import NONE, Array, GibbsRows, Message, RowStream, VIRows
from ..kernels.jax import matrix
from ..kernels.jax.library import JAX, host, jax, jnp, with_64_bits
from ..kernels.jax.noise import normals, uniforms
from ..kernels.jax.problem import Kind, Problem, group_sums, of_real, placed_as
from ..kernels.jax.products import mask_back
from ..kernels.jax.shears import JaxShears
from ..kernels.rows import RowVerbs
from ..kernels.starts import StartVerbs


class JaxVerbs(RowVerbs):
    """For one data set and prior. Inputs are never modified."""

    on = JAX
    problem: Problem
    kind: Kind

    def row_chunks(self) -> Iterator[slice]:
        """All rows at once."""
        return iter([slice(0, self.data.n_features)])

    def row_tiles(self) -> Iterator[slice]:
        """All rows at once: a device adds them in an order of its own."""
        return self.row_chunks()

    @property
    def row_numbers(self) -> Any:
        """(G,) the rows' numbers, where the rows are."""
        return self.with_rows(np.arange(len(self.problem.row_count), dtype=np.intp), np.intp)

    def with_rows(self, values: Any, dtype: Any = np.float64) -> Any:
        """An array whose first axis is the rows, dealt out as these are, with zeros for those that are made up."""
        if not isinstance(values, jax.Array):
            return placed_as(self.problem.row_count, np.asarray(values, dtype))
        values = values.astype(dtype)
        return values if len(values) == len(self.problem.row_count) else placed_as(self.problem.row_count, values)

    def real(self, values: Any) -> Any:
        """Values (G, ...), zero in rows that are made up."""
        return of_real(values.T, self.problem).T

    def by_tile(self, part: Any) -> Any:
        """Of all rows at once, whatever they are."""
        return part(slice(None))

    def asked(self, function: Any, *args: Any, join: int | None = None, **static: Any) -> Any:
        """What a kernel says of the data; of arguments `ByRow` each row has its own.

        join: the axis of the rows in the answer, None where it is a sum over them. It matters where the data come in
        blocks (jax_streamed.py).
        """
        return function(self.problem, *map(whole, args), kind=self.kind, **static)

    # ---- to and from the host -----------------------------------------------------------------------------------

    def vi_place(self, L: Array, Z: NDArray[np.int8] | None = None) -> VIRows:
        """q at point values L (G, K), the host's or a start's, with inclusions Z where they are known."""
        L = self.with_rows(L)
        eta = self.real(jnp.ones_like(L)) if Z is None else self.with_rows(Z)
        return VIRows(mu=L, s2=jnp.zeros_like(L), eta=eta, tau=self.with_rows(np.ones(self.data.n_features)))

    def vi_fetch(self, rows: VIRows) -> VIRows:
        """As NumPy arrays."""
        return VIRows(*(fetched(values, self.data.n_features) for values in rows))

    def gibbs_place(self, L: Array) -> GibbsRows:
        """A draw with loadings L (G, K), the host's or a start's, active where they are not zero."""
        L = self.with_rows(L)
        return GibbsRows(Z=(L != 0).astype(np.int8), L=L, tau=self.with_rows(np.ones(self.data.n_features)))

    def gibbs_fetch(self, rows: GibbsRows, scale: Array | None = None) -> GibbsRows:
        """As NumPy arrays, the loadings multiplied by scale (K,) where one is given."""
        own = GibbsRows(*(fetched(values, self.data.n_features) for values in rows))
        return own if scale is None else own._replace(L=own.L * scale)

    def gibbs_return(self, rows: GibbsRows) -> GibbsRows:
        """Rows that `gibbs_fetch` gave, to the bit what they were."""
        own: Any = [values if not len(values) else self.with_rows(values, values.dtype) for values in rows]
        return GibbsRows(*own)

    # ---- sums over draws ------------------------------------------------------------------------------------------

    def gibbs_tally(self) -> Array:
        """A sum over draws of F'L', of none yet."""
        zeros: Array = jnp.zeros((self.data.n_samples, len(self.problem.row_count)))
        return zeros

    def gibbs_tally_add(self, tally: Array, rows: GibbsRows, scale: Array, F: Array) -> Array:
        """The sum with a draw more; its loadings are L scale, F: (K, N)."""
        more: Array = with_draw(tally, rows.L, scale, F)
        return more

    def gibbs_tally_fetch(self, tally: Array) -> Array:
        """(N, G) the sum as a NumPy array."""
        return np.asarray(host(tally))[:, : self.data.n_features]

    def gibbs_tally_return(self, total: Array) -> Array:
        """A sum that was fetched, to the bit."""
        more = len(self.problem.row_count) - self.data.n_features
        back: Array = jnp.asarray(np.pad(total, ((0, 0), (0, more))))
        return back

    # ---- loadings on a design's directions (1.11) -----------------------------------------------------------------

    def vi_regress(self, rows: VIRows, F: Array) -> VIRows:
        """The directions' loadings at the least squares of what the factors leave; F: (K, N)."""
        base = self.regression(rows.eta * rows.mu, F)
        return rows._replace(base=base, base_var=jnp.zeros_like(base))

    def gibbs_regress(self, rows: GibbsRows, F: Array) -> GibbsRows:
        """The same of a draw."""
        return rows._replace(base=self.regression(rows.L, F))

    def regression(self, L: Any, F: Any) -> Any:
        """(G, d) least squares of Y - L F on the design's directions."""
        assert self.data.design is not None
        return self.asked(matrix.regression, ByRow(L), F, self.data.design.basis, FLAT, join=0)

    def vi_spread(self, rows: VIRows) -> Array:
        """(1 or N, K) sums over a sample's rows of w Var[l]."""
        spread = rows.tau[:, None] * (rows.eta * (rows.mu**2 + rows.s2) - (rows.eta * rows.mu) ** 2)
        total = np.asarray(host(spread.sum(axis=0)))[None]
        if not self.kind.masked:
            return total
        listed = np.asarray(host(spread_listed(self.problem.mask, spread)))
        return total - listed if self.kind.lists_missing else listed

    # ---- from one method to the other -----------------------------------------------------------------------------

    def vi_draw(self, rows: VIRows, stream: RowStream) -> GibbsRows:
        """A draw of the inclusions from q, the loadings at their means."""
        return self.gibbs_place(drawn_inclusions(self.row_numbers, rows.mu, rows.eta, stream))

    # ---- reductions -----------------------------------------------------------------------------------------------

    def sums(self, values: Any, own: slice) -> Array:
        """(K,), or (K, V) by group: sums over all rows of values (G, K)."""
        all_rows = of_real(jnp.asarray(values, dtype=jnp.float64).T, self.problem)
        return np.asarray(host(group_sums(all_rows, self.problem, self.kind)))

    def joined(self, L: Any, F: Any, base: Any) -> tuple[Any, Any]:
        """L (G, K + d) and F (K + d, N), the design's directions behind the factors."""
        if self.data.design is None:
            return L, F
        return jnp.concatenate([L, base], axis=1), np.concatenate([F, self.data.design.basis])

    def vi_column_rss(self, rows: VIRows, F: Array) -> Array:
        """(N,) sums over observed rows of (y - E[l]'f)^2."""
        return self.rss(rows.eta * rows.mu, F, rows.base, 0)

    def gibbs_column_rss(self, rows: GibbsRows, F: Array) -> Array:
        """(N,) sums over observed rows of (y - l'f)^2."""
        return self.rss(rows.L, F, rows.base, 0)

    def row_rss(self, rows: VIRows, F: Array) -> Array:
        return self.rss(rows.eta * rows.mu, F, rows.base, 1)[: self.data.n_features]

    def rss(self, L: Any, F: Any, base: Any, over: int) -> Array:
        """Sums of squares of the residuals, over rows (0) or over samples (1)."""
        L, F = self.joined(L, F, base)
        return np.asarray(host(self.asked(matrix.rss, ByRow(L), F, over=over, join=0 if over else None)))

    def vi_likelihood(self, rows: VIRows, F: Array) -> float:
        """What the likelihood (3.10) cannot exceed, for noise by feature: variances of l and f left out."""
        return super().vi_likelihood(rows._replace(tau=fetched(rows.tau, self.data.n_features)), F)

    def vi_sortings(self, rows: VIRows, M: int, rng: np.random.Generator) -> list[Any]:
        """(G, M) memberships to set out from: clusters of the rows, which the host finds."""
        own = rows._replace(eta=fetched(rows.eta, self.data.n_features))
        return [self.with_rows(host(one)) for one in super().vi_sortings(own, M, rng)]

    def vi_sort(self, rows: VIRows, member: Any) -> tuple[VIRows, Array, Array]:
        """The rows in modules as `member` says, and sums: (M,) members and (K, M) E[z] of each module's."""
        member = self.with_rows(member)
        if self.problem.real.shape[0]:  # what is made up must be somewhere, too
            member = jnp.where(self.problem.real[:, None], member, 1.0 / member.shape[1])
        return super().vi_sort(rows, member)

    def vi_shears(self, rows: VIRows, message: Message) -> Any:
        """What a search for shears asks of the rows (3.15)."""
        own = len(message.logit) in (1, self.data.n_features)
        logit = message.logit if own else message.logit[self.prior.group_index]
        return JaxShears(rows, *map(self.common_or_dealt, (self.prior.by_row(message.alpha), logit)))

    def common_or_dealt(self, values: Any) -> Any:
        """Values (1 or G, K) for rows as they are."""
        return values if len(values) == 1 else self.with_rows(values)

    def vi_assignment_gain(self, rows: VIRows, message: Message) -> Array:
        """(K, K) the ELBO's part in z if factor k had the inclusion prior of factor p, q(z) adapting to it (3.14)."""
        n = slice(0, self.data.n_features)  # the rest is made up
        return super().vi_assignment_gain(rows._replace(mu=rows.mu[n], s2=rows.s2[n]), message)

    def data_rows(self, numbers: Any) -> Any:
        """(n, N) some rows of the data."""
        return self.problem.Y[numbers]

    def feature_gram(self, seen: matrix.Seen) -> Any:
        """(G, G) Y Y' of the data as starts see them."""
        return self.asked(matrix.feature_gram, seen)

    # ---- starts ---------------------------------------------------------------------------------------------------

    def start_normals(self, n: int, size: float, stream: RowStream) -> Any:
        """Loadings (G, n) of a start: normals with this standard deviation, by counter."""
        return self.real(size * normals_by_row(self.row_numbers, stream, n=n))

    def start_matrix(self) -> DeviceMatrix:
        """The data as starts see them."""
        base = None
        if self.data.design is not None and self.data.design.covariates is not None:
            none = np.zeros((self.data.n_features, 0)), np.zeros((0, self.data.n_samples))
            base = self.regression(*none)
        return DeviceMatrix(self, base)


class DeviceMatrix:
    """`kernels.starts.StartMatrix` on the device; what is in the holes is kept as the product it came from."""

    @with_64_bits
    def __init__(self, engine: JaxVerbs, base: Any = None, holes: tuple[Any, Any] | None = None) -> None:
        data, self.engine, self.base = engine.data, engine, base
        G, N = data.n_features, data.n_samples
        nothing = np.zeros((G, 0)), np.zeros((0, N))
        left, right = (nothing[0], nothing[1].T) if holes is None else holes
        base, C = nothing if base is None or data.design is None else (base, data.design.basis)
        self.seen = matrix.Seen(np.float64(1.0), base, C, left, right)
        self.scale = data.unit_scale
        if self.base is not None:
            total = float(self.asked(matrix.sum_of_squares))
            self.scale = float(np.sqrt(total / data.n_observed)) or 1.0
        self.seen = self.seen._replace(scale=np.float64(self.scale))

    @with_64_bits
    def asked(self, function: Any, *args: Any, join: int | None = None) -> Any:
        return self.engine.asked(function, self.seen, *args, join=join)

    def gram(self) -> Array:
        """(N, N) Y'Y."""
        return np.asarray(host(self.asked(matrix.gram)))

    @with_64_bits
    def feature_gram(self) -> Array:
        """(G, G) Y Y', which is asked for where features are few."""
        return np.asarray(host(self.engine.feature_gram(self.seen)))

    def times(self, V: Array) -> Any:
        """Y V, as loadings of a start; V: (N, r)."""
        return self.asked(matrix.matrix_times, V, join=0)

    def back(self, L: Any) -> Array:
        """(N, r) Y'L."""
        return np.asarray(host(self.asked(matrix.matrix_back, ByRow(L))))

    def power(self, V: Array) -> Array:
        """(N, r) Y'Y V."""
        return self.back(self.times(V))

    def filled(self, L: Any, V: Array) -> tuple[DeviceMatrix, float, float]:
        """The matrix with L V' in its holes; the sums of squares of what changed there, and of what is there now."""
        change, size = self.asked(matrix.change_in_holes, ByRow(L), V)
        return DeviceMatrix(self.engine, self.base, (L, V)), float(change), float(size)


class ByRow(NamedTuple):
    """An argument of which each row has its own."""

    values: Any


def whole(arg: Any) -> Any:
    return arg.values if isinstance(arg, ByRow) else arg


@partial(jax.jit, static_argnames="n")
def normals_by_row(numbers: Any, stream: RowStream, n: int) -> Any:
    return normals(stream, jnp.arange(n), numbers[:, None])


@jax.jit
def drawn_inclusions(numbers: Any, mu: Any, eta: Any, stream: RowStream) -> Any:
    return jnp.where(uniforms(stream, jnp.arange(eta.shape[1]), numbers[:, None]) < eta, mu, 0.0)


@jax.jit
def with_draw(tally: Any, L: Any, scale: Any, F: Any) -> Any:
    return tally + F.T @ (L * scale).T


@jax.jit
def spread_listed(mask: Any, spread: Any) -> Any:
    return mask_back(mask, spread.T, jnp.float64).T


def fetched(values: Any, n_rows: int) -> Any:
    """As a NumPy array, of the rows that there are; what a pass does not have stays the object that says so."""
    return values if values is NONE else np.asarray(host(values))[:n_rows]


for _name, _value in [*vars(StartVerbs).items(), *vars(RowVerbs).items()]:
    if callable(_value) and _name.startswith(("start_", "vi_", "gibbs_")):
        setattr(JaxVerbs, _name, with_64_bits(getattr(JaxVerbs, _name)))
