"""The oracle's moves on pairs of factors, in plain NumPy, one equation a line (math.md, 2.10 and 2.11)."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from ..arrays import NUMPY
from .contract import Array, GibbsColumns, GibbsRows, RotationNoise, ShearNoise
from .correlation import gaussian_density, inverse_of
from .noise import move_noise
from .reference_own import draw_normal
from .reference_slices import ReferenceSlices


class ReferenceMoves(ReferenceSlices):
    """What moves ask of an engine, for one data set and prior."""

    def gibbs_shear(self, rows: GibbsRows, columns: GibbsColumns, noise: ShearNoise) -> tuple[GibbsRows, Array, Array]:
        """f_k -> f_k + e f_q for every k, column q of (Z, L) integrated out and then drawn, for each q (2.11)."""
        Z, L, F, weight = rows.Z.copy(), rows.L * columns.scale, columns.F.copy(), columns.weight
        alpha, logit = self.prior.by_row(columns.alpha), self.logit_rows(columns.logit, rows)
        observed, phi = np.ones(self.data.Y.shape) if self.observed is None else self.observed, columns.phi
        for d, q in enumerate(noise.order):
            rest = L.copy()
            rest[:, q] = 0.0
            residual = observed * (self.data.Y - rest @ F)
            r = rows.tau * (residual @ (weight * F[q]))
            squared = rows.tau * (observed @ (weight * F[q] ** 2))
            c = squared + alpha[:, q]
            offset = logit[:, q] + 0.5 * np.log(alpha[:, q] / c)
            for k in range(len(F)):
                if k == q:
                    continue
                for e, log_uniform in zip(noise.step[d, k], noise.log_uniform[d, k], strict=True):
                    change = e * Z[:, k] * L[:, k] * squared
                    new = r - change
                    fit = e * Z[:, k] * L[:, k] * (r - 0.5 * change)
                    fit += np.logaddexp(0.0, offset + 0.5 * new**2 / c) - np.logaddexp(0.0, offset + 0.5 * r**2 / c)
                    turn = np.eye(len(F))
                    turn[k, q] = e
                    gain = self.columns_density(turn, F, phi, columns.alpha)
                    gain -= self.columns_density(np.eye(len(F)), F, phi, columns.alpha)
                    if log_uniform < fit.sum() + gain:
                        r, F, phi = new, turn @ F, turned_phi(turn, phi)
            uniform, normal = move_noise(noise.stream, d, len(L), 1)
            Z[:, q] = uniform < expit(offset + 0.5 * r**2 / c)
            L[:, q] = np.where(Z[:, q], r / c + normal[:, 0] / np.sqrt(c), 0.0)
        return rows._replace(Z=Z, L=L), F, phi

    def columns_density(self, turn: Array, F: Array, phi: Array, alpha: Array) -> float:
        """log density of the columns after a change of the factors by a matrix of determinant one (2.11, 2.19c).

        phi: none, or the factors' covariance Sigma in the expanded model, of which |Sigma| does not change.
        """
        F, phi, K, n = turn @ F, turned_phi(turn, phi), len(F), F.shape[1]
        sigma = phi if len(phi) else np.eye(K)
        inverse = inverse_of(sigma, K, NUMPY)
        total = gaussian_density(sigma, inverse, F @ F.T, n, NUMPY)
        if len(phi):
            scale, a, b = np.diagonal(phi)[:, None], self.prior.loading_shape, self.prior.loading_rate
            total -= 0.5 * np.trace(inverse) + np.sum(a * np.log(scale) + b * alpha.reshape(K, -1) / scale)
        return float(total)

    def pair_density(
        self, turn: Array, pair: NDArray[np.intp], rows: tuple[Array, ...], columns: tuple[Array, ...]
    ) -> float:
        """Of rows and columns, after an orthogonal change of a pair."""
        return pair_density(turn, *rows) + self.columns_density(embedded(turn, pair, len(columns[0])), *columns)

    def gibbs_rotate(
        self, rows: GibbsRows, columns: GibbsColumns, noise: RotationNoise
    ) -> tuple[GibbsRows, Array, Array, Array]:
        """Exchange, then turn, each pair (f_k, f_q), their columns of (Z, L) integrated out and then drawn (2.10)."""
        logit, weight = columns.logit, columns.weight
        Z, L, F, alpha = rows.Z.copy(), rows.L * columns.scale, columns.F.copy(), columns.alpha.copy()
        observed, phi = np.ones(self.data.Y.shape) if self.observed is None else self.observed, columns.phi
        for p, pair in enumerate(noise.pairs):
            rest = L.copy()
            rest[:, pair] = 0.0
            residual = observed * (self.data.Y - rest @ F)
            r = rows.tau[:, None] * (residual @ (weight * F[pair]).T)
            B = rows.tau[:, None, None] * np.einsum("ij,aj,bj->iab", observed, weight * F[pair], F[pair])
            odds = self.logit_rows(logit, rows)[:, pair]
            turn = np.eye(2)
            if noise.exchange[p] < 1.0:
                own = self.alpha_rows(alpha)[:, pair]
                change = pair_density(turn[::-1], r, B, own[:, ::-1], odds) - pair_density(turn, r, B, own, odds)
                if noise.exchange[p] < expit(change):
                    turn, alpha[pair] = turn[::-1], alpha[pair][::-1]
            own = self.alpha_rows(alpha)[:, pair]

            density = partial(self.pair_density, pair=pair, rows=(r, B, own, odds), columns=(F, phi, alpha))
            height = density(turn) + noise.log_height[p]
            low = -np.pi * noise.bracket[p]
            high = low + np.pi
            for u in noise.angle[p]:
                angle = low + u * (high - low)
                if density(rotation(angle) @ turn) > height:
                    turn = rotation(angle) @ turn
                    break
                low, high = (angle, high) if angle < 0.0 else (low, angle)
            whole = embedded(turn, pair, len(F))
            F, phi = whole @ F, turned_phi(whole, phi)
            r, B = r @ turn.T, turn @ B @ turn.T
            uniform, normal = move_noise(noise.stream, p, len(L), 2)
            for i in range(len(L)):
                log_weight = pair_states(r[i], B[i], own[i], odds[i])
                code = np.sum(uniform[i] > np.cumsum(softmax(log_weight))[:-1])
                Z[i, pair] = code % 2, code // 2
                on = pair[Z[i, pair] == 1]
                active = Z[i, pair] == 1
                L[i, pair] = 0.0
                Q = B[i][np.ix_(active, active)] + np.diag(own[i, active])
                L[i, on] = draw_normal(Q, r[i, active], normal[i, active])
        return rows._replace(Z=Z, L=L), F, alpha, phi

    def alpha_rows(self, alpha: Array) -> Array:
        """(G, K) each row's own slab precisions."""
        return np.broadcast_to(self.prior.by_row(alpha), (self.data.n_features, len(alpha)))


