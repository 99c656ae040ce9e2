"""Rotations of pairs of factors whose loadings are integrated out (math.md, 2.10)."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from .compiled import INLINE_STRICT, STRICT, njit
from .lanes import LANES, exp_lane, log_lane
from .moves import BATCH, LEAST, STREAM_OF_L, STREAM_OF_Z, add_sums, added, given_others, load_precision, over_rows
from .philox import normal, unit_pair

R_1, R_2, G_11, G_12, G_22, DET, ODDS_1, ODDS_2, SLAB_1, SLAB_2 = range(10)  # the rows of `terms`


@njit(**STRICT)
def pair_terms(first_tile, last_tile, rows, columns, alpha, k, q):
    """Of every row's loadings on k and q given all others: linear terms and Gram matrix, without the slab's part."""
    G = rows.L.shape[0]
    factors = np.empty(2, np.int64)
    factors[0], factors[1] = k, q
    linear, grams = np.empty((2, rows.tile)), np.empty((3, rows.tile))
    logit, per_row = rows.logit, rows.logit.shape[0] > 1
    for t in range(first_tile, last_tile):
        first, last = t * rows.tile, min((t + 1) * rows.tile, G)
        given_others(first, last, rows, columns, factors, linear, grams)
        tau, terms = rows.tau[first:last], rows.terms
        for a in range(2):
            out = terms[R_1 + a, first:last]
            for i in range(len(tau)):
                out[i] = tau[i] * linear[a, i]
        for a in range(3):
            out = terms[G_11 + a, first:last]
            for i in range(len(tau)):
                out[i] = tau[i] * grams[a, i]
        det = terms[DET, first:last]
        for i in range(len(tau)):
            det[i] = max(tau[i] * tau[i] * (grams[0, i] * grams[2, i] - grams[1, i] * grams[1, i]), 0.0)
        for a in range(2):
            out = terms[ODDS_1 + a, first:last]
            for i in range(len(tau)):
                out[i] = logit[first + i if per_row else 0, factors[a]]
            load_precision(first, last, rows, alpha, factors[a], SLAB_1 + a)


@njit(**INLINE_STRICT)
def turned(r1, r2, g11, g12, g22, t11, t12, t21, t22):
    """A row's linear terms and Gram matrix after an orthogonal change of the pair."""
    return (
        t11 * r1 + t12 * r2,
        t21 * r1 + t22 * r2,
        t11 * t11 * g11 + 2.0 * t11 * t12 * g12 + t12 * t12 * g22,
        t11 * t21 * g11 + (t11 * t22 + t12 * t21) * g12 + t12 * t22 * g22,
        t21 * t21 * g11 + 2.0 * t21 * t22 * g12 + t22 * t22 * g22,
    )


@njit(**INLINE_STRICT)
def states(r1, r2, b11, b12, b22, det, a1, a2, o1, o2):
    """Exponents and factors of the weights of z = 10, 01, 11 against 00; det: of the Gram matrix before and after."""
    p1, p2 = 1.0 / (b11 + a1), 1.0 / (b22 + a2)
    corner = a2 + (det + a1 * b22) * p1  # the Schur complement of the first, never below a2
    rest = r2 - b12 * (p1 * r1)
    own = 0.5 * r1 * (r1 * p1)
    e1, e2, e3 = o1 + own, o2 + 0.5 * r2 * (r2 * p2), o1 + o2 + own + 0.5 * rest * (rest / corner)
    f1 = np.sqrt(a1 * p1)
    return e1, e2, e3, f1, np.sqrt(a2 * p2), f1 * np.sqrt(a2 / corner)


@njit(**STRICT)
def pair_densities(first_tile, last_tile, rows, points, n):
    """log density of n orthogonal changes of the pair, up to a constant. points: (n, 5) the matrix, and 1
    where the factors have each other's slab precisions, else 0."""
    sums, G, values = rows.sums, rows.L.shape[0], np.empty(rows.tile)
    for t in range(first_tile, last_tile):
        part, terms = slice(t * rows.tile, min((t + 1) * rows.tile, G)), rows.terms
        s1, s2, det = terms[R_1, part], terms[R_2, part], terms[DET, part]
        g11, g12, g22 = terms[G_11, part], terms[G_12, part], terms[G_22, part]
        o1, o2, slab1, slab2 = terms[ODDS_1, part], terms[ODDS_2, part], terms[SLAB_1, part], terms[SLAB_2, part]
        for at in range(n):
            t11, t12, t21, t22, swap = points[at]
            keep = 1.0 - swap
            for i in range(len(s1)):
                a1, a2 = keep * slab1[i] + swap * slab2[i], keep * slab2[i] + swap * slab1[i]
                r1, r2, b11, b12, b22 = turned(s1[i], s2[i], g11[i], g12[i], g22[i], t11, t12, t21, t22)
                e1, e2, e3, f1, f2, f3 = states(r1, r2, b11, b12, b22, det[i], a1, a2, o1[i], o2[i])
                top = max(max(e1, e2), max(e3, 0.0))
                weight = exp_lane(-top) + f1 * exp_lane(e1 - top) + f2 * exp_lane(e2 - top) + f3 * exp_lane(e3 - top)
                values[i] = top + log_lane(max(weight, LEAST))
            sums[t, at] = added(values, len(s1))


