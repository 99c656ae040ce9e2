"""The verbs of an engine whose rows are on a device: those of kernels/rows.py, but for what reads data or rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..design import FLAT
from ..kernels.contract import NONE, Array, GibbsRows, Message, RowStream, VIRows
from ..kernels.jax import matrix
from ..kernels.jax.library import JAX, host, jax, jnp, with_64_bits
from ..kernels.jax.noise import normals
from ..kernels.jax.problem import Kind, Problem, group_sums, placed_as
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
        return self.with_rows(np.arange(self.data.n_features, dtype=np.intp), np.intp)

    def with_rows(self, values: Any, dtype: Any = np.float64) -> Any:
        """An array whose first axis is the rows, dealt out as these are."""
        on_device = isinstance(values, jax.Array)
        return values.astype(dtype) if on_device else placed_as(self.problem.row_count, np.asarray(values, dtype))

    # ---- to and from the host -----------------------------------------------------------------------------------

    def vi_place(self, L: Array, Z: NDArray[np.int8] | None = None) -> VIRows:
        """q at point values L (G, K), the host's or a start's, with inclusions Z where they are known."""
        L = self.with_rows(L)
        eta = jnp.ones_like(L) if Z is None else self.with_rows(Z)
        return VIRows(mu=L, s2=jnp.zeros_like(L), eta=eta, tau=self.with_rows(np.ones(len(L))))

    def vi_fetch(self, rows: VIRows) -> VIRows:
        """As NumPy arrays."""
        return VIRows(*(fetched(values) for values in rows))

    def gibbs_place(self, L: Array) -> GibbsRows:
        """A draw with loadings L (G, K), the host's or a start's, active where they are not zero."""
        L = self.with_rows(L)
        return GibbsRows(Z=(L != 0).astype(np.int8), L=L, tau=self.with_rows(np.ones(len(L))))

    def gibbs_fetch(self, rows: GibbsRows, scale: Array | None = None) -> GibbsRows:
        """As NumPy arrays, the loadings multiplied by scale (K,) where one is given."""
        own = GibbsRows(*(fetched(values) for values in rows))
        return own if scale is None else own._replace(L=own.L * scale)

    def gibbs_return(self, rows: GibbsRows) -> GibbsRows:
        """Rows that `gibbs_fetch` gave, to the bit what they were."""
        own: Any = [values if not len(values) else jnp.asarray(host(values)) for values in rows]
        return GibbsRows(*own)

    # ---- sums over draws ------------------------------------------------------------------------------------------

    def gibbs_tally(self) -> Array:
        """A sum over draws of F'L', of none yet."""
        zeros: Array = jnp.zeros((self.data.n_samples, self.data.n_features))
        return zeros

    def gibbs_tally_add(self, tally: Array, rows: GibbsRows, scale: Array, F: Array) -> Array:
        """The sum with a draw more; its loadings are L scale, F: (K, N)."""
        more: Array = with_draw(tally, rows.L, scale, F)
        return more

    def gibbs_tally_fetch(self, tally: Array) -> Array:
        """(N, G) the sum as a NumPy array."""
        return np.asarray(host(tally))

    def gibbs_tally_return(self, total: Array) -> Array:
        """A sum that was fetched, to the bit."""
        back: Array = jnp.asarray(total)
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
        return matrix.regression(self.problem, L, F, self.data.design.basis, FLAT, kind=self.kind)

    def vi_spread(self, rows: VIRows) -> Array:
        """(1 or N, K) sums over a sample's rows of w Var[l]."""
        spread = rows.tau[:, None] * (rows.eta * (rows.mu**2 + rows.s2) - (rows.eta * rows.mu) ** 2)
        total = np.asarray(host(spread.sum(axis=0)))[None]
        if not self.kind.masked:
            return total
        listed = np.asarray(host(spread_listed(self.problem.mask, spread)))
        return total - listed if self.kind.lists_missing else listed

    # ---- reductions -----------------------------------------------------------------------------------------------

    def sums(self, values: Any, own: slice) -> Array:
        """(K,), or (K, V) by group: sums over all rows of values (G, K)."""
        return np.asarray(host(group_sums(jnp.asarray(values, dtype=jnp.float64).T, self.problem, self.kind)))

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
        return self.rss(rows.eta * rows.mu, F, rows.base, 1)

    def rss(self, L: Any, F: Any, base: Any, over: int) -> Array:
        """Sums of squares of the residuals, over rows (0) or over samples (1)."""
        return np.asarray(host(matrix.rss(self.problem, *self.joined(L, F, base), kind=self.kind, over=over)))

    def vi_likelihood(self, rows: VIRows, F: Array) -> float:
        """What the likelihood (3.10) cannot exceed, for noise by feature: variances of l and f left out."""
        return super().vi_likelihood(rows._replace(tau=host(rows.tau)), F)

    def vi_sortings(self, rows: VIRows, M: int, rng: np.random.Generator) -> list[Any]:
        """(G, M) memberships to set out from: clusters of the rows, which the host finds."""
        return [self.with_rows(host(one)) for one in super().vi_sortings(rows._replace(eta=host(rows.eta)), M, rng)]

    def vi_shears(self, rows: VIRows, message: Message) -> Any:
        """What a search for shears asks of the rows (3.15)."""
        own = len(message.logit) in (1, self.data.n_features)
        logit = message.logit if own else message.logit[self.prior.group_index]
        return JaxShears(rows, self.prior.by_row(message.alpha), logit)

    # ---- starts ---------------------------------------------------------------------------------------------------

    def start_normals(self, n: int, size: float, stream: RowStream) -> Any:
        """Loadings (G, n) of a start: normals with this standard deviation, by counter."""
        return size * normals_by_row(self.row_numbers, stream, n=n)

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
            total = float(matrix.sum_of_squares(engine.problem, self.seen, kind=engine.kind))
            self.scale = float(np.sqrt(total / data.n_observed)) or 1.0
        self.seen = self.seen._replace(scale=np.float64(self.scale))

    @with_64_bits
    def asked(self, function: Any, *args: Any) -> Any:
        return function(self.engine.problem, self.seen, *args, kind=self.engine.kind)

    def gram(self) -> Array:
        """(N, N) Y'Y."""
        return np.asarray(host(self.asked(matrix.gram)))

    def feature_gram(self) -> Array:
        """(G, G) Y Y', which is asked for where features are few."""
        return np.asarray(host(self.asked(matrix.feature_gram)))

    def times(self, V: Array) -> Any:
        """Y V, as loadings of a start; V: (N, r)."""
        return self.asked(matrix.matrix_times, V)

    def back(self, L: Any) -> Array:
        """(N, r) Y'L."""
        return np.asarray(host(self.asked(matrix.matrix_back, L)))

    def power(self, V: Array) -> Array:
        """(N, r) Y'Y V."""
        return self.back(self.times(V))

    def filled(self, L: Any, V: Array) -> tuple[DeviceMatrix, float, float]:
        """The matrix with L V' in its holes; the sums of squares of what changed there, and of what is there now."""
        change, size = self.asked(matrix.change_in_holes, L, V)
        return DeviceMatrix(self.engine, self.base, (L, V)), float(change), float(size)


@partial(jax.jit, static_argnames="n")
def normals_by_row(numbers: Any, stream: RowStream, n: int) -> Any:
    return normals(stream, jnp.arange(n), numbers[:, None])


@jax.jit
def with_draw(tally: Any, L: Any, scale: Any, F: Any) -> Any:
    return tally + F.T @ (L * scale).T


@jax.jit
def spread_listed(mask: Any, spread: Any) -> Any:
    return mask_back(mask, spread.T, jnp.float64).T


def fetched(values: Any) -> Any:
    """As a NumPy array; what a pass does not have stays the object that says so."""
    return values if values is NONE else np.asarray(host(values))


for _name, _value in [*vars(StartVerbs).items(), *vars(RowVerbs).items()]:
    if callable(_value) and _name.startswith(("start_", "vi_", "gibbs_")):
        setattr(JaxVerbs, _name, with_64_bits(getattr(JaxVerbs, _name)))
