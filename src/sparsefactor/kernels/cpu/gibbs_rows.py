"""The row pass of Gibbs sampling: tau_i, then z_i with l_i integrated out, then l_i (math.md, 2.1 to 2.4)."""

# mypy: allow-untyped-defs

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..contract import Array
from ..noise import STREAM_Z
from .compiled import EXACT, njit
from .gibbs_active import sample_l, sample_z
from .packed import packed_size, unpack
from .philox import standard_gamma, units
from .products import beside, times, weigh
from .shares import GRAM_ROWS, row_grams
from .tiles import copy_matrix

STREAM_OF_Z = np.uint64(STREAM_Z)


class GibbsMessage(NamedTuple):
    """`Message` as this pass reads it."""

    F: Array  # (N, K), of Y's type
    gram: Array  # (K, K)
    share: Array  # (N*, T) packed, of Y's type
    packed_gram: Array  # (1, T)
    alpha: Array  # (V, K)
    logit: Array  # (1, V or G, K)
    logit_row: NDArray[np.int64]  # (G,) which of these a row has
    scale: Array  # (K,)


class GibbsScratch(NamedTuple):
    """A thread's own working space; R rows per tile."""

    b: Array  # (R * K,) of Y's type
    weighted: Array  # (R * K,) w l
    narrow: Array  # (R * K,) the same in Y's type, and the same array where that is float64
    LY: Array  # (K, N) of Y's type
    gram: Array  # (K, K) A_i of masked data
    grams: Array  # (GRAM_ROWS, T) the same of several rows, packed, of Y's type; (0, T) for complete data
    position: NDArray[np.int64]  # (GRAM_ROWS,)
    P: Array  # (K, K) its first m rows and columns, in the order of `active`
    C: Array  # (K, K) a Cholesky factor
    z: NDArray[np.int8]  # (K,)
    active: NDArray[np.int64]  # (K,) the active factors; m of them, in no order
    place: NDArray[np.int64]  # (K,) where in `active` a factor stands, or -1
    vectors: Array  # (10, K)


def gibbs_scratch(Y: NDArray[np.floating], tile: int, K: int, masked: bool) -> GibbsScratch:
    weighted = np.empty(tile * K)
    return GibbsScratch(
        b=np.empty(tile * K, Y.dtype),
        weighted=weighted,
        narrow=weighted if Y.dtype == weighted.dtype else np.empty(tile * K, Y.dtype),
        LY=np.empty((K, Y.shape[1]), Y.dtype),
        gram=np.empty((K, K)),
        grams=np.zeros((GRAM_ROWS if masked else 0, packed_size(K)), Y.dtype),
        position=np.zeros(GRAM_ROWS, np.int64),
        P=np.empty((K, K)),
        C=np.empty((K, K)),
        z=np.empty(K, np.int8),
        active=np.empty(K, np.int64),
        place=np.empty(K, np.int64),
        vectors=np.empty((10, K)),
    )


@njit(**EXACT)
def residual(l, A, b):
    """l'A l - 2 l'b, where most of l is zero."""
    K = l.shape[0]
    total = 0.0
    for k in range(K):
        if l[k] != 0.0:
            inner = -2.0 * b[k]
            for m in range(K):
                inner += A[k, m] * l[m]
            total += l[k] * inner
    return total


@njit(**EXACT)
def gibbs_tiles(first_tile, last_tile, problem, message, rows_in, rows_out, stream, sums, scratch):
    """The row pass of tiles first_tile .. last_tile, leaving each tile's sums in `sums`."""
    # Every field is looked up once, here: a look-up counts references, which inner loops must not.
    Y, row_ss, half_count, tau_shape, start, columns, lists_missing = problem[:7]
    noise_shape, noise_rate = problem.noise_shape, problem.noise_rate
    F, gram, share, packed_gram, alphas, logits, logit_row, scale = message
    group = problem.group
    Z_in, L_in, _ = rows_in[:3]
    Z_out, L_out, tau_out = rows_out[:3]
    sweep, key0, key1 = stream.sweep, stream.key0, stream.key1
    b_tile, weighted_tile, narrow, LY, own_gram, grams, position, P, C, z, active, place, vectors = scratch
    b, linear, mean, v, u = vectors[0], vectors[1], vectors[2], vectors[3], vectors[4]
    uniform, threshold, logit, l = vectors[5], vectors[6], vectors[7], vectors[8]
    alpha = vectors[9]
    G, K = L_in.shape
    masked, per_row, grouped = lists_missing.shape[0] > 0, logits.shape[0] > 1, alphas.shape[0] > 1
    A = own_gram if masked else gram
    off = beside(Y, F)
    for k in range(K):
        logit[k] = logits[0, k]
        alpha[k] = alphas[0, k]
    for t in range(first_tile, last_tile):
        tile = t * problem.tile
        R = min(problem.tile, G - tile)
        B, weighted = b_tile[: R * K].reshape(R, K), weighted_tile[: R * K].reshape(R, K)
        times(Y, tile, R, F, off, B)
        LL, terms, count, l2 = sums.LL[t], sums.terms[t], sums.included[t], sums.l2[t]
        for k in range(K):
            for g in range(alphas.shape[0]):
                count[k, g] = 0.0
                l2[k, g] = 0.0
        terms[:] = 0.0

        for r in range(R):
            i = tile + r
            row = np.uint64(problem.first + i)
            for k in range(K):
                b[k] = B[r, k]
                z[k] = Z_in[i, k]
            if per_row:
                for k in range(K):
                    logit[k] = logits[logit_row[i], k]
            own = group[i]
            if grouped:
                for k in range(K):
                    alpha[k] = alphas[own, k]
            if masked:
                held = r % GRAM_ROWS
                if held == 0:
                    several = min(GRAM_ROWS, R - r)
                    row_grams(i, several, start, columns, lists_missing, share, packed_gram, position, grams)
                unpack(grams[held], own_gram)
            tau = 1.0
            if problem.feature_noise:
                for k in range(K):
                    v[k] = scale[k] * L_in[i, k]
                rss = row_ss[i] + residual(v, A, b)
                tau = standard_gamma(tau_shape[i], row, sweep, key0, key1) / (noise_rate[i] + 0.5 * max(rss, 0.0))
                terms[0] += tau * row_ss[i]
                terms[1] += (half_count[i] + noise_shape - 1.0) * math.log(tau) - noise_rate[i] * tau
            for k in range(K):
                linear[k] = tau * b[k]
            units(row, sweep, STREAM_OF_Z, key0, key1, uniform)
            m = sample_z(z, A, tau, alpha, logit, linear, uniform, threshold, P, mean, active, place, v, u)
            sample_l(row, m, l, A, tau, alpha, linear, stream, C, active, u)
            tau_out[i] = tau
            for k in range(K):
                Z_out[i, k] = z[k]
                L_out[i, k] = l[k]
                weighted[r, k] = tau * l[k]
            for a in range(m):
                k = active[a]
                count[k, own] += 1.0
                l2[k, own] += l[k] * l[k]
                terms[2] += logit[k]

        for s in range(R * K):
            narrow[s] = weighted_tile[s]
        weigh(narrow[: R * K].reshape(R, K).T, Y, tile, R, LY)
        copy_matrix(LY, sums.LY[t])
        if masked:
            # LL is of the rows that list what is missing; the others' part is all in what samples add to it.
            for r in range(R):
                if not lists_missing[tile + r]:
                    for k in range(K):
                        weighted[r, k] = 0.0
        np.dot(weighted.T, L_out[tile : tile + R], LL)