@njit(**STRICT)
def pair_draw(first_tile, last_tile, rows, k, q, point, position, stream):
    """z and l of two factors after their change, and b with them."""
    G = rows.L.shape[0]
    Z, L, B, terms = rows.Z, rows.L, rows.B, rows.terms
    key0, key1, sweep = stream.key0, stream.key1, stream.sweep
    t11, t12, t21, t22, swap = point
    keep = 1.0 - swap
    W = np.zeros(14 * LANES)
    for begin in range(first_tile * rows.tile, min(last_tile * rows.tile, G), LANES):
        n, row = min(LANES, G - begin), np.uint64(rows.first + begin)
        for field in range(10):
            source, base = terms[field, begin : begin + n], np.uint64(field * LANES)
            for lane in range(n):
                W[base + np.uint64(lane)] = source[lane]
        for lane in range(LANES):
            a1 = keep * W[8 * LANES + lane] + swap * W[9 * LANES + lane]
            a2 = keep * W[9 * LANES + lane] + swap * W[8 * LANES + lane]
            r1, r2, b11, b12, b22 = turned(
                W[lane], W[LANES + lane], W[2 * LANES + lane], W[3 * LANES + lane], W[4 * LANES + lane],
                t11, t12, t21, t22,
            )  # fmt: skip
            e1, e2, e3, f1, f2, f3 = states(
                r1, r2, b11, b12, b22, W[5 * LANES + lane], a1, a2, W[6 * LANES + lane], W[7 * LANES + lane]
            )
            top = max(max(e1, e2), max(e3, 0.0))
            none, both = exp_lane(-top), exp_lane(-top) + f1 * exp_lane(e1 - top)
            three = both + f2 * exp_lane(e2 - top)
            W[8 * LANES + lane] = a1
            W[9 * LANES + lane] = a2
            W[lane] = r1
            W[LANES + lane] = r2
            W[2 * LANES + lane] = b11
            W[3 * LANES + lane] = b12
            W[4 * LANES + lane] = b22
            W[10 * LANES + lane] = none
            W[11 * LANES + lane] = both
            W[12 * LANES + lane] = three
            W[13 * LANES + lane] = three + f3 * exp_lane(e3 - top)
        for lane in range(LANES):
            uniform, _ = unit_pair(np.uint64(position), row + np.uint64(lane), sweep, STREAM_OF_Z, key0, key1)
            W[13 * LANES + lane] *= uniform
        for lane in range(n):
            i, own = begin + lane, row + np.uint64(lane)
            u = W[13 * LANES + lane]
            first = (W[10 * LANES + lane] < u <= W[11 * LANES + lane]) or u > W[12 * LANES + lane]
            second = u > W[11 * LANES + lane]
            new1, new2 = 0.0, 0.0
            if first or second:
                new1, new2 = pair_loadings(
                    first, second, W[lane], W[LANES + lane], W[2 * LANES + lane], W[3 * LANES + lane],
                    W[4 * LANES + lane], W[5 * LANES + lane], W[8 * LANES + lane], W[9 * LANES + lane],
                    position, own, sweep, key0, key1,
                )  # fmt: skip
            Z[i, k], Z[i, q] = first, second
            L[i, k], L[i, q] = new1, new2
            B[i, k], B[i, q] = t11 * B[i, k] + t12 * B[i, q], t21 * B[i, k] + t22 * B[i, q]


@njit(**STRICT)
def pair_loadings(first, second, r1, r2, b11, b12, b22, det, a1, a2, position, row, sweep, key0, key1):
    """l of two factors given which of them are active."""
    n1, n2 = 0.0, 0.0
    if first:
        n1 = normal(np.uint64(2 * position), row, sweep, STREAM_OF_L, key0, key1)
    if second:
        n2 = normal(np.uint64(2 * position + 1), row, sweep, STREAM_OF_L, key0, key1)
    q1, q2 = b11 + a1, b22 + a2
    if first and second:
        # Through Q = C C', as the oracle has it.
        root = math.sqrt(q1)
        low = b12 / root
        corner = math.sqrt(a2 + (det + a1 * b22) / q1)
        z1 = r1 / root
        new2 = ((r2 - low * z1) / corner + n2) / corner
        return (z1 + n1 - low * new2) / root, new2
    if first:
        return r1 / q1 + n1 / math.sqrt(q1), 0.0
    return 0.0, r2 / q2 + n2 / math.sqrt(q2)


