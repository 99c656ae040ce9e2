"""The oracle's moves by slice sampling, in plain NumPy, one equation a line (docs/math.md, 2.15 to 2.17)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, expit

from ..data import Data
from ..densities import log_gamma_density
from ..model import Beta, Prior
from .contract import (
    ALPHA_WIDTH,
    FREE_WIDTH,
    HELD,
    LOOSE,
    RATE_WIDTH,
    TAU_WIDTH,
    TRIES,
    Array,
    ColumnNoise,
    GibbsColumns,
    GibbsRows,
    PrecisionNoise,
)
from .noise import STREAM_SLICE, move_noise, normal_from, stream_words, uniform_pair


class ReferenceSlices:
    """What is drawn of one factor, or of one row, with all that depends on it integrated out."""

    data: Data
    noise_rate: Array
    prior: Prior
    observed: NDArray[np.float64] | None

    def gibbs_columns(
        self, rows: GibbsRows, columns: GibbsColumns, noise: ColumnNoise
    ) -> tuple[GibbsRows, Array, Array]:
        """alpha_k and (where it is learnt) pi_k with column k of (Z, L) integrated out, which is then drawn (2.15)."""
        F, weight = columns.F, columns.weight
        Z, L, alpha, logit = rows.Z.copy(), rows.L * columns.scale, columns.alpha.copy(), columns.logit.copy()
        observed = np.ones(self.data.Y.shape) if self.observed is None else self.observed
        V = len(self.prior.group_names) if self.prior.grouped else 1
        member = self.prior.group_index if self.prior.grouped else np.zeros(len(L), np.int64)
        learnt = self.prior.learns_inclusion and len(logit) == V and not len(rows.member)
        slab = alpha.reshape(len(alpha), V)
        for d, k in enumerate(noise.order):
            rest = L.copy()
            rest[:, k] = 0.0
            residual = observed * (self.data.Y - rest @ F)
            r = rows.tau * (residual @ (weight * F[k]))
            squared = rows.tau * (observed @ (weight * F[k] ** 2))

            for v in range(V):
                own = member == v
                given = self.logit_rows(logit, rows)[own, k]

                def target(
                    at: Array, r: Array = r[own], s: Array = squared[own], o: Array = given, v: int = v
                ) -> float:
                    return self.column_density(at, r, s, o, learnt, v)

                at = np.array([np.log(slab[k, v]), given[0]])
                proposal, size = noise.proposal[d, v], int(own.sum())
                ratio = target(proposal) - self.column_proposal(proposal, learnt, size, v)
                ratio -= target(at) - self.column_proposal(at, learnt, size, v)
                if noise.log_uniform[d, v] < ratio:
                    at = proposal.copy()
                for axis, width in enumerate((ALPHA_WIDTH, RATE_WIDTH)[: 1 + learnt]):
                    draws = noise.log_height[d, v, axis], noise.bracket[d, v, axis], noise.tries[d, v, axis]
                    at = at + slice_step(target, at, np.eye(2)[axis], width, *draws)
                slab[k, v] = np.exp(at[0])
                if learnt:
                    logit[v, k] = at[1]
            precision = slab[k, member]
            c = squared + precision
            log_odds = self.logit_rows(logit, rows)[:, k] + 0.5 * np.log(precision / c) + 0.5 * r**2 / c
            uniform, normal = move_noise(noise.stream, d, len(L), 1)
            Z[:, k] = uniform < expit(log_odds)
            L[:, k] = np.where(Z[:, k], r / c + normal[:, 0] / np.sqrt(c), 0.0)
        return rows._replace(Z=Z, L=L), slab.reshape(alpha.shape), logit

    def logit_rows(self, logit: Array, rows: GibbsRows | None = None) -> Array:
        """(G, K) each row's own prior log odds, of logit (1, V or G, K), or (M, K) where rows are in modules."""
        if rows is not None and len(rows.member):
            return logit[rows.member]
        if len(logit) not in (1, self.data.n_features):
            return logit[self.prior.group_index]
        return np.broadcast_to(logit, (self.data.n_features, logit.shape[1]))

    def rate_of(self, v: int) -> float:
        """b_alpha of group v."""
        rate = np.atleast_1d(self.prior.loading_rate)
        return float(rate[v if len(rate) > 1 else 0])

    def column_density(self, at: Array, r: Array, squared: Array, logit: Array, learnt: bool, v: int) -> float:
        """log density of (log alpha, logit pi) of group v with a column integrated out, up to a constant (2.15)."""
        prior, alpha = self.prior, np.exp(at[0])
        total = log_gamma_density(alpha, prior.loading_shape, self.rate_of(v)) + at[0]
        if learnt:
            assert isinstance(prior.inclusion, Beta)
            total += log_logit_beta(at[1], prior.inclusion.a, prior.inclusion.b) + len(r) * np.log(expit(-at[1]))
            logit = at[1:]
        c = squared + alpha
        return float(total + np.sum(np.logaddexp(0.0, logit + 0.5 * np.log(alpha / c) + 0.5 * r**2 / c)))

    def column_proposal(self, at: Array, learnt: bool, size: int, v: int) -> float:
        """log density of the joint proposal of (log alpha, logit pi): half of an empty factor, half of a faint one."""
        prior, alpha, rate = self.prior, np.exp(at[0]), self.rate_of(v)
        empty = log_gamma_density(alpha, prior.loading_shape, rate) + at[0]
        faint = log_gamma_density(alpha, 1.0, rate) + at[0]
        if learnt:
            assert isinstance(prior.inclusion, Beta)
            a, b = prior.inclusion.a, prior.inclusion.b
            empty += log_logit_beta(at[1], a, b + size)
            faint += log_logit_beta(at[1], a, b)
        return float(np.logaddexp(empty, faint) - np.log(2.0))

    def gibbs_precisions(
        self, rows: GibbsRows, columns: GibbsColumns, noise: PrecisionNoise
    ) -> tuple[GibbsRows, Array]:
        """tau_i of some rows with F integrated out (2.16), what each may have to itself (2.17), then F."""
        assert self.data.is_complete and self.prior.noise == "feature", "see moves"  # noqa: PT018
        Z, L, tau, Y = rows.Z.copy(), rows.L * columns.scale, rows.tau.copy(), self.data.Y
        alpha, logit = self.prior.by_row(columns.alpha), self.logit_rows(columns.logit, rows)
        alpha, logit = (np.broadcast_to(values, L.shape) for values in (alpha, logit))
        key, sweep = stream_words(noise.stream)
        for i in np.roll(np.arange(len(tau)), -noise.start)[: noise.n_rows]:
            at = np.log(tau[i : i + 1])
            first, second = uniform_pair(np.arange(TRIES + 1), i, sweep, STREAM_SLICE, key)
            draws = float(np.log(first[0])), float(second[0]), first[1:]

            def of_tau(at: Array, i: int = i) -> float:
                return self.own_density(i, L[i], np.exp(at[0]), L, tau) + at[0]

            tau[i] = np.exp(at + slice_step(of_tau, at, np.ones(1), TAU_WIDTH, *draws))[0]
            K, places = L.shape[1], np.arange(TRIES + 2)
            for k in range(K):
                first, second = uniform_pair((k + 1) * (TRIES + 2) + places, i, sweep, STREAM_SLICE, key)
                self.draw_own(i, k, Z, L, tau, alpha[i, k], logit[i, k], first, second[0])
                first, second = uniform_pair((K + 1 + k) * (TRIES + 2) + places, i, sweep, STREAM_SLICE, key)
                self.draw_free(i, k, Z, L, tau, alpha[i, k], logit[i, k], first, second)
        weighted = tau[:, None] * L
        Q = np.eye(L.shape[1]) + weighted.T @ L
        F = [draw_normal(Q, weighted.T @ y, normal) for y, normal in zip(Y.T, noise.normal.T, strict=True)]
        return rows._replace(Z=Z, L=L, tau=tau), np.array(F).T

    def own_density(self, i: int, l: Array, tau_i: float, L: Array, tau: Array) -> float:
        """log p(Y | L, tau) p(tau_i) with row i as given, up to a constant."""
        L, tau = L.copy(), tau.copy()
        L[i], tau[i] = l, tau_i
        covariance = L @ L.T + np.diag(1 / tau)
        fit = -0.5 * self.data.n_samples * np.linalg.slogdet(covariance)[1]
        fit -= 0.5 * np.sum(self.data.Y * np.linalg.solve(covariance, self.data.Y))
        return float(fit + log_gamma_density(tau_i, self.prior.noise_shape, self.noise_rate[i]))

    def told_by_others(self, i: int, L: Array, tau: Array) -> tuple[Array, Array]:
        """V (K, K) and C (K, N): given all rows but i, f_j is normal with mean V C_j and covariance V."""
        others = np.arange(len(L)) != i
        weighted = L[others].T * tau[others]
        return np.linalg.inv(np.eye(L.shape[1]) + weighted @ L[others]), weighted @ self.data.Y[others]

    def draw_own(
        self,
        i: int,
        k: int,
        Z: NDArray[np.int8],
        L: Array,
        tau: Array,
        alpha: float,
        logit: float,
        u: Array,
        u_accept: float,
    ) -> None:
        """z_ik and l_ik along the curve on which y_i's variance given all other rows does not change (2.17)."""
        V, _ = self.told_by_others(i, L, tau)
        if V[k, k] < LOOSE:
            return

        def moved(x: float) -> Array:
            return np.where(np.arange(L.shape[1]) == k, x, L[i])

        v = 1 / tau[i] + L[i] @ V @ L[i]
        low, high = np.sort(np.roots([V[k, k], 2 * V[k] @ moved(0.0), moved(0.0) @ V @ moved(0.0) - v]))

        def precision(x: float) -> float:
            return float(1 / (v - moved(x) @ V @ moved(x)))

        def density(x: float) -> float:
            if not 0.0 < precision(x) < np.inf:
                return -np.inf
            return self.own_density(i, moved(x), precision(x), L, tau) + 2.0 * np.log(precision(x))

        def slab(x: float) -> float:
            return float(0.5 * np.log(alpha / (2 * np.pi)) - 0.5 * alpha * x**2)

        # A loading is born anywhere between low and high, or dies.
        other = 0.0 if Z[i, k] else low + u[0] * (high - low)
        born = logit + slab(L[i, k] if Z[i, k] else other) + np.log(high - low)
        if np.log(u_accept) < density(other) - density(L[i, k]) + (-born if Z[i, k] else born):
            tau[i], Z[i, k], L[i, k] = precision(other), 1 - Z[i, k], other
        if Z[i, k]:
            x = L[i, k : k + 1].copy()
            bracket = float((x[0] - low) / (high - low)), u[2:]
            step = slice_step(
                lambda at: density(at[0]) + slab(at[0]), x, np.ones(1), high - low, np.log(u[1]), *bracket
            )
            tau[i], L[i, k] = precision(float(x[0] + step[0])), x[0] + step[0]

    def draw_free(
        self,
        i: int,
        k: int,
        Z: NDArray[np.int8],
        L: Array,
        tau: Array,
        alpha: float,
        logit: float,
        first: Array,
        second: Array,
    ) -> None:
        """z_ik and l_ik given all but the activations (2.17b)."""
        V, C = self.told_by_others(i, L, tau)
        if V[k, k] < HELD:
            return

        def moved(x: float) -> Array:
            return np.where(np.arange(L.shape[1]) == k, x, L[i])

        def density(x: float) -> float:
            slab = 0.5 * np.log(alpha / (2 * np.pi)) - 0.5 * alpha * x**2
            return self.own_density(i, moved(x), tau[i], L, tau) + float(slab)

        # A loading is born from a normal, or dies: its density if y_i had the variance that it has without it.
        v = 1 / tau[i] + moved(0.0) @ V @ moved(0.0)
        ahead = V[k] @ C  # the mean of f_k given all other rows
        precision = ahead @ ahead / v + alpha
        mean = ahead @ (self.data.Y[i] - moved(0.0) @ V @ C) / (v * precision)
        other = mean + float(normal_from(first[1], second[1])) / np.sqrt(precision)
        inside = L[i, k] if Z[i, k] else other
        proposal = 0.5 * np.log(precision / (2 * np.pi)) - 0.5 * precision * (inside - mean) ** 2
        born = logit + density(inside) - self.own_density(i, moved(0.0), tau[i], L, tau) - proposal
        if np.log(first[0]) < (-born if Z[i, k] else born):
            Z[i, k], L[i, k] = 1 - Z[i, k], 0.0 if Z[i, k] else other
        if Z[i, k]:
            x, width = L[i, k : k + 1].copy(), FREE_WIDTH / np.sqrt(precision)
            draws = float(np.log(second[0])), second[2], first[2:]
            L[i, k] = (x + slice_step(lambda at: density(at[0]), x, np.ones(1), width, *draws))[0]


def slice_step(
    target: Callable[[Array], float],
    at: Array,
    along: Array,
    width: float,
    log_height: float,
    bracket: float,
    tries: Array,
) -> Array:
    """A step by slice sampling: a bracket laid around the present point at random shrinks towards it."""
    height = target(at) + log_height
    low = -width * bracket
    high = low + width
    for u in tries:
        step = low + u * (high - low)
        if target(at + step * along) > height:
            return np.asarray(step * along)
        low, high = (step, high) if step < 0.0 else (low, step)
    return np.zeros_like(along)


def log_logit_beta(y: float, a: float, b: float) -> float:
    """log density of logit pi = y where pi ~ Beta(a, b)."""
    return float(-a * np.logaddexp(0.0, -y) - b * np.logaddexp(0.0, y) - betaln(a, b))


def draw_normal(Q: Array, linear: Array, normal: Array) -> Array:
    """A draw from N(Q^-1 linear, Q^-1) made of standard normals, through Q = C C'."""
    C = np.linalg.cholesky(Q)
    return np.asarray(np.linalg.solve(C.T, np.linalg.solve(C, linear) + normal))
