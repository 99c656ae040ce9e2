"""The rows' part of a search for shears, compiled (math.md, 3.15); kernels/shears.py is the oracle."""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..contract import Array
from ..shears import Shears
from .compiled import EXACT, OPTIONS, njit
from .lanes import exp_lane, log_lane


@njit(**OPTIONS)
def rows_profile(v, m, alpha, logit, L, steps, total):
    """The profile of some rows, in total (S,). v, m, alpha, logit: theirs of factor q; L: of factor k."""
    for s in range(len(steps)):
        total[s] = 0.0
    for i in range(len(v)):
        wide = v[i] + 1.0 / alpha[i]
        offset, half, slope = logit[i] + 0.5 * np.log(v[i] / wide), 0.5 / v[i], 0.5 / v[i] - 0.5 / wide
        centre, along = m[i], L[i]
        for s in range(len(steps)):
            away = centre - along * steps[s]
            square = away * away
            odds = offset + slope * square
            total[s] += max(odds, 0.0) + log_lane(1.0 + exp_lane(-abs(odds))) - half * square


@njit(**EXACT)
def climb_pairs(pairs, start, users, rows, F, f2, active, n, grid, worth, rounds, changes, seen, E):
    """Take each pair's highest peak in turn until none is worth it; what all promise (vi/shear.py).

    start, users: the rows that use each factor; rows: v, m, alpha, logit and L, all (G, K), of which m changes, as do
    F, f2, changes (2, K), seen (P, 3), the changes when a pair had no peak, and E (K, K).
    """
    v, m, alpha, logit, L = rows
    S, N = len(grid), F.shape[1]
    own = np.empty((5, v.shape[0]))
    steps, elbo, promise = np.empty(S), np.empty(S), 0.0
    for _ in range(rounds):
        before = promise
        for p in range(len(pairs)):
            k, q = pairs[p]
            if seen[p, 0] == changes[0, q] and seen[p, 1] == changes[1, q] and seen[p, 2] == changes[1, k]:
                continue
            unit = np.sqrt(f2[k] / f2[q])
            for s in range(S):
                steps[s] = grid[s] * unit
            count = start[k + 1] - start[k]
            for u in range(count):
                i = users[start[k] + u]
                own[0, u], own[1, u], own[2, u], own[3, u], own[4, u] = (
                    v[i, q],
                    m[i, q],
                    alpha[i, q],
                    logit[i, q],
                    L[i, k],
                )
            rows_profile(own[0, :count], own[1, :count], own[2, :count], own[3, :count], own[4, :count], steps, elbo)
            along = 0.0
            for j in range(N):
                along += F[k, j] * F[q, j]
            best = 0
            for s in range(S):
                longer = 1.0 + (2.0 * steps[s] * along + steps[s] ** 2 * f2[q]) / f2[k]
                elbo[s] -= 0.5 * (active[k] + n) * np.log(longer)
                if elbo[s] > elbo[best]:
                    best = s
            gain = elbo[best] - elbo[S // 2]
            if not gain > worth:
                seen[p, 0], seen[p, 1], seen[p, 2] = changes[0, q], changes[1, q], changes[1, k]
                continue
            e = steps[best]
            for u in range(count):
                i = users[start[k] + u]
                m[i, q] -= e * L[i, k]
            changes[0, q] += 1
            changes[1, k] += 1
            f2[k] *= 1.0 + (2.0 * e * along + e * e * f2[q]) / f2[k]
            for j in range(N):
                F[k, j] += e * F[q, j]
            for c in range(E.shape[1]):
                E[k, c] += e * E[q, c]
            E[k, q] += e
            promise += gain
        if promise - before <= worth:
            break
    return promise


class CompiledShears(Shears):
    """`Shears` of rows in this process's memory."""

    def climb(self, search: Any, grid: Array, worth: float, rounds: int) -> bool:
        """The whole of `ShearSearch.climb`, where all rows are in one tile here; whether it was done."""
        if not self.whole or not search.pairs:
            return self.whole
        pairs = np.array(search.pairs, np.intp)
        seen = np.full((len(pairs), 3), -1, np.intp)
        for p, pair in enumerate(search.pairs):
            if pair in search.in_vain:
                seen[p] = search.in_vain[pair]
        start = np.cumsum([0, *map(len, self.users)])
        rows = tuple(np.ascontiguousarray(a, np.float64) for a in (self.v, self.m, self.alpha, self.logit, self.L))
        active = np.ascontiguousarray(search.active, np.float64)
        search.promise += climb_pairs(
            pairs, start, np.concatenate(self.users), rows, search.F, search.f2, active, float(search.N), grid, worth,
            rounds, search.changes, seen, search.E,
        )  # fmt: skip
        self.m = rows[1]
        search.in_vain = {
            pair: tuple(own) for pair, own in zip(search.pairs, seen.tolist(), strict=True) if own[0] >= 0
        }
        return True

    def _part(self, own: NDArray[np.intp], k: int, q: int, steps: Array) -> Array:
        total = np.empty(len(steps))
        of_q = (values[own, q] for values in (self.v, self.m, self.alpha, self.logit))
        rows_profile(*of_q, self.L[own, k], steps, total)
        return total
