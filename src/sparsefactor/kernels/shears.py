"""The rows' part of a search for shears, in plain NumPy (math.md, 3.15)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .contract import Array, VIRows

SURE = 0.5  # a row uses a factor when its inclusion probability is above this


class Shears:
    """The rows' part of profiles over shears, which changes as shears are applied (math.md, 3.15)."""

    def __init__(
        self,
        rows: VIRows,
        alpha: Array,
        logit: Array,
        over_tiles: Callable[..., tuple[Any, ...]],
        whole: bool = False,
    ) -> None:
        """alpha, logit: (G, K); over_tiles: sums over all rows of what is made of a tile's; whole: these are all, in
        one tile."""
        self.over_tiles, self.whole = over_tiles, whole
        # The likelihood's own view of each loading, given the others: estimate m and variance v.
        own = 1.0 / rows.s2
        self.alpha, self.logit = alpha, logit
        self.v = 1.0 / np.maximum(own - alpha, 1e-12 * own)
        self.m = rows.mu * own * self.v
        self.L = rows.eta * rows.mu
        used = rows.eta > SURE
        self.users = [np.flatnonzero(column) for column in used.T]
        # (K, K) rows that use both factors
        self.shared = np.asarray(over_tiles(lambda own: (used[own].T.astype(np.float64) @ used[own],))[0])

    def profile(self, k: int, q: int, steps: Array) -> Array:
        """(len(steps),) the rows' part of the ELBO along shears of factor q onto factor k, up to a constant."""
        users = self.users[k]

        def part(tile: slice) -> tuple[Array]:
            first, last = np.searchsorted(users, [tile.start, tile.stop])
            return (self._part(users[first:last], k, q, steps),)

        return np.asarray(self.over_tiles(part)[0])

    def _part(self, own: NDArray[np.intp], k: int, q: int, steps: Array) -> Array:
        """Some rows' part of the profile."""
        v, m = self.v[own, q], self.m[own, q]
        wide = v + 1.0 / self.alpha[own, q]
        offset = self.logit[own, q] + 0.5 * np.log(v / wide)
        square = (m[:, None] - self.L[own, k][:, None] * steps) ** 2
        odds = offset[:, None] + (0.5 / v - 0.5 / wide)[:, None] * square
        # log(1 + e^x), cheaper than logaddexp
        inclusion = np.maximum(odds, 0.0) + np.log1p(np.exp(-np.abs(odds)))
        return np.asarray(inclusion.sum(axis=0) - (0.5 / v) @ square)

    def apply(self, k: int, q: int, step: float) -> None:
        """Take a shear of q onto k into account."""
        own = self.users[k]
        self.m[own, q] -= step * self.L[own, k]
