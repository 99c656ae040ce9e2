"""The oracle's moves on pairs of factors, in plain NumPy, one equation a line (docs/math.md, 2.10 and 2.11)."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, softmax

from .contract import Array, GibbsColumns, GibbsRows, RotationNoise, ShearNoise
from .noise import move_noise
from .reference_own import draw_normal
from .reference_slices import ReferenceSlices


class ReferenceMoves(ReferenceSlices):
    """What moves ask of an engine, for one data set and prior."""

    def gibbs_shear(self, rows: GibbsRows, columns: GibbsColumns, noise: ShearNoise) -> tuple[GibbsRows, Array]:
        """f_k -> f_k + e f_q for every k, column q of (Z, L) integrated out and then drawn, for each q (2.11)."""
        Z, L, F, weight = rows.Z.copy(), rows.L * columns.scale, columns.F.copy(), columns.weight
        alpha, logit = self.prior.by_row(columns.alpha), self.logit_rows(columns.logit, rows)
        observed = np.ones(self.data.Y.shape) if self.observed is None else self.observed
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
                    if log_uniform < fit.sum() - e * F[k] @ F[q] - 0.5 * e**2 * F[q] @ F[q]:
                        r = new
                        F[k] += e * F[q]
            uniform, normal = move_noise(noise.stream, d, len(L), 1)
            Z[:, q] = uniform < expit(offset + 0.5 * r**2 / c)
            L[:, q] = np.where(Z[:, q], r / c + normal[:, 0] / np.sqrt(c), 0.0)
        return rows._replace(Z=Z, L=L), F

    def gibbs_rotate(
        self, rows: GibbsRows, columns: GibbsColumns, noise: RotationNoise
    ) -> tuple[GibbsRows, Array, Array]:
        """Exchange, then turn, each pair (f_k, f_q), their columns of (Z, L) integrated out and then drawn (2.10)."""
        logit, weight = columns.logit, columns.weight
        Z, L, F, alpha = rows.Z.copy(), rows.L * columns.scale, columns.F.copy(), columns.alpha.copy()
        observed = np.ones(self.data.Y.shape) if self.observed is None else self.observed
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
            height = pair_density(turn, r, B, own, odds) + noise.log_height[p]
            low = -np.pi * noise.bracket[p]
            high = low + np.pi
            for u in noise.angle[p]:
                angle = low + u * (high - low)
                if pair_density(rotation(angle) @ turn, r, B, own, odds) > height:
                    turn = rotation(angle) @ turn
                    break
                low, high = (angle, high) if angle < 0.0 else (low, angle)
            F[pair] = turn @ F[pair]
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
        return rows._replace(Z=Z, L=L), F, alpha

    def alpha_rows(self, alpha: Array) -> Array:
        """(G, K) each row's own slab precisions."""
        return np.broadcast_to(self.prior.by_row(alpha), (self.data.n_features, len(alpha)))


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
