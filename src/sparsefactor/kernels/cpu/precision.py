"""A feature's own part, noise or a factor that no other feature holds fast, with the activations integrated out
(math.md, 2.16 and 2.17)."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from ..contract import FREE_WIDTH, HELD, LOOSE, TAU_WIDTH, TRIES
from ..noise import STREAM_SLICE
from .compiled import EXACT, OPTIONS, njit
from .philox import normal, unit_pair
from .products import as_entries, row_of, weigh

STREAM_OF_SLICES = np.uint64(STREAM_SLICE)
BEYOND = 1e15  # trace of Phi^-1 + L'DL above which its inverse is all rounding
ROWS_PER_INVERSE = 64  # the inverse is built afresh after as many rows


@njit(**EXACT)
def draw_tau(tau, length, shape, rate, known, rss, row, stream):
    """tau_i by slice sampling of its logarithm in a bracket that shrinks.

    Given all other rows, y_i has the variance 1 / tau + known around a mean that leaves the residuals rss.
    """
    key0, key1, sweep = stream.key0, stream.key1, stream.sweep
    x = math.log(tau)
    u, bracket = unit_pair(np.uint64(0), row, sweep, STREAM_OF_SLICES, key0, key1)
    v = 1.0 / tau + known
    height = shape * x - rate * tau - 0.5 * (length * math.log(v) + rss / v) + math.log(u)
    low = x - TAU_WIDTH * bracket
    high = low + TAU_WIDTH
    for t in range(TRIES):
        u, _ = unit_pair(np.uint64(t + 1), row, sweep, STREAM_OF_SLICES, key0, key1)
        at = low + u * (high - low)
        new = math.exp(at)
        v = 1.0 / new + known
        if shape * at - rate * new - 0.5 * (length * math.log(v) + rss / v) > height:
            return new
        if at < x:
            low = at
        else:
            high = at
    return tau


@njit(**EXACT)
def own_density(x, v, V, Q, fit, shape, rate):
    """log density of l_ik = x where tau_i follows so that y_i's variance stays v, and that tau_i.

    V, Q, fit: coefficients (x^2, x, 1) of the variance's and the squares' quadratics, and (x, 1) of the linear term.
    """
    left = v - (V[0] * x * x + V[1] * x + V[2])
    if left <= 0.0:
        return -math.inf, 0.0
    tau = 1.0 / left
    square = Q[0] * x * x + Q[1] * x + Q[2] - 2.0 * (fit[0] * x + fit[1])
    return (shape + 1.0) * math.log(tau) - rate * tau - 0.5 * square / v, tau


@njit(**EXACT)
def draw_own(k, x, z, tau, v, V, Q, fit, alpha, odds, shape, rate, row, stream):
    """z_ik and l_ik along the curve on which y_i's variance is v; (z, l, tau)."""
    key0, key1, sweep = stream.key0, stream.key1, stream.sweep
    root = math.sqrt(max(V[1] * V[1] - 4.0 * V[0] * (V[2] - v), 0.0))
    low, high = (-V[1] - root) / (2.0 * V[0]), (-V[1] + root) / (2.0 * V[0])
    base = np.uint64((k + 1) * (TRIES + 2))
    here, _ = own_density(x, v, V, Q, fit, shape, rate)
    u, u_accept = unit_pair(base, row, sweep, STREAM_OF_SLICES, key0, key1)
    other = 0.0 if z else low + u * (high - low)
    there, tau_there = own_density(other, v, V, Q, fit, shape, rate)
    inside = x if z else other
    born = odds + 0.5 * math.log(alpha / (2.0 * math.pi)) - 0.5 * alpha * inside * inside + math.log(high - low)
    if there > -math.inf and math.log(u_accept) < there - here + (-born if z else born):
        z, x, tau, here = not z, other, tau_there, there
    if not z:
        return z, x, tau
    u, _ = unit_pair(base + np.uint64(1), row, sweep, STREAM_OF_SLICES, key0, key1)
    height = here - 0.5 * alpha * x * x + math.log(u)
    for t in range(TRIES):
        u, _ = unit_pair(base + np.uint64(t + 2), row, sweep, STREAM_OF_SLICES, key0, key1)
        new = low + u * (high - low)
        there, tau_there = own_density(new, v, V, Q, fit, shape, rate)
        if there - 0.5 * alpha * new * new > height:
            return z, new, tau_there
        if new < x:
            low = new
        else:
            high = new
    return z, x, tau


