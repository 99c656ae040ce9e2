"""A whole sweep of Gibbs sampling of small, complete data without Python in between: the moves, the row pass and the
activations, each by its own kernel (math.md, section 2)."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..contract import Array
from .column import draw_columns
from .columns import draw_shared, factor_precision
from .compiled import EXACT, OPTIONS, STRICT, ZERO, njit
from .correlation import invert_correlation
from .gibbs_rows import GibbsMessage, GibbsScratch, gibbs_scratch, gibbs_tiles
from .moves import BATCH, FIELDS, MoveColumns, MoveRows, open_rows
from .precision import draw_precisions, weighted_sums
from .rotate import rotate_pairs
from .sample_lanes import draw_each
from .shear import shear_directions
from .tiles import Problem, TileSums, add_tiles, empty_tile_sums

LEAST = float(np.finfo(np.float64).tiny)  # a precision of zero is no precision
LEAST_ODDS, MOST_ODDS = -690.0, 36.0  # of rates that differ from 0 and 1


class Slab(NamedTuple):
    """What moves need of the prior, as draw_columns takes it."""

    learnt: bool  # whether inclusion rates are
    sizes: Array  # (1,)
    hyper: Array  # (1, 4)
    constant: Array  # (1, 3)


class SweepSpace(NamedTuple):
    """A sweep's working space, which a sweep leaves as it happens to be."""

    rows: MoveRows
    columns: MoveColumns
    sums: Array  # (tiles, 2 BATCH) those of `rows`
    product: Array  # (tile, K)
    alpha: Array  # (K, 1)
    by_row: Array  # (1, K) the same, as the row pass reads it
    rates: Array  # (1, K) log odds: rows.logit where rates are learnt
    scale: Array  # (K,) ones
    weight: Array  # (N,)
    C: Array  # (tiles, K, N)
    M: Array  # (tiles, K, K)
    state: Array  # (2, K, K)
    prior: Array  # (K, K) prior precision of the activations
    tiles: TileSums
    scratch: GibbsScratch
    message: GibbsMessage
    no_share: Array  # (0, K, K)


