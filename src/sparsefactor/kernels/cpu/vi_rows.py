"""The row pass of variational inference: q(tau_i), then q(l_ik, z_ik) for k = 1..K (math.md, 3.1 to 3.4).

Rows are independent, so LANES of them take each step together. Two identities save work. With y = A E[l], changing
E[l_k] by d changes y by d A_k and the expected residual by A_kk d^2 - 2 d (b_k - y_k), so no quadratic form is ever
taken twice. And entropy and prior of (l, z) cancel to log(1 + odds) - eta mu^2 / (2 s2) + (eta - alpha E[l^2]) / 2.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..contract import Array
from .compiled import OPTIONS, njit
from .lanes import LANES
from .packed import packed_size
from .products import beside, times, weigh
from .shares import GRAM_ROWS, row_grams
from .tiles import copy_matrix
from .vi_lanes import (
    A_KK,
    ALPHA,
    B_K,
    DELTA,
    ETA,
    FACTORS_PER_LOG,
    FIELDS,
    LOADINGS,
    MU,
    NEW,
    OLD,
    OLD_VAR,
    PRIOR,
    RSS,
    S2,
    TAU,
    VAR,
    WEIGHTED,
    Y_K,
    U,
    add_group_totals,
    add_product,
    add_totals,
    expected_rss,
    flush_logs,
    load,
    load_rows,
    multiply,
    store,
    transpose,
    update_factor,
    update_grouped_factor,
    update_tau,
)
from .vi_masked import add_row_products, by_lane, multiply_rows

FEW_FACTORS = 12  # up to here gram times lanes is a loop, not a call to BLAS (measured at 6)


class VIMessage(NamedTuple):
    """`Message` as this pass reads it."""

    F: Array  # (N, K), of Y's type
    gram: Array  # (K, K)
    share: Array  # (N*, T) packed, of Y's type
    packed_gram: Array  # (1, T)
    alpha: Array  # (K, V)
    prior: Array  # (K, 1, V or G) logit(pi) + (E[log alpha] - log E[alpha]) / 2
    prior_row: NDArray[np.int64]  # (G,) which of these a row has; (0,) where all have the same
    scale: Array  # (K,)


class FactorMajor(NamedTuple):
    """`VIRows` with the rows along the last axis, where lanes are neighbours."""

    mu: Array  # (K, G)
    s2: Array
    eta: Array
    tau: Array  # (G,)


class VIScratch(NamedTuple):
    """A thread's own working space; R rows per tile."""

    lanes: Array  # (FIELDS * LANES,)
    b: Array  # (R * K,) the tile's Y F, of Y's type
    l_mean: Array  # (K * R,) the tile's E[l]
    weighted: Array  # (K * R,) w E[l]
    narrow: Array  # (K * R,) the same in Y's type, and the same array where that is float64
    LY: Array  # (K, N) of Y's type
    b_k: Array  # (K, LANES) b of the rows being updated
    a_kk: Array  # (K, LANES) the diagonal of A
    mean: Array  # (K, LANES) E[l], first of the old state, then of the new
    var: Array  # (K, LANES)
    y_k: Array  # (K, LANES) A E[l]
    delta: Array  # (K, LANES) the change of E[l]
    grams: Array  # (GRAM_ROWS, T) packed A_i, of Y's type; (0, T) for complete data
    A: Array  # (T, LANES) the same of the rows being updated; (0, LANES) for complete data
    position: NDArray[np.int64]  # (GRAM_ROWS,)


def vi_scratch(Y: NDArray[np.floating], tile: int, K: int, masked: bool) -> VIScratch:
    T = packed_size(K)
    weighted = np.empty(K * tile)
    b_k, a_kk, mean, var, y_k, delta = np.zeros((6, K, LANES))
    return VIScratch(
        lanes=np.ones(FIELDS * LANES),
        b=np.empty(tile * K, Y.dtype),
        l_mean=np.empty(K * tile),
        weighted=weighted,
        narrow=weighted if Y.dtype == weighted.dtype else np.empty(K * tile, Y.dtype),
        LY=np.empty((K, Y.shape[1]), Y.dtype),
        b_k=b_k,
        a_kk=a_kk,
        mean=mean,
        var=var,
        y_k=y_k,
        delta=delta,
        grams=np.zeros((GRAM_ROWS if masked else 0, T), Y.dtype),
        A=np.zeros((T if masked else 0, LANES)),
        position=np.zeros(GRAM_ROWS, np.int64),
    )


@njit(**OPTIONS)
def listing_missing(W, row, n, first, R, lists_missing, l_tile, var, weighted_var):
    """What LL is made of: the rows that list what is missing. The others' part is all in what samples add to LL."""
    for r in range(n):
        if lists_missing[row + r]:
            for k in range(var.shape[0]):
                weighted_var[k] += W[TAU + r] * var[k, r]
        else:
            for k in range(var.shape[0]):
                l_tile[k * R + first + r] = 0.0


