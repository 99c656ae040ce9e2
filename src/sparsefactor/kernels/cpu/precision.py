"""Noise precisions drawn with the activations integrated out (docs/math.md, 2.16)."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from ..contract import TAU_WIDTH
from .compiled import EXACT, OPTIONS, njit

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
def draw_log_tau(tau, length, shape, rate, a, p, s, yy, log_height, bracket, tries):
    """log tau_i by slice sampling in a bracket that shrinks."""
    x = math.log(tau)
    height = log_density(x, tau, length, shape, rate, a, p, s, yy) + log_height
    low = x - TAU_WIDTH * bracket
    high = low + TAU_WIDTH
    for t in range(tries.shape[0]):
        new = low + tries[t] * (high - low)
        if log_density(new, tau, length, shape, rate, a, p, s, yy) > height:
            return new
        if new < x:
            low = new
        else:
            high = new
    return x


@njit(**OPTIONS)
def draw_precisions(Y, L, tau, C, M, shape, rate, order, log_height, bracket, tries):
    """tau of the rows in `order`, in place, and C = L'DY and M = I + L'DL with it."""
    K, N = C.shape
    inverse, CC = np.empty((K, K)), np.empty((K, K))
    u, Cy = np.empty(K), np.empty(K)
    for n in range(order.shape[0]):
        if n % ROWS_PER_INVERSE == 0:
            inverse[:] = np.linalg.inv(M)
            CC[:] = np.dot(C, C.T)
        i = order[n]
        y = Y[i]
        yy, a, p, s = 0.0, 0.0, 0.0, 0.0
        for j in range(N):
            yy += y[j] * y[j]
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
        new = math.exp(draw_log_tau(tau[i], N, shape, rate[i], a, p, s, yy, log_height[n], bracket[n], tries[n]))
        d = new - tau[i]
        tau[i] = new
        shrink = d / (1.0 + d * a)
        for k in range(K):
            for q in range(K):
                inverse[k, q] -= shrink * u[k] * u[q]
                CC[k, q] += d * (L[i, k] * Cy[q] + Cy[k] * L[i, q]) + d * d * yy * L[i, k] * L[i, q]
                M[k, q] += d * L[i, k] * L[i, q]
            if L[i, k] != 0.0:
                for j in range(N):
                    C[k, j] += d * L[i, k] * y[j]
