"""What vi_climb.py does, for data with missing entries: many iterations of VI in one compiled call.

The iterations are those of vi_small_masked.py, one after another, with the momentum of vi/accelerate.py; vi/trial.py is
the text to read, and a test holds this to it, to the bit.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..contract import Array
from .compiled import EXACT, ZERO, njit
from .correlation import prior_precision
from .sample_lanes import joint_each
from .shares import vi_shares
from .vi_climb import extrapolate, later_of
from .vi_rows import FactorMajor, vi_tiles
from .vi_small import Constants
from .vi_small_masked import masked_columns, masked_message, masked_sums, slid_rows


class MaskedSlots(NamedTuple):
    """Two states, of which one is now and the other next; D: factors and directions."""

    f_mean: Array  # (2, K, N)
    spread: Array  # (2, N, K, K)
    phi: Array  # (2, K, K), or (2, 0, 0) where factors are uncorrelated
    small: Array  # (2, 5, K) q(alpha), q(pi), and what rows are to be multiplied by
    LY: Array  # (2, K, N)
    LL: Array  # (2, K, K)
    LL_share: Array  # (2, N, K, K)
    shift: Array  # (2, N or 0)
    sums: Array  # (2, 2 K + 3)
    terms: Array  # (2, 7)
    rows: Array  # (2, 3 D + 1, G)


class MaskedProblem(NamedTuple):
    """What never changes during a fit, of data with directions (d, N) that have given activations."""

    constants: Constants
    basis: Array  # (d, N)
    base_precision: float
    observed: Array  # (G, N) ones and zeros
    n_observed: float


@njit(**EXACT)
def masked_pass(f_mean, spread, phi, small, pi_a, pi_b, learnt, known, data, before, after, space, out):
    """Message, row pass, sums and the ELBO, which is returned. out: as `masked_sums` takes it, its terms included."""
    problem, mask, groups = data
    tiles, scratch, message, shares, numbers = space
    a, b = (small[2], small[3]) if learnt else (pi_a, pi_b)
    G, N, T = float(after.tau.shape[0]), f_mean.shape[1], shares.shape[1]
    columns = (f_mean, spread, phi, small[0], small[1], a, b, small[4])
    masked_message(columns, known.constants, known.base_precision, known.basis, G, message, out[5])
    vi_tiles(ZERO, tiles.LY.shape[0], problem, message, before, after, tiles, scratch, mask, groups)
    vi_shares(ZERO, N, ZERO, problem.by_sample.shape[0], problem, after, T, True, shares)
    return masked_sums(tiles, shares, known.constants, known.n_observed, known.basis, G, numbers, out)


@njit(**EXACT)
def rows_of(block, D):
    return FactorMajor(block[:D], block[D : 2 * D], block[2 * D : 3 * D], block[3 * D])


@njit(**EXACT)
def masked_climb(slots, elbo, pi_a, pi_b, learnt, known, data, space, pace, t, previous, fresh, trace):
    """Climb from slot 0 until the ELBO settles, or for so many iterations; as `small_climb`."""
    (K, N), d = previous.shape, known.basis.shape[0]
    D, G = K + d, slots.rows.shape[2]
    further, slide, whole = np.empty((K, N)), np.zeros((K, d)), np.empty((3, D, G))
    prior = np.empty((K, K))
    now, iterations, steps, settled = ZERO, 0, 0, False
    while iterations < pace.iterations and not settled:
        then, before, taken = 1 - now, elbo, False
        here, spread, sums, small = slots.f_mean[then], slots.spread[then], slots.sums[now], slots.small[then]
        prior_precision(slots.phi[now], known.constants.correlation_df, prior)
        sums_now = slots.LY[now], slots.LL[now], slots.LL_share[now]
        joint_each(ZERO, N, *sums_now, known.constants.ones, prior, here, spread)
        block = slots.rows[now]
        mu, s2, eta, tau = rows_of(block, D)
        own = FactorMajor(mu[:K], s2[:K], eta[:K], tau)
        step = (own, known.observed, sums[:K], sums[K : 2 * K], known.constants, known.basis)
        phi = slots.phi[then]
        masked_columns(*step, True, slots.phi[now], here, spread, slide, small, phi)
        slid_rows(own, mu[K:].T, s2[K:].T, slide, whole)
        start = FactorMajor(whole[0], whole[1], whole[2], tau)
        later = later_of(t)
        weight, t = (t - 1.0) / later, later
        moves = not fresh and weight != 0.0
        if moves:
            extrapolate(here, previous, weight, further)
        previous[:] = here
        fresh = False
        after = rows_of(slots.rows[then], D)
        free = slots.LY[then], slots.LL[then], slots.LL_share[then], slots.shift[then]
        out = (free[0], free[1], free[2], free[3], slots.sums[then], slots.terms[then])
        if moves:
            new = masked_pass(further, spread, phi, small, pi_a, pi_b, learnt, known, data, start, after, space, out)
            taken = new >= elbo
            if taken:
                here[:] = further
            else:
                t = later_of(max(1.0, pace.kept * t))
                iterations += 1
        if not taken:
            new = masked_pass(here, spread, phi, small, pi_a, pi_b, learnt, known, data, start, after, space, out)
            taken = new >= elbo
        if taken:
            now, elbo = then, new
        iterations += 1
        trace[steps, 0], trace[steps, 1] = iterations, elbo
        steps += 1
        change = abs(elbo - before)
        settled = change < pace.absolute or change < pace.relative * abs(elbo)
    return now, elbo, steps, settled, t, fresh
