"""A feature's own part with the activations integrated out, where entries are missing (math.md, 2.16 to 2.17c).

Samples in which the same features are observed, a pattern, share what the rows tell of the precision of their
activations. They lie side by side here; `first` (P + 1,) says where each pattern's begin.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np

from ..contract import HELD, LOOSE
from .columns import factor_precision, invert_factor
from .compiled import OPTIONS, njit
from .own_slices import EE, EG, GG, SIZE, A, B, C, draw_free, draw_own, draw_tau
from .precision import BEYOND, ROWS_PER_INVERSE


@njit(**OPTIONS)
def open_parts(Y, seen, first, basis, base, L, tau, R, told, M):
    """R (G, N) what directions leave of the data, told (N, K) = R'DL, and M (P, K, K) = L'DL of each pattern's rows.

    seen: (P, G) whether a pattern has a row; basis: (d, N), and base: (G, d) the loadings on these directions.
    """
    (P, G), K = seen.shape, L.shape[1]
    for i in range(G):
        for p in range(P):
            for s in range(first[p], first[p + 1]):
                total = 0.0
                if seen[p, i]:
                    total = Y[i, s]
                    for d in range(basis.shape[0]):
                        total -= base[i, d] * basis[d, s]
                R[i, s] = total
    told[:] = 0.0
    l, whole = np.empty(K), np.zeros((K, K))
    for i in range(G):
        for k in range(K):
            l[k] = tau[i] * L[i, k]
            for q in range(K):
                whole[k, q] += l[k] * L[i, q]
        for s in range(R.shape[1]):
            for k in range(K):
                told[s, k] += l[k] * R[i, s]
    for p in range(P):
        fewer_missing = 2 * np.sum(seen[p]) > G  # what is less is added up
        sign = -1.0 if fewer_missing else 1.0
        M[p] = 0.0
        if fewer_missing:
            M[p] = whole
        for i in range(G):
            if seen[p, i] != fewer_missing:
                for k in range(K):
                    for q in range(K):
                        M[p, k, q] += sign * tau[i] * L[i, k] * L[i, q]


@njit(**OPTIONS)
def invert_parts(M, prior, V):
    """V = (Phi^-1 + M)^-1 of every pattern; whether none of them is all rounding."""
    P, K, _ = M.shape
    factor, space = np.empty((K, K)), np.empty((K, K))
    for p in range(P):
        if not np.trace(M[p]) < BEYOND:  # or not a number
            return False
        factor_precision(M[p], 1.0, prior, factor)
        invert_factor(factor, space, V[p])
    return True


@njit(**OPTIONS)
def take_out(i, l, before, R, seen, first, V, told, known, spread, own, e, table):
    """What all rows but i tell, V and told in place, and what they say of y_i; how many patterns have it.

    own: their numbers; known: (P, K) V l, spread: (P,) l'V l, e: (N,) residuals, whose squares go to the table.
    """
    (P, K), m = known.shape, 0
    u = np.empty(K)
    for p in range(P):
        if not seen[p, i]:
            continue
        a = 0.0
        for k in range(K):
            total = 0.0
            for q in range(K):
                total += V[p, k, q] * l[q]
            u[k] = total
            a += l[k] * total
        left = max(1.0 - before * a, 1e-12)
        gain = before / left
        for k in range(K):
            known[m, k] = u[k] / left
            for q in range(K):
                V[p, k, q] += gain * u[k] * u[q]
        square = 0.0
        for s in range(first[p], first[p + 1]):
            total = R[i, s]
            for k in range(K):
                told[s, k] -= before * l[k] * R[i, s]
                total -= known[m, k] * told[s, k]
            e[s] = total
            square += total * total
        own[m], spread[m] = p, a / left
        table[SIZE, m], table[A, m], table[B, m] = first[p + 1] - first[p], 0.0, 0.0
        table[C, m], table[EE, m], table[EG, m], table[GG, m] = a / left, square, 0.0, 0.0
        m += 1
    return m


@njit(**OPTIONS)
def tabulate(k, x, m, own, first, V, told, known, spread, e, g, table, mean):
    """The table as a function of l_ik, which is x now; g: (N,) means of f_k given all other rows.

    mean: A, B and C, averaged over the samples in which row i is observed.
    """
    K, n = V.shape[1], 0.0
    mean[:] = 0.0
    for c in range(m):
        p, ee, eg, gg = own[c], 0.0, 0.0, 0.0
        for s in range(first[p], first[p + 1]):
            total = 0.0
            for q in range(K):
                total += V[p, k, q] * told[s, q]
            g[s] = total
            at_zero = e[s] + x * total
            ee += at_zero * at_zero
            eg += at_zero * total
            gg += total * total
        table[EE, c], table[EG, c], table[GG, c] = ee, eg, gg
        table[A, c] = V[p, k, k]
        table[B, c] = 2.0 * (known[c, k] - V[p, k, k] * x)
        table[C, c] = spread[c] - x * (V[p, k, k] * x + table[B, c])
        n += table[SIZE, c]
        for f in range(3):
            mean[f] += table[SIZE, c] * table[A + f, c]
    for f in range(3):
        mean[f] /= n


@njit(**OPTIONS)
def draw_activations(M, prior, told, first, drawn, F):
    """f_j given the rows (2.5), with one precision for all samples of a pattern."""
    K, factor = F.shape[0], np.empty((F.shape[0], F.shape[0]))
    for p in range(M.shape[0]):
        factor_precision(M[p], 1.0, prior, factor)
        for s in range(first[p], first[p + 1]):
            for k in range(K):
                total = told[s, k]
                for q in range(k):
                    total -= factor[k, q] * F[q, s]
                F[k, s] = total / factor[k, k]
            for k in range(K):
                F[k, s] += drawn[k, s]
            for k in range(K - 1, -1, -1):
                total = F[k, s]
                for q in range(k + 1, K):
                    total -= factor[q, k] * F[q, s]
                F[k, s] = total / factor[k, k]


@njit(**OPTIONS)
def draw_parts(start, n_rows, problem, basis, rows, base, alpha, prior, logit, stream, drawn, space, F):
    """tau, z and l of so many rows from `start` on, in place, and then F (K, N), samples in the order of patterns.

    problem: Y (G, N), seen, first, group (G,), shape, rate (G,); rows: Z, L, tau; alpha: (K, V); prior: (K, K)
    Phi^-1; logit: (1 or G, K); drawn: (K, N) normals; space: R, told, M, V, known, spread, own, e, g, table.
    """
    Y, seen, first, group, shape, rates = problem
    Z, L, tau = rows
    R, told, M, V, known, spread, own, e, g, table = space
    G, K = L.shape
    old, mean = np.empty(K), np.empty(3)
    open_parts(Y, seen, first, basis, base, L, tau, R, told, M)
    for turn in range(n_rows):
        if turn % ROWS_PER_INVERSE == 0 and not invert_parts(M, prior, V):
            break  # rows stay as they are
        i = (start + turn) % G
        l, before, row = L[i], tau[i], np.uint64(i)
        for k in range(K):
            old[k] = l[k]
        m = take_out(i, l, before, R, seen, first, V, told, known, spread, own, e, table)
        t = draw_tau(before, 0.0, table, m, shape, rates[i], row, stream)
        for k in range(K):
            loose, n = 0.0, 0.0
            for c in range(m):
                loose += table[SIZE, c] * V[own[c], k, k]
                n += table[SIZE, c]
            if loose < HELD * n:
                continue
            x = l[k]
            tabulate(k, x, m, own, first, V, told, known, spread, e, g, table, mean)
            odds, slab, z, new = logit[i if logit.shape[0] > 1 else 0, k], alpha[k, group[i]], Z[i, k] != 0, x
            if loose >= LOOSE * n:
                z, new, t = draw_own(k, x, z, t, mean, table, m, slab, odds, shape, rates[i], row, stream)
            z, new = draw_free(K + 1 + k, new, z, 1.0 / t, table, m, slab, odds, row, stream)
            if new != x:
                Z[i, k], l[k] = z, new
                for c in range(m):
                    p = own[c]
                    spread[c] = (table[A, c] * new + table[B, c]) * new + table[C, c]
                    for q in range(K):
                        known[c, q] += (new - x) * V[p, k, q]
                    for s in range(first[p], first[p + 1]):
                        e[s] += (x - new) * g[s]
        tau[i] = t
        for c in range(m):
            p = own[c]
            gain = t / (1.0 + t * spread[c])
            for k in range(K):
                for q in range(K):
                    V[p, k, q] -= gain * known[c, k] * known[c, q]
                    M[p, k, q] += t * l[k] * l[q] - before * old[k] * old[q]
            for s in range(first[p], first[p + 1]):
                for k in range(K):
                    told[s, k] += t * l[k] * R[i, s]
    draw_activations(M, prior, told, first, drawn, F)
