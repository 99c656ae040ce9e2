"""One row of Gibbs sampling: z_i with l_i integrated out, then l_i, by way of the active block (2.2, 2.4).

A row keeps P, the inverse of its active block Q = tau A_SS + diag(alpha_S), and the mean P tau b_S. For an active k
the Schur complement of the others is 1 / P_kk, so nothing is computed unless k leaves; an inactive k costs one
product with P. Entering and leaving are updates of rank one: O(m^2) with m the active count, far below K for sparse
loadings. Every Schur complement is at least alpha_k, since A is positive semidefinite, whatever rounding says.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from ..noise import STREAM_L
from .compiled import EXACT, INLINE_EXACT, njit
from .lanes import LARGEST_EXPONENT, log_lane
from .philox import normal

STREAM_OF_L = np.uint64(STREAM_L)
FLIPS_PER_INVERSE = 16  # P is built afresh after as many rank-one updates, so that rounding cannot pile up


@njit(**INLINE_EXACT)
def couple(k, m, A, tau, alpha, linear, P, mean, active, v, u):
    """Of adding k to the m active factors: u = P v, the Schur complement c and its linear term r."""
    c, r = tau * A[k, k] + alpha[k], linear[k]
    for a in range(m):
        v[a] = tau * A[k, active[a]]
    for a in range(m):
        total = 0.0
        for e in range(m):
            total += P[a, e] * v[e]
        u[a] = total
        c -= v[a] * total
        r -= v[a] * mean[a]
    return max(c, alpha[k]), r


@njit(**EXACT)
def enter(k, m, c, r, P, mean, active, place, u):
    """Make k the last active factor."""
    value = r / c
    for a in range(m):
        scaled = u[a] / c
        for e in range(m):
            P[a, e] += scaled * u[e]
        P[a, m] = -scaled
        P[m, a] = -scaled
        mean[a] -= u[a] * value
    P[m, m] = 1.0 / c
    mean[m] = value
    active[m] = k
    place[k] = m
    return m + 1


@njit(**EXACT)
def leave(k, m, P, mean, active, place, u):
    """Take k out; the last active factor takes its place."""
    p, last = place[k], m - 1
    for a in range(m):
        u[a] = P[p, a]
    c, value = 1.0 / u[p], mean[p] / u[p]
    for a in range(m):
        scaled = u[a] * c
        for e in range(m):
            P[a, e] -= scaled * u[e]
        mean[a] -= u[a] * value
    for a in range(m):
        P[p, a] = P[last, a]
    for a in range(m):
        P[a, p] = P[a, last]
    mean[p] = mean[last]
    active[p] = active[last]
    place[active[p]] = p
    place[k] = -1
    return last


@njit(**EXACT)
def invert(m, A, tau, alpha, linear, P, mean, active, place, v, u):
    """P and the mean of the m active factors, afresh."""
    for a in range(m):
        k = active[a]
        c, r = couple(k, a, A, tau, alpha, linear, P, mean, active, v, u)
        enter(k, a, c, r, P, mean, active, place, u)


@njit(**EXACT)
def sample_z(z, A, tau, alpha, logit, linear, uniform, threshold, P, mean, active, place, v, u):
    """z_ik for k = 1..K with l_i integrated out (2.2); the number of active factors, which `active` lists in order.

    z_k = 1 where uniform < odds / (1 + odds) with odds = exp(logit + r^2 / 2c) sqrt(alpha / c). Since alpha <= c,
    z_k = 0 wherever r^2 / 2c <= logit(uniform) - logit, which settles most factors without an exponential.
    """
    K = z.shape[0]
    for k in range(K):
        threshold[k] = 2.0 * (log_lane(uniform[k] / (1.0 - uniform[k])) - logit[k])
    m = 0
    for k in range(K):
        if z[k]:
            active[m] = k
            m += 1
    invert(m, A, tau, alpha, linear, P, mean, active, place, v, u)
    flips = 0
    for k in range(K):
        if z[k]:
            p = place[k]
            c = max(1.0 / P[p, p], alpha[k])
            r = mean[p] / P[p, p]
        else:
            c, r = couple(k, m, A, tau, alpha, linear, P, mean, active, v, u)
        chosen = False
        if not r * r <= threshold[k] * c:
            odds = math.exp(min(logit[k] + 0.5 * r * (r / c), LARGEST_EXPONENT)) * math.sqrt(alpha[k] / c)
            chosen = uniform[k] * (1.0 + odds) < odds
        if chosen == (z[k] != 0):
            continue
        if chosen:  # noqa: SIM108
            m = enter(k, m, c, r, P, mean, active, place, u)
        else:
            m = leave(k, m, P, mean, active, place, u)
        z[k] = chosen
        flips += 1
        if flips % FLIPS_PER_INVERSE == 0:
            invert(m, A, tau, alpha, linear, P, mean, active, place, v, u)
    m = 0
    for k in range(K):
        if z[k]:
            active[m] = k
            m += 1
    return m


@njit(**EXACT)
def sample_l(row, m, l, A, tau, alpha, linear, stream, C, active, x):
    """l_i at its active factors, through Q = C C' (2.4)."""
    l[:] = 0.0
    for a in range(m):
        k = active[a]
        for e in range(a):
            total = tau * A[k, active[e]]
            for d in range(e):
                total -= C[a, d] * C[e, d]
            C[a, e] = total / C[e, e]
        total, solved = tau * A[k, k] + alpha[k], linear[k]
        for e in range(a):
            total -= C[a, e] * C[a, e]
            solved -= C[a, e] * x[e]
        C[a, a] = math.sqrt(max(total, alpha[k]))
        x[a] = solved / C[a, a]
    for a in range(m):
        x[a] += normal(np.uint64(active[a]), row, stream.sweep, STREAM_OF_L, stream.key0, stream.key1)
    for a in range(m - 1, -1, -1):
        x[a] /= C[a, a]
        for e in range(a):
            x[e] -= C[a, e] * x[a]
        l[active[a]] = x[a]