def sweep_space(problem: Problem, K: int, logit_rows: int, correlated: bool) -> SweepSpace:
    """logit_rows: 1, or as many as there are rows, where each has log odds of its own."""
    (G, N), tile = problem.Y.shape, problem.tile
    n_tiles = -(-G // tile)
    sums, logit, by_row = np.empty((n_tiles, 2 * BATCH)), np.empty((logit_rows, K)), np.empty((1, K))
    rows = MoveRows(
        first=problem.first,
        tile=tile,
        start=problem.start,
        columns=problem.columns,
        lists_missing=problem.lists_missing,
        Z=np.empty((G, K), np.int8),
        L=np.empty((G, K)),
        tau=np.empty(G),
        B=np.empty((G, K)),
        group=problem.group,
        logit=logit,
        terms=np.empty((FIELDS, G)),
        sums=sums,
    )
    grams, wide = np.empty((2, K, K)), (2, K, K) if correlated else (2, 0, 0)
    own = np.empty((K, N)), np.empty((N, K)), np.empty((N, K))
    columns = MoveColumns(*own, grams[0], grams[1], *np.empty(wide))
    message = GibbsMessage(
        F=columns.weighted,
        gram=columns.gram,
        share=np.zeros((0, 1)),
        packed_gram=np.zeros((1, 1)),
        alpha=by_row,
        logit=logit,
        logit_row=np.arange(G) if logit_rows > 1 else np.zeros(0, np.int64),
        scale=np.ones(K),
    )
    return SweepSpace(
        rows=rows,
        columns=columns,
        sums=sums,
        product=np.empty((tile, K)),
        alpha=np.empty((K, 1)),
        by_row=by_row,
        rates=logit if logit_rows == 1 else np.zeros((1, K)),
        scale=np.ones(K),
        weight=np.empty(N),
        C=np.empty((n_tiles, K, N)),
        M=np.empty((n_tiles, K, K)),
        state=np.empty((2, K, K)),
        prior=np.eye(K),
        tiles=empty_tile_sums(n_tiles, N, K, 1),
        scratch=gibbs_scratch(problem.Y, tile, K, False),
        message=message,
        no_share=np.zeros((0, K, K)),
    )


@njit(**STRICT)
def open_columns(columns, weight):
    """The products of F that moves and rows need."""
    F, by_sample, weighted, gram, plain, _, _ = columns
    for k in range(F.shape[0]):
        for j in range(F.shape[1]):
            by_sample[j, k] = F[k, j]
            weighted[j, k] = F[k, j] * weight[j]
    np.dot(F, weighted, gram)
    np.dot(F, by_sample, plain)


@njit(**STRICT)
def open_small(problem, space):
    """Rows and columns before a move."""
    open_columns(space.columns, space.weight)
    rows, n_tiles = space.rows, space.sums.shape[0]
    open_rows(ZERO, n_tiles, rows, problem.Y, rows.Z, rows.L, space.columns.weighted, space.scale, space.product)


@njit(**OPTIONS)
def draw_own_parts(problem, space, noise):
    """The move of 2.16 and 2.17 on rows and activations as they are."""
    start, n_rows, stream, normal = noise
    rows, C, M = space.rows, space.C, space.M
    n_tiles, _, N = C.shape
    G = rows.L.shape[0]
    weighted_sums(ZERO, n_tiles, problem, rows.L, rows.tau, C, M)
    step = 1
    while step < n_tiles:
        for t in range(0, n_tiles - step, 2 * step):
            C[t] += C[t + step]
            M[t] += M[t + step]
        step *= 2
    LY, LL = C[0], M[0]
    LL += space.prior
    first = min(start + n_rows, G)
    Z, L, tau, logit, alpha, state = rows.Z, rows.L, rows.tau, rows.logit, space.alpha, space.state
    draw_precisions(start, first, ZERO, problem, Z, L, tau, LY, LL, state, alpha, logit, stream)
    last = min(start + n_rows - G, start)  # the first rows come after the last
    draw_precisions(ZERO, last, first - start, problem, Z, L, tau, LY, LL, state, alpha, logit, stream)
    LL -= space.prior
    draw_shared(LY, LL, np.ones(N), space.prior, normal, space.columns.F)


@njit(**STRICT)
def load_small(space, before, columns):
    """Rows and columns before a sweep, at scale one, into the working space."""
    rows, own = space.rows, space.columns
    (G, K), N = rows.L.shape, own.F.shape[1]
    for i in range(G):
        rows.tau[i] = before[2][i]
        for k in range(K):
            rows.Z[i, k] = before[0][i, k]
            rows.L[i, k] = before[1][i, k] * columns[4][k]
    for i in range(rows.logit.shape[0]):
        for k in range(K):
            rows.logit[i, k] = columns[2][i, k]
    for k in range(K):
        space.alpha[k, 0] = columns[1][k]
        for j in range(N):
            own.F[k, j] = columns[0][k, j]
    for j in range(N):
        space.weight[j] = columns[3][j]


@njit(**STRICT)
def rescale_small(space, d):
    """Activations times d, (K,), and what follows from that (gibbs/correlation.py, as what else is made of phi)."""
    L, F, phi = space.rows.L, space.columns.F, space.columns.phi
    for k in range(F.shape[0]):
        for j in range(F.shape[1]):
            F[k, j] *= d[k]
        space.alpha[k, 0] *= d[k] * d[k]
        for m in range(F.shape[0]):
            phi[k, m] *= d[k] * d[m]
    for i in range(L.shape[0]):
        for k in range(L.shape[1]):
            L[i, k] /= d[k]


@njit(**STRICT)
def expand_small(space, gamma):
    """Into the expanded model at scales from their prior (2.19a), where factors are correlated."""
    phi, inverse = space.columns.phi, space.columns.inverse
    if phi.shape[0] == 0:
        return
    invert_correlation(phi, inverse)
    d = np.empty(phi.shape[0])
    for k in range(len(d)):
        d[k] = math.sqrt(0.5 * inverse[k, k] / gamma[k])
    rescale_small(space, d)
    for k in range(len(d)):
        for m in range(len(d)):
            inverse[k, m] /= d[k] * d[m]


@njit(**STRICT)
def contract_small(space):
    """Back to scales of one."""
    phi = space.columns.phi
    if phi.shape[0] == 0:
        return
    d = np.empty(phi.shape[0])
    for k in range(len(d)):
        d[k] = 1.0 / math.sqrt(phi[k, k])
    rescale_small(space, d)
    for k in range(len(d)):
        phi[k, k] = 1.0
        for m in range(k):
            phi[k, m] = 0.5 * (phi[k, m] + phi[m, k])
            phi[m, k] = phi[k, m]


@njit(**EXACT)
def log_weight(sigma, inverse, power, penalty):
    """Of Sigma in (2.19b); its inverse goes into `inverse`."""
    total = power * invert_correlation(sigma, inverse)
    for k in range(sigma.shape[0]):
        total += penalty[k] * (inverse[k, k] - 1.0 / sigma[k, k]) - power * math.log(sigma[k, k])
    return total


@njit(**EXACT)
def draw_correlation_small(space, hyper, noise):
    """Phi and the factors' scales given the rest (2.19b)."""
    expand_small(space, noise.scales[0])
    F, sigma, inverse = space.columns.F, space.columns.phi, space.columns.inverse
    K, power = F.shape[0], hyper[0, 0]
    penalty, prior, C, new = np.empty(K), np.eye(K), np.empty((K, K)), np.zeros((K, K))
    for k in range(K):
        penalty[k] = hyper[0, 1] * space.alpha[k, 0]
        prior[k, k] += 2.0 * penalty[k]
    factor_precision(np.dot(F, F.T), 1.0, prior, C)
    half = np.zeros((K, K))  # B^-1 C', where B is the Bartlett factor of a Wishart matrix
    for a in range(K):
        for m in range(a, K):
            half[a, m] = C[m, a]
        for e in range(a):
            for m in range(K):
                half[a, m] -= noise.normal[a, e] * half[e, m]
        for m in range(K):
            half[a, m] /= math.sqrt(2.0 * noise.gamma[a])
    for a in range(K):
        for k in range(K):
            for m in range(K):
                new[k, m] += half[a, k] * half[a, m]
    before = log_weight(sigma, inverse, power, penalty)
    if noise.log_uniform < log_weight(new, inverse, power, penalty) - before:
        sigma[:] = new
    contract_small(space)


@njit(**STRICT)
def turn_small(problem, space, hyper, rotation, shear, scales):
    """The moves of 2.10 and 2.11, of which each may be made or not; scales: (3, K), the last two theirs (2.19a)."""
    rows, own, n_tiles = space.rows, space.columns, space.sums.shape[0]
    if rotation.pairs.shape[0] > 0:
        expand_small(space, scales[1])
        open_small(problem, space)
        rotate_pairs(None, n_tiles, rows, space.sums, own, space.alpha, hyper, *rotation[:])
        contract_small(space)
    if shear.order.shape[0] > 0:
        expand_small(space, scales[2])
        open_small(problem, space)
        shear_directions(None, n_tiles, rows, space.sums, own, space.alpha, hyper, 1, *shear[:])
        contract_small(space)


@njit(**STRICT)
def pass_small(problem, space, weight, power, stream, after, LY, LL, small):
    """The row pass, and its sums."""
    rows, own, n_tiles = space.rows, space.columns, space.sums.shape[0]
    for k in range(rows.L.shape[1]):
        space.by_row[0, k] = space.alpha[k, 0]
    for j in range(own.F.shape[1]):
        space.weight[j] = power * weight[j]
    open_columns(own, space.weight)
    gibbs_tiles(
        ZERO, n_tiles, problem, space.message, (rows.Z, rows.L, rows.tau), after, stream, space.tiles, space.scratch
    )
    add_tiles(space.tiles, LY, LL, small)


@njit(**STRICT)
def largest_of(F):
    """Without sign; infinite where one is no number."""
    largest = 0.0
    for k in range(F.shape[0]):
        for j in range(F.shape[1]):
            largest = max(largest, abs(F[k, j]))
            if not abs(F[k, j]) <= largest:
                return np.inf
    return largest


@njit(**STRICT)
def tell_small(F, LY, LL, told):
    """What F explains of each sample, its sums of squares, and its largest entry, infinite where one is no number."""
    K, N = F.shape
    for k in range(K):
        told[N + k] = 0.0
        for j in range(N):
            told[N + k] += F[k, j] * F[k, j]
    told[N + K] = largest_of(F)
    for j in range(N):
        taken = 0.0
        for k in range(K):
            inner = 2.0 * LY[k, j]
            for m in range(K):
                inner -= LL[k, m] * F[m, j]
            taken += F[k, j] * inner
        told[j] = taken


@njit(**STRICT)
def small_sweep(
    problem, space, before, columns, phi, power, each, slab, moves, stream, normal, after, F, LY, LL, small, told
):
    """From rows and columns before to rows after and F, with the sums of that draw.

    before, after: (Z, L, tau); columns: F, alpha (K,), logit, weight, scale; phi: (K, K), drawn in place, or (0, 0);
    each: whether samples differ in weight;
    moves: their noise, empty for those that are not made; small: as add_tiles leaves it; told: (N + K + 1,) as
    `tell_small` leaves it.
    """
    rows, own, n_tiles = space.rows, space.columns, space.sums.shape[0]
    K, N = F.shape
    rotation, shear, column, precision, correlation = moves
    load_small(space, before, columns)
    own.phi[:] = phi
    if correlation.gamma.shape[0] > 0:
        draw_correlation_small(space, slab.hyper, correlation)
    turn_small(problem, space, slab.hyper, rotation, shear, correlation.scales)
    if phi.shape[0] > 0:
        phi[:] = own.phi
        invert_correlation(phi, space.prior)
    if column.order.shape[0] > 0:
        open_small(problem, space)
        draw_columns(None, n_tiles, rows, space.sums, own, space.alpha, space.rates, *slab[:], *column[:])
        for k in range(K):
            space.alpha[k, 0] = max(space.alpha[k, 0], LEAST)
            if slab.learnt:
                space.rates[0, k] = min(max(space.rates[0, k], LEAST_ODDS), MOST_ODDS)
    if precision.n_rows > 0:
        draw_own_parts(problem, space, precision)
    pass_small(problem, space, columns[3], power, stream, after, LY, LL, small)
    if each:
        draw_each(ZERO, N, LY, LL, space.no_share, space.weight, space.prior, normal, F)
    else:
        draw_shared(LY, LL, space.weight, space.prior, normal, F)
    tell_small(F, LY, LL, told)