@njit(**EXACT)
def free_density(x, length, noise, yy, V, Q, fit):
    """log density of y_i at l_ik = x, tau_i staying; coefficients as in own_density, noise: 1 / tau_i."""
    v = noise + V[0] * x * x + V[1] * x + V[2]
    if v <= 0.0:  # by rounding
        return -math.inf
    square = yy + Q[0] * x * x + Q[1] * x + Q[2] - 2.0 * (fit[0] * x + fit[1])
    return -0.5 * (length * math.log(v) + square / v)


@njit(**EXACT)
def draw_free(k, x, z, length, noise, yy, V, Q, fit, alpha, odds, row, stream):
    """z_ik and l_ik while tau_i stays: a loading is born from a normal, or dies, then drawn by a slice; (z, l)."""
    key0, key1, sweep = stream.key0, stream.key1, stream.sweep
    base = np.uint64(k * (TRIES + 2))
    u_accept, u_height = unit_pair(base, row, sweep, STREAM_OF_SLICES, key0, key1)
    # As if the variance of y_i were what it is at zero.
    v = max(noise, noise + V[2])  # but for rounding it is the second
    precision = max(Q[0], 0.0) / v + alpha
    mean, sd = (fit[0] - 0.5 * Q[1]) / (v * precision), 1.0 / math.sqrt(precision)
    u = normal(base + np.uint64(1), row, sweep, STREAM_OF_SLICES, key0, key1)
    inside = x if z else mean + sd * u
    there = free_density(inside, length, noise, yy, V, Q, fit)
    ahead = -0.5 * ((inside - mean) / sd) ** 2 - math.log(sd)
    born = odds + 0.5 * math.log(alpha) - 0.5 * alpha * inside * inside - ahead
    born += there - free_density(0.0, length, noise, yy, V, Q, fit)
    if math.log(u_accept) < (-born if z else born):
        z, x = not z, 0.0 if z else inside
    if not z:
        return z, 0.0
    height = there - 0.5 * alpha * x * x + math.log(u_height)
    _, bracket = unit_pair(base + np.uint64(2), row, sweep, STREAM_OF_SLICES, key0, key1)
    low = x - FREE_WIDTH * sd * bracket
    high = low + FREE_WIDTH * sd
    for t in range(TRIES):
        u, _ = unit_pair(base + np.uint64(t + 2), row, sweep, STREAM_OF_SLICES, key0, key1)
        new = low + u * (high - low)
        if free_density(new, length, noise, yy, V, Q, fit) - 0.5 * alpha * new * new > height:
            return z, new
        if new < x:
            low = new
        else:
            high = new
    return z, x


@njit(**OPTIONS)
def weighted_sums(first_tile, last_tile, problem, L, tau, C, M):
    """The tiles' parts of C = L'DY and M = L'DL; C: (tiles, K, N), M: (tiles, K, K)."""
    (G, K), Y = L.shape, problem.Y
    for t in range(first_tile, last_tile):
        tile = t * problem.tile
        R = min(problem.tile, G - tile)
        own = L[tile : tile + R]
        weighted = np.empty((R, K))
        for r in range(R):
            for k in range(K):
                weighted[r, k] = tau[tile + r] * own[r, k]
        narrow = as_entries(weighted, Y)
        LY = np.empty((K, C.shape[2]), narrow.dtype)
        weigh(narrow.T, Y, tile, R, LY)
        C[t] = LY
        M[t] = np.dot(weighted.T, own)