def turned_phi(turn: Array, phi: Array) -> Array:
    """The factors' covariance after their change by a matrix."""
    return turn @ phi @ turn.T if len(phi) else phi


def embedded(turn: Array, pair: NDArray[np.intp], K: int) -> Array:
    """(K, K) a change of two factors that leaves the others as they are."""
    whole = np.eye(K)
    whole[np.ix_(pair, pair)] = turn
    return whole


def rotation(angle: float) -> Array:
    return np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])


def pair_density(turn: Array, r: Array, B: Array, alpha: Array, logit: Array) -> float:
    """log density of an orthogonal change of two factors' activations, up to a constant (2.10); (G, 2) alpha, logit."""
    rows = zip(r @ turn.T, turn @ B @ turn.T, alpha, logit, strict=True)
    return float(sum(np.logaddexp.reduce(pair_states(*row)) for row in rows))


def pair_states(r: Array, B: Array, alpha: Array, logit: Array) -> Array:
    """(4,) log weights of a row's z = 00, 10, 01, 11 with its two loadings integrated out (2.10)."""
    Q = B + np.diag(alpha)
    alone = logit + 0.5 * np.log(alpha / np.diag(Q)) + 0.5 * r**2 / np.diag(Q)
    both = logit.sum() + 0.5 * np.log(alpha).sum() - 0.5 * np.linalg.slogdet(Q)[1] + 0.5 * r @ np.linalg.solve(Q, r)
    return np.array([0.0, alone[0], alone[1], both])
