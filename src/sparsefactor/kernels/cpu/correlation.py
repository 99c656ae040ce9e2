"""The correlations of the factors in compiled climbs: kernels/correlation.py, which is the text to read (3.22)."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from ..correlation import STEPS
from .columns import invert_factor
from .compiled import EXACT, njit


@njit(**EXACT)
def invert_correlation(phi, inverse):
    """inverse <- Phi^-1; returns log |Phi|, minus infinity where Phi is not positive definite."""
    K, log_det = phi.shape[0], 0.0
    C = np.empty((K, K))
    for a in range(K):
        for e in range(a + 1):
            rest = phi[a, e]
            for d in range(e):
                rest -= C[a, d] * C[e, d]
            if a > e:
                C[a, e] = rest / C[e, e]
            elif rest <= 0.0:
                return -np.inf
            else:
                C[a, a] = math.sqrt(rest)
                log_det += math.log(rest)
    invert_factor(C, np.empty((K, K)), inverse)
    return log_det


@njit(**EXACT)
def prior_precision(phi, df, inverse):
    """inverse <- the prior precision of the activations: the identity where df is 0."""
    if df > 0.0:
        invert_correlation(phi, inverse)
        return
    inverse[:] = 0.0
    for k in range(inverse.shape[0]):
        inverse[k, k] = 1.0


@njit(**EXACT)
def log_prior_ratio(log_det, inverse, df):
    """log p(Phi) / p(I) (1.13)."""
    K, logs = inverse.shape[0], 0.0
    for k in range(K):
        logs += math.log(inverse[k, k])
    return -0.5 * (df + K + 1) * log_det - 0.5 * df * logs


@njit(**EXACT)
def trace_of_product(A, B):
    """The sum of the products of the entries of two symmetric matrices."""
    total = 0.0
    for k in range(A.shape[0]):
        for m in range(A.shape[0]):
            total += A[k, m] * B[k, m]
    return total


@njit(**EXACT)
def correlation_terms(phi, moments, n, df):
    """tr(Phi^-1 S) + n log |Phi|, and log p(Phi) / p(I), of the ELBO; moments: S = E[F F'], (K, K)."""
    K = moments.shape[0]
    if df == 0.0:
        total = 0.0
        for k in range(K):
            total += moments[k, k]
        return total, 0.0
    inverse = np.empty((K, K))
    log_det = invert_correlation(phi, inverse)
    return trace_of_product(inverse, moments) + n * log_det, log_prior_ratio(log_det, inverse, df)


@njit(**EXACT)
def update_correlation(phi, moments, penalty, n, power, df, new, c):
    """Into new (K, K) and c (K,): the updated Phi, and what activations are multiplied by (3.22)."""
    K = phi.shape[0]
    inverse, proposed, scaled = np.empty((K, K)), np.empty((K, K)), np.empty((K, K))
    log_det = invert_correlation(phi, inverse)
    before = -0.5 * (n * log_det + trace_of_product(inverse, moments)) + log_prior_ratio(log_det, inverse, df)
    logs = 0.0
    for k in range(K):
        c[k] = math.sqrt((n + power) / (moments[k, k] + penalty[k]))
        before -= 0.5 * penalty[k]
        logs += (n + power) * math.log(c[k]) - 0.5 * penalty[k] * c[k] * c[k]
    for k in range(K):
        for m in range(K):
            scaled[k, m] = moments[k, m] * c[k] * c[m]
            proposed[k, m] = scaled[k, m]
        proposed[k, k] += df / inverse[k, k]
    for k in range(K):
        for m in range(k):
            proposed[k, m] /= math.sqrt(proposed[k, k] * proposed[m, m])
            proposed[m, k] = proposed[k, m]
    for k in range(K):
        proposed[k, k] = 1.0
    for step in STEPS:
        for k in range(K):
            for m in range(K):
                new[k, m] = (1.0 - step) * phi[k, m] + step * proposed[k, m]
        log_det = invert_correlation(new, inverse)
        gain = logs - 0.5 * (n * log_det + trace_of_product(inverse, scaled)) + log_prior_ratio(log_det, inverse, df)
        if gain >= before:
            return
    new[:] = phi
    c[:] = 1.0