@njit(**OPTIONS)
def draw_precisions(begin, end, done, problem, Z, L, tau, C, M, state, alpha, logit, stream):
    """tau of the rows begin .. end, and (z, l) where a factor is loose without the row; in place.

    done: rows that had their turns before. C = L'DY and M = Phi^-1 + L'DL follow. state: (2, K, K) the inverse of M,
    and C C'; alpha: (K, V); logit: (1 or G, K).
    """
    K, N = C.shape
    inverse, CC = state[0], state[1]
    shape = problem.noise_shape
    u, Cy, known, old, v_k = np.empty(K), np.empty(K), np.empty(K), np.empty(K), np.empty(K)
    V, Q, fit = np.empty(3), np.empty(3), np.empty(2)
    for i in range(begin, end):
        if (done + i - begin) % ROWS_PER_INVERSE == 0:
            if not np.trace(M) < BEYOND:  # or not a number: rows stay as they are
                return
            inverse[:] = np.linalg.inv(M)
            CC[:] = np.dot(C, C.T)
        y, l, before = row_of(problem.Y, i), L[i], tau[i]
        yy, rate, row = problem.row_ss[i], problem.noise_rate[i], np.uint64(problem.first + i)
        a = 0.0
        for k in range(K):
            total = 0.0
            for j in range(N):
                total += C[k, j] * y[j]
            Cy[k] = total
            total = 0.0
            for q in range(K):
                total += inverse[k, q] * l[q]
            u[k], old[k] = total, l[k]
            a += l[k] * total
        left = max(1.0 - before * a, 1e-12)
        gain = before / left
        # Without row i: the inverse is larger by gain u u', C y by -tau l y'y; `known` is that inverse times l.
        for k in range(K):
            for q in range(K):
                CC[k, q] += before * (before * yy * l[k] * l[q] - l[k] * Cy[q] - Cy[k] * l[q])
                inverse[k, q] += gain * u[k] * u[q]
        for k in range(K):
            Cy[k] -= before * old[k] * yy
            known[k] = u[k] / left
        spread, linear, square = a / left, 0.0, 0.0
        for k in range(K):
            linear += known[k] * Cy[k]
            total = 0.0
            for q in range(K):
                total += CC[k, q] * known[q]
            square += known[k] * total
        t = draw_tau(before, N, shape, rate, spread, yy - 2.0 * linear + square, row, stream)
        for k in range(K):
            if inverse[k, k] < HELD:
                continue
            x = l[k]
            V[0], Q[0], slope, fit[0] = inverse[k, k], 0.0, 0.0, 0.0
            for q in range(K):
                v_k[q] = inverse[k, q]
                fit[0] += v_k[q] * Cy[q]
            for q in range(K):
                total = 0.0
                for p in range(K):
                    total += CC[q, p] * v_k[p]
                Q[0] += v_k[q] * total
                slope += known[q] * total
            V[1], Q[1] = 2.0 * (known[k] - V[0] * x), 2.0 * (slope - Q[0] * x)
            V[2], Q[2] = spread - x * (V[0] * x + V[1]), square - x * (Q[0] * x + Q[1])
            fit[1] = linear - fit[0] * x
            odds, slab = logit[i if logit.shape[0] > 1 else 0, k], alpha[k, problem.group[i]]
            z, new = Z[i, k] != 0, x
            if inverse[k, k] >= LOOSE:
                v = 1.0 / t + spread
                z, new, t = draw_own(k, x, z, t, v, V, Q, fit, slab, odds, shape, rate, row, stream)
            z, new = draw_free(K + 1 + k, new, z, N, 1.0 / t, yy, V, Q, fit, slab, odds, row, stream)
            if new != x:
                Z[i, k], l[k] = z, new
                spread = V[0] * new * new + V[1] * new + V[2]
                square = Q[0] * new * new + Q[1] * new + Q[2]
                linear = fit[0] * new + fit[1]
                for q in range(K):
                    known[q] += (new - x) * v_k[q]
        tau[i] = t
        gain = t / (1.0 + t * spread)
        for k in range(K):
            for q in range(K):
                inverse[k, q] -= gain * known[k] * known[q]
                CC[k, q] += t * (t * yy * l[k] * l[q] + l[k] * Cy[q] + Cy[k] * l[q])
                M[k, q] += t * l[k] * l[q] - before * old[k] * old[q]
        for k in range(K):
            step = t * l[k] - before * old[k]
            if step != 0.0:
                for j in range(N):
                    C[k, j] += step * y[j]
