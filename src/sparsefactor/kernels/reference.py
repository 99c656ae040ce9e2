"""THE ORACLE: every update in plain NumPy, one equation a line, slow and obvious. Other engines must agree with it.

Equation numbers are those of math.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import digamma, expit, gammaln, softmax

from ..arrays import NUMPY
from ..data import Data
from ..densities import gamma_kl
from ..model import Prior
from .contract import (
    Array,
    GibbsColumns,
    GibbsRows,
    GibbsTerms,
    Message,
    PrecisionNoise,
    RowNoise,
    Sums,
    VIColumns,
    VIRows,
    VITerms,
)
from .correlation import prior_precision
from .noise import row_noise
from .reference_moves import ReferenceMoves
from .reference_own import draw_normal
from .rows import RowVerbs


class ReferenceEngine(ReferenceMoves, RowVerbs):
    """The oracle as an engine for one data set and prior."""

    def __init__(self, data: Data, prior: Prior) -> None:
        prior = prior.in_units_of(data)
        self.data, self.prior = data, prior
        self.feature_noise = prior.noise == "feature"
        self.observed = None if data.observed is None else data.observed.astype(np.float64)
        self.by_group = (prior.K, len(prior.group_names)) if prior.grouped else (prior.K,)
        self.tau_shape = prior.noise_shape + 0.5 * data.row_count
        self.noise_rate = np.broadcast_to(prior.noise_rate if self.feature_noise else 1.0, data.n_features)

    name = "reference"

    def with_prior(self, prior: Prior) -> ReferenceEngine:
        """The same engine under another prior."""
        return type(self)(self.data, prior)

    @property
    def has_own_parts(self) -> bool:
        return True

    def precisions_of(self, data: Data, prior: Prior) -> Any:
        """`gibbs_precisions` of data with a design: that of what the directions leave of them."""

        def drawn(rows: GibbsRows, columns: GibbsColumns, noise: PrecisionNoise) -> tuple[GibbsRows, Array]:
            assert data.design is not None
            left = data.Y - rows.base @ data.design.basis
            Y = left if data.observed is None else np.where(data.observed, left, 0.0)
            engine = ReferenceEngine(replace(data.without_design(), Y=Y), prior)
            return engine.gibbs_precisions(rows, columns, noise)

        return drawn

    def vi_shortcut(self, joint: bool) -> None:
        """None: the oracle takes no short cuts."""
        return None

    # ---- what both methods share ------------------------------------------------------------------------------

    def row_gram(self, i: int, message: Message) -> Array:
        """A_i = sum over the samples observed in row i of weight times E[f f'] (4.4)."""
        if self.observed is None:
            return message.gram
        return np.einsum("j,jkl->kl", self.observed[i], message.share)

    def seen_by(self, i: int, message: Message) -> Message:
        """The message with row i's own slab precisions and prior log odds, (K,) each: those of its group (1.10)."""
        return message._replace(
            alpha=self.of_row(i, message.alpha),
            log_alpha=self.of_row(i, message.log_alpha),
            logit=self.logit_rows(message.logit)[i],
        )

    def of_row(self, i: int, values: Array) -> Array:
        """(K,) of values (K,) or (K, V)."""
        return values if values.ndim == 1 else values[:, self.prior.group_index[i]]

    def empty_sums(self) -> Sums:
        K, N = self.prior.K, self.data.n_samples
        masked = 0 if self.observed is None else N
        return Sums(
            LY=np.zeros((K, N)),
            LL=np.zeros((K, K)),
            LL_share=np.zeros((masked, K, K)),
            active=np.zeros(self.by_group),
            l2=np.zeros(self.by_group),
        )

    def add_row(self, sums: Sums, i: int, weight: float, l_mean: Array, l_outer: Array) -> None:
        """Row i's part of the sums that F needs (4.3)."""
        sums.LY[...] += weight * np.outer(l_mean, self.data.Y[i])
        if self.observed is None:
            sums.LL[...] += weight * l_outer
        else:
            sums.LL_share[...] += weight * self.observed[i][:, None, None] * l_outer

    def add_to_group(self, sums: Sums, i: int, active: Array, l_square: Array) -> None:
        """Row i's part of the sums that alpha and pi need."""
        own = (slice(None), self.prior.group_index[i]) if self.prior.grouped else slice(None)
        sums.active[own] += active
        sums.l2[own] += l_square

    def sample_gram(self, j: int, sums: Sums) -> Array:
        """D_j = sum over the rows observed in sample j of w_i E[l l'] (4.5)."""
        return sums.LL if self.observed is None else sums.LL + sums.LL_share[j]

    # ---- variational inference --------------------------------------------------------------------------------

    def vi_row_pass(self, rows: VIRows, message: Message) -> tuple[VIRows, Sums]:
        """q(tau_i), then q(l_ik, z_ik) for k = 1..K, of every row (3.3, 3.1), with their ELBO terms (3.8 to 3.10)."""
        if self.prior.n_modules > 1:
            return self.row_pass_in_modules(rows, message)
        prior, data = self.prior, self.data
        mu, s2 = rows.mu * message.scale, rows.s2 * message.scale**2
        eta, tau = rows.eta.copy(), rows.tau.copy()
        sums, common = self.empty_sums(), message
        likelihood = loadings = noise = 0.0
        for i in range(data.n_features):
            message = self.seen_by(i, common)
            A = self.row_gram(i, message)
            b = message.F.T @ data.Y[i]
            if self.feature_noise:
                # A sum of squares formed by differences may round below zero.
                tau_rate = self.noise_rate[i] + 0.5 * max(self.expected_rss(i, A, b, mu[i], s2[i], eta[i]), 0.0)
                tau[i] = self.tau_shape[i] / tau_rate
                likelihood += 0.5 * data.row_count[i] * (digamma(self.tau_shape[i]) - np.log(tau_rate))
                noise -= float(gamma_kl(self.tau_shape[i], tau_rate, prior.noise_shape, self.noise_rate[i]))
            for k in range(prior.K):
                others = np.arange(prior.K) != k
                precision = tau[i] * A[k, k] + message.alpha[k]
                linear = tau[i] * (b[k] - A[k, others] @ (eta[i, others] * mu[i, others]))
                s2[i, k] = 1.0 / precision
                mu[i, k] = s2[i, k] * linear
                bayes_factor = 0.5 * (message.log_alpha[k] + np.log(s2[i, k]) + mu[i, k] ** 2 / s2[i, k])
                eta[i, k] = expit(message.logit[k] + bayes_factor)
            l_mean = eta[i] * mu[i]
            l_square = eta[i] * (mu[i] ** 2 + s2[i])
            l_outer = np.outer(l_mean, l_mean)
            np.fill_diagonal(l_outer, l_square)
            self.add_row(sums, i, tau[i], l_mean, l_outer)
            self.add_to_group(sums, i, eta[i], l_square)
            likelihood -= 0.5 * tau[i] * self.expected_rss(i, A, b, mu[i], s2[i], eta[i])
            loadings += loadings_term(mu[i], s2[i], eta[i], message)
        return VIRows(mu, s2, eta, tau), sums._replace(elbo=VITerms(likelihood, loadings, noise))

    def row_pass_in_modules(self, rows: VIRows, message: Message) -> tuple[VIRows, Sums]:
        """The same where the inclusions of a row depend on its module, which is unknown (3.17)."""
        prior, data, K = self.prior, self.data, self.prior.K
        mu, s2 = rows.mu * message.scale, rows.s2 * message.scale**2
        eta, tau = rows.eta.copy(), rows.tau.copy()
        member, within = rows.member.copy(), rows.within.copy()
        M = member.shape[1]
        logit = message.log_in - message.log_out
        sums = self.empty_sums()._replace(members=np.zeros(M), active_in=np.zeros((K, M)))
        likelihood = loadings = noise = 0.0
        for i in range(data.n_features):
            A = self.row_gram(i, message)
            b = message.F.T @ data.Y[i]
            if self.feature_noise:
                rss = self.module_rss(i, A, b, mu[i], s2[i], within[i])
                tau_rate = self.noise_rate[i] + 0.5 * max(member[i] @ rss, 0.0)
                tau[i] = self.tau_shape[i] / tau_rate
                likelihood += 0.5 * data.row_count[i] * (digamma(self.tau_shape[i]) - np.log(tau_rate))
                noise -= float(gamma_kl(self.tau_shape[i], tau_rate, prior.noise_shape, self.noise_rate[i]))
            for k in range(K):
                others = np.arange(K) != k
                linear = tau[i] * (b[k] - A[k, others] @ (mu[i, others, None] * within[i, others]))
                s2[i, k] = 1.0 / (tau[i] * A[k, k] + message.alpha[k])
                share = member[i] * within[i, k]
                share = share if share.sum() > 0.0 else member[i]
                mu[i, k] = s2[i, k] * (share @ linear) / share.sum()
                bayes_factor = 0.5 * (message.log_alpha[k] + np.log(s2[i, k]) - mu[i, k] ** 2 / s2[i, k])
                within[i, k] = expit(logit[k] + bayes_factor + mu[i, k] * linear)
            slab = 0.5 * (message.log_alpha + np.log(s2[i]) + 1.0 - message.alpha * (mu[i] ** 2 + s2[i]))
            inside, outside = within[i], 1.0 - within[i]
            gain = inside * (message.log_in + slab[:, None] - safe_log(inside))
            gain += outside * (message.log_out - safe_log(outside))
            divergence = message.log_weight + gain.sum(axis=0)
            rss = self.module_rss(i, A, b, mu[i], s2[i], within[i])
            member[i] = softmax(divergence - 0.5 * tau[i] * rss)
            eta[i] = np.minimum(within[i] @ member[i], 1.0)  # member adds up to one but for rounding
            l_given = mu[i, :, None] * within[i]
            l_outer = (l_given * member[i]) @ l_given.T
            l_square = eta[i] * (mu[i] ** 2 + s2[i])
            np.fill_diagonal(l_outer, l_square)
            self.add_row(sums, i, tau[i], eta[i] * mu[i], l_outer)
            sums.active[...] += eta[i]
            sums.l2[...] += l_square
            sums.members[...] += member[i]
            sums.active_in[...] += within[i] * member[i]
            likelihood -= 0.5 * tau[i] * (member[i] @ rss)
            loadings += member[i] @ (divergence - safe_log(member[i]))
        sums = sums._replace(elbo=VITerms(likelihood, loadings, noise))
        return VIRows(mu, s2, eta, tau, member, within), sums

    def module_rss(self, i: int, A: Array, b: Array, mu: Array, s2: Array, within: Array) -> Array:
        """(M,) the expected residual sum of squares (3.4) given each module."""
        return np.array([self.expected_rss(i, A, b, mu, s2, eta) for eta in within.T])

    def expected_rss(self, i: int, A: Array, b: Array, mu: Array, s2: Array, eta: Array) -> float:
        """E[sum over observed j of weight (y_ij - l_i'f_j)^2] (3.4); without the y^2 part for column-wise noise."""
        l_mean = eta * mu
        l_variance = eta * (mu**2 + s2) - l_mean**2
        y_square = self.data.row_ss[i] if self.feature_noise else 0.0
        return float(y_square - 2.0 * l_mean @ b + l_mean @ A @ l_mean + np.diag(A) @ l_variance)

    def vi_activations(self, columns: VIColumns, sums: Sums, weight: Array) -> tuple[Array, Array]:
        """q(f_j): coordinate by coordinate (3.5), or jointly over the factors (3.6)."""
        K, N = columns.f_mean.shape
        mean, prior = columns.f_mean.copy(), prior_precision(columns, NUMPY)
        if columns.f_var.ndim == 3:
            covariance = np.empty((N, K, K))
            for j in range(N):
                covariance[j] = np.linalg.inv(prior + weight[j] * self.sample_gram(j, sums))
                mean[:, j] = weight[j] * covariance[j] @ sums.LY[:, j]
            return mean, covariance
        variance = np.empty((K, N))
        for j in range(N):
            D = self.sample_gram(j, sums)
            for k in range(K):
                others = np.arange(K) != k
                precision = prior[k] + weight[j] * D[k]
                variance[k, j] = 1.0 / precision[k]
                mean[k, j] = variance[k, j] * (weight[j] * sums.LY[k, j] - precision[others] @ mean[others, j])
        return mean, variance

    # ---- Gibbs sampling -----------------------------------------------------------------------------------------

    def row_noise(self, key: tuple[int, int], sweep: int) -> RowNoise:
        return row_noise(key, sweep, np.arange(self.data.n_features), self.prior.K, self.tau_shape)

    def gibbs_row_pass(self, rows: GibbsRows, message: Message, noise: RowNoise) -> tuple[GibbsRows, Sums]:
        """tau_i, then z_ik for k = 1..K with l_i integrated out, then l_i (2.1 to 2.4), of every row."""
        prior, data = self.prior, self.data
        L, Z, tau = rows.L * message.scale, rows.Z.copy(), rows.tau.copy()
        sums, common = self.empty_sums(), message._replace(logit=self.logit_rows(message.logit, rows))
        weighted_ss = noise_part = log_odds = 0.0
        for i in range(data.n_features):
            message = self.seen_by(i, common)
            A = self.row_gram(i, message)
            b = message.F.T @ data.Y[i]
            if self.feature_noise:
                rss = data.row_ss[i] - 2.0 * L[i] @ b + L[i] @ A @ L[i]
                tau[i] = noise.gamma[i] / (self.noise_rate[i] + 0.5 * max(rss, 0.0))
                log_density = prior.noise_shape * np.log(self.noise_rate[i]) - gammaln(prior.noise_shape)
                log_density += (prior.noise_shape - 1) * np.log(tau[i]) - self.noise_rate[i] * tau[i]
                weighted_ss += tau[i] * data.row_ss[i]
                noise_part += 0.5 * data.row_count[i] * np.log(tau[i]) + log_density
            for k in range(prior.K):
                odds = message.logit[k] + self.log_bayes_factor(k, Z[i], tau[i] * A, tau[i] * b, message)
                Z[i, k] = noise.uniform[i, k] < expit(odds)
            active = Z[i] == 1
            Q = tau[i] * A[np.ix_(active, active)] + np.diag(message.alpha[active])
            L[i] = 0.0
            L[i, active] = draw_normal(Q, tau[i] * b[active], noise.normal[i, active])
            self.add_row(sums, i, tau[i], L[i], np.outer(L[i], L[i]))
            self.add_to_group(sums, i, Z[i], L[i] ** 2)
            log_odds += message.logit @ Z[i]
        return rows._replace(Z=Z, L=L, tau=tau), sums._replace(joint=GibbsTerms(weighted_ss, noise_part, log_odds))

    def log_bayes_factor(self, k: int, z: Array, A: Array, b: Array, message: Message) -> float:
        """log of p(y | z_k = 1) / p(y | z_k = 0) with l integrated out (2.2): the Schur complement of adding k."""
        rest = (z == 1) & (np.arange(len(z)) != k)
        Q = A[np.ix_(rest, rest)] + np.diag(message.alpha[rest])
        coupling = np.linalg.solve(Q, A[rest, k])
        c = A[k, k] + message.alpha[k] - A[rest, k] @ coupling
        r = b[k] - coupling @ b[rest]
        return float(0.5 * np.log(message.alpha[k]) - 0.5 * np.log(c) + 0.5 * r**2 / c)

    def gibbs_activations(self, sums: Sums, weight: Array, prior: Array, normal: Array) -> Array:
        """f_j given the rest (2.5)."""
        K, N = normal.shape
        F = np.empty((K, N))
        for j in range(N):
            Q = prior + weight[j] * self.sample_gram(j, sums)
            F[:, j] = draw_normal(Q, weight[j] * sums.LY[:, j], normal[:, j])
        return F


def loadings_term(mu: Array, s2: Array, eta: Array, message: Message) -> float:
    """E[log p(l, z) - log q(l, z)] of one row, without log(1 - pi), which the columns know (3.8)."""
    slab = 0.5 * (message.log_alpha + np.log(s2) + 1.0 - message.alpha * (mu**2 + s2))
    entropy = -(eta * safe_log(eta) + (1.0 - eta) * safe_log(1.0 - eta))
    return float(np.sum(eta * (slab + message.logit) + entropy))


def safe_log(x: Array) -> Array:
    """log(x), and 0 at x = 0, for terms of the form x log x."""
    return np.asarray(np.log(np.where(x > 0, x, 1.0)))
