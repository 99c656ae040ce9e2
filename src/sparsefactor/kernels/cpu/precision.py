"""Noise precisions drawn with the activations integrated out (docs/math.md, 2.16)."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from ..contract import TAU_WIDTH, TRIES
from ..noise import STREAM_SLICE
from .compiled import EXACT, OPTIONS, njit
from .philox import unit_pair

STREAM_OF_SLICES = np.uint64(STREAM_SLICE)
ROWS_PER_INVERSE = 64  # the inverse is built afresh after as many updates of rank one


@njit(**EXACT)
def log_density(x, tau, length, shape, rate, a, p, s, yy):
    """log density of log tau_i = x against what it is now, `tau`, up to a constant.

    a = l'M^-1 l, p = l'M^-1 C y, s = l'M^-1 C C'M^-1 l, yy = y'y, with C = L'DY and M = I + L'DL as they are now.
    """
    new = math.exp(x)
    d = new - tau
    grown = 1.0 + d * a  # |M + d l l'| / |M|; positive, since d > -tau and tau a < 1
    fit = 2.0 * d * p + d * d * a * yy - d / grown * (s + 2.0 * d * a * p + d * d * a * a * yy)
    return (shape + 0.5 * length) * x - rate * new - 0.5 * length * math.log(grown) - 0.5 * d * yy + 0.5 * fit


@njit(**EXACT)
def draw_log_tau(tau, length, shape, rate, a, p, s, yy, row, stream):
    """log tau_i by slice sampling in a bracket that shrinks."""
    key0, key1, sweep = stream.key0, stream.key1, stream.sweep
    x = math.log(tau)
    u, bracket = unit_pair(np.uint64(0), row, sweep, STREAM_OF_SLICES, key0, key1)
    height = log_density(x, tau, length, shape, rate, a, p, s, yy) + math.log(u)
    low = x - TAU_WIDTH * bracket
    high = low + TAU_WIDTH
    for t in range(TRIES):
        u, _ = unit_pair(np.uint64(t + 1), row, sweep, STREAM_OF_SLICES, key0, key1)
        new = low + u * (high - low)
        if log_density(new, tau, length, shape, rate, a, p, s, yy) > height:
            return new
        if new < x:
            low = new
        else:
            high = new
    return x


@njit(**OPTIONS)
def weighted_sums(first_tile, last_tile, problem, L, tau, C, M):
    """The tiles' parts of C = L'DY and M = L'DL; C: (tiles, K, N), M: (tiles, K, K)."""
    G, K = L.shape
    for t in range(first_tile, last_tile):
        tile = t * problem.tile
        R = min(problem.tile, G - tile)
        own, Y = L[tile : tile + R], problem.Y[tile : tile + R]
        weighted, narrow = np.empty((R, K)), np.empty((R, K), problem.Y.dtype)
        for r in range(R):
            for k in range(K):
                weighted[r, k] = tau[tile + r] * own[r, k]
                narrow[r, k] = weighted[r, k]
        C[t] = np.dot(narrow.T, Y)
        M[t] = np.dot(weighted.T, own)


@njit(**OPTIONS)
def draw_precisions(begin, end, drawn, count, problem, Z, L, tau, C, M, state, stream):
    """tau of the rows begin .. end that have loadings, in place, until `count` are drawn; how many are now.

    C = L'DY and M = I + L'DL follow. state: (2, K, K) the inverse of M, and C C'.
    """
    K, N = C.shape
    inverse, CC = state[0], state[1]
    u, Cy = np.empty(K), np.empty(K)
    for i in range(begin, end):
        if drawn == count:
            break
        loaded = False
        for k in range(K):
            loaded |= Z[i, k] != 0
        if not loaded:
            continue
        if drawn % ROWS_PER_INVERSE == 0:
            inverse[:] = np.linalg.inv(M)
            CC[:] = np.dot(C, C.T)
        drawn += 1
        y = problem.Y[i]
        yy, a, p, s = problem.row_ss[i], 0.0, 0.0, 0.0
        for k in range(K):
            total = 0.0
            for j in range(N):
                total += C[k, j] * y[j]
            Cy[k] = total
            total = 0.0
            for q in range(K):
                total += inverse[k, q] * L[i, q]
            u[k] = total
        for k in range(K):
            a += L[i, k] * u[k]
            p += Cy[k] * u[k]
            total = 0.0
            for q in range(K):
                total += CC[k, q] * u[q]
            s += u[k] * total
        a = min(a, (1.0 - 1e-12) / tau[i])
        row = np.uint64(problem.first + i)
        rate = problem.noise_rate[i]
        new = math.exp(draw_log_tau(tau[i], N, problem.noise_shape, rate, a, p, s, yy, row, stream))
        d = new - tau[i]
        tau[i] = new
        shrink = d / (1.0 + d * a)
        for k in range(K):
            for q in range(K):
                inverse[k, q] -= shrink * u[k] * u[q]
                CC[k, q] += d * (L[i, k] * Cy[q] + Cy[k] * L[i, q]) + d * d * yy * L[i, k] * L[i, q]
                M[k, q] += d * L[i, k] * L[i, q]
            if L[i, k] != 0.0:
                step = d * L[i, k]
                for j in range(N):
                    C[k, j] += step * y[j]
    return drawn
