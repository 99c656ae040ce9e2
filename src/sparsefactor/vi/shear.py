"""Leave a local optimum along shears, the family of directions in which CAVI gets stuck (docs/math.md, 3.15).

The likelihood does not change under f_k -> f_k + e f_q with l_q -> l_q - e l_k. Along e, the ELBO is a sum of narrow
peaks: each row that uses factor k gains where its loading on q reaches zero and can be left out. Climbing stops at
the nearest peak. But given everything else the whole profile over e is cheap, one spike-and-slab marginal per row,
so its highest peak can be looked up.
"""

from __future__ import annotations

import numpy as np

from ..kernels.contract import Array
from .cavi import CAVI, VIState

RANGE = 0.6  # shears are sought up to this size, in units of activations with equal mean square
STEPS = 161  # odd, so that zero is on the grid
SURE = 0.5  # a row uses a factor when its inclusion probability is above this
WORTH = 0.02  # nats that a shear must promise to be made
ROUNDS = 3  # over all pairs of factors; later ones find little


class ShearSearch:
    """The profiles over shears at one state. E: (K, K), F -> (I + E) F; promise: the gain in nats that they predict."""

    def __init__(self, cavi: CAVI, state: VIState) -> None:
        rows, columns = state.rows, state.columns
        self.state = state
        self.N = columns.f_mean.shape[1]
        self.message = cavi.message(columns, np.ones(len(columns.f_mean)))
        # The likelihood's own view of each loading, given the others: estimate m and variance v.
        own = 1.0 / rows.s2
        self.alpha = np.broadcast_to(cavi.prior.by_row(self.message.alpha), rows.mu.shape)
        self.logit = np.broadcast_to(cavi.logit_rows(self.message.logit), rows.mu.shape)
        self.v = 1.0 / np.maximum(own - self.alpha, 1e-12 * own)
        self.m = rows.mu * own * self.v
        self.L = rows.eta * rows.mu
        self.F = columns.f_mean.copy()
        self.f2 = cavi.second_moment(columns)
        self.E = np.zeros((len(self.F), len(self.F)))
        self.promise = 0.0
        active = state.sums.active
        self.active = active if active.ndim == 1 else active.sum(axis=1)
        self.users, self.pairs = self._pairs(rows.eta > SURE)

    def _pairs(self, used: np.ndarray) -> tuple[list[np.ndarray], list[tuple[int, int]]]:
        """The rows of each factor, and the pairs (k, q) in which most rows of k use q.

        For other pairs a shear would cost a new inclusion in most rows of k, and no peak can pay for that.
        """
        users = [np.flatnonzero(column) for column in used.T]
        shared = used.T.astype(np.float64) @ used
        solid = [k for k, own in enumerate(users) if own.size > 1 and self.f2[k] > 0]
        return users, [(k, q) for k in solid for q in solid if q != k and shared[k, q] > SURE * shared[k, k]]

    def profile(self, k: int, q: int) -> tuple[Array, Array]:
        """(STEPS,) shears of factor q onto factor k, and the ELBO along them, up to a constant (3.15)."""
        own = self.users[k]
        grid = np.linspace(-RANGE, RANGE, STEPS) * np.sqrt(self.f2[k] / self.f2[q])
        v, m = self.v[own, q], self.m[own, q]
        wide = v + 1.0 / self.alpha[own, q]
        offset = self.logit[own, q] + 0.5 * np.log(v / wide)
        square = (m[:, None] - self.L[own, k][:, None] * grid) ** 2
        odds = offset[:, None] + (0.5 / v - 0.5 / wide)[:, None] * square
        # log(1 + e^x), cheaper than logaddexp
        inclusion = np.maximum(odds, 0.0) + np.log1p(np.exp(-np.abs(odds)))
        elbo = inclusion.sum(axis=0) - (0.5 / v) @ square
        # A longer f_k narrows q(l_k) in every row that uses it, and is less likely itself.
        longer = 1.0 + (2.0 * grid * (self.F[k] @ self.F[q]) + grid**2 * self.f2[q]) / self.f2[k]
        return grid, elbo - 0.5 * (self.active[k] + self.N) * np.log(longer)

    def apply(self, k: int, q: int, e: float, gain: float) -> None:
        """Take the shear e of q onto k into account."""
        own = self.users[k]
        self.m[own, q] -= e * self.L[own, k]
        self.f2[k] *= 1.0 + (2.0 * e * (self.F[k] @ self.F[q]) + e**2 * self.f2[q]) / self.f2[k]
        self.F[k] += e * self.F[q]
        self.E[k] += e * self.E[q]
        self.E[k, q] += e
        self.promise += gain

    def kick(self, rng: np.random.Generator) -> None:
        """Draw about half of the shears from their profiles, read as log densities, to start climbing elsewhere."""
        for index in rng.permutation(len(self.pairs)):
            if rng.random() < 0.5:
                k, q = self.pairs[index]
                grid, elbo = self.profile(k, q)
                weights = np.exp(elbo - elbo.max())
                chosen = rng.choice(STEPS, p=weights / weights.sum())
                self.apply(k, q, float(grid[chosen]), float(elbo[chosen] - elbo[STEPS // 2]))

    def climb(self) -> None:
        """Take each pair's highest peak in turn until none is worth it."""
        for _ in range(ROUNDS):
            before = self.promise
            for k, q in self.pairs:
                grid, elbo = self.profile(k, q)
                best = int(np.argmax(elbo))
                gain = float(elbo[best] - elbo[STEPS // 2])
                if gain > WORTH:
                    self.apply(k, q, float(grid[best]), gain)
            if self.promise - before <= WORTH:
                break


def best_shear(cavi: CAVI, state: VIState, rng: np.random.Generator, kicks: int) -> tuple[Array, float]:
    """The most promising matrix of shears from plain and kicked climbs, and its promise in nats."""
    best = ShearSearch(cavi, state)
    best.climb()
    for _ in range(kicks if best.pairs else 0):
        search = ShearSearch(cavi, state)
        search.kick(rng)
        search.climb()
        if search.promise > best.promise:
            best = search
    return best.E, best.promise


def sheared(cavi: CAVI, state: VIState, E: Array) -> VIState:
    """The state with F -> (I + E) F, the loadings' means moved to match, and the rows settled there."""
    K = len(E)
    T = np.eye(K) + E
    rows = state.rows
    L = (rows.eta * rows.mu) @ np.linalg.inv(T)
    mu = np.where(rows.eta > SURE, L / np.maximum(rows.eta, SURE), rows.mu)
    columns = state.columns._replace(f_mean=T @ state.columns.f_mean)
    moved = cavi.finish(rows._replace(mu=mu), columns, np.ones(K))
    return cavi.finish(moved.rows, columns, np.ones(K))
