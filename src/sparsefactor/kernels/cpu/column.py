"""Slab precisions and inclusion rates, drawn with a factor's column of loadings integrated out (math.md, 2.15)."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from ..contract import ALPHA_WIDTH, RATE_WIDTH
from .compiled import STRICT, njit
from .lanes import log_lane
from .moves import BATCH, add_sums, added, column_terms, draw_loadings, load_precision, log_one_and, over_rows

R, SQUARE, ODDS, PRECISION, OWN = range(5)  # the rows of `terms`


@njit(**STRICT)
def choose_group(first_tile, last_tile, rows, v):
    """Which rows are in group v: 1 or 0."""
    part = slice(first_tile * rows.tile, min(last_tile * rows.tile, rows.L.shape[0]))
    own, group = rows.terms[OWN, part], rows.group[part]
    for i in range(len(own)):
        own[i] = 1.0 if group[i] == v else 0.0


@njit(**STRICT)
def column_densities(first_tile, last_tile, rows, points, n, learnt):
    """The rows' part of the log density of n pairs (log alpha, logit pi) of the chosen group; points: (n, 2)."""
    G = rows.L.shape[0]
    given = 0.0 if learnt else 1.0
    values = np.empty(rows.tile)
    for t in range(first_tile, last_tile):
        part, terms = slice(t * rows.tile, min((t + 1) * rows.tile, G)), rows.terms
        r, square, odds, own = terms[R, part], terms[SQUARE, part], terms[ODDS, part], terms[OWN, part]
        for at in range(n):
            alpha = math.exp(points[at, 0])
            rate = points[at, 1] if learnt else 0.0
            for i in range(len(r)):
                p = 1.0 / (square[i] + alpha)
                values[i] = own[i] * log_one_and(np.sqrt(alpha * p), rate + given * odds[i] + 0.5 * r[i] * (r[i] * p))
            rows.sums[t, at] = added(values, len(r))


@njit(**STRICT)
def column_draw(first_tile, last_tile, rows, k, alpha, rates, learnt, position, stream):
    """z and l of a factor given its precisions and rates by group; alpha: (K, V), rates: (V, K)."""
    begin, end = first_tile * rows.tile, min(last_tile * rows.tile, rows.L.shape[0])
    load_precision(begin, end, rows, alpha, k, PRECISION)
    terms, group = rows.terms, rows.group[begin:end]
    r, square, odds = terms[R, begin:end], terms[SQUARE, begin:end], terms[ODDS, begin:end]
    precision = terms[PRECISION, begin:end]
    if learnt:
        for i in range(len(r)):
            odds[i] = rates[group[i], k]
    for i in range(len(r)):
        odds[i] -= 0.5 * log_lane(square[i] / precision[i] + 1.0)
    for i in range(len(r)):
        precision[i] += square[i]
    for i in range(len(r)):
        odds[i] += 0.5 * r[i] * (r[i] / precision[i])
    draw_loadings(first_tile, last_tile, rows, k, position, stream, R, PRECISION, ODDS)


@njit(**STRICT)
def prior_part(x, y, G, learnt, hyper):
    """The log density of log alpha = x and logit pi = y but for the rows. hyper: a_alpha, b_alpha, a_pi, b_pi."""
    total = hyper[0] * x - hyper[1] * math.exp(x)
    if learnt:
        # log(1 - pi) once for every row and b_pi times for the prior; log pi = log(1 - pi) + y.
        log_out = -(max(y, 0.0) + math.log1p(math.exp(-abs(y))))
        total += hyper[2] * (log_out + y) + (hyper[3] + G) * log_out
    return total


@njit(**STRICT)
def log_proposal(x, y, G, learnt, hyper, constant):
    """log density of the proposal: half as an empty factor has it, half of large precision and any rate.

    constant: lgamma(a_alpha), log B(a_pi, b_pi), log B(a_pi, b_pi + G).
    """
    alpha = math.exp(x)
    empty = hyper[0] * (math.log(hyper[1]) + x) - hyper[1] * alpha - constant[0]
    faint = math.log(hyper[1]) + x - hyper[1] * alpha
    if learnt:
        log_out = -(max(y, 0.0) + math.log1p(math.exp(-abs(y))))
        empty += hyper[2] * (log_out + y) + (hyper[3] + G) * log_out - constant[2]
        faint += hyper[2] * (log_out + y) + hyper[3] * log_out - constant[1]
    top = max(empty, faint)
    return top + math.log(math.exp(empty - top) + math.exp(faint - top)) - math.log(2.0)


each_choose_group = over_rows(choose_group)
each_column_densities = over_rows(column_densities)
each_column_draw = over_rows(column_draw)
each_column_terms = over_rows(column_terms)


@njit(**STRICT)
def draw_columns(
    run, parts, rows, sums, columns, alpha, rates, learnt, sizes, hyper, constant,
    order, proposal, log_uniform, log_height, bracket, tries, stream,
):  # fmt: skip
    """For each k in `order`: alpha_k and, where they are learnt, rates_k of each group; then z_k and l_k; in place.

    alpha: (K, V), rates: (V, K) logit pi, sizes: (V,) of the groups, hyper: (V, 4), constant: (V, 3).
    """
    points, found, at = np.empty((BATCH, 2)), np.empty(sums.shape[1]), np.empty(2)
    V = alpha.shape[1]
    for d in range(order.shape[0]):
        k = order[d]
        each_column_terms(run, parts, rows, columns, alpha, k)
        for v in range(V):
            if V > 1 or d == 0:
                each_choose_group(run, parts, rows, v)
            G = sizes[v]
            at[0], at[1] = math.log(alpha[k, v]), rates[v, k]
            points[0, 0], points[0, 1] = at[0], at[1]
            points[1, 0], points[1, 1] = proposal[d, v, 0], proposal[d, v, 1]
            each_column_densities(run, parts, rows, points, 2, learnt)
            add_sums(sums, found)
            present = found[0] + prior_part(at[0], at[1], G, learnt, hyper[v])
            other = found[1] + prior_part(points[1, 0], points[1, 1], G, learnt, hyper[v])
            ratio = other - log_proposal(points[1, 0], points[1, 1], G, learnt, hyper[v], constant[v])
            ratio = ratio - (present - log_proposal(at[0], at[1], G, learnt, hyper[v], constant[v]))
            if log_uniform[d, v] < ratio:
                at[0], at[1], present = points[1, 0], points[1, 1], other
            for along in range(2 if learnt else 1):
                width = ALPHA_WIDTH if along == 0 else RATE_WIDTH
                height = present + log_height[d, v, along]
                low = -width * bracket[d, v, along]
                high = low + width
                tried, done = 0, False
                # Which points are tried does not depend on their densities, so several are looked at together.
                while tried < tries.shape[3] and not done:
                    n = 0
                    while n < BATCH and tried < tries.shape[3]:
                        step = low + tries[d, v, along, tried] * (high - low)
                        if step < 0.0:
                            low = step
                        else:
                            high = step
                        points[n, 0], points[n, 1] = at[0], at[1]
                        points[n, along] = at[along] + step
                        n += 1
                        tried += 1
                    each_column_densities(run, parts, rows, points, n, learnt)
                    add_sums(sums, found)
                    for m in range(n):
                        value = found[m] + prior_part(points[m, 0], points[m, 1], G, learnt, hyper[v])
                        if not done and value > height:
                            at[along], present, done = points[m, along], value, True
            alpha[k, v] = math.exp(at[0])
            if learnt:
                rates[v, k] = at[1]
        each_column_draw(run, parts, rows, k, alpha, rates, learnt, d, stream)
