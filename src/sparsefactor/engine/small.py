"""The compiled iterations of small problems, between the states of VI and the arrays of their kernels."""

from __future__ import annotations

import numpy as np

from ..kernels.contract import Array, Climber, ELBOTerms, Sums, VIColumns, VIRows, VITerms
from ..kernels.cpu.tiles import Problem
from ..kernels.cpu.vi_climb import Pace, Slots, small_climb
from ..kernels.cpu.vi_rows import FactorMajor
from ..kernels.cpu.vi_small import Constants, Space, small_columns, small_finish, small_space
from ..model import Beta, Prior
from .blas import hold_single_blas_thread
from .by_factor import by_factor
from .memory import Memory


def constants_of(problem: Problem, prior: Prior, row_terms: VITerms) -> Constants:
    """row_terms: constants of the rows' ELBO terms."""
    G, N = problem.Y.shape
    logit, log_out, a, b = np.zeros(0), 0.0, 0.0, 0.0
    if isinstance(prior.inclusion, Beta):
        a, b = float(prior.inclusion.a), float(prior.inclusion.b)
    else:
        pi = np.broadcast_to(prior.inclusion_matrix(), (1, prior.K))[0]
        logit, log_out = np.log(pi) - np.log1p(-pi), float(G * np.sum(np.log1p(-pi)))
    return Constants(
        loading_shape=float(prior.loading_shape),
        loading_rate=float(prior.loading_rate),
        a=a,
        b=b,
        log_out=log_out,
        logit=logit,
        row_terms=np.array(row_terms),
        correlation_df=prior.correlation_df,
        n=float(N),
        ones=np.ones(N),
        no_share=np.zeros((0, 0)),
        no_rows=np.zeros(0, np.int64),
    )


def way_of(climber: Climber, trace: Array) -> list[tuple[int, float]]:
    """Iterations in all and the ELBO after each step of a climb, of which the kernel noted its own."""
    return list(zip((climber.iterations + trace[:, 0].astype(np.intp)).tolist(), trace[:, 1].tolist(), strict=True))


def matrix(phi: Array) -> Array:
    """(K, K) or (0, 0) of the columns' phi, (K, K) or (0,)."""
    return np.ascontiguousarray(phi).reshape(len(phi), -1) if len(phi) else np.zeros((0, 0))


