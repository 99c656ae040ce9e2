"""The moves on pairs of factors in JAX: shears and rotations, loadings integrated out and then drawn (2.10, 2.11)."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from ..contract import TRIES, GibbsColumns, GibbsRows, RotationNoise, ShearNoise
from .gibbs_rows import gibbs_logit
from .library import jax, jnp, lax, special
from .noise import move_noise
from .problem import Kind, Problem, by_row
from .products import mask_times, times


class Residual(NamedTuple):
    """What rows say of one factor given the others: r = tau y'f and tau f'f, over their observed samples."""

    linear: Any  # (G,)
    grams: Any  # (K, 1 or G) weighted products of this factor with all, not multiplied by tau


def row_products(problem: Problem, F: Any, weighted: Any, kind: Kind) -> Any:
    """(K, 1 or G) sums over each row's observed samples of weighted (N,) times F (K, N)."""
    total = (F @ weighted)[:, None]
    if not kind.masked:
        return total
    listed = mask_times(problem.mask, F.T * weighted[:, None], problem.Y.dtype)
    return total - listed if kind.lists_missing else listed


@partial(jax.jit, static_argnames="kind")
def data_products(problem: Problem, columns: GibbsColumns, kind: Kind) -> Any:
    """(K, G) sums over each row's samples of weight y f: all that a move asks of the data, which it reads once."""
    return times(problem.Y, (columns.F * columns.weight).T, kind)


def residual(
    problem: Problem, b: Any, F: Any, L: Any, tau: Any, weight: Any, q: Any, without: Any, kind: Kind
) -> Residual:
    """Of factor q, with the factors `without` (K,) taken out of the fit; b: as in `data_products`, L: (K, G)."""
    grams = row_products(problem, F, weight * F[q], kind)
    rest = jnp.where(without[:, None], 0.0, L)
    return Residual(tau * (b[q] - jnp.sum(rest * grams, axis=0)), grams)


@partial(jax.jit, static_argnames="kind")
def shear(
    problem: Problem, b: Any, rows: GibbsRows, columns: GibbsColumns, noise: ShearNoise, hyper: Any, kind: Kind
) -> tuple[Any, Any, Any, Any]:
    """New Z, L (G, K), F and phi after shears along D factors; b: as in `data_products`.

    hyper: shape (), and rate () or (V,), of the prior on slab precisions.
    """
    Z, L, F, tau = rows.Z.T == 1, rows.L.T * columns.scale[:, None], columns.F, rows.tau
    K, G = L.shape
    alpha, logit = by_row(columns.alpha, problem), gibbs_logit(columns.logit, rows, problem, kind)
    D, _, P = noise.step.shape

    slab, one = columns.alpha.reshape(K, -1), jnp.eye(K)

    def along(d: Any, now: Any) -> Any:
        Z, L, F, b, phi = now
        q = noise.order[d]
        left, grams = residual(problem, b, F, L, tau, columns.weight, q, jnp.arange(K) == q, kind)
        squared = tau * grams[q]
        c = squared + alpha[q]
        offset = logit[q] + 0.5 * jnp.log(alpha[q] / c)
        f2 = F[q] @ F[q]

        def proposal(i: Any, now: Any) -> Any:
            r, inner, total, phi, inverse = now
            k = i // P
            e = noise.step[d, k, i % P]
            change = e * L[k] * squared
            new = r - change
            fit = e * L[k] * (r - 0.5 * change)
            fit = fit + jnp.logaddexp(0.0, offset + 0.5 * new**2 / c) - jnp.logaddexp(0.0, offset + 0.5 * r**2 / c)
            if phi.shape[0]:  # (2.19c)
                gain = e * inverse[k, q] - 0.5 * e**2 * inverse[k, k]
                before = phi[k, k]
                after = before + e * (2.0 * phi[k, q] + e * phi[q, q])
                slabs = hyper[0] * jnp.log(after / before) + hyper[1] * slab[k] * (1.0 / after - 1.0 / before)
                gain = gain - jnp.sum(slabs)
            else:
                gain = -e * inner[k] - 0.5 * e**2 * f2
            gain = gain + jnp.sum(fit)
            taken = (noise.log_uniform[d, k, i % P] < gain) & (k != q)
            e = jnp.where(taken, e, 0.0)
            if phi.shape[0]:
                turn = one + e * jnp.outer(one[k], one[q])
                back = one - e * jnp.outer(one[k], one[q])
                phi, inverse = turn @ phi @ turn.T, back.T @ inverse @ back
            return jnp.where(taken, new, r), inner.at[k].add(e * f2), total.at[k].add(e), phi, inverse

        begin = left, F @ F[q], jnp.zeros(K), phi, jnp.linalg.inv(phi) if phi.shape[0] else phi
        r, _, total, phi, _ = lax.fori_loop(0, K * P, proposal, begin)
        uniform, normal = move_noise(noise.stream, d, jnp.arange(G), 1)
        new_z = uniform < special.expit(offset + 0.5 * r**2 / c)
        new_l = jnp.where(new_z, r / c + normal[0] / jnp.sqrt(c), 0.0)
        return Z.at[q].set(new_z), L.at[q].set(new_l), F + total[:, None] * F[q], b + total[:, None] * b[q], phi

    Z, L, F, _, phi = lax.fori_loop(0, D, along, (Z, L, F, b, columns.phi))
    return Z.T.astype(jnp.int8), L.T, F, phi


