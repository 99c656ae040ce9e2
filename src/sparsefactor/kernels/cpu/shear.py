"""Shears of factors along one whose loadings are integrated out (docs/math.md, 2.11)."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from .compiled import OPTIONS, njit


@njit(**OPTIONS)
def log_evidence(r, c, offset):
    """log of 1 + odds of including a loading with linear term r and precision c."""
    x = offset + 0.5 * r * r / c
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@njit(**OPTIONS)
def shear_directions(E, observed, Z, L, F, tau, weight, alpha, group, logit, order, step, log_uniform, uniform, normal):
    """For each q in `order`: shear every other factor along it, then draw its loadings; all in place.

    E: (G, N) residual Y - L F, 0 where missing; observed: (G, N) or (0, 0); alpha: (K, V); group: (G,);
    logit: (1 or G, K).
    """
    G, N = E.shape
    K = F.shape[0]
    masked = observed.shape[0] > 0
    r, squared, offset, evidence, moved, other = np.empty((6, G))
    taken, slab = np.empty((2, G))
    for d in range(order.shape[0]):
        q = order[d]
        whole = 0.0
        for j in range(N):
            whole += weight[j] * F[q, j] * F[q, j]
        for i in range(G):
            product, norm = 0.0, 0.0
            for j in range(N):
                product += E[i, j] * (weight[j] * F[q, j])
            if masked:
                for j in range(N):
                    if observed[i, j]:
                        norm += weight[j] * F[q, j] * F[q, j]
            else:
                norm = whole
            squared[i] = tau[i] * norm
            r[i] = tau[i] * product + squared[i] * L[i, q]
            own = logit[i if logit.shape[0] > 1 else 0, q]
            slab[i] = alpha[q, group[i]]
            offset[i] = own + 0.5 * math.log(slab[i] / (squared[i] + slab[i]))
            evidence[i] = log_evidence(r[i], squared[i] + slab[i], offset[i])
            taken[i] = 0.0
        for k in range(K):
            if k == q:
                continue
            for p in range(step.shape[2]):
                e = step[d, k, p]
                ratio, cross, size = 0.0, 0.0, 0.0
                for i in range(G):
                    if Z[i, k]:
                        change = e * L[i, k] * squared[i]
                        moved[i] = r[i] - change
                        other[i] = log_evidence(moved[i], squared[i] + slab[i], offset[i])
                        ratio += e * L[i, k] * (r[i] - 0.5 * change) + other[i] - evidence[i]
                for j in range(N):
                    cross += F[k, j] * F[q, j]
                    size += F[q, j] * F[q, j]
                if log_uniform[d, k, p] < ratio - e * cross - 0.5 * e * e * size:
                    for j in range(N):
                        F[k, j] += e * F[q, j]
                    for i in range(G):
                        if Z[i, k]:
                            r[i], evidence[i] = moved[i], other[i]
                            taken[i] += e * L[i, k]
        for i in range(G):
            c = squared[i] + slab[i]
            x = offset[i] + 0.5 * r[i] * r[i] / c
            included = uniform[d, i] < 1.0 / (1.0 + math.exp(-x)) if x > -700.0 else False
            new = r[i] / c + normal[d, i] / math.sqrt(c) if included else 0.0
            change = taken[i] + new - L[i, q]
            Z[i, q], L[i, q] = included, new
            for j in range(N):
                if not masked or observed[i, j]:
                    E[i, j] -= change * F[q, j]
