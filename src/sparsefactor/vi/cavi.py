"""Coordinate-ascent variational inference: the state, one sweep, and the ELBO's named terms (docs/math.md, 3).

A sweep is the column step (F, column-wise tau, alpha, pi, scale) and then the row pass (tau, l and z). That is the
paper's Algorithm 2 read from another point of the same cycle: alpha and tau do not depend on each other, so
"lz, F, tau, alpha" and "F, alpha, tau, lz" are the same rotation. Read so, one product Y F' serves both tau and lz,
and the ELBO of the state at the end of a sweep needs no further pass over the data.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, digamma

from ..data import Data
from ..kernels.contract import NONE, Array, Message, Sums, VIColumns, VIRows
from ..kernels.protocol import Engine
from ..model import LOG_2PI, Beta, Prior, column_noise_posterior, gamma_kl

TERMS = ("likelihood", "loadings", "activations", "noise_precision", "loading_precision", "inclusion_rate")


class VIState(NamedTuple):
    """Variational parameters at the end of a row pass, the rows' sums, and the ELBO there."""

    rows: VIRows
    columns: VIColumns
    sums: Sums
    terms: Array  # (6,) in the order of TERMS
    elbo: float


class CAVI:
    """The sweeps of one data set, prior and engine."""

    def __init__(self, data: Data, prior: Prior, engine: Engine, *, joint: bool = False) -> None:
        prior = prior.in_units_of(data)
        self.data, self.prior, self.engine, self.joint = data, prior, engine, joint
        self.column_noise = prior.noise != "feature"
        self.ones = np.ones(data.n_samples)
        self.n_kinds = len(np.unique(prior.factor_groups()))  # of factors
        self.sizes = prior.group_sizes if prior.grouped else data.n_features  # of the groups of features
        if not prior.learns_inclusion:
            pi = prior.inclusion_matrix()
            self.fixed_logit = np.log(pi) - np.log1p(-pi)
            self.fixed_log_out = float(np.sum(np.log1p(-np.broadcast_to(pi, (data.n_features, prior.K)))))
        self.shortcut = engine.vi_shortcut(joint)

    # ---- a whole sweep ------------------------------------------------------------------------------------------

    def start(self, L: Array, F: Array, Z: NDArray[np.int8] | None = None) -> VIState:
        """The state that follows from point values of L (G, K), F (K, N) and, where they are known, inclusions Z."""
        return self.begin(self.engine.vi_place(L, Z), F, known=Z is not None)

    def begin(self, rows: VIRows, F: Array, *, known: bool = False) -> VIState:
        """The state that follows from rows at point values and F (K, N); known: whether their inclusions are."""
        K, N = F.shape
        empty = np.zeros(0)
        if self.data.design is not None:
            rows = self.engine.vi_regress(rows, F)
        active, l2 = self.engine.vi_counts(rows)
        sums_alpha = Sums(LY=empty, LL=empty, LL_share=empty, active=active, l2=l2)
        alpha_shape, alpha_rate = self.update_alpha(sums_alpha)
        pi_a, pi_b = empty, empty
        if isinstance(self.prior.inclusion, Beta):
            pi_a, pi_b = (
                np.full_like(alpha_shape, value) for value in (self.prior.inclusion.a, self.prior.inclusion.b)
            )
            if known:
                pi_a, pi_b = self.update_pi(sums_alpha)
        tau_shape, tau_rate = empty, empty
        if self.column_noise:
            tau_shape, tau_rate = column_noise_posterior(self.data, self.prior, self.engine.vi_column_rss(rows, F))
        columns = VIColumns(
            f_mean=F.copy(),
            f_var=np.zeros((self.n_covariances(), K, K)) if self.joint else np.zeros((K, N)),
            tau_shape=tau_shape,
            tau_rate=tau_rate,
            alpha_shape=alpha_shape,
            alpha_rate=alpha_rate,
            pi_a=pi_a,
            pi_b=pi_b,
        )
        return self.finish(rows, columns, np.ones(K))

    def sweep(self, state: VIState, *, rescale: bool = False) -> VIState:
        """One iteration. `rescale` first moves every factor to its best scale (3.12); the ELBO never falls."""
        return self.finish(state.rows, *self.next_columns(state, rescale=rescale))

    def next_columns(self, state: VIState, *, rescale: bool) -> tuple[VIColumns, Array]:
        """The column step, and what the rows are to be multiplied by."""
        if self.shortcut is not None:
            return self.shortcut.next_columns(state.columns, state.sums, rescale)
        columns = self.column_step(state.columns, state.sums)
        if rescale and self.data.design is not None:
            columns = self.slid(state.rows, columns)
        return self.rescale(columns) if rescale else (columns, np.ones(len(columns.alpha_rate)))

    def column_step(self, columns: VIColumns, sums: Sums) -> VIColumns:
        """q(F), q(tau) if it is column-wise, q(alpha), q(pi), in this order, from the rows' sums alone."""
        f_mean, f_var = self.engine.vi_activations(columns, sums, self.weight(columns))
        columns = columns._replace(f_mean=f_mean, f_var=f_var)
        if self.column_noise:
            tau_shape, tau_rate = column_noise_posterior(self.data, self.prior, self.expected_rss(columns, sums))
            columns = columns._replace(tau_shape=tau_shape, tau_rate=tau_rate)
        alpha_shape, alpha_rate = self.update_alpha(sums)
        pi_a, pi_b = self.update_pi(sums)
        return columns._replace(alpha_shape=alpha_shape, alpha_rate=alpha_rate, pi_a=pi_a, pi_b=pi_b)

    def finish(self, rows: VIRows, columns: VIColumns, scale: Array) -> VIState:
        """The row pass, and the ELBO of the state it ends in."""
        rows, columns = self.landed(rows, columns)
        if self.shortcut is not None:
            rows, sums, terms, elbo = self.shortcut.finish(rows, columns, scale)
            return VIState(rows, columns, sums, terms, elbo)
        rows, sums = self.engine.vi_row_pass(rows, self.message(columns, scale))
        terms = self.elbo_terms(columns, sums)
        return VIState(rows, columns, sums, terms, float(terms.sum()))

    def landed(self, rows: VIRows, columns: VIColumns) -> tuple[VIRows, VIColumns]:
        """Rows with the slide that the columns bring put into their base; it was taken at the rows' present scale."""
        if columns.slide is NONE:
            return rows, columns
        return self.engine.vi_slide(rows, columns.slide), columns._replace(slide=NONE)

    def message(self, columns: VIColumns, scale: Array) -> Message:
        """What the rows need of the columns (4.2)."""
        F, weight = columns.f_mean, self.weight(columns)
        weighted = F * weight
        gram = weighted @ F.T
        K = len(F)
        share = np.zeros((0, K, K))
        if columns.f_var.ndim == 3:
            gram += self.weighted_covariance(columns.f_var, weight)
        else:
            gram[np.diag_indices(K)] += columns.f_var @ weight
        if not self.data.is_complete:
            share = weighted.T[:, :, None] * F.T[:, None, :]
            if columns.f_var.ndim == 3:
                share += weight[:, None, None] * columns.f_var
            else:
                share[:, np.arange(K), np.arange(K)] += (columns.f_var * weight).T
        return Message(
            F=np.ascontiguousarray(weighted.T),
            gram=gram,
            share=share,
            alpha=columns.alpha_shape / columns.alpha_rate,
            log_alpha=digamma(columns.alpha_shape) - np.log(columns.alpha_rate),
            logit=self.logit(columns),
            scale=scale,
            weight=weight,
        )

    def coordinates(self, columns: VIColumns) -> Array:
        """What is extrapolated (3.13)."""
        return columns.f_mean

    def moved(self, columns: VIColumns, coordinates: Array) -> VIColumns:
        """The columns at other coordinates."""
        return columns._replace(f_mean=coordinates)

    def elbo_terms(self, columns: VIColumns, sums: Sums) -> Array:
        """(6,) in the order of TERMS; complete, every constant included (3.7)."""
        likelihood, loadings, noise = sums.elbo
        likelihood -= 0.5 * self.data.n_observed * LOG_2PI
        if self.column_noise:
            likelihood += self.column_likelihood(columns)
            noise = self.noise_term(columns)
        return np.array(
            [
                likelihood,
                loadings + self.log_out(columns),
                self.activations_term(columns),
                noise,
                self.alpha_term(columns),
                self.pi_term(columns),
            ]
        )

    # ---- activations --------------------------------------------------------------------------------------------

    def n_covariances(self) -> int:
        """A joint q(f_j) has one covariance in all where every sample has the same precision, else one each."""
        return 1 if self.data.is_complete and self.prior.noise != "sample" else self.data.n_samples

    def weighted_covariance(self, covariance: Array, weight: Array) -> Array:
        if len(covariance) == 1:
            return np.asarray(covariance[0] * weight.sum())
        return np.einsum("j,jkl->kl", weight, covariance)

    def activations_term(self, columns: VIColumns) -> float:
        """E[log p(F) - log q(F)] = (K N + log det S - E|F|^2) / 2 (3.11)."""
        K, N = columns.f_mean.shape
        if columns.f_var.ndim == 3:
            repeats = N / len(columns.f_var)
            log_det = repeats * np.linalg.slogdet(columns.f_var)[1].sum() if columns.f_var.any() else -np.inf
            trace = repeats * np.trace(columns.f_var, axis1=1, axis2=2).sum()
        else:
            with np.errstate(divide="ignore"):
                log_det = np.log(columns.f_var).sum()
            trace = columns.f_var.sum()
        return float(0.5 * (K * N + log_det - np.sum(columns.f_mean**2) - trace))

    def second_moment(self, columns: VIColumns) -> Array:
        """(K,) E|f_k|^2."""
        f2 = np.sum(columns.f_mean**2, axis=1)
        if columns.f_var.ndim == 3:
            return f2 + columns.f_mean.shape[1] / len(columns.f_var) * np.einsum("jkk->k", columns.f_var)
        return f2 + columns.f_var.sum(axis=1)

    def slid(self, rows: VIRows, columns: VIColumns) -> VIColumns:
        """f_k -> f_k - e'C, base -> base + e l_k at the e that maximises the ELBO but for base's own prior (3.19)."""
        assert self.data.design is not None
        flat = ~self.data.design.learnt
        C, weight = self.data.design.basis[flat], self.weight(columns)
        if not len(C):
            return columns
        H = 1.0 + weight[:, None] * self.engine.vi_spread(rows)
        gram = np.einsum("jk,pj,qj->kpq", H, C, C, optimize=True)
        linear = np.einsum("jk,pj,kj->kp", H, C, columns.f_mean, optimize=True)
        slide = np.zeros((len(linear), len(flat)))
        slide[:, flat] = np.linalg.solve(gram, linear[:, :, None])[:, :, 0]
        return columns._replace(f_mean=columns.f_mean - slide[:, flat] @ C, slide=slide)

    def strength(self, state: VIState) -> Array:
        """(K,) sum over rows of E[l_ik^2] times E|f_k|^2, by which factors are ranked."""
        l2 = state.sums.l2
        return np.asarray((l2 if l2.ndim == 1 else l2.sum(axis=1)) * self.second_moment(state.columns))

    def rescale(self, columns: VIColumns) -> tuple[VIColumns, Array]:
        """(l_k, f_k, alpha_k) -> (l_k / c, c f_k, c^2 alpha_k) at the c that maximises the ELBO (3.12).

        Returns the columns at the new scale and 1 / c for the rows.
        """
        K, N = columns.f_mean.shape
        a, b = self.prior.loading_shape, self.prior.loading_rate
        prior_part = (2 * b * columns.alpha_shape / columns.alpha_rate).reshape(K, -1)
        c = np.sqrt((N + 2 * a * prior_part.shape[1]) / (self.second_moment(columns) + prior_part.sum(axis=1)))
        f_var = columns.f_var * (np.outer(c, c) if columns.f_var.ndim == 3 else c[:, None] ** 2)
        alpha_rate = columns.alpha_rate / (c**2 if columns.alpha_rate.ndim == 1 else c[:, None] ** 2)
        scaled = columns._replace(f_mean=columns.f_mean * c[:, None], f_var=f_var, alpha_rate=alpha_rate)
        return scaled, 1.0 / c

    # ---- noise that belongs to the columns (noise="shared" and "sample") ----------------------------------------

    def weight(self, columns: VIColumns) -> Array:
        """(N,) E[tau] of each column; ones where noise belongs to the rows."""
        return columns.tau_shape / columns.tau_rate if self.column_noise else self.ones

    def expected_rss(self, columns: VIColumns, sums: Sums) -> Array:
        """(N,) E[sum over observed i of (y_ij - l_i'f_j)^2] (3.4)."""
        F = columns.f_mean
        D = sums.LL[None] if self.data.is_complete else sums.LL + sums.LL_share
        quadratic = np.einsum("kj,jkl,lj->j", F, np.broadcast_to(D, (F.shape[1], *D.shape[1:])), F, optimize=True)
        if columns.f_var.ndim == 3:
            spread = np.broadcast_to(np.einsum("jkl,jkl->j", D, columns.f_var), F.shape[1:])
        else:
            spread = np.sum(np.einsum("jkk->kj", D) * columns.f_var, axis=0)
        column_ss = self.data.column_ss + sums.shift if sums.shift is not NONE else self.data.column_ss
        return column_ss - 2.0 * np.sum(F * sums.LY, axis=0) + quadratic + spread

    def column_likelihood(self, columns: VIColumns) -> float:
        """The likelihood's parts that depend on column-wise tau and on y^2 alone (3.10)."""
        log_tau = digamma(columns.tau_shape) - np.log(columns.tau_rate)
        return float(0.5 * (self.data.column_count @ log_tau - self.weight(columns) @ self.data.column_ss))

    def noise_term(self, columns: VIColumns) -> float:
        """-KL(q(tau) || p(tau)) (3.9)."""
        kl = gamma_kl(columns.tau_shape, columns.tau_rate, self.prior.noise_shape, self.prior.noise_rate)
        return -float(kl[0] if self.prior.noise == "shared" else kl.sum())

    # ---- slab precisions ------------------------------------------------------------------------------------------

    def update_alpha(self, sums: Sums) -> tuple[Array, Array]:
        """q(alpha_k) (3.2)."""
        return self.prior.loading_shape + 0.5 * sums.active, self.prior.loading_rate + 0.5 * sums.l2

    def alpha_term(self, columns: VIColumns) -> float:
        """-KL(q(alpha) || p(alpha)) (3.9)."""
        kl = gamma_kl(columns.alpha_shape, columns.alpha_rate, self.prior.loading_shape, self.prior.loading_rate)
        return -float(kl.sum())

    # ---- inclusion probabilities, where they are learnt -----------------------------------------------------------

    def update_pi(self, sums: Sums) -> tuple[Array, Array]:
        """q(pi_k) (3.6b)."""
        if not isinstance(self.prior.inclusion, Beta):
            return np.zeros(0), np.zeros(0)
        return self.prior.inclusion.a + sums.active, self.prior.inclusion.b + (self.sizes - sums.active)

    def logit(self, columns: VIColumns) -> Array:
        """(1, V or G, K) E[log pi - log(1 - pi)]."""
        if self.prior.learns_inclusion:
            logit = digamma(columns.pi_a) - digamma(columns.pi_b)
            return np.ascontiguousarray(logit.reshape(len(logit), -1).T)
        return self.fixed_logit

    def logit_rows(self, logit: Array) -> Array:
        """(1 or G, K) of what `logit` returned."""
        return logit if len(logit) in (1, self.data.n_features) else logit[self.prior.group_index]

    def log_out(self, columns: VIColumns) -> float:
        """The sum over rows and factors of E[log(1 - pi)], the part of E[log p(z)] that z does not change."""
        if not self.prior.learns_inclusion:
            return self.fixed_log_out
        out = digamma(columns.pi_b) - digamma(columns.pi_a + columns.pi_b)
        return float(self.sizes * np.sum(out) if out.ndim == 1 else np.sum(out @ self.sizes))

    def inclusion_rate(self, columns: VIColumns) -> Array:
        """(K, V?) E[pi], or (0,) where inclusion is given."""
        return columns.pi_a / (columns.pi_a + columns.pi_b)

    def pi_term(self, columns: VIColumns) -> float:
        """-KL(q(pi) || p(pi)) (3.9b)."""
        return -float(beta_kl(columns.pi_a, columns.pi_b, self.prior.inclusion).sum()) if len(columns.pi_a) else 0.0


def beta_kl(A: Array, B: Array, prior: Beta) -> Array:
    """KL(Beta(A, B) || prior), elementwise (3.9b)."""
    a, b, both = prior.a, prior.b, digamma(A + B)
    kl = betaln(a, b) - betaln(A, B) + (A - a) * (digamma(A) - both) + (B - b) * (digamma(B) - both)
    return np.asarray(kl)
