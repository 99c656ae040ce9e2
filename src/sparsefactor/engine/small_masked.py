"""The compiled iteration of small problems with missing entries, around the engine that holds their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..data import Data
from ..kernels.contract import NONE, Array, ELBOTerms, Sums, VIColumns, VIRows, VITerms
from ..kernels.cpu.packed import packed_size
from ..kernels.cpu.shares import vi_shares
from ..kernels.cpu.tiles import empty_tile_sums
from ..kernels.cpu.vi_rows import FactorMajor, VIMessage, vi_scratch, vi_tiles
from ..kernels.cpu.vi_small_masked import masked_columns, masked_message, masked_sums
from ..model import Beta, Prior
from .blas import hold_single_blas_thread
from .by_factor import by_factor
from .small import InTurn, constants_of

if TYPE_CHECKING:
    from .cpu import CpuEngine


class SmallMaskedVI(InTurn):
    """A `VIShortcut` (kernels/cpu/vi_small_masked.py) of joint activations.

    inner: the engine of the data without their design, whose directions it has as further factors; data and prior: of
    the free factors.
    """

    def __init__(self, inner: CpuEngine, data: Data, prior: Prior) -> None:
        self.inner, self.data, self.prior = inner, data, prior
        self.problem = inner.blocks.problems[0]
        self.learnt = isinstance(prior.inclusion, Beta)
        self.constants = constants_of(self.problem, prior, inner.vi_constants)
        design = data.design
        self.basis = np.zeros((0, data.n_samples)) if design is None else np.ascontiguousarray(design.basis)
        self.base_precision = 0.0 if design is None else float(data.base_precision)
        self.observed = np.ascontiguousarray(data.observed, dtype=np.float64)
        self.spaces: list[tuple[Any, ...]] = []

    def next_columns(self, rows: VIRows, columns: VIColumns, sums: Sums, rescale: bool) -> tuple[VIColumns, Array]:
        K = len(columns.f_mean)
        f_mean, f_var = self.inner.vi_activations(columns, sums, self.constants.ones)
        small, slide = np.empty((5, K)), np.empty((K, len(self.basis)))
        own = FactorMajor(by_factor(rows.mu), by_factor(rows.s2), by_factor(rows.eta), rows.tau)
        known = (own, self.observed, sums.active, sums.l2, self.constants, self.basis)
        masked_columns(*known, rescale, f_mean, f_var, slide, small)
        alpha_shape, alpha_rate, pi_a, pi_b, scale = small
        if not self.learnt:
            pi_a, pi_b = columns.pi_a, columns.pi_b
        empty = columns.tau_shape
        new = VIColumns(f_mean, f_var, empty, empty, alpha_shape, alpha_rate, pi_a, pi_b)
        return new._replace(slide=slide if rescale and slide.size else NONE), scale

    def finish(self, rows: VIRows, columns: VIColumns, scale: Array) -> tuple[VIRows, Sums, ELBOTerms, float]:
        (K, N), d, G = columns.f_mean.shape, len(self.basis), len(rows.tau)
        before, after = self._whole(rows), self.inner.memory.take(3 * (K + d) + 1, G)
        D = K + d
        mu, s2, eta, tau = after[:D], after[D : 2 * D], after[2 * D : 3 * D], after[3 * D]
        LY, LL, shift = np.empty((K, N)), np.empty((K, K)), np.empty(N if d else 0)
        LL_share = self.inner.memory.take(N, K, K)
        small, terms = np.empty(2 * K + 3), np.empty(6)
        try:
            tiles, scratch, space = self.spaces.pop()
        except IndexError:  # all are in use by other threads
            tiles, scratch, space = self._space(D)
        hold_single_blas_thread()
        q = (columns.f_mean, columns.f_var, columns.alpha_shape, columns.alpha_rate, columns.pi_a, columns.pi_b, scale)
        message, shares, *numbers = space
        masked_message(q, self.constants, self.base_precision, self.basis, float(G), message, terms)
        new = FactorMajor(mu, s2, eta, tau)
        vi_tiles(0, len(tiles.LY), self.problem, message, before, new, tiles, scratch, *self.inner.halves)
        vi_shares(0, N, 0, len(self.problem.by_sample), self.problem, new, packed_size(D), True, shares)
        known = (tiles, shares, self.constants, float(self.data.n_observed), self.basis, float(G), tuple(numbers))
        elbo = masked_sums(*known, (LY, LL, LL_share, shift, small, terms))
        self.spaces.append((tiles, scratch, space))
        rows = VIRows(mu[:K].T, s2[:K].T, eta[:K].T, tau)
        if d:
            rows = rows._replace(base=mu[K:].T, base_var=s2[K:].T)
        sums = Sums(LY, LL, LL_share, small[:K], small[K : 2 * K], elbo=VITerms(*small[2 * K :].tolist()))
        return rows, sums._replace(shift=shift) if d else sums, ELBOTerms(*terms.tolist()), elbo

    def _whole(self, rows: VIRows) -> FactorMajor:
        """Rows with the directions behind the factors."""
        if not len(self.basis):
            return FactorMajor(by_factor(rows.mu), by_factor(rows.s2), by_factor(rows.eta), rows.tau)
        G, K = rows.mu.shape
        whole = np.ones((3, K + len(self.basis), G))
        for own, values in zip(whole, (rows.mu, rows.s2, rows.eta), strict=True):
            own[:K] = values.T
        whole[0, K:], whole[1, K:] = rows.base.T, rows.base_var.T
        return FactorMajor(whole[0], whole[1], whole[2], rows.tau)

    def _space(self, D: int) -> tuple[Any, ...]:
        problem, N, T = self.problem, self.data.n_samples, packed_size(D)
        Y = problem.Y
        message = VIMessage(
            F=np.empty((N, D), Y.dtype),
            gram=np.empty((D, D)),
            share=np.zeros((N, T), Y.dtype),
            packed_gram=np.zeros((1, T)),
            alpha=np.empty((D, 1)),
            prior=np.empty((D, 1)),
            prior_row=self.constants.no_rows,
            scale=np.empty(D),
        )
        space = (message, np.empty((N, T), Y.dtype), np.empty((D, N)), np.empty((D, D)), np.empty(2 * D + 3))
        tiles = empty_tile_sums(self.inner.blocks.n_tiles, N, D, 1)
        return tiles, vi_scratch(Y, problem.tile, D, masked=True), space
