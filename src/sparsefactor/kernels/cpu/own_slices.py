"""The density of a row's noise precision and of one of its loadings, the activations integrated out, and draws from it,
where samples differ in what is missing (math.md, 2.16 to 2.17c)."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from ..contract import FREE_WIDTH, TAU_WIDTH, TRIES
from .compiled import EXACT, OPTIONS, njit
from .lanes import log_lane
from .philox import normal, unit_pair
from .precision import STREAM_OF_SLICES

# Rows of the table of what a row's patterns add to its density, as functions of one loading x: the variance of y_ij is
# 1 / tau + (A x + B) x + C, and its squares add up to EE - 2 x EG + x^2 GG over a pattern's SIZE samples.
SIZE, A, B, C, EE, EG, GG, FIELDS = 0, 1, 2, 3, 4, 5, 6, 7


@njit(**OPTIONS)
def fit_at(x, noise, table, m):
    """log density of y_i, up to a constant; noise: 1 / tau_i; the first m columns of the table count."""
    size, a, b, c, ee, eg, gg = table[SIZE], table[A], table[B], table[C], table[EE], table[EG], table[GG]
    total, wrong = 0.0, 0.0  # a sum, which is vector code, where the least would not be
    for p in range(m):
        v = noise + (a[p] * x + b[p]) * x + c[p]
        wrong += 0.0 if v > 0.0 else 1.0
        total += size[p] * log_lane(v) + (ee[p] + x * (x * gg[p] - 2.0 * eg[p])) / v
    return -0.5 * total if wrong == 0.0 else -math.inf  # the latter by rounding


@njit(**EXACT)
def draw_tau(tau, x, table, m, shape, rate, row, stream):
    """tau_i by slice sampling of its logarithm, the loadings staying (2.16)."""
    key0, key1, sweep = stream.key0, stream.key1, stream.sweep
    here = math.log(tau)
    u, bracket = unit_pair(np.uint64(0), row, sweep, STREAM_OF_SLICES, key0, key1)
    height = shape * here - rate * tau + fit_at(x, 1.0 / tau, table, m) + math.log(u)
    low = here - TAU_WIDTH * bracket
    high = low + TAU_WIDTH
    for t in range(TRIES):
        u, _ = unit_pair(np.uint64(t + 1), row, sweep, STREAM_OF_SLICES, key0, key1)
        at = low + u * (high - low)
        new = math.exp(at)
        if shape * at - rate * new + fit_at(x, 1.0 / new, table, m) > height:
            return new
        if at < here:
            low = at
        else:
            high = at
    return tau


@njit(**EXACT)
def own_at(x, v, mean, table, m, shape, rate):
    """log density of l_ik = x where tau_i follows so that the mean variance stays v, and that tau_i (2.17c)."""
    left = v - ((mean[0] * x + mean[1]) * x + mean[2])
    if left <= 0.0:
        return -math.inf, 0.0
    tau = 1.0 / left
    return (shape + 1.0) * math.log(tau) - rate * tau + fit_at(x, left, table, m), tau


@njit(**EXACT)
def draw_own(k, x, z, tau, mean, table, m, alpha, odds, shape, rate, row, stream):
    """z_ik and l_ik along the curve of constant mean variance; (z, l, tau). mean: coefficients of that variance."""
    key0, key1, sweep = stream.key0, stream.key1, stream.sweep
    v = 1.0 / tau + (mean[0] * x + mean[1]) * x + mean[2]
    root = math.sqrt(max(mean[1] * mean[1] - 4.0 * mean[0] * (mean[2] - v), 0.0))
    low, high = (-mean[1] - root) / (2.0 * mean[0]), (-mean[1] + root) / (2.0 * mean[0])
    base = np.uint64((k + 1) * (TRIES + 2))
    here, _ = own_at(x, v, mean, table, m, shape, rate)
    u, u_accept = unit_pair(base, row, sweep, STREAM_OF_SLICES, key0, key1)
    other = 0.0 if z else low + u * (high - low)
    there, tau_there = own_at(other, v, mean, table, m, shape, rate)
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
        there, tau_there = own_at(new, v, mean, table, m, shape, rate)
        if there - 0.5 * alpha * new * new > height:
            return z, new, tau_there
        if new < x:
            low = new
        else:
            high = new
    return z, x, tau


@njit(**EXACT)
def draw_free(k, x, z, noise, table, m, alpha, odds, row, stream):
    """z_ik and l_ik while tau_i stays: a loading is born from a normal, or dies, then drawn by a slice; (z, l)."""
    key0, key1, sweep = stream.key0, stream.key1, stream.sweep
    base = np.uint64(k * (TRIES + 2))
    u_accept, u_height = unit_pair(base, row, sweep, STREAM_OF_SLICES, key0, key1)
    # As if the variances of y_i were what they are at zero.
    precision, linear = alpha, 0.0
    for p in range(m):
        v = max(noise, noise + table[C, p])  # but for rounding it is the second
        precision += table[GG, p] / v
        linear += table[EG, p] / v
    mean, sd = linear / precision, 1.0 / math.sqrt(precision)
    u = normal(base + np.uint64(1), row, sweep, STREAM_OF_SLICES, key0, key1)
    inside = x if z else mean + sd * u
    there = fit_at(inside, noise, table, m)
    ahead = -0.5 * ((inside - mean) / sd) ** 2 - math.log(sd)
    born = odds + 0.5 * math.log(alpha) - 0.5 * alpha * inside * inside - ahead
    born += there - fit_at(0.0, noise, table, m)
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
        if fit_at(new, noise, table, m) - 0.5 * alpha * new * new > height:
            return z, new
        if new < x:
            low = new
        else:
            high = new
    return z, x
