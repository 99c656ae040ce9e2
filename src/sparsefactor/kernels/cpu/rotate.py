"""Rotations of pairs of factors whose loadings are integrated out (docs/math.md, 2.10)."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from .compiled import EXACT, INLINE_EXACT, OPTIONS, njit

NEGLIGIBLE = -400.0  # exp of it is lost beside one, even where a vanishing slab precision makes the one 1e-154
LARGE, SMALL = 1e200, 1e-200  # a product beyond these is put away as its logarithm


@njit(**INLINE_EXACT)
def states(r1, r2, b11, b12, b22, det, a1, a2, o1, o2):
    """Exponents and factors of the weights of z = 10, 01, 11 against 00; det: of the Gram matrix before and after."""
    q1, q2 = b11 + a1, b22 + a2
    corner = a2 + (det + a1 * b22) / q1  # the Schur complement of the first, never below a2
    rest = r2 - b12 / q1 * r1
    own = 0.5 * r1 * (r1 / q1)
    e1, e2, e3 = o1 + own, o2 + 0.5 * r2 * (r2 / q2), o1 + o2 + own + 0.5 * rest * (rest / corner)
    f1 = math.sqrt(a1 / q1)
    return e1, e2, e3, f1, math.sqrt(a2 / q2), f1 * math.sqrt(a2 / corner)


@njit(**INLINE_EXACT)
def scaled(factor, exponent):
    return factor * math.exp(exponent) if exponent > NEGLIGIBLE else 0.0


@njit(**EXACT)
def log_density(c, s, r, gram, det, first, second, group, odds):
    """log density of the turn ((c, s), (-s, c)) of two factors, up to a constant.

    r: (2, G) linear terms; gram: (3, G) entries 11, 12, 22; first, second: (V,) slab precisions; odds: (2, 1 or G).
    """
    G = r.shape[1]
    own = odds.shape[1] > 1
    o1, o2 = odds[0, 0], odds[1, 0]
    total, product = 0.0, 1.0
    for i in range(G):
        r1, r2 = c * r[0, i] + s * r[1, i], c * r[1, i] - s * r[0, i]
        mixed = 2.0 * c * s * gram[1, i]
        b11 = c * c * gram[0, i] + mixed + s * s * gram[2, i]
        b22 = s * s * gram[0, i] - mixed + c * c * gram[2, i]
        b12 = (c * c - s * s) * gram[1, i] + c * s * (gram[2, i] - gram[0, i])
        if own:
            o1, o2 = odds[0, i], odds[1, i]
        a1, a2 = first[group[i]], second[group[i]]
        e1, e2, e3, f1, f2, f3 = states(r1, r2, b11, b12, b22, det[i], a1, a2, o1, o2)
        top = max(max(e1, e2), max(e3, 0.0))
        total += top
        product *= scaled(1.0, -top) + scaled(f1, e1 - top) + scaled(f2, e2 - top) + scaled(f3, e3 - top)
        if product > LARGE or product < SMALL:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@njit(**EXACT)
def find_turn(r, gram, det, first, second, group, odds, log_height, bracket, angles):
    """The angle that a slice sampler draws, by shrinking a bracket of half a turn towards none."""
    height = log_density(1.0, 0.0, r, gram, det, first, second, group, odds) + log_height
    low = -math.pi * bracket
    high = low + math.pi
    for t in range(angles.shape[0]):
        angle = low + angles[t] * (high - low)
        if log_density(math.cos(angle), math.sin(angle), r, gram, det, first, second, group, odds) > height:
            return angle
        if angle < 0.0:
            low = angle
        else:
            high = angle
    return 0.0


@njit(**OPTIONS)
def linear_and_gram(k, q, E, observed, L, F, tau, weight, r, gram, det):
    """Of every row's loadings on k and q, given all others (2.4), without the slab's precisions."""
    G, N = E.shape
    masked = observed.shape[0] > 0
    g11, g12, g22 = 0.0, 0.0, 0.0
    for j in range(N):
        g11 += weight[j] * F[k, j] * F[k, j]
        g12 += weight[j] * F[k, j] * F[q, j]
        g22 += weight[j] * F[q, j] * F[q, j]
    for i in range(G):
        y1, y2 = 0.0, 0.0
        for j in range(N):
            e = E[i, j] * weight[j]
            y1 += e * F[k, j]
            y2 += e * F[q, j]
        if masked:
            g11, g12, g22 = 0.0, 0.0, 0.0
            for j in range(N):
                if observed[i, j]:
                    g11 += weight[j] * F[k, j] * F[k, j]
                    g12 += weight[j] * F[k, j] * F[q, j]
                    g22 += weight[j] * F[q, j] * F[q, j]
        t = tau[i]
        gram[0, i], gram[1, i], gram[2, i] = t * g11, t * g12, t * g22
        det[i] = max(gram[0, i] * gram[2, i] - gram[1, i] * gram[1, i], 0.0)
        r[0, i] = t * (y1 + g11 * L[i, k] + g12 * L[i, q])
        r[1, i] = t * (y2 + g12 * L[i, k] + g22 * L[i, q])


@njit(**EXACT)
def exchange(r, gram):
    """Two factors change places."""
    for i in range(r.shape[1]):
        r[0, i], r[1, i] = r[1, i], r[0, i]
        gram[0, i], gram[2, i] = gram[2, i], gram[0, i]


@njit(**EXACT)
def draw_rows(k, q, c, s, swap, E, observed, Z, L, F, r, gram, det, first, second, group, odds, uniform, normal):
    """z and l of two factors after their turn, and the residuals that they leave; F is turned already."""
    G, N = E.shape
    masked = observed.shape[0] > 0
    for i in range(G):
        r1, r2 = c * r[0, i] + s * r[1, i], c * r[1, i] - s * r[0, i]
        mixed = 2.0 * c * s * gram[1, i]
        b11 = c * c * gram[0, i] + mixed + s * s * gram[2, i]
        b22 = s * s * gram[0, i] - mixed + c * c * gram[2, i]
        b12 = (c * c - s * s) * gram[1, i] + c * s * (gram[2, i] - gram[0, i])
        at = i if odds.shape[1] > 1 else 0
        a1, a2 = first[group[i]], second[group[i]]
        e1, e2, e3, f1, f2, f3 = states(r1, r2, b11, b12, b22, det[i], a1, a2, odds[0, at], odds[1, at])
        top = max(max(e1, e2), max(e3, 0.0))
        w0, w1, w2, w3 = scaled(1.0, -top), scaled(f1, e1 - top), scaled(f2, e2 - top), scaled(f3, e3 - top)
        u = uniform[i] * (w0 + w1 + w2 + w3)
        one = (w0 < u <= w0 + w1) or u > w0 + w1 + w2
        two = u > w0 + w1
        l1, l2 = L[i, k], L[i, q]
        if swap:
            l1, l2 = l2, l1
        d1, d2 = c * l1 + s * l2, c * l2 - s * l1
        new1, new2 = 0.0, 0.0
        q1, q2 = b11 + a1, b22 + a2
        if one and two:
            # Through Q = C C', as the oracle has it.
            root = math.sqrt(q1)
            low = b12 / root
            corner = math.sqrt(a2 + (det[i] + a1 * b22) / q1)
            z1 = r1 / root
            z2 = (r2 - low * z1) / corner
            new2 = (z2 + normal[i, 1]) / corner
            new1 = (z1 + normal[i, 0] - low * new2) / root
        elif one:
            new1 = r1 / q1 + normal[i, 0] / math.sqrt(q1)
        elif two:
            new2 = r2 / q2 + normal[i, 1] / math.sqrt(q2)
        Z[i, k], Z[i, q] = one, two
        L[i, k], L[i, q] = new1, new2
        d1 -= new1
        d2 -= new2
        if d1 != 0.0 or d2 != 0.0:
            for j in range(N):
                if not masked or observed[i, j]:
                    E[i, j] += d1 * F[k, j] + d2 * F[q, j]


@njit(**EXACT)
def rotate_pairs(
    E, observed, Z, L, F, alpha, group, tau, weight, logit, pairs, swaps, log_height, bracket, angles, uniform, normal
):
    """Exchange, then turn, each pair of factors, and draw its columns of (Z, L); all in place.

    E: (G, N) residual Y - L F, 0 where missing; observed: (G, N) or (0, 0); alpha: (K, V); group: (G,);
    logit: (1 or G, K).
    """
    G, N = E.shape
    r, gram, det = np.empty((2, G)), np.empty((3, G)), np.empty(G)
    odds = np.empty((2, logit.shape[0]))
    for p in range(pairs.shape[0]):
        k, q = pairs[p, 0], pairs[p, 1]
        for i in range(logit.shape[0]):
            odds[0, i], odds[1, i] = logit[i, k], logit[i, q]
        linear_and_gram(k, q, E, observed, L, F, tau, weight, r, gram, det)
        swap = False
        if swaps[p] < 1.0:
            stay = log_density(1.0, 0.0, r, gram, det, alpha[k], alpha[q], group, odds)
            exchange(r, gram)
            change = log_density(1.0, 0.0, r, gram, det, alpha[q], alpha[k], group, odds) - stay
            swap = swaps[p] * (1.0 + math.exp(-change)) < 1.0 if change > -700.0 else False
            if swap:
                for v in range(alpha.shape[1]):
                    alpha[k, v], alpha[q, v] = alpha[q, v], alpha[k, v]
                for j in range(N):
                    F[k, j], F[q, j] = F[q, j], F[k, j]
            else:
                exchange(r, gram)
        angle = find_turn(r, gram, det, alpha[k], alpha[q], group, odds, log_height[p], bracket[p], angles[p])
        c, s = math.cos(angle), math.sin(angle)
        for j in range(N):
            F[k, j], F[q, j] = c * F[k, j] + s * F[q, j], c * F[q, j] - s * F[k, j]
        own = (alpha[k], alpha[q], group, odds, uniform[p], normal[p])
        draw_rows(k, q, c, s, swap, E, observed, Z, L, F, r, gram, det, *own)
