"""Leave a local optimum along shears, the family of directions in which CAVI gets stuck (math.md, 3.15).

The likelihood does not change under f_k -> f_k + e f_q with l_q -> l_q - e l_k. Along e, the ELBO is a sum of narrow
peaks: each row that uses factor k gains where its loading on q reaches zero and can be left out. Climbing stops at
the nearest peak. But given everything else the whole profile over e is cheap, one spike-and-slab marginal per row,
so its highest peak can be looked up.
"""

from __future__ import annotations

import numpy as np

from ..kernels.columns import second_moment
from ..kernels.contract import Array
from ..kernels.shears import SURE
from .cavi import CAVI, VIState

RANGE = 0.6  # shears are sought up to this size, in units of activations with equal mean square
STEPS = 161  # odd, so that zero is on the grid
GRID = np.linspace(-RANGE, RANGE, STEPS)
WORTH = 0.02  # nats that a shear must promise to be made
ROUNDS = 3  # over all pairs of factors; later ones find little


class ShearSearch:
    """The profiles over shears at one state. E: (K, K), F -> (I + E) F; promise: the gain in nats that they predict."""

    def __init__(self, cavi: CAVI, state: VIState) -> None:
        columns = state.columns
        self.N = cavi.fixed.n_samples
        self.rows = cavi.engine.vi_shears(state.rows, cavi.message(columns, np.ones(len(columns.f_mean))))
        self.F = np.array(columns.f_mean)
        self.f2 = np.array(second_moment(columns, cavi.fixed))
        self.E = np.zeros((len(self.F), len(self.F)))
        self.promise = 0.0
        active = state.sums.active
        self.active = active if active.ndim == 1 else active.sum(axis=1)
        self.pairs = self._pairs(self.rows.shared)
        self.changes = np.zeros((2, len(self.F)), dtype=np.intp)  # of each factor's loadings and activations so far
        self.in_vain: dict[tuple[int, int], tuple[int, ...]] = {}  # pairs without a peak, and the changes until then

    def _pairs(self, shared: Array) -> list[tuple[int, int]]:
        """The pairs (k, q) in which most rows of k use q; shared: (K, K) rows that use both.

        For other pairs a shear would cost a new inclusion in most rows of k, and no peak can pay for that.
        """
        solid = [k for k, own in enumerate(np.diag(shared)) if own > 1 and self.f2[k] > 0]
        return [(k, q) for k in solid for q in solid if q != k and shared[k, q] > SURE * shared[k, k]]

    def profile(self, k: int, q: int) -> tuple[Array, Array]:
        """(STEPS,) shears of factor q onto factor k, and the ELBO along them, up to a constant (3.15)."""
        grid = GRID * np.sqrt(self.f2[k] / self.f2[q])
        elbo = self.rows.profile(k, q, grid)
        # A longer f_k narrows q(l_k) in every row that uses it, and is less likely itself.
        longer = 1.0 + (2.0 * grid * (self.F[k] @ self.F[q]) + grid**2 * self.f2[q]) / self.f2[k]
        return grid, elbo - 0.5 * (self.active[k] + self.N) * np.log(longer)

    def apply(self, k: int, q: int, e: float, gain: float) -> None:
        """Take the shear e of q onto k into account."""
        self.rows.apply(k, q, e)
        self.changes[0, q] += 1
        self.changes[1, k] += 1
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
        at_once = getattr(self.rows, "climb", None)
        if at_once is not None and at_once(self, GRID, WORTH, ROUNDS):
            return
        for _ in range(ROUNDS):
            before = self.promise
            for k, q in self.pairs:
                seen = (*self.changes[:, q].tolist(), int(self.changes[1, k]))  # all that a profile depends on
                if self.in_vain.get((k, q)) == seen:
                    continue
                grid, elbo = self.profile(k, q)
                best = int(np.argmax(elbo))
                gain = float(elbo[best] - elbo[STEPS // 2])
                if gain > WORTH:
                    self.apply(k, q, float(grid[best]), gain)
                else:
                    self.in_vain[k, q] = seen
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
    rows = cavi.engine.vi_turn(state.rows, np.asarray(np.linalg.inv(T), dtype=np.float64))
    columns = state.columns._replace(f_mean=T @ state.columns.f_mean)
    moved = cavi.finish(rows, columns, np.ones(K))
    return cavi.finish(moved.rows, columns, np.ones(K))