@njit(**OPTIONS)
def vi_tiles(first_tile, last_tile, problem, message, rows_in, rows_out, sums, scratch, mask, groups):
    """The row pass of tiles first_tile .. last_tile, leaving each tile's sums in `sums`.

    mask: None for complete data, anything else for masked data; Numba compiles the one half or the other. So it does
    for groups: None for one group, anything else for several.
    """
    # Every field is looked up once, here: a look-up counts references, which inner loops must not.
    Y, row_ss, half_count, tau_shape, start, columns, lists_missing = problem[:7]
    noise_shape, noise_rate = problem.noise_shape, problem.noise_rate
    F, gram, share, packed_gram, alpha, prior, prior_row, scale = message
    group = problem.group
    mu_in, s2_in, eta_in, _ = rows_in
    mu_out, s2_out, eta_out, tau_out = rows_out
    W, b_tile, l_tile, weighted, narrow, LY, b, a_kk, mean, var, y, delta, grams, A, position = scratch
    G, K = mu_in.shape[1], gram.shape[0]
    per_row = prior.shape[1] > 1
    off = beside(Y, F)
    W[:] = 1.0
    for k in range(K):
        a_kk[k] = gram[k, k]
    weighted_var, every = np.empty(K), np.zeros(K)
    all_var = weighted_var if mask is None else every
    for t in range(first_tile, last_tile):
        tile = t * problem.tile
        R = min(problem.tile, G - tile)
        times(Y, tile, R, F, off, b_tile[: R * K].reshape(R, K))
        LL, terms, count, l2 = sums.LL[t], sums.terms[t], sums.included[t], sums.l2[t]
        for k in range(K):
            for g in range(alpha.shape[1]):
                count[k, g] = 0.0
                l2[k, g] = 0.0
        terms[:] = 0.0
        weighted_var[:] = 0.0

        for first in range(0, R, LANES):
            n, row, at = min(LANES, R - first), tile + first, U(tile + first)
            load_rows(mu_in, s2_in, eta_in, scale, at, n, mean, var)
            transpose(b_tile, first, n, b)
            if mask is not None:
                place = first % GRAM_ROWS
                if place == 0:
                    several = min(GRAM_ROWS, R - first)
                    row_grams(row, several, start, columns, lists_missing, share, packed_gram, position, grams)
                by_lane(grams, place, n, A)
                multiply_rows(A, mean, a_kk, y)
            elif K <= FEW_FACTORS:
                multiply(gram, mean, y)
            else:
                np.dot(gram, mean, y)
            for r in range(LANES):
                W[RSS + r] = 0.0
                W[TAU + r] = 1.0
                W[LOADINGS + r] = 0.0
            if problem.feature_noise:
                for r in range(n):
                    W[U(RSS) + U(r)] = row_ss[at + U(r)]
            expected_rss(W, mean, var, a_kk, b, y)
            if problem.feature_noise:
                update_tau(W, at, n, tau_shape, half_count, noise_shape, noise_rate, terms)
            for r in range(n):
                tau_out[at + U(r)] = W[U(TAU) + U(r)]

            for k in range(K):
                if mask is not None:
                    add_row_products(A, k, delta, y)
                else:
                    add_product(gram, k, delta, y)
                load(W, Y_K, y, k)
                if per_row:
                    for r in range(n):
                        W[U(PRIOR) + U(r)] = prior[k, prior_row[at + U(r)]]
                else:
                    for r in range(LANES):
                        W[PRIOR + r] = prior[k, 0]
                load(W, B_K, b, k)
                load(W, A_KK, a_kk, k)
                load(W, OLD, mean, k)
                load(W, OLD_VAR, var, k)
                if groups is not None:
                    for r in range(n):
                        W[U(ALPHA) + U(r)] = alpha[k, group[at + U(r)]]
                    update_grouped_factor(W)
                else:
                    update_factor(W, alpha[k, 0])
                if k % FACTORS_PER_LOG == FACTORS_PER_LOG - 1:
                    flush_logs(W)
                store(W, DELTA, delta, k, U(0), n)
                store(W, NEW, mean, k, U(0), n)
                store(W, VAR, var, k, U(0), n)
                store(W, MU, mu_out, k, at, n)
                store(W, S2, s2_out, k, at, n)
                store(W, ETA, eta_out, k, at, n)
                base = U(k * R + first)
                for r in range(n):
                    l_tile[base + U(r)] = W[U(NEW) + U(r)]
                for r in range(n):
                    weighted[base + U(r)] = W[U(WEIGHTED) + U(r)]
                if groups is not None:
                    add_group_totals(W, k, n, group, at, count, l2, all_var)
                else:
                    add_totals(W, k, n, count, l2, all_var)
            flush_logs(W)
            for r in range(n):
                terms[0] -= 0.5 * W[U(TAU) + U(r)] * W[U(RSS) + U(r)]
                terms[1] += W[U(LOADINGS) + U(r)]
            if mask is not None:
                listing_missing(W, row, n, first, R, lists_missing, l_tile, var, weighted_var)

        for k in range(K):
            for g in range(alpha.shape[1]):
                terms[1] += 0.5 * (count[k, g] - alpha[k, g] * l2[k, g])
        for s in range(K * R):
            narrow[s] = weighted[s]
        weigh(narrow[: K * R].reshape(K, R), Y, tile, R, LY)
        copy_matrix(LY, sums.LY[t])
        np.dot(weighted[: K * R].reshape(K, R), l_tile[: K * R].reshape(K, R).T, LL)
        for k in range(K):
            LL[k, k] += weighted_var[k]