@njit(**STRICT)
def turned_prior(phi, alpha, hyper, k, q, point):
    """log density of two slab precisions in the expanded model after an orthogonal change of the pair (2.19c)."""
    if phi.shape[0] == 0:
        return 0.0
    t11, t12, t21, t22 = point[0], point[1], point[2], point[3]
    first = t11 * t11 * phi[k, k] + 2.0 * t11 * t12 * phi[k, q] + t12 * t12 * phi[q, q]
    second = t21 * t21 * phi[k, k] + 2.0 * t21 * t22 * phi[k, q] + t22 * t22 * phi[q, q]
    total = 0.0
    for v in range(alpha.shape[1]):
        total -= hyper[v, 0] * math.log(first * second) + hyper[v, 1] * (alpha[k, v] / first + alpha[q, v] / second)
    return total


@njit(**STRICT)
def turn_square(A, k, q, point):
    """A (K, K) after an orthogonal change of a pair of its rows and of its columns."""
    t11, t12, t21, t22 = point[0], point[1], point[2], point[3]
    for m in range(A.shape[0]):
        A[k, m], A[q, m] = t11 * A[k, m] + t12 * A[q, m], t21 * A[k, m] + t22 * A[q, m]
    for m in range(A.shape[0]):
        A[m, k], A[m, q] = t11 * A[m, k] + t12 * A[m, q], t21 * A[m, k] + t22 * A[m, q]


@njit(**STRICT)
def turn_columns(columns, k, q, point):
    """The activations after an orthogonal change of a pair, and their products."""
    t11, t12, t21, t22 = point[0], point[1], point[2], point[3]
    F, by_sample, weighted, gram, _, phi, _ = columns
    for j in range(F.shape[1]):
        F[k, j], F[q, j] = t11 * F[k, j] + t12 * F[q, j], t21 * F[k, j] + t22 * F[q, j]
        by_sample[j, k], by_sample[j, q] = F[k, j], F[q, j]
        weighted[j, k], weighted[j, q] = (
            t11 * weighted[j, k] + t12 * weighted[j, q],
            t21 * weighted[j, k] + t22 * weighted[j, q],
        )
    turn_square(gram, k, q, point)
    turn_square(phi, k, q, point)


@njit(**STRICT)
def set_turn(point, angle, swap):
    """A rotation, after an exchange or none."""
    c, s = math.cos(angle), math.sin(angle)
    point[0], point[1], point[2], point[3], point[4] = c, s, -s, c, 0.0
    if swap:
        point[0], point[1], point[2], point[3], point[4] = s, c, c, -s, 1.0


each_pair_densities = over_rows(pair_densities)
each_pair_draw = over_rows(pair_draw)
each_pair_terms = over_rows(pair_terms)


@njit(**STRICT)
def rotate_pairs(run, parts, rows, sums, columns, alpha, hyper, pairs, swaps, log_height, bracket, angles, stream):
    """Exchange, then turn, each pair of factors, and draw its columns of (Z, L); all in place.

    alpha: (K, V), hyper: (V, 2 or more) shape and rate of its prior.
    """
    points, found, angle_of = np.empty((2 * BATCH, 5)), np.empty(2 * BATCH), np.empty(2 * BATCH)
    for p in range(pairs.shape[0]):
        k, q = pairs[p, 0], pairs[p, 1]
        each_pair_terms(run, parts, rows, columns, alpha, k, q)
        swap = False
        if swaps[p] < 1.0:
            set_turn(points[0], 0.0, False)
            set_turn(points[1], 0.0, True)
            each_pair_densities(run, parts, rows, points, 2)
            add_sums(sums, found)
            change = found[1] - found[0]
            if change > -700.0:
                swap = swaps[p] * (1.0 + math.exp(-change)) < 1.0
            if swap:
                for v in range(alpha.shape[1]):
                    alpha[k, v], alpha[q, v] = alpha[q, v], alpha[k, v]
        low = -math.pi * bracket[p]
        high = low + math.pi
        # Which angles are tried does not depend on their densities, so several are looked at together.
        height, chosen, tried = -math.inf, 0.0, 0
        angle_of[0], n = 0.0, 1
        while tried < angles.shape[1]:
            begin = n
            while n < begin + BATCH and tried < angles.shape[1]:
                angle = low + angles[p, tried] * (high - low)
                if angle < 0.0:
                    low = angle
                else:
                    high = angle
                angle_of[n] = angle
                n += 1
                tried += 1
            for at in range(n):
                set_turn(points[at], angle_of[at], swap)
            each_pair_densities(run, parts, rows, points, n)
            add_sums(sums, found)
            for at in range(n):
                found[at] += turned_prior(columns.phi, alpha, hyper, k, q, points[at])
            if begin == 1:
                height = found[0] + log_height[p]
            done = False
            for at in range(begin, n):
                if not done and found[at] > height:
                    chosen, done = angle_of[at], True
            if done:
                break
            n = 0
        set_turn(points[0], chosen, swap)
        each_pair_draw(run, parts, rows, k, q, points[0], p, stream)
        turn_columns(columns, k, q, points[0])