class SmallVI:
    """A `VIShortcut` (kernels/cpu/vi_small.py)."""

    slides = False

    def __init__(
        self,
        problem: Problem,
        prior: Prior,
        row_terms: VITerms,
        memory: Memory,
        *,
        joint: bool,
    ) -> None:
        """row_terms: constants of the rows' ELBO terms."""
        self.problem, self.memory, self.joint = problem, memory, joint
        self.climbs, self.learnt = joint, isinstance(prior.inclusion, Beta)
        self.constants = constants_of(problem, prior, row_terms)
        self.no_share = np.zeros((0, prior.K, prior.K))
        self.spaces: list[Space] = []

    def next_columns(self, rows: VIRows, columns: VIColumns, sums: Sums, rescale: bool) -> tuple[VIColumns, Array]:
        K, N = columns.f_mean.shape
        f_mean, f_var = np.empty((K, N)), np.empty((1, K, K) if self.joint else (K, N))
        small, phi = np.empty((5, K)), np.empty((len(columns.phi),) * 2)
        G, spread = float(self.problem.Y.shape[0]), f_var[0] if self.joint else f_var
        known = (columns.f_mean, matrix(columns.phi), sums.LY, sums.LL, sums.active, sums.l2, G, self.constants)
        small_columns(*known, self.joint, rescale, f_mean, spread, small, phi)
        alpha_shape, alpha_rate, pi_a, pi_b, scale = small
        if not self.learnt:
            pi_a, pi_b = columns.pi_a, columns.pi_b
        empty = columns.tau_shape
        new = VIColumns(f_mean, f_var, empty, empty, alpha_shape, alpha_rate, pi_a, pi_b)
        return new._replace(phi=phi if len(phi) else columns.phi), scale

    def finish(self, rows: VIRows, columns: VIColumns, scale: Array) -> tuple[VIRows, Sums, ELBOTerms, float]:
        K, N = columns.f_mean.shape
        G = self.problem.Y.shape[0]
        before = FactorMajor(by_factor(rows.mu), by_factor(rows.s2), by_factor(rows.eta), rows.tau)
        block = self.memory.take(3 * K + 1, G)
        mu, s2, eta = block[:K], block[K : 2 * K], block[2 * K : 3 * K]
        after = FactorMajor(mu, s2, eta, block[3 * K])
        LY, LL, small, terms = np.empty((K, N)), np.empty((K, K)), np.empty(2 * K + 3), np.empty(7)
        space = self._space(K)
        hold_single_blas_thread()
        elbo = small_finish(
            columns.f_mean,
            columns.f_var[0] if self.joint else columns.f_var,
            matrix(columns.phi),
            self.joint,
            columns.alpha_shape,
            columns.alpha_rate,
            columns.pi_a,
            columns.pi_b,
            scale,
            self.constants,
            self.problem,
            before,
            after,
            space,
            (LY, LL, small, terms),
        )
        self.spaces.append(space)
        sums = Sums(LY, LL, self.no_share, small[:K], small[K : 2 * K], elbo=VITerms(*small[2 * K :].tolist()))
        return VIRows(mu.T, s2.T, eta.T, after.tau), sums, ELBOTerms(*terms.tolist()), elbo

    def climb(
        self, climber: Climber, tolerance: tuple[float, float], keep: float
    ) -> tuple[Climber, bool, list[tuple[int, float]]]:
        """Many iterations by one call; see `VIShortcut`."""
        pace = Pace(climber.until - climber.iterations, *tolerance, keep)
        rows, columns, sums, terms, elbo = climber.state
        (K, N), G = columns.f_mean.shape, self.problem.Y.shape[0]
        slots = Slots(
            f_mean=np.empty((2, K, N)),
            spread=np.empty((2, K, K)),
            phi=np.empty((2, len(columns.phi), len(columns.phi))),
            small=np.empty((2, 5, K)),
            LY=np.empty((2, K, N)),
            LL=np.empty((2, K, K)),
            sums=np.empty((2, 2 * K + 3)),
            terms=np.empty((2, 7)),
            rows=np.empty((2, 3 * K + 1, G)),
        )
        slots.f_mean[0], slots.spread[0], slots.LY[0], slots.LL[0] = columns.f_mean, columns.f_var[0], sums.LY, sums.LL
        slots.phi[0] = matrix(columns.phi)
        slots.sums[0, :K], slots.sums[0, K : 2 * K], slots.sums[0, 2 * K :] = sums.active, sums.l2, sums.elbo
        slots.small[0, 0], slots.small[0, 1], slots.terms[0] = columns.alpha_shape, columns.alpha_rate, terms
        if self.learnt:
            slots.small[0, 2], slots.small[0, 3] = columns.pi_a, columns.pi_b
        block = slots.rows[0]
        block[:K], block[K : 2 * K], block[2 * K : 3 * K], block[3 * K] = rows.mu.T, rows.s2.T, rows.eta.T, rows.tau
        fresh, trace = climber.previous is None, np.empty((pace.iterations, 2))
        previous = np.empty((K, N)) if fresh else np.array(climber.previous)
        space = self._space(K)
        hold_single_blas_thread()
        own = columns.pi_a, columns.pi_b, self.learnt, self.constants, self.problem, space
        now, elbo, steps, settled, t, fresh = small_climb(slots, elbo, *own, pace, climber.t, previous, fresh, trace)
        self.spaces.append(space)
        block = slots.rows[now]
        mu, s2, eta, tau = block[:K], block[K : 2 * K], block[2 * K : 3 * K], block[3 * K]
        small, empty = slots.small[now], columns.tau_shape
        pi = (small[2], small[3]) if self.learnt else own[:2]
        phi = slots.phi[now] if len(columns.phi) else columns.phi
        counts, terms = slots.sums[now], VITerms(*slots.sums[now, 2 * K :].tolist())
        state = (
            VIRows(mu.T, s2.T, eta.T, tau),
            VIColumns(slots.f_mean[now], slots.spread[now][None], empty, empty, small[0], small[1], *pi, phi=phi),
            Sums(slots.LY[now], slots.LL[now], self.no_share, counts[:K], counts[K : 2 * K], elbo=terms),
            ELBOTerms(*slots.terms[now].tolist()),
            float(elbo),
        )
        way = way_of(climber, trace[:steps])
        after = Climber(state, float(t), None if fresh else previous, way[-1][0], climber.until)
        return after, bool(settled), way

    def _space(self, K: int) -> Space:
        try:
            return self.spaces.pop()
        except IndexError:  # all are in use by other threads
            return small_space(self.problem.Y, self.problem.tile, K)
