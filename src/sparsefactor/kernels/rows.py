"""What the methods ask of rows besides passes and moves: one text for rows in NumPy arrays and in those of a device.

The oracle's verbs, and those of the CPU engine too, since each is asked now and then, not every sweep; an engine whose
rows are elsewhere names the array library (`on`) and replaces what reads the data. What goes in and comes out has the
size of K, N or a few numbers; rows are handed on as they are, and only `fetch` shows them.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from scipy.special import digamma

from ..data import Data
from ..densities import LOG_2PI
from ..model import Prior
from ..signals import add_signal
from .contract import MOVE_NAMES, Array, GibbsRows, Message, RowStream, VIRows
from .noise import STREAM_L, STREAM_Z, normal_from, stream_words, uniform_pair
from .shears import SURE, Shears
from .starts import StartVerbs

ROUNDS = 10  # of k-means, which sorts rows into modules
DOUBT = 0.3  # of a row's first membership, spread over the modules in use


class RowVerbs(StartVerbs):
    """The verbs for one data set and prior. Inputs are never modified."""

    data: Data
    prior: Prior
    one_caller: bool = False
    n_threads: int = 1

    def scope(self) -> AbstractContextManager[Any]:
        """To be entered by whoever computes with what this engine returned: nothing, for NumPy's arrays."""
        return nullcontext()

    def with_threads(self, n_threads: int) -> Any:
        """The same engine: it has no threads."""
        return self

    @property
    def moves(self) -> tuple[str, ...]:
        """All; but only noise by feature can be drawn without the activations, and not by every engine for all data.

        Where the factors' correlations are learnt, scales are drawn with them in every sweep (2.19).
        """
        plain = self.data.is_complete and self.data.design is None
        alone = self.prior.noise == "feature" and (plain or self.has_own_parts)
        left_out = {"noise": not alone, "scale": self.prior.correlation_df > 0}
        return tuple(name for name in MOVE_NAMES if not left_out.get(name, False))

    @property
    def has_own_parts(self) -> bool:
        """Whether it draws what belongs to one feature where entries are missing (2.17c)."""
        return False

    def gibbs_shortcut(self) -> Any:
        """None: passes and activations are asked for one after the other."""
        return None

    # ---- to and from the host -----------------------------------------------------------------------------------

    def vi_place(self, L: Array, Z: NDArray[np.int8] | None = None) -> VIRows:
        """q at point values L (G, K), the host's or a start's, with inclusions Z where they are known."""
        eta = np.ones_like(L) if Z is None else Z.astype(np.float64)
        return VIRows(mu=L.copy(), s2=np.zeros_like(L), eta=eta, tau=np.ones(len(L)))

    def vi_fetch(self, rows: VIRows) -> VIRows:
        """As NumPy arrays."""
        return rows

    def gibbs_place(self, L: Array) -> GibbsRows:
        """A draw with loadings L (G, K), the host's or a start's, active where they are not zero."""
        return GibbsRows(Z=(L != 0).astype(np.int8), L=L.copy(), tau=np.ones(len(L)))

    def gibbs_fetch(self, rows: GibbsRows, scale: Array | None = None) -> GibbsRows:
        """As NumPy arrays, the loadings multiplied by scale (K,) where one is given."""
        return rows if scale is None else rows._replace(L=rows.L * scale)

    def gibbs_return(self, rows: GibbsRows) -> GibbsRows:
        """Rows that `gibbs_fetch` gave, to the bit what they were."""
        return rows

    # ---- sums over draws -------------------------------------------------------------------------------------------

    def gibbs_tally(self) -> Array:
        """A sum over draws of F'L', of none yet."""
        shape = (self.data.n_samples, self.data.n_features)
        return np.zeros(shape) if self.data.spool is None else self.data.spool.empty(shape, np.float64)

    def gibbs_tally_add(self, tally: Array, rows: GibbsRows, scale: Array, F: Array) -> Array:
        """The sum with a draw more, which may be written over the one given; its loadings are L scale, F: (K, N)."""
        for own in self.data.tiles():
            add_signal(tally[:, own], F.T, rows.L[own] * scale)
        return tally

    def gibbs_tally_fetch(self, tally: Array) -> Array:
        """(N, G) the sum as a NumPy array, to be read only."""
        return tally

    def gibbs_tally_return(self, total: Array) -> Array:
        """A sum that was fetched, to the bit."""
        return total

    # ---- loadings on a design's directions (1.11) -------------------------------------------------------------------

    def vi_regress(self, rows: VIRows, F: Array) -> VIRows:
        """The directions' loadings at the least squares of what the factors leave; F: (K, N)."""
        base = self.data.regression(rows.eta * rows.mu, F)
        return rows._replace(base=base, base_var=np.zeros_like(base))

    def gibbs_regress(self, rows: GibbsRows, F: Array) -> GibbsRows:
        """The same of a draw."""
        return rows._replace(base=self.data.regression(rows.L, F))

    def vi_spread(self, rows: VIRows) -> Array:
        """(1 or N, K) sums over a sample's rows of w Var[l]."""
        spread = rows.tau[:, None] * (rows.eta * (rows.mu**2 + rows.s2) - (rows.eta * rows.mu) ** 2)
        seen = self.data.observed

        def part(tile: slice) -> tuple[Array]:
            if seen is None:
                return (np.asarray(spread[tile].sum(axis=0))[None],)
            total = np.zeros((self.data.n_samples, spread.shape[1]))
            for own in self.data.chunks(tile):
                total += seen[own].T.astype(np.float64) @ spread[own]
            return (total,)

        return np.asarray(self.over_tiles(part)[0])

    def vi_slide(self, rows: VIRows, slide: Array) -> VIRows:
        """The directions' loadings, and E[l] times slide (K, d) besides."""
        L = rows.eta * rows.mu
        return rows._replace(base=rows.base + self.by_tile(lambda own: L[own] @ slide))

    def gibbs_products(self, rows: GibbsRows, scale: Array) -> tuple[Array, Array]:
        """(K, K) l'l of the factors' loadings at this scale, and (K, d) theirs with the directions'."""
        L = rows.L * scale
        LL, base = self.over_tiles(lambda own: (L[own].T @ L[own], L[own].T @ rows.base[own]))
        return LL, base

    def gibbs_slide(self, rows: GibbsRows, slide: Array) -> GibbsRows:
        """The directions' loadings, and L times slide (K, d) besides."""
        return rows._replace(base=rows.base + self.by_tile(lambda own: rows.L[own] @ slide))

    # ---- from one method to the other ---------------------------------------------------------------------------

    def vi_draw(self, rows: VIRows, stream: RowStream) -> GibbsRows:
        """A draw of the inclusions from q, the loadings at their means."""
        xp, (key, sweep) = self.on.xp, stream_words(stream)
        K = rows.eta.shape[1]
        uniform, _ = uniform_pair(xp.arange(K), self.row_numbers[:, None], sweep, STREAM_Z, key, xp)
        return self.gibbs_place(xp.where(uniform < rows.eta, rows.mu, 0.0))

    def vi_scatter(self, rows: VIRows, rate: Array, spread: float, redrawn: float, stream: RowStream) -> Array:
        """Loadings of a start around q: its standard deviations times `spread`, inclusions from q.

        A share `redrawn` of them comes from the prior; rate: (K, V?) inclusion rates, (0,) where inclusion is given.
        """
        xp, prior, (key, sweep) = self.on.xp, self.prior, stream_words(stream)
        G, K = self.data.n_features, rows.eta.shape[1]
        probability = np.broadcast_to(prior.by_row(rate) if len(rate) else prior.inclusion_matrix(), (G, K))
        L = []
        for part in self.row_chunks():
            places = xp.arange(K), self.row_numbers[part, None], sweep
            which, uniform = uniform_pair(*places, STREAM_Z, key, xp)
            included = uniform < xp.where(which < redrawn, probability[part], rows.eta[part])
            normal = normal_from(*uniform_pair(*places, STREAM_L, key, xp), xp)
            L.append(xp.where(included, rows.mu[part] + spread * xp.sqrt(rows.s2[part]) * normal, 0.0))
        together: Array = xp.concat(L) if L else xp.zeros((0, K))
        return together

    def vi_at_draw(self, rows: GibbsRows, scale: Array) -> VIRows:
        """q at a draw's loadings and inclusions."""
        return self.vi_place(rows.L * scale, rows.Z)

    # ---- factors ------------------------------------------------------------------------------------------------

    def vi_take(self, rows: VIRows, order: NDArray[np.intp], signs: Array) -> VIRows:
        """The factors in `order`, times signs."""
        return rows._replace(
            mu=contiguous(rows.mu[:, order]) * signs,
            s2=contiguous(rows.s2[:, order]),
            eta=contiguous(rows.eta[:, order]),
            within=contiguous(rows.within[:, order]) if rows.within.ndim == 3 else rows.within,
        )

    def vi_clear(self, rows: VIRows, k: int) -> VIRows:
        """No loading on factor k."""
        xp, this = self.on.xp, np.arange(rows.mu.shape[1]) == k
        return rows._replace(mu=xp.where(this, 0.0, rows.mu), eta=xp.where(this, 0.0, rows.eta))

    def vi_turn(self, rows: VIRows, T: Array) -> VIRows:
        """E[l] -> E[l] T, by the means of the loadings that are sure to be there; T: (K, K)."""
        xp, means = self.on.xp, rows.eta * rows.mu
        L = self.by_tile(lambda own: means[own] @ T)
        return rows._replace(mu=xp.where(rows.eta > SURE, L / xp.maximum(rows.eta, SURE), rows.mu))

    # ---- modules --------------------------------------------------------------------------------------------------

    def vi_unsorted(self, M: int) -> Array:
        """(G, M) memberships: all features in one module."""
        xp = self.on.xp
        first: Array = xp.where(xp.arange(M) == 0, xp.ones((self.data.n_features, 1)), 0.0)
        return first

    def vi_sortings(self, rows: VIRows, M: int, rng: np.random.Generator) -> list[Array]:
        """(G, M) memberships to set out from: 2, 4, 8, ... and at last M clusters of the rows by their inclusions."""
        found = []
        everyone = np.asarray(self.vi_fetch(rows).eta)
        most = min(M, len(everyone))
        for k in [2**power for power in range(1, 30) if 2**power < most] + [most]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an empty cluster is a module to spare
                _, label = kmeans2(everyone, k, iter=ROUNDS, minit="++", seed=rng)
            member = (1.0 - DOUBT) * np.eye(M)[label] + DOUBT * (np.arange(M) < k) / k
            found.append(self.on.xp.asarray(member))
        return found

    def vi_sort(self, rows: VIRows, member: Array) -> tuple[VIRows, Array, Array]:
        """The rows in modules as `member` says, and sums: (M,) members and (K, M) E[z] of each module's."""
        within = self.on.xp.repeat(rows.eta[:, :, None], member.shape[1], axis=2)
        members, active = self.over_tiles(lambda own: (member[own].sum(axis=0), rows.eta[own].T @ member[own]))
        return rows._replace(member=member, within=within), members, active

    def vi_order_modules(self, rows: VIRows, order: NDArray[np.intp]) -> VIRows:
        """The modules in another order."""
        return rows._replace(member=rows.member[:, order], within=rows.within[:, :, order])

    def gibbs_deal(self, rows: GibbsRows, M: int) -> GibbsRows:
        """Features dealt out to the modules in turn, to set out from: the first sweeps sort them."""
        return rows._replace(member=self.row_numbers % M)

    def gibbs_members(self, rows: GibbsRows, pi: Array, w: Array, stream: RowStream) -> GibbsRows:
        """With a draw of c_i given z_i, the rates pi (K, M) and the weights w (M,) (2.13a)."""
        xp, Z, (key, sweep) = self.on.xp, rows.Z, stream_words(stream)
        log_p = self.by_tile(lambda own: Z[own] @ np.log(pi) + (1 - Z[own]) @ np.log1p(-pi) + np.log(w))
        p = xp.exp(log_p - log_p.max(axis=1, keepdims=True))
        total = xp.cumsum(p, axis=1)
        uniform, _ = uniform_pair(0, self.row_numbers, sweep, STREAM_Z, key, xp)
        member = xp.sum(uniform[:, None] * total[:, -1:] >= total[:, :-1], axis=1)
        return rows._replace(member=xp.asarray(member, dtype=np.intp))

    def gibbs_module_counts(self, rows: GibbsRows, M: int) -> tuple[Array, Array]:
        """(M,) rows in each module, and (K, M) how many of them are active."""
        one_hot = (rows.member[:, None] == np.arange(M)).astype(np.float64)
        members, active = self.over_tiles(lambda own: (one_hot[own].sum(axis=0), rows.Z[own].T @ one_hot[own]))
        return members, active

    # ---- reductions -----------------------------------------------------------------------------------------------

    def sums(self, values: Any, own: slice) -> Array:
        """(K,), or (K, V) by group: sums over some rows of values (G, K)."""
        return self.prior.sums(values, own)

    def vi_counts(self, rows: VIRows) -> tuple[Array, Array]:
        """(K, V?) sums of E[z] and of E[z l^2]."""
        l2 = rows.eta * (rows.mu**2 + rows.s2)
        count, square = self.over_tiles(lambda own: (self.sums(rows.eta, own), self.sums(l2, own)))
        return count, square

    def gibbs_counts(self, rows: GibbsRows) -> tuple[Array, Array]:
        """(K, V?) sums of z and of l^2."""
        l2 = rows.L**2
        count, square = self.over_tiles(lambda own: (self.sums(rows.Z, own), self.sums(l2, own)))
        return count, square

    def vi_content(self, rows: VIRows) -> Array:
        """(K,) sums over the rows of E[l]^2."""
        l2 = (rows.eta * rows.mu) ** 2
        return np.asarray(self.over_tiles(lambda own: (l2[own].sum(axis=0),))[0])

    def vi_column_rss(self, rows: VIRows, F: Array) -> Array:
        """(N,) sums over observed rows of (y - E[l]'f)^2."""
        L, F = self.data.joined(rows.eta * rows.mu, F, rows.base)
        return np.asarray(self.over_tiles(lambda own: (self.data.column_rss(own, L, F),))[0])

    def gibbs_column_rss(self, rows: GibbsRows, F: Array) -> Array:
        """(N,) sums over observed rows of (y - l'f)^2."""
        L, F = self.data.joined(rows.L, F, rows.base)
        return np.asarray(self.over_tiles(lambda own: (self.data.column_rss(own, L, F),))[0])

    def vi_likelihood(self, rows: VIRows, F: Array) -> float:
        """What the likelihood (3.10) cannot exceed, for noise by feature: variances of l and f left out."""
        count, tau, rss = self.data.row_count, np.asarray(rows.tau), self.row_rss(rows, F)
        shape = self.prior.noise_shape + 0.5 * count
        log_tau = digamma(shape) - np.log(shape) + np.log(tau)
        value = count * (log_tau - LOG_2PI) - tau * rss
        return float(0.5 * self.over_tiles(lambda own: (value[own].sum(),))[0])

    def row_rss(self, rows: VIRows, F: Array) -> Array:
        """(G,) sums over observed samples of (y - E[l]'f)^2."""
        return self.data.row_rss(*self.data.joined(rows.eta * rows.mu, F, rows.base))

    def vi_assignment_gain(self, rows: VIRows, message: Message) -> Array:
        """(K, K) the ELBO's part in z if factor k had the inclusion prior of factor p, q(z) adapting to it (3.14)."""
        prior = self.prior
        xp = self.on.xp
        bayes_factor = 0.5 * (prior.by_row(message.log_alpha) + xp.log(rows.s2) + rows.mu**2 / rows.s2)
        kinds = prior.factor_groups()

        def part(tile: slice) -> tuple[Array]:
            gain = np.empty((prior.K, prior.K))
            for kind in np.unique(kinds):
                logit = message.logit[:, [np.argmax(kinds == kind)]]
                own = logit[tile] if len(logit) > 1 else logit
                value = xp.logaddexp(0.0, bayes_factor[tile] + own) - xp.logaddexp(0.0, own)
                gain[:, kinds == kind] = np.asarray(value.sum(axis=0))[:, None]
            return (gain,)

        return np.asarray(self.over_tiles(part)[0])

    shears: type[Shears] = Shears

    def vi_shears(self, rows: VIRows, message: Message) -> Shears:
        """What a search for shears asks of the rows (3.15)."""
        G, K = rows.mu.shape
        logit = message.logit if len(message.logit) in (1, G) else message.logit[self.prior.group_index]
        alpha = np.broadcast_to(self.prior.by_row(message.alpha), (G, K))
        return self.shears(rows, alpha, np.broadcast_to(logit, (G, K)), self.over_tiles, self.data.tile >= G)


def contiguous(values: Any) -> Any:
    """An array of NumPy's with its rows in a row; one of another library as it is."""
    return np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values