@partial(jax.jit, static_argnames="kind")
def rotate(
    problem: Problem, b: Any, rows: GibbsRows, columns: GibbsColumns, noise: RotationNoise, hyper: Any, kind: Kind
) -> tuple[Any, Any, Any, Any, Any]:
    """New Z, L (G, K), F, alpha and phi after rotations of P pairs; b: as in `data_products`, hyper: as in `shear`."""
    Z, L, tau = rows.Z.T == 1, rows.L.T * columns.scale[:, None], rows.tau
    logit = gibbs_logit(columns.logit, rows, problem, kind)
    K, G = L.shape

    def one_pair(p: Any, now: Any) -> Any:
        Z, L, F, b, alpha, phi = now
        pair = noise.pairs[p]
        out = (jnp.arange(K) == pair[0]) | (jnp.arange(K) == pair[1])
        seen = [residual(problem, b, F, L, tau, columns.weight, pair[i], out, kind) for i in range(2)]
        r = jnp.stack([one.linear for one in seen])
        B = tau * jnp.stack([jnp.stack([seen[i].grams[pair[j]] for j in range(2)]) for i in range(2)])
        odds, turn = logit[pair], jnp.eye(2)
        own = by_row(alpha, problem)[pair]
        change = pair_density(turn[::-1], r, B, own[::-1], odds) - pair_density(turn, r, B, own, odds)
        exchanged = (noise.exchange[p] < 1.0) & (noise.exchange[p] < special.expit(change))
        turn = jnp.where(exchanged, turn[::-1], turn)
        alpha = alpha.at[pair].set(jnp.where(exchanged, alpha[pair][::-1], alpha[pair]))
        own = jnp.where(exchanged, own[::-1], own)

        def density(turn: Any) -> Any:
            total = pair_density(turn, r, B, own, odds)
            if not phi.shape[0]:
                return total
            scale = jnp.diagonal(turn @ phi[pair[:, None], pair] @ turn.T)[:, None]  # (2.19c)
            return total - jnp.sum(hyper[0] * jnp.log(scale) + hyper[1] * alpha[pair].reshape(2, -1) / scale)

        height = density(turn) + noise.log_height[p]

        def attempt(now: Any) -> Any:
            t, low, high, _, _ = now
            angle = low + noise.angle[p, t] * (high - low)
            good = density(rotation(angle) @ turn) > height
            low, high = jnp.where(angle < 0.0, angle, low), jnp.where(angle < 0.0, high, angle)
            return t + 1, low, high, good, angle

        low = -jnp.pi * noise.bracket[p]
        begin = (0, low, low + jnp.pi, jnp.zeros((), bool), jnp.zeros(()))
        _, _, _, good, angle = lax.while_loop(lambda now: ~now[3] & (now[0] < TRIES), attempt, begin)
        turn = jnp.where(good, rotation(angle) @ turn, turn)
        r, B = turned(turn, r, B)
        new_z, new_l = draw_pair(r, B, own, odds, *move_noise(noise.stream, p, jnp.arange(G), 2))
        F, b = (values.at[pair].set(turn @ values[pair]) for values in (F, b))
        if phi.shape[0]:
            phi = phi.at[pair].set(turn @ phi[pair])
            phi = phi.at[:, pair].set(phi[:, pair] @ turn.T)
        return Z.at[pair].set(new_z), L.at[pair].set(new_l), F, b, alpha, phi

    begin = Z, L, columns.F, b, columns.alpha, columns.phi
    Z, L, F, _, alpha, phi = lax.fori_loop(0, noise.pairs.shape[0], one_pair, begin)
    return Z.T.astype(jnp.int8), L.T, F, alpha, phi


