"""The oracle's draw of what belongs to one feature, in plain NumPy, one equation a line (math.md, 2.16, 2.17)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..arrays import NUMPY
from ..data import Data
from ..densities import log_gamma_density
from ..model import Prior
from .contract import FREE_WIDTH, HELD, LOOSE, TAU_WIDTH, TRIES, Array, GibbsColumns, GibbsRows, PrecisionNoise
from .correlation import inverse_of
from .noise import STREAM_SLICE, normal_from, stream_words, uniform_pair


class ReferenceOwnParts:
    """Noise and loadings of one row after another with the activations integrated out, noise by feature."""

    data: Data
    noise_rate: Array
    prior: Prior
    observed: NDArray[np.float64] | None

    def gibbs_precisions(
        self, rows: GibbsRows, columns: GibbsColumns, noise: PrecisionNoise
    ) -> tuple[GibbsRows, Array]:
        """tau_i of some rows with F integrated out (2.16), what each may have to itself (2.17), then F."""
        assert self.prior.noise == "feature", "see moves"
        Z, L, tau = rows.Z.copy(), rows.L * columns.scale, rows.tau.copy()
        alpha, logit = self.prior.by_row(columns.alpha), self.logit_rows(columns.logit, rows)
        alpha, logit = (np.broadcast_to(values, L.shape) for values in (alpha, logit))
        prior = inverse_of(columns.phi, L.shape[1], NUMPY)
        key, sweep = stream_words(noise.stream)
        for i in np.roll(np.arange(len(tau)), -noise.start)[: noise.n_rows]:
            at = np.log(tau[i : i + 1])
            first, second = uniform_pair(np.arange(TRIES + 1), i, sweep, STREAM_SLICE, key)
            draws = float(np.log(first[0])), float(second[0]), first[1:]

            def of_tau(at: Array, i: int = i) -> float:
                return self.own_density(i, L[i], np.exp(at[0]), L, tau, prior) + at[0]

            tau[i] = np.exp(at + slice_step(of_tau, at, np.ones(1), TAU_WIDTH, *draws))[0]
            K, places = L.shape[1], np.arange(TRIES + 2)
            for k in range(K):
                first, second = uniform_pair((k + 1) * (TRIES + 2) + places, i, sweep, STREAM_SLICE, key)
                self.draw_own(i, k, Z, L, tau, prior, alpha[i, k], logit[i, k], first, second[0])
                first, second = uniform_pair((K + 1 + k) * (TRIES + 2) + places, i, sweep, STREAM_SLICE, key)
                self.draw_free(i, k, Z, L, tau, prior, alpha[i, k], logit[i, k], first, second)
        F = np.empty(noise.normal.shape)
        for own, samples in self.patterns():
            weighted = tau[own, None] * L[own]
            Q = prior + weighted.T @ L[own]
            for j in samples:
                F[:, j] = draw_normal(Q, weighted.T @ self.data.Y[own, j], noise.normal[:, j])
        return rows._replace(Z=Z, L=L, tau=tau), F

    def patterns(self) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Rows that are observed together, and the samples in which these are and no others."""
        seen = np.ones(self.data.Y.shape) if self.observed is None else self.observed
        kinds, of = np.unique(seen.T, axis=0, return_inverse=True)
        return [(np.flatnonzero(kind), np.flatnonzero(of.ravel() == p)) for p, kind in enumerate(kinds)]

    def own_density(self, i: int, l: Array, tau_i: float, L: Array, tau: Array, prior: Array) -> float:
        """log p(Y | L, tau) p(tau_i) with row i as given, up to a constant; prior: Phi^-1."""
        L, tau = L.copy(), tau.copy()
        L[i], tau[i] = l, tau_i
        fit, phi = 0.0, np.linalg.inv(prior)
        for own, samples in self.patterns():
            Y, covariance = self.data.Y[np.ix_(own, samples)], L[own] @ phi @ L[own].T + np.diag(1 / tau[own])
            fit -= 0.5 * len(samples) * np.linalg.slogdet(covariance)[1]
            fit -= 0.5 * np.sum(Y * np.linalg.solve(covariance, Y))
        return float(fit + log_gamma_density(tau_i, self.prior.noise_shape, self.noise_rate[i]))

    def told_by_others(self, i: int, L: Array, tau: Array, prior: Array) -> tuple[Array, Array, Array]:
        """V (n, K, K), means (K, n) and y_i (n,) of the samples j in which row i is observed.

        Given all rows but i, f_j is normal with that mean, V_j C_j, and covariance V_j.
        """
        others, V, mean, y = np.arange(len(L)) != i, [], [], []
        for j in range(self.data.n_samples):
            if self.observed is not None and not self.observed[i, j]:
                continue
            seen = others if self.observed is None else others & (self.observed[:, j] > 0)
            weighted = L[seen].T * tau[seen]
            V.append(np.linalg.inv(prior + weighted @ L[seen]))
            mean.append(V[-1] @ weighted @ self.data.Y[seen, j])
            y.append(self.data.Y[i, j])
        return np.array(V), np.array(mean).T, np.array(y)

    def draw_own(
        self,
        i: int,
        k: int,
        Z: NDArray[np.int8],
        L: Array,
        tau: Array,
        prior: Array,
        alpha: float,
        logit: float,
        u: Array,
        u_accept: float,
    ) -> None:
        """z_ik and l_ik along the curve on which y_i's variance given all other rows does not change (2.17).

        Where samples differ in what is missing: its mean over those in which row i is observed.
        """
        V = self.told_by_others(i, L, tau, prior)[0].mean(axis=0)
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
            return self.own_density(i, moved(x), precision(x), L, tau, prior) + 2.0 * np.log(precision(x))

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
        prior: Array,
        alpha: float,
        logit: float,
        first: Array,
        second: Array,
    ) -> None:
        """z_ik and l_ik given all but the activations (2.17b)."""
        V, told, y = self.told_by_others(i, L, tau, prior)
        if V[:, k, k].mean() < HELD:
            return

        def moved(x: float) -> Array:
            return np.where(np.arange(L.shape[1]) == k, x, L[i])

        def density(x: float) -> float:
            slab = 0.5 * np.log(alpha / (2 * np.pi)) - 0.5 * alpha * x**2
            return self.own_density(i, moved(x), tau[i], L, tau, prior) + float(slab)

        # A loading is born from a normal, or dies: its density if y_i had the variance that it has without it.
        v = 1 / tau[i] + np.einsum("k,jkl,l->j", moved(0.0), V, moved(0.0))
        precision = np.sum(told[k] ** 2 / v) + alpha
        mean = np.sum(told[k] * (y - moved(0.0) @ told) / v) / precision
        other = mean + float(normal_from(first[1], second[1])) / np.sqrt(precision)
        inside = L[i, k] if Z[i, k] else other
        proposal = 0.5 * np.log(precision / (2 * np.pi)) - 0.5 * precision * (inside - mean) ** 2
        born = logit + density(inside) - self.own_density(i, moved(0.0), tau[i], L, tau, prior) - proposal
        if np.log(first[0]) < (-born if Z[i, k] else born):
            Z[i, k], L[i, k] = 1 - Z[i, k], 0.0 if Z[i, k] else other
        if Z[i, k]:
            x, width = L[i, k : k + 1].copy(), FREE_WIDTH / np.sqrt(precision)
            draws = float(np.log(second[0])), second[2], first[2:]
            L[i, k] = (x + slice_step(lambda at: density(at[0]), x, np.ones(1), width, *draws))[0]

    def logit_rows(self, logit: Array, rows: GibbsRows | None = None) -> Array:
        """(G, K) each row's own prior log odds, of logit (1, V or G, K), or (M, K) where rows are in modules."""
        if rows is not None and len(rows.member):
            return logit[rows.member]
        if len(logit) not in (1, self.data.n_features):
            return logit[self.prior.group_index]
        return np.broadcast_to(logit, (self.data.n_features, logit.shape[1]))


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


def draw_normal(Q: Array, linear: Array, normal: Array) -> Array:
    """A draw from N(Q^-1 linear, Q^-1) made of standard normals, through Q = C C'."""
    C = np.linalg.cholesky(Q)
    return np.asarray(np.linalg.solve(C.T, np.linalg.solve(C, linear) + normal))
