"""Matrices of samples, WIDTH of them at a time, so that every step of a factorisation is made of vectors.

A (K * K, WIDTH) has as many symmetric or lower triangular matrices: entry (a, e), e <= a, of all of them at row
a K + e; the rows of upper triangles are not used.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from .compiled import OPTIONS, njit
from .lanes import log_lane

WIDTH = 32  # samples: eight vectors of four doubles, enough to hide each other's latency
U = np.uint64  # sums of indices are unsigned: Numba would check signed ones for being negative


@intrinsic
def put_products(
    typing_context: Any, A: Any, t: Any, begin: Any, p: Any, p_step: Any, q: Any, q_step: Any, n: Any
) -> Any:
    """Row t <- begin times row t, plus the sum over d < n of the products of rows p + d p_step and q + d q_step.

    LLVM would not keep row t in registers meanwhile, for all that it knows the others might be the same.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vector, word = ir.VectorType(ir.DoubleType(), WIDTH), ir.IntType(64)
        A, t, begin, p, p_step, q, q_step, n = args
        data = context.make_array(signature.args[0])(context, builder, A).data
        rows = builder.bitcast(data, vector.as_pointer())

        def load(row: Any) -> Any:
            found = builder.load(builder.gep(rows, [row]))
            found.align = 8
            return found

        scalar = builder.insert_element(ir.Constant(vector, ir.Undefined), begin, ir.Constant(ir.IntType(32), 0))
        every = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
        first = builder.fmul(load(t), builder.shuffle_vector(scalar, scalar, every))
        before = builder.block
        loop, end = builder.append_basic_block("loop"), builder.append_basic_block("end")
        builder.cbranch(builder.icmp_signed(">", n, ir.Constant(word, 0)), loop, end)
        builder.position_at_end(loop)
        d, total = builder.phi(word), builder.phi(vector)
        at = [builder.add(row, builder.mul(d, step)) for row, step in ((p, p_step), (q, q_step))]
        product = builder.fmul(load(at[0]), load(at[1]), flags=("contract",))
        added = builder.fadd(total, product, flags=("contract",))
        following = builder.add(d, ir.Constant(word, 1))
        d.add_incoming(ir.Constant(word, 0), before)
        d.add_incoming(following, loop)
        total.add_incoming(first, before)
        total.add_incoming(added, loop)
        builder.cbranch(builder.icmp_signed("<", following, n), loop, end)
        builder.position_at_end(end)
        whole = builder.phi(vector)
        whole.add_incoming(first, before)
        whole.add_incoming(added, loop)
        builder.store(whole, builder.gep(rows, [t])).align = 8
        return context.get_dummy_value()

    word = types.int64
    return types.void(A, word, types.float64, word, word, word, word, word), generate


@njit(**OPTIONS)
def load_precisions(first, n, LL, LL_share, weight, prior, A):
    """Phi^-1 + w_j D_j of samples first .. first + n, D_j = LL + LL_share[j] (4.5), or LL; prior: Phi^-1,
    which is all that the lanes beyond have."""
    K, masked = LL.shape[0], LL_share.shape[0] > 0
    for a in range(K):
        for e in range(a + 1):
            own = prior[a, e]
            for r in range(WIDTH):
                A[a * K + e, r] = own
    for r in range(n):
        w = weight[first + r]
        for a in range(K):
            for e in range(a + 1):
                A[U(a * K + e), U(r)] += w * (LL[a, e] + LL_share[first + r, a, e] if masked else LL[a, e])


@njit(**OPTIONS)
def load_covariances(first, n, covariance, A):
    """S_j of samples first .. first + n; I in the lanes beyond."""
    K = covariance.shape[1]
    for a in range(K):
        for e in range(a + 1):
            own = 1.0 if a == e else 0.0
            for r in range(n, WIDTH):
                A[U(a * K + e), U(r)] = own
    for r in range(n):
        for a in range(K):
            for e in range(a + 1):
                A[U(a * K + e), U(r)] = covariance[first + r, a, e]


@njit(**OPTIONS)
def factor(A, K, least):
    """A = C C' in place, with 1 / C_aa on the diagonal. least: of a pivot, whatever rounding says."""
    for a in range(K):
        for e in range(a):
            put_products(A, a * K + e, -1.0, a * K, 1, e * K, 1, e)  # type: ignore[call-arg]
            for r in range(WIDTH):
                A[a * K + e, r] *= -A[e * K + e, r]
        put_products(A, a * K + a, -1.0, a * K, 1, a * K, 1, a)  # type: ignore[call-arg]
        for r in range(WIDTH):
            A[a * K + a, r] = 1.0 / math.sqrt(max(-A[a * K + a, r], least))


