"""The activations given the rows' sums: q(f_j) for VI, a draw of f_j for Gibbs (math.md, 2.5, 3.5, 3.6).

With complete data and equal weights every sample has the same precision matrix, which is factored once; where each has
its own, see sample_lanes.py.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from .compiled import OPTIONS, njit


@njit(**OPTIONS)
def factor_precision(LL, weight, prior, C):
    """C C' = prior + weight LL; prior: (K, K) Phi^-1, the prior precision of the activations."""
    K = C.shape[0]
    for a in range(K):
        for e in range(a + 1):
            total = prior[a, e] + weight * LL[a, e]
            for d in range(e):
                total -= C[a, d] * C[e, d]
            # LL is positive semidefinite and Phi has eigenvalues of at most K, whatever rounding says.
            C[a, e] = math.sqrt(max(total, 1.0 / K)) if a == e else total / C[e, e]


@njit(**OPTIONS)
def invert_factor(C, inverse, covariance):
    """covariance = (C C')^-1; inverse is working space for C^-1."""
    K = C.shape[0]
    for a in range(K):
        for e in range(K):
            inverse[a, e] = 0.0
        inverse[a, a] = 1.0
        for d in range(a):
            for e in range(d + 1):
                inverse[a, e] -= C[a, d] * inverse[d, e]
        for e in range(a + 1):
            inverse[a, e] /= C[a, a]
    covariance[:] = 0.0
    for d in range(K):
        for a in range(d + 1):
            for e in range(d + 1):
                covariance[a, e] += inverse[d, a] * inverse[d, e]


@njit(**OPTIONS)
def independent_shared(mean_in, LY, LL, weight, prior, mean, variance):
    """q(f_kj) for k = 1..K with complete data (3.5), all samples at once."""
    K, N = mean.shape
    for k in range(K):
        for j in range(N):
            mean[k, j] = mean_in[k, j]
    for k in range(K):
        for j in range(N):
            mean[k, j] = weight[j] * LY[k, j]
        for m in range(K):
            if m != k:
                d, p = LL[k, m], prior[k, m]
                for j in range(N):
                    mean[k, j] -= (p + weight[j] * d) * mean[m, j]
        d, p = LL[k, k], prior[k, k]
        for j in range(N):
            variance[k, j] = 1.0 / (p + weight[j] * d)
        for j in range(N):
            mean[k, j] *= variance[k, j]


@njit(**OPTIONS)
def independent_each(first, last, mean_in, LY, LL, LL_share, weight, prior, mean, variance):
    """q(f_kj) for k = 1..K with masked data (3.5), samples first .. last."""
    K = mean.shape[0]
    f = np.empty(K)
    for j in range(first, last):
        D = LL_share[j]
        for k in range(K):
            f[k] = mean_in[k, j]
        for k in range(K):
            own = prior[k, k] + weight[j] * (LL[k, k] + D[k, k])
            linear = weight[j] * LY[k, j] + own * f[k]
            for m in range(K):
                linear -= (prior[k, m] + weight[j] * (LL[k, m] + D[k, m])) * f[m]
            variance[k, j] = 1.0 / own
            f[k] = variance[k, j] * linear
            mean[k, j] = f[k]


@njit(**OPTIONS)
def joint_shared(LY, LL, weight, prior, mean, covariance):
    """q(f_j) over the factors jointly (3.6), with one covariance for all samples."""
    K, N = mean.shape
    C, inverse = np.empty((K, K)), np.empty((K, K))
    factor_precision(LL, weight[0], prior, C)
    invert_factor(C, inverse, covariance[0])
    for k in range(K):
        for j in range(N):
            mean[k, j] = 0.0
        for m in range(K):
            s = weight[0] * covariance[0, k, m]
            for j in range(N):
                mean[k, j] += s * LY[m, j]


@njit(**OPTIONS)
def draw_shared(LY, LL, weight, prior, normal, F):
    """f_j given the rest (2.5), with one precision for all samples."""
    K, N = F.shape
    C = np.empty((K, K))
    factor_precision(LL, weight[0], prior, C)
    for a in range(K):
        for j in range(N):
            F[a, j] = weight[0] * LY[a, j]
        for e in range(a):
            c = C[a, e]
            for j in range(N):
                F[a, j] -= c * F[e, j]
        c = 1.0 / C[a, a]
        for j in range(N):
            F[a, j] *= c
    for a in range(K):
        for j in range(N):
            F[a, j] += normal[a, j]
    for a in range(K - 1, -1, -1):
        c = 1.0 / C[a, a]
        for j in range(N):
            F[a, j] *= c
        for e in range(a):
            c = C[a, e]
            for j in range(N):
                F[e, j] -= c * F[a, j]
