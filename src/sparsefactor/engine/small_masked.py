"""The compiled iterations of small problems with missing entries, around the engine that holds their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import Data
from ..kernels.contract import NONE, Array, Climber, ELBOTerms, Sums, VIColumns, VIRows, VITerms
from ..kernels.cpu.packed import packed_size
from ..kernels.cpu.tiles import empty_tile_sums
from ..kernels.cpu.vi_climb import Pace
from ..kernels.cpu.vi_climb_masked import MaskedProblem, MaskedSlots, masked_climb, masked_pass
from ..kernels.cpu.vi_rows import FactorMajor, VIMessage, vi_scratch
from ..kernels.cpu.vi_small_masked import masked_columns, slid_rows
from ..model import Beta, Prior
from .blas import hold_single_blas_thread
from .by_factor import by_factor
from .small import constants_of, matrix, way_of

if TYPE_CHECKING:
    from .cpu import CpuEngine

SMALL_STATE = 2**16  # numbers in the samples' covariances: beyond, to copy a state takes longer than Python in between


class SmallMaskedVI:
    """A `VIShortcut` (kernels/cpu/vi_small_masked.py) of joint activations.

    inner: the engine of the data without their design, whose directions it has as further factors; data and prior: of
    the free factors.
    """

    slides = True

    def __init__(self, inner: CpuEngine, data: Data, prior: Prior) -> None:
        self.inner, self.data, self.prior = inner, data, prior
        self.problem = inner.blocks.problems[0]
        self.learnt = isinstance(prior.inclusion, Beta)
        design, N = data.design, data.n_samples
        self.known = MaskedProblem(
            constants=constants_of(self.problem, prior, inner.vi_constants),
            basis=np.zeros((0, N)) if design is None else np.ascontiguousarray(design.basis),
            base_precision=0.0 if design is None else float(data.base_precision),
            observed=np.ascontiguousarray(data.observed, dtype=np.float64),
            n_observed=float(data.n_observed),
        )
        self.climbs = N * prior.K**2 <= SMALL_STATE
        self.spaces: list[Any] = []

    def next_columns(self, rows: VIRows, columns: VIColumns, sums: Sums, rescale: bool) -> tuple[VIColumns, Array]:
        K, known = len(columns.f_mean), self.known
        f_mean, f_var = self.inner.vi_activations(columns, sums, known.constants.ones)
        small, slide, phi = np.empty((5, K)), np.empty((K, len(known.basis))), np.empty((len(columns.phi),) * 2)
        own = (by_factors(rows), known.observed, sums.active, sums.l2, known.constants, known.basis)
        masked_columns(*own, rescale, matrix(columns.phi), f_mean, f_var, slide, small, phi)
        alpha_shape, alpha_rate, pi_a, pi_b, scale = small
        if not self.learnt:
            pi_a, pi_b = columns.pi_a, columns.pi_b
        empty = columns.tau_shape
        phi = phi if len(phi) else columns.phi
        new = VIColumns(f_mean, f_var, empty, empty, alpha_shape, alpha_rate, pi_a, pi_b, phi=phi)
        return new._replace(slide=slide if rescale and slide.size else NONE), scale

    def finish(self, rows: VIRows, columns: VIColumns, scale: Array) -> tuple[VIRows, Sums, ELBOTerms, float]:
        (K, N), d, G = columns.f_mean.shape, len(self.known.basis), len(rows.tau)
        D, take = K + d, self.inner.memory.take
        before, after = self._whole(rows, columns.slide), take(3 * D + 1, G)
        mu, s2, eta, tau = after[:D], after[D : 2 * D], after[2 * D : 3 * D], after[3 * D]
        LY, LL, shift, LL_share = np.empty((K, N)), np.empty((K, K)), np.empty(N if d else 0), take(N, K, K)
        sums, terms = np.empty(2 * K + 3), np.empty(7)
        space = self._space(D)
        hold_single_blas_thread()
        pi = (columns.pi_a, columns.pi_b) if self.learnt else (scale, scale)
        small = np.array([columns.alpha_shape, columns.alpha_rate, *pi, scale])
        f_var = np.ascontiguousarray(columns.f_var)
        own = (columns.f_mean, f_var, matrix(columns.phi), small, columns.pi_a, columns.pi_b, self.learnt, self.known)
        out = (LY, LL, LL_share, shift, sums, terms)
        data = (self.problem, *self.inner.halves)
        elbo = masked_pass(*own, data, before, FactorMajor(mu, s2, eta, tau), space, out)
        self.spaces.append(space)
        rows = VIRows(mu[:K].T, s2[:K].T, eta[:K].T, tau)
        if d:
            rows = rows._replace(base=mu[K:].T, base_var=s2[K:].T)
        return rows, sums_of(LY, LL, LL_share, shift, sums), ELBOTerms(*terms.tolist()), elbo

    def climb(
        self, climber: Climber, tolerance: tuple[float, float], keep: float
    ) -> tuple[Climber, bool, list[tuple[int, float]]]:
        """Many iterations by one call; see `VIShortcut`."""
        pace = Pace(climber.until - climber.iterations, *tolerance, keep)
        rows, columns, sums, terms, elbo = climber.state
        (K, N), d, G, take = columns.f_mean.shape, len(self.known.basis), len(rows.tau), self.inner.memory.take
        D = K + d
        slots = MaskedSlots(
            f_mean=np.empty((2, K, N)),
            spread=take(2, N, K, K),
            phi=np.empty((2, len(columns.phi), len(columns.phi))),
            small=np.empty((2, 5, K)),
            LY=np.empty((2, K, N)),
            LL=np.empty((2, K, K)),
            LL_share=take(2, N, K, K),
            shift=np.empty((2, N if d else 0)),
            sums=np.empty((2, 2 * K + 3)),
            terms=np.empty((2, 7)),
            rows=take(2, 3 * D + 1, G),
        )
        slots.f_mean[0], slots.spread[0], slots.LY[0], slots.LL[0] = columns.f_mean, columns.f_var, sums.LY, sums.LL
        slots.LL_share[0], slots.terms[0], slots.phi[0] = sums.LL_share, terms, matrix(columns.phi)
        if d:
            slots.shift[0] = sums.shift
        slots.sums[0, :K], slots.sums[0, K : 2 * K], slots.sums[0, 2 * K :] = sums.active, sums.l2, sums.elbo
        slots.small[0, 0], slots.small[0, 1] = columns.alpha_shape, columns.alpha_rate
        if self.learnt:
            slots.small[0, 2], slots.small[0, 3] = columns.pi_a, columns.pi_b
        first, whole = slots.rows[0], self._whole(rows, NONE)
        first[:D], first[D : 2 * D], first[2 * D : 3 * D], first[3 * D] = whole
        fresh, trace = climber.previous is None, np.empty((pace.iterations, 2))
        previous = np.empty((K, N)) if fresh else np.array(climber.previous)
        space = self._space(D)
        hold_single_blas_thread()
        own = columns.pi_a, columns.pi_b, self.learnt, self.known, (self.problem, *self.inner.halves), space
        now, elbo, steps, settled, t, fresh = masked_climb(slots, elbo, *own, pace, climber.t, previous, fresh, trace)
        self.spaces.append(space)
        block = slots.rows[now]
        new = VIRows(block[:K].T, block[D : D + K].T, block[2 * D : 2 * D + K].T, block[3 * D])
        if d:
            new = new._replace(base=block[K:D].T, base_var=block[D + K : 2 * D].T)
        small, empty = slots.small[now], columns.tau_shape
        pi = (small[2], small[3]) if self.learnt else own[:2]
        phi = slots.phi[now] if len(columns.phi) else columns.phi
        state = (
            new,
            VIColumns(slots.f_mean[now], slots.spread[now], empty, empty, small[0], small[1], *pi, phi=phi),
            sums_of(slots.LY[now], slots.LL[now], slots.LL_share[now], slots.shift[now], slots.sums[now]),
            ELBOTerms(*slots.terms[now].tolist()),
            float(elbo),
        )
        way = way_of(climber, trace[:steps])
        after = Climber(state, float(t), None if fresh else previous, way[-1][0], climber.until)
        return after, bool(settled), way

    def _whole(self, rows: VIRows, slide: Array) -> FactorMajor:
        """Rows with the directions behind the factors, after a slide if there is one."""
        own = by_factors(rows)
        if not len(self.known.basis):
            return own
        G, K = rows.mu.shape
        whole = np.empty((3, K + len(self.known.basis), G))
        base, base_var = by_factor(rows.base).T, by_factor(rows.base_var).T
        slid_rows(own, base, base_var, slide if slide.size else np.zeros((0, len(self.known.basis))), whole)
        return FactorMajor(whole[0], whole[1], whole[2], rows.tau)

    def _space(self, D: int) -> Any:
        try:
            return self.spaces.pop()
        except IndexError:  # all are in use by other threads
            pass
        problem, N, T = self.problem, self.data.n_samples, packed_size(D)
        Y = problem.Y
        message = VIMessage(
            F=np.empty((N, D), Y.dtype),
            gram=np.empty((D, D)),
            share=np.zeros((N, T), Y.dtype),
            packed_gram=np.zeros((1, T)),
            alpha=np.empty((D, 1)),
            prior=np.empty((D, 1)),
            prior_row=self.known.constants.no_rows,
            scale=np.empty(D),
        )
        tiles = empty_tile_sums(self.inner.blocks.n_tiles, N, D, 1)
        numbers = (np.empty((D, N)), np.empty((D, D)), np.empty(2 * D + 3))
        return tiles, vi_scratch(Y, problem.tile, D, masked=True), message, np.empty((N, T), Y.dtype), numbers


def by_factors(rows: VIRows) -> FactorMajor:
    return FactorMajor(by_factor(rows.mu), by_factor(rows.s2), by_factor(rows.eta), rows.tau)


def sums_of(LY: Array, LL: Array, LL_share: Array, shift: Array, sums: Array) -> Sums:
    """As `masked_sums` leaves them."""
    K = len(LL)
    own = Sums(LY, LL, LL_share, sums[:K], sums[K : 2 * K], elbo=VITerms(*sums[2 * K :].tolist()))
    return own._replace(shift=shift) if len(shift) else own
