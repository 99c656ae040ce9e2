"""Slab precisions and inclusion rates, drawn with a factor's column of loadings integrated out (docs/math.md, 2.15)."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math

import numpy as np

from ..contract import ALPHA_WIDTH, RATE_WIDTH
from .compiled import EXACT, OPTIONS, njit
from .rotate import LARGE, SMALL, scaled


@njit(**EXACT)
def log_target(x, y, r, squared, odds, learnt, hyper):
    """log density of log alpha = x and logit pi = y; odds: (1 or G,) given log odds, used where pi is not learnt.

    hyper: a_alpha, b_alpha, a_pi, b_pi.
    """
    G = r.shape[0]
    alpha = math.exp(x)
    total = hyper[0] * x - hyper[1] * alpha
    own = y
    if learnt:
        # log(1 - pi) once for every row and b_pi times for the prior; log pi = log(1 - pi) + y.
        log_out = -(max(y, 0.0) + math.log1p(math.exp(-abs(y))))
        total += hyper[2] * (log_out + y) + (hyper[3] + G) * log_out
    product = 1.0
    for i in range(G):
        if not learnt:
            own = odds[i if odds.shape[0] > 1 else 0]
        c = squared[i] + alpha
        exponent = own + 0.5 * r[i] * (r[i] / c)
        top = max(exponent, 0.0)
        total += top
        product *= scaled(1.0, -top) + scaled(math.sqrt(alpha / c), exponent - top)
        if product > LARGE or product < SMALL:
            total += math.log(product)
            product = 1.0
    return total + math.log(product)


@njit(**EXACT)
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


@njit(**EXACT)
def slice_step(along, x, y, present, width, r, squared, odds, learnt, hyper, log_height, bracket, tries):
    """A step along x (0) or y (1) by slice sampling in a bracket that shrinks; the new value and its log density."""
    height = present + log_height
    low = -width * bracket
    high = low + width
    for t in range(tries.shape[0]):
        step = low + tries[t] * (high - low)
        new_x, new_y = (x + step, y) if along == 0 else (x, y + step)
        value = log_target(new_x, new_y, r, squared, odds, learnt, hyper)
        if value > height:
            return step, value
        if step < 0.0:
            low = step
        else:
            high = step
    return 0.0, present


@njit(**OPTIONS)
def column_terms(k, E, observed, L, F, tau, weight, r, squared):
    """(G,) linear terms and squares of l_k given all else, without the slab's precision."""
    G, N = E.shape
    masked = observed.shape[0] > 0
    whole = 0.0
    for j in range(N):
        whole += weight[j] * F[k, j] * F[k, j]
    for i in range(G):
        product, norm = 0.0, whole
        for j in range(N):
            product += E[i, j] * (weight[j] * F[k, j])
        if masked:
            norm = 0.0
            for j in range(N):
                if observed[i, j]:
                    norm += weight[j] * F[k, j] * F[k, j]
        squared[i] = tau[i] * norm
        r[i] = tau[i] * product + squared[i] * L[i, k]


@njit(**EXACT)
def draw_columns(
    E,
    observed,
    Z,
    L,
    F,
    alpha,
    logit,
    tau,
    weight,
    learnt,
    by_group,
    first,
    hyper,
    constant,
    order,
    proposal,
    log_uniform,
    log_height,
    bracket,
    tries,
    uniform,
    normal,
):
    """For each k in `order`: alpha_k and, where rates are learnt, logit_k, by group; then z_k and l_k; all in place.

    E: (G, N) residual Y - L F, 0 where missing; observed: (G, N) or (0, 0); alpha: (K, V); logit: (V, K) where rates
    are learnt, else (1 or G, K); by_group: (G,) the rows, group after group, of which v begins at first[v];
    hyper: (V, 4); constant: (V, 3).
    """
    G, N = E.shape
    masked, per_row = observed.shape[0] > 0, logit.shape[0] > 1 and not learnt
    r, squared, linear, norm, odds = np.empty((5, G))
    for d in range(order.shape[0]):
        k = order[d]
        column_terms(k, E, observed, L, F, tau, weight, r, squared)
        for p in range(G):
            i = by_group[p]
            linear[p], norm[p] = r[i], squared[i]
            odds[p] = logit[i if per_row else 0, k]
        for v in range(alpha.shape[1]):
            begin, end = first[v], first[v + 1]
            size = end - begin
            own = (linear[begin:end], norm[begin:end], odds[begin : end if per_row else begin + 1], learnt, hyper[v])
            x, y = math.log(alpha[k, v]), logit[v, k] if learnt else odds[begin]
            present = log_target(x, y, *own)
            other = log_target(proposal[d, v, 0], proposal[d, v, 1], *own)
            ratio = other - log_proposal(proposal[d, v, 0], proposal[d, v, 1], size, learnt, hyper[v], constant[v])
            ratio -= present - log_proposal(x, y, size, learnt, hyper[v], constant[v])
            if log_uniform[d, v] < ratio:
                x, y, present = proposal[d, v, 0], proposal[d, v, 1], other
            for along in range(2 if learnt else 1):
                width = ALPHA_WIDTH if along == 0 else RATE_WIDTH
                chosen = (log_height[d, v, along], bracket[d, v, along], tries[d, v, along])
                step, present = slice_step(along, x, y, present, width, *own, *chosen)
                if along == 0:
                    x += step
                else:
                    y += step
            alpha[k, v] = math.exp(x)
            if learnt:
                logit[v, k] = y
            for p in range(begin, end):
                i, slab = by_group[p], alpha[k, v]
                c = squared[i] + slab
                log_odds = (y if learnt else odds[p]) + 0.5 * math.log(slab / c) + 0.5 * r[i] * (r[i] / c)
                included = uniform[d, i] < 1.0 / (1.0 + math.exp(-log_odds)) if log_odds > -700.0 else False
                new = r[i] / c + normal[d, i] / math.sqrt(c) if included else 0.0
                change = new - L[i, k]
                Z[i, k], L[i, k] = included, new
                if change != 0.0:
                    for j in range(N):
                        if not masked or observed[i, j]:
                            E[i, j] -= change * F[k, j]
