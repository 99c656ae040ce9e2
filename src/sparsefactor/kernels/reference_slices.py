"""The oracle's moves by slice sampling, in plain NumPy, one equation a line (math.md, 2.15)."""

from __future__ import annotations

import numpy as np
from scipy.special import betaln, expit

from ..densities import log_gamma_density
from ..model import Beta
from .contract import ALPHA_WIDTH, RATE_WIDTH, Array, ColumnNoise, GibbsColumns, GibbsRows
from .noise import move_noise
from .reference_own import ReferenceOwnParts, slice_step


class ReferenceSlices(ReferenceOwnParts):
    """What is drawn of one factor, or of one row, with all that depends on it integrated out."""

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


def log_logit_beta(y: float, a: float, b: float) -> float:
    """log density of logit pi = y where pi ~ Beta(a, b)."""
    return float(-a * np.logaddexp(0.0, -y) - b * np.logaddexp(0.0, y) - betaln(a, b))
