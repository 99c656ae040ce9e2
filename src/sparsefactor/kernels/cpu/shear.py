"""Shears of factors along one whose loadings are integrated out (math.md, 2.11)."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from .compiled import STRICT, njit
from .lanes import log_lane
from .moves import add_sums, added, column_terms, draw_loadings, log_one_and, over_rows

R, SQUARE, OFFSET, PRECISION, L_K = range(5)  # the rows of `terms`


@njit(**STRICT)
def shear_terms(first_tile, last_tile, rows, columns, alpha, q):
    """Of l_iq given all else; the tiles' sums of log(1 + odds)."""
    column_terms(first_tile, last_tile, rows, columns, alpha, q)
    G, values = rows.L.shape[0], np.empty(rows.tile)
    for t in range(first_tile, last_tile):
        part, terms = slice(t * rows.tile, min((t + 1) * rows.tile, G)), rows.terms
        r, square, offset, precision = terms[R, part], terms[SQUARE, part], terms[OFFSET, part], terms[PRECISION, part]
        for i in range(len(r)):
            offset[i] -= 0.5 * log_lane(square[i] / precision[i] + 1.0)
        for i in range(len(r)):
            precision[i] += square[i]
        for i in range(len(r)):
            values[i] = log_one_and(1.0, offset[i] + 0.5 * r[i] * (r[i] / precision[i]))
        rows.sums[t, 0] = added(values, len(r))


@njit(**STRICT)
def load_factor(first_tile, last_tile, rows, k):
    """l_ik, one row after another."""
    begin, end = first_tile * rows.tile, min(last_tile * rows.tile, rows.L.shape[0])
    L, out = rows.L[begin:end], rows.terms[L_K, begin:end]
    for i in range(len(out)):
        out[i] = L[i, k]


@njit(**STRICT)
def shear_densities(first_tile, last_tile, rows, steps, n):
    """Of n shears of the loaded factor: what the likelihood gains, and then the sums of log(1 + odds)."""
    G, gains, values = rows.L.shape[0], np.empty(rows.tile), np.empty(rows.tile)
    for t in range(first_tile, last_tile):
        part, terms = slice(t * rows.tile, min((t + 1) * rows.tile, G)), rows.terms
        r, square, l = terms[R, part], terms[SQUARE, part], terms[L_K, part]
        offset, precision = terms[OFFSET, part], terms[PRECISION, part]
        for at in range(n):
            e = steps[at]
            for i in range(len(r)):
                step = e * l[i]
                change = step * square[i]
                new = r[i] - change
                gains[i] = step * (r[i] - 0.5 * change)
                values[i] = log_one_and(1.0, offset[i] + 0.5 * new * (new / precision[i]))
            rows.sums[t, 2 * at] = added(gains, len(r))
            rows.sums[t, 2 * at + 1] = added(values, len(r))


@njit(**STRICT)
def shear_rows(first_tile, last_tile, rows, k, q, e):
    """The rows after f_k -> f_k + e f_q."""
    begin, end = first_tile * rows.tile, min(last_tile * rows.tile, rows.L.shape[0])
    part, terms, B = slice(begin, end), rows.terms, rows.B[begin:end]
    r, square, l = terms[R, part], terms[SQUARE, part], terms[L_K, part]
    for i in range(len(r)):
        r[i] -= e * l[i] * square[i]
        B[i, k] += e * B[i, q]


@njit(**STRICT)
def prior_change(columns, slab, hyper, k, q, e):
    """The log prior of the columns after f_k -> f_k + e f_q less that before it: of activations (2.11), or of their
    covariance in the expanded model and of slab precisions (2.19c). slab: (V,) of k; hyper: (V, 2 or more)."""
    phi, inverse = columns.phi, columns.inverse
    if phi.shape[0] == 0:
        return -e * columns.plain[k, q] - 0.5 * e * e * columns.plain[q, q]
    before = phi[k, k]
    after = before + e * (2.0 * phi[k, q] + e * phi[q, q])
    change = e * inverse[k, q] - 0.5 * e * e * inverse[k, k]
    for v in range(slab.shape[0]):
        change -= hyper[v, 0] * math.log(after / before) + hyper[v, 1] * slab[v] * (1.0 / after - 1.0 / before)
    return change


@njit(**STRICT)
def shear_columns(columns, k, q, e):
    """The activations after f_k -> f_k + e f_q, and their products."""
    F, by_sample, weighted, gram, plain, phi, inverse = columns
    for j in range(F.shape[1]):
        F[k, j] += e * F[q, j]
        by_sample[j, k] = F[k, j]
        weighted[j, k] += e * weighted[j, q]
    for m in range(F.shape[0]):
        gram[k, m] += e * gram[q, m]
        plain[k, m] += e * plain[q, m]
    for m in range(F.shape[0]):
        gram[m, k] += e * gram[m, q]
        plain[m, k] += e * plain[m, q]
    for m in range(phi.shape[0]):
        phi[k, m] += e * phi[q, m]
        inverse[q, m] -= e * inverse[k, m]
    for m in range(phi.shape[0]):
        phi[m, k] += e * phi[m, q]
        inverse[m, q] -= e * inverse[m, k]


@njit(**STRICT)
def shear_draw(first_tile, last_tile, rows, q, position, stream):
    """z and l of the factor that was sheared along."""
    part, terms = slice(first_tile * rows.tile, min(last_tile * rows.tile, rows.L.shape[0])), rows.terms
    r, offset, precision = terms[R, part], terms[OFFSET, part], terms[PRECISION, part]
    for i in range(len(r)):
        offset[i] += 0.5 * r[i] * (r[i] / precision[i])
    draw_loadings(first_tile, last_tile, rows, q, position, stream, R, PRECISION, OFFSET)


each_load_factor = over_rows(load_factor)
each_shear_densities = over_rows(shear_densities)
each_shear_draw = over_rows(shear_draw)
each_shear_rows = over_rows(shear_rows)
each_shear_terms = over_rows(shear_terms)


@njit(**STRICT)
def shear_directions(run, parts, rows, sums, columns, alpha, hyper, batch, order, step, log_uniform, stream):
    """For each q in `order`: shear every other factor along it, then draw its loadings; all in place.

    alpha: (K, V), hyper: (V, 2 or more) shape and rate of its prior. batch: shears of one factor that are looked at
    together, in vain where one before them is taken.
    """
    found, steps = np.empty(sums.shape[1]), np.empty(batch)
    K, P = step.shape[1:]
    for d in range(order.shape[0]):
        q = order[d]
        each_shear_terms(run, parts, rows, columns, alpha, q)
        add_sums(sums, found)
        present = found[0]
        for k in range(K):
            if k == q:
                continue
            each_load_factor(run, parts, rows, k)
            p = 0
            while p < P:
                n = min(batch, P - p)
                for at in range(n):
                    steps[at] = step[d, k, p + at]
                each_shear_densities(run, parts, rows, steps, n)
                add_sums(sums, found)
                taken = n
                for at in range(n):
                    e = steps[at]
                    ratio = found[2 * at] + found[2 * at + 1] - present
                    ratio = ratio + prior_change(columns, alpha[k], hyper, k, q, e)
                    if taken == n and log_uniform[d, k, p + at] < ratio:
                        taken = at
                if taken < n:
                    present = found[2 * taken + 1]
                    each_shear_rows(run, parts, rows, k, q, steps[taken])
                    shear_columns(columns, k, q, steps[taken])
                    taken += 1
                p += taken
        each_shear_draw(run, parts, rows, q, d, stream)