@njit(**OPTIONS)
def invert(A, K):
    """From C with 1 / C_aa on the diagonal to (C C')^-1, in place."""
    for a in range(1, K):  # C^-1, row by row
        for e in range(a):
            put_products(A, a * K + e, 0.0, a * K + e, 1, e * K + e, K, a - e)  # type: ignore[call-arg]
            for r in range(WIDTH):
                A[a * K + e, r] *= -A[a * K + a, r]
    for a in range(K):  # its transpose times itself
        for e in range(a + 1):
            put_products(A, a * K + e, 0.0, a * K + a, K, a * K + e, K, K - a)  # type: ignore[call-arg]


@njit(**OPTIONS)
def log_determinants(covariance):
    """The sum over samples (N, K, K) of log |S_j|; minus infinity where one has none."""
    N, K, _ = covariance.shape
    A, total, largest = np.empty((K * K, WIDTH)), 0.0, 0.0
    for first in range(0, N, WIDTH):
        load_covariances(first, min(WIDTH, N - first), covariance, A)
        factor(A, K, 0.0)
        for a in range(K):
            for r in range(min(WIDTH, N - first)):
                total -= 2.0 * log_lane(A[a * K + a, r])
            for r in range(WIDTH):
                largest = max(largest, A[a * K + a, r])
    return total if largest < math.inf else -math.inf


@njit(**OPTIONS)
def joint_each(first, last, LY, LL, LL_share, weight, prior, mean, covariance):
    """q(f_j) over the factors jointly (3.6), samples first .. last, each with its own covariance."""
    K = mean.shape[0]
    given, found = K * K, K * K + K  # rows of A behind the matrices
    A = np.empty((found + K, WIDTH))
    A[given:] = 0.0
    for j in range(first, last, WIDTH):
        n = min(WIDTH, last - j)
        load_precisions(j, n, LL, LL_share, weight, prior, A)
        factor(A, K, 1.0 / K)  # D_j is positive semidefinite, Phi has eigenvalues of at most K
        invert(A, K)
        for k in range(K):
            for r in range(n):
                A[U(given + k), U(r)] = weight[j + r] * LY[k, j + r]
        for k in range(K):
            put_products(A, found + k, 0.0, k * K, 1, given, 1, k + 1)  # type: ignore[call-arg]
            put_products(A, found + k, 1.0, (k + 1) * K + k, K, given + k + 1, 1, K - k - 1)
            for r in range(n):
                mean[k, j + r] = A[U(found + k), U(r)]
        for r in range(n):
            for a in range(K):
                for e in range(a + 1):
                    covariance[j + r, a, e] = covariance[j + r, e, a] = A[U(a * K + e), U(r)]


@njit(**OPTIONS)
def draw_each(first, last, LY, LL, LL_share, weight, prior, normal, F):
    """f_j given the rest (2.5), samples first .. last, each with its own precision."""
    K = F.shape[0]
    x = K * K  # rows of A behind the factors
    A = np.empty((x + K, WIDTH))
    A[x:] = 0.0
    for j in range(first, last, WIDTH):
        n = min(WIDTH, last - j)
        load_precisions(j, n, LL, LL_share, weight, prior, A)
        factor(A, K, 1.0 / K)
        for a in range(K):
            for r in range(n):
                A[U(x + a), U(r)] = weight[j + r] * LY[a, j + r]
            put_products(A, x + a, -1.0, a * K, 1, x, 1, a)  # type: ignore[call-arg]
            for r in range(WIDTH):
                A[x + a, r] *= -A[a * K + a, r]
        for a in range(K - 1, -1, -1):
            for r in range(n):
                A[U(x + a), U(r)] += normal[a, j + r]
            put_products(A, x + a, -1.0, (a + 1) * K + a, K, x + a + 1, 1, K - a - 1)  # type: ignore[call-arg]
            for r in range(WIDTH):
                A[x + a, r] *= -A[a * K + a, r]
            for r in range(n):
                F[a, j + r] = A[U(x + a), U(r)]