def rotation(angle: Any) -> Any:
    cos, sin = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([jnp.stack([cos, sin]), jnp.stack([-sin, cos])])


def turned(turn: Any, r: Any, B: Any) -> tuple[Any, Any]:
    """turn r (2, G) and turn B turn' (2, 2, G)."""
    return turn @ r, jnp.einsum("ab,bcg,dc->adg", turn, B, turn)


def pair_states(r: Any, B: Any, alpha: Any, logit: Any) -> Any:
    """(4, G) log weights of each row's z = 00, 10, 01, 11 with its two loadings integrated out (2.10)."""
    one, two, cross = B[0, 0] + alpha[0], B[1, 1] + alpha[1], B[0, 1]
    own = jnp.stack([one, two])
    alone = logit + 0.5 * jnp.log(alpha / own) + 0.5 * r**2 / own
    # Through the Schur complement of the first, which keeps its digits where the two are nearly alike.
    schur, rest = two - cross**2 / one, r[1] - cross / one * r[0]
    fit = 0.5 * (r[0] ** 2 / one + rest**2 / schur)
    both = jnp.sum(logit + 0.5 * jnp.log(alpha), axis=0) - 0.5 * (jnp.log(one) + jnp.log(schur)) + fit
    return jnp.stack([jnp.zeros_like(both), alone[0], alone[1], both])


def pair_density(turn: Any, r: Any, B: Any, alpha: Any, logit: Any) -> Any:
    """log density of an orthogonal change of two factors' activations, up to a constant (2.10)."""
    return jnp.sum(special.logsumexp(pair_states(*turned(turn, r, B), alpha, logit), axis=0))


def draw_pair(r: Any, B: Any, alpha: Any, logit: Any, uniform: Any, normal: Any) -> tuple[Any, Any]:
    """z and l, (2, G) each, of every row."""
    total = jnp.cumsum(jax.nn.softmax(pair_states(r, B, alpha, logit), axis=0), axis=0)
    code = jnp.sum(uniform > total[:-1], axis=0)
    Z = jnp.stack([code % 2 == 1, code // 2 == 1])
    roots = jnp.sqrt(jnp.stack([B[0, 0], B[1, 1]]) + alpha)
    alone = (r / roots + normal) / roots
    cross = B[1, 0] / roots[0]
    second = jnp.sqrt(B[1, 1] + alpha[1] - cross**2)
    y = r[0] / roots[0]
    l2 = ((r[1] - cross * y) / second + normal[1]) / second
    l1 = (y + normal[0] - cross * l2) / roots[0]
    return Z, jnp.where(Z, jnp.where(Z[0] & Z[1], jnp.stack([l1, l2]), alone), 0.0)
