"""Many iterations of VI in one compiled call, for problems so small that Python between them would show.

The iterations are those of vi_small.py, one after another, with the momentum of vi/accelerate.py; vi/trial.py is the
text to read, and a test holds this to it, to the bit.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..contract import Array
from .compiled import EXACT, STRICT, ZERO, njit
from .vi_rows import FactorMajor
from .vi_small import small_columns, small_finish


class Slots(NamedTuple):
    """Two states, of which one is now and the other next."""

    f_mean: Array  # (2, K, N)
    spread: Array  # (2, K, K)
    phi: Array  # (2, K, K), or (2, 0, 0) where factors are uncorrelated
    small: Array  # (2, 5, K) q(alpha), q(pi), and what rows are to be multiplied by
    LY: Array  # (2, K, N)
    LL: Array  # (2, K, K)
    sums: Array  # (2, 2 K + 3)
    terms: Array  # (2, 7)
    rows: Array  # (2, 3 K + 1, G)


class Pace(NamedTuple):
    """When a climb ends, and how its momentum is shortened."""

    iterations: int  # at most, those that were thrown away included
    absolute: float
    relative: float
    kept: float


@njit(**STRICT)
def later_of(t):
    """The momentum's next place, rounded as in vi/accelerate.py."""
    return (1.0 + math.sqrt(1.0 + 4.0 * (t * t))) / 2.0


@njit(**STRICT)
def extrapolate(here, previous, weight, further):
    for k in range(here.shape[0]):
        for j in range(here.shape[1]):
            further[k, j] = here[k, j] + weight * (here[k, j] - previous[k, j])


@njit(**EXACT)
def rows_of(block, K):
    return FactorMajor(block[:K], block[K : 2 * K], block[2 * K : 3 * K], block[3 * K])


@njit(**EXACT)
def passed(f_mean, slots, now, then, learnt, pi_a, pi_b, constants, problem, space):
    """The row pass from slot `now` into slot `then`, and the ELBO there."""
    K = f_mean.shape[0]
    small = slots.small[then]
    a, b = (small[2], small[3]) if learnt else (pi_a, pi_b)
    before, after = rows_of(slots.rows[now], K), rows_of(slots.rows[then], K)
    out = slots.LY[then], slots.LL[then], slots.sums[then], slots.terms[then]
    known = f_mean, slots.spread[then], slots.phi[then], True, small[0], small[1], a, b, small[4]
    return small_finish(*known, constants, problem, before, after, space, out)


@njit(**EXACT)
def small_climb(slots, elbo, pi_a, pi_b, learnt, constants, problem, space, pace, t, previous, fresh, trace):
    """Climb from slot 0 until the ELBO settles, or for so many iterations.

    t, previous (K, N), fresh: the momentum's place and last image, and whether it has none; trace: (., 2) iterations
    and ELBO after each step. Returns the slot that is reached, the ELBO, steps, whether the ELBO has settled, t and
    fresh.
    """
    K, N = previous.shape
    G = float(problem.Y.shape[0])
    further = np.empty((K, N))
    now, iterations, steps, settled = ZERO, 0, 0, False
    while iterations < pace.iterations and not settled:
        then, before, taken = 1 - now, elbo, False
        here, sums = slots.f_mean[then], slots.sums[now]
        known = slots.f_mean[now], slots.phi[now], slots.LY[now], slots.LL[now], sums[:K], sums[K : 2 * K], G, constants
        small_columns(*known, True, True, here, slots.spread[then], slots.small[then], slots.phi[then])
        later = later_of(t)
        weight, t = (t - 1.0) / later, later
        moves = not fresh and weight != 0.0
        if moves:
            extrapolate(here, previous, weight, further)
        previous[:] = here
        fresh = False
        if moves:
            new = passed(further, slots, now, then, learnt, pi_a, pi_b, constants, problem, space)
            taken = new >= elbo
            if taken:
                here[:] = further
            else:
                t = later_of(max(1.0, pace.kept * t))
                iterations += 1
        if not taken:
            new = passed(here, slots, now, then, learnt, pi_a, pi_b, constants, problem, space)
            taken = new >= elbo
        if taken:
            now, elbo = then, new
        iterations += 1
        trace[steps, 0], trace[steps, 1] = iterations, elbo
        steps += 1
        change = abs(elbo - before)
        settled = change < pace.absolute or change < pace.relative * abs(elbo)
    return now, elbo, steps, settled, t, fresh
