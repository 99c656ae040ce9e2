"""The rows' part of a search for shears, compiled (docs/math.md, 3.15); kernels/shears.py is the oracle."""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..contract import Array
from ..shears import Shears
from .compiled import OPTIONS, njit
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


class CompiledShears(Shears):
    """`Shears` of rows in this process's memory."""

    def _part(self, own: NDArray[np.intp], k: int, q: int, steps: Array) -> Array:
        total = np.empty(len(steps))
        of_q = (values[own, q] for values in (self.v, self.m, self.alpha, self.logit))
        rows_profile(*of_q, self.L[own, k], steps, total)
        return total
