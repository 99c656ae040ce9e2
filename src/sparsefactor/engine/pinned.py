"""An engine for data with a design: covariates enter as factors with given activations (math.md, 1.11).

The engine inside has as many factors more as there are directions, all of them included in every row. Whoever asks sees
the free factors alone: rows carry the directions' loadings along as `base`, and sums come with what these explain taken
off, so that column steps, moves and searches need not know of them. Where directions have slabs of their own, these
follow from the rows that come in (1.12): before each pass their precisions are updated, or drawn, given those.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import block_diag
from scipy.special import digamma, gammaln

from ..computed import computed
from ..data import Data
from ..densities import LOG_2PI, gamma_kl
from ..kernels.contract import (
    CERTAIN,
    Array,
    ColumnNoise,
    GibbsColumns,
    GibbsRows,
    Message,
    PrecisionNoise,
    RotationNoise,
    ShearNoise,
    Sums,
    VIColumns,
    VIRows,
)
from ..kernels.noise import slab_generator
from ..kernels.protocol import Engine, VIShortcut
from ..kernels.rows import RowVerbs, contiguous
from ..kernels.shears import Shears
from ..model import Beta, Prior


def extended(prior: Prior, d: int) -> Prior:
    """The prior with d factors more, of whose correlations the engine inside need not know."""
    inclusion = prior.inclusion
    if not isinstance(inclusion, Beta) and inclusion.ndim:
        inclusion = np.concatenate([inclusion, np.full((*inclusion.shape[:-1], d), 0.5)], axis=-1)
    changed: dict[str, Any] = {"inclusion": inclusion, "factor_names": None, "factor_correlation": "none"}
    return replace(prior, n_factors=prior.K + d, **changed)


def free_phi(phi: Array, K: int) -> Array:
    """The first K factors' phi; there may be none."""
    return phi[:K, :K] if len(phi) else phi


class PinnedNoise(NamedTuple):
    """The rows' noise, and where the slabs' precisions are drawn from."""

    rows: Any
    slabs: tuple[tuple[int, int], int] | None  # key and sweep, where there are any


class Slabs(NamedTuple):
    """Gamma(shape, rate) of the precisions of directions' loadings, (d,) or (d, V), given these loadings."""

    shape: Array
    rate: Array


class Pinned(RowVerbs):
    """The free factors' passes and moves, around an engine with the directions as further ones."""

    def __init__(self, inner: Engine, data: Data, prior: Prior) -> None:
        assert data.design is not None
        self.inner, self.data, self.prior, self.K = inner, data, prior.in_units_of(data), prior.K
        self.shears = getattr(inner, "shears", Shears)
        self.C, self.G = data.design.basis, data.n_rows or data.n_features
        self.d, self.flat, self.learnt = len(self.C), data.base_precision, data.design.learnt
        self.has_slabs = bool(self.learnt.any())
        self.name, self.one_caller, self.n_threads = inner.name, inner.one_caller, inner.n_threads

    def with_prior(self, prior: Prior) -> Pinned:
        """The same engine under another prior."""
        return type(self)(self.inner.with_prior(extended(prior, self.d)), self.data, prior)

    def with_threads(self, n_threads: int) -> Pinned:
        """The same engine on so many threads."""
        return type(self)(self.inner.with_threads(n_threads), self.data, self.prior)

    def scope(self) -> AbstractContextManager[Any]:
        return self.inner.scope()

    @property
    def moves(self) -> tuple[str, ...]:
        """What belongs to one feature is among them where it can be drawn beside given activations."""
        others = tuple(name for name in super().moves if name != "noise")
        return others if self.own_precisions is None else (*others, "noise")

    @computed
    def own_precisions(self) -> Any:
        """`gibbs_precisions` with what the directions explain taken off the data, where the engine inside has it."""
        of = getattr(self.inner, "precisions_of", None)
        return None if of is None or self.prior.noise != "feature" else of(self.data, self.prior)

    # ---- between the two views ------------------------------------------------------------------------------------

    def pad(self, values: Array, value: float | Array, axis: int = 0) -> Array:
        """Values with d more entries along an axis; what is empty stays so."""
        if not values.size:
            return values
        shape = list(values.shape)
        shape[axis] = self.d
        return self.beside(values, np.full(shape, value), axis)

    def beside(self, one: Any, other: Any, axis: int = 1) -> Any:
        """Both, along an axis: arrays of the host's where both are, else of the engine's."""
        xp = np if isinstance(one, np.ndarray) and isinstance(other, np.ndarray) else self.on.xp
        return xp.concat([one, other], axis=axis)

    def slabs(self, square: Array) -> Slabs | None:
        """Of the directions' precisions given (G, d) squares of their loadings; None where none of them has a slab."""
        if not self.has_slabs:
            return None
        prior = self.prior
        (l2,) = self.over_tiles(lambda own: (self.sums(square, own),), needed=True)
        sizes = prior.group_sizes if prior.grouped else np.array(float(self.G))
        shape = np.broadcast_to(prior.loading_shape + 0.5 * sizes, l2.shape)
        return Slabs(shape, prior.loading_rate + 0.5 * l2)

    def precisions(self, slabs: Slabs | None) -> tuple[Array, Array]:
        """Means of the directions' precisions and of their logarithms; those without a slab have the flat one."""
        if slabs is None:
            return np.array(self.flat), np.log(self.flat)
        learnt = self.learnt if slabs.rate.ndim == 1 else self.learnt[:, None]
        alpha = np.where(learnt, slabs.shape / slabs.rate, self.flat)
        return alpha, np.where(learnt, digamma(slabs.shape) - np.log(slabs.rate), np.log(self.flat))

    def base_density(self, base: Array) -> float:
        """The log density of the directions' loadings (G, d), precisions of slabs integrated out (1.12)."""
        flat = 0.5 * (np.log(self.flat) - LOG_2PI - self.flat * base[:, ~self.learnt] ** 2)
        total = float(self.over_tiles(lambda own: (flat[own].sum(),))[0])
        slabs = self.slabs(base**2)
        if slabs is None:
            return total
        shape, rate = (values[self.learnt] for values in slabs)
        a, b = self.prior.loading_shape, self.prior.loading_rate
        total += np.sum(a * np.log(b) - gammaln(a) + gammaln(shape) - shape * np.log(rate))
        return float(total - 0.5 * LOG_2PI * self.G * self.learnt.sum())

    def whole_message(self, message: Message, alpha: Array, log_alpha: Array) -> Message:
        K, C, F = self.K, self.C, np.ascontiguousarray(message.F)
        weighted = (C * message.weight).T
        gram = np.empty((K + self.d, K + self.d))
        gram[:K, :K], gram[K:, K:] = message.gram, weighted.T @ C.T
        gram[:K, K:] = F.T @ C.T
        gram[K:, :K] = gram[:K, K:].T
        share = np.empty((len(message.share), *gram.shape))
        if len(share):
            share[:, :K, :K], share[:, K:, K:] = message.share, weighted[:, :, None] * C.T[:, None, :]
            share[:, :K, K:] = F[:, :, None] * C.T[:, None, :]
            share[:, K:, :K] = share[:, :K, K:].transpose(0, 2, 1)
        return message._replace(
            F=np.hstack([F, weighted]),
            gram=gram,
            share=share,
            alpha=self.pad(message.alpha, alpha),
            log_alpha=self.pad(message.log_alpha, log_alpha),
            logit=self.certain(message.logit),
            scale=self.pad(message.scale, 1.0),
            log_in=self.pad(message.log_in, 0.0),
            log_out=self.pad(message.log_out, -CERTAIN),
        )

    def free_sums(self, sums: Sums) -> Sums:
        """Of the free factors, with what the directions explain taken off the data."""
        K, C = self.K, self.C
        LY = sums.LY[:K] - sums.LL[:K, K:] @ C
        shift = np.sum(C * (sums.LL[K:, K:] @ C), axis=0) - 2.0 * np.sum(C * sums.LY[K:], axis=0)
        if len(sums.LL_share):
            LY -= np.einsum("jkp,pj->kj", sums.LL_share[:, :K, K:], C)
            shift += np.einsum("pj,jpq,qj->j", C, sums.LL_share[:, K:, K:], C)
        return sums._replace(
            LY=LY,
            LL=np.ascontiguousarray(sums.LL[:K, :K]),
            LL_share=np.ascontiguousarray(sums.LL_share[:, :K, :K]),
            active=sums.active[:K],
            l2=sums.l2[:K],
            active_in=sums.active_in[:K],
            shift=shift,
        )

    def whole_rows(self, rows: GibbsRows) -> GibbsRows:
        return GibbsRows(
            Z=self.beside(rows.Z, np.ones(rows.base.shape, np.int8)),
            L=self.beside(rows.L, rows.base),
            tau=rows.tau,
            member=rows.member,
        )

    def free_rows(self, rows: GibbsRows) -> GibbsRows:
        K = self.K
        return GibbsRows(
            contiguous(rows.Z[:, :K]),
            contiguous(rows.L[:, :K]),
            rows.tau,
            contiguous(rows.L[:, K:]),
            rows.member,
        )

    def whole_columns(self, columns: GibbsColumns, rows: GibbsRows) -> GibbsColumns:
        """For moves, which leave the directions' loadings as they are, whatever their precisions."""
        return GibbsColumns(
            F=np.vstack([columns.F, self.C]),
            alpha=self.pad(columns.alpha, self.precisions(self.slabs(rows.base**2))[0]),
            logit=self.certain(columns.logit),
            weight=columns.weight,
            scale=self.pad(columns.scale, 1.0),
            phi=block_diag(columns.phi, np.eye(self.d)) if len(columns.phi) else columns.phi,
        )

    # ---- variational inference --------------------------------------------------------------------------------

    def vi_shortcut(self, joint: bool) -> VIShortcut | None:
        """None: what the directions explain is taken off between passes."""
        return None

    def vi_row_pass(self, rows: VIRows, message: Message) -> tuple[VIRows, Sums]:
        slabs = self.slabs(rows.base**2 + rows.base_var)
        new, sums = self.inner.vi_row_pass(self.whole_vi(rows), self.whole_message(message, *self.precisions(slabs)))
        # With modules, log odds of inclusion are not part of the term.
        sure = CERTAIN * self.G * self.d if self.prior.n_modules == 1 else 0.0
        loadings = sums.elbo.loadings - sure
        if slabs is not None:
            kl = gamma_kl(slabs.shape, slabs.rate, self.prior.loading_shape, self.prior.loading_rate)
            loadings -= float(kl[self.learnt].sum())
        sums = sums._replace(elbo=sums.elbo._replace(loadings=loadings))
        return self.free_vi(new, sums)

    def whole_vi(self, rows: VIRows) -> VIRows:
        return VIRows(
            mu=self.beside(rows.mu, rows.base),
            s2=self.beside(rows.s2, rows.base_var),
            eta=self.pad(rows.eta, 1.0, axis=1),
            tau=rows.tau,
            member=rows.member,
            within=self.pad(rows.within, 1.0, axis=1) if rows.within.ndim == 3 else rows.within,
        )

    def free_vi(self, rows: VIRows, sums: Sums) -> tuple[VIRows, Sums]:
        K = self.K
        free = rows._replace(
            mu=rows.mu[:, :K],
            s2=rows.s2[:, :K],
            eta=rows.eta[:, :K],
            within=rows.within[:, :K] if rows.within.ndim == 3 else rows.within,
            base=rows.mu[:, K:],
            base_var=rows.s2[:, K:],
        )
        return free, self.free_sums(sums)

    def vi_activations(self, columns: VIColumns, sums: Sums, weight: Array) -> tuple[Array, Array]:
        return self.inner.vi_activations(columns, sums, weight)

    # ---- Gibbs sampling -----------------------------------------------------------------------------------------

    def row_noise(self, key: tuple[int, int], sweep: int) -> PinnedNoise:
        return PinnedNoise(self.inner.row_noise(key, sweep), (key, sweep) if self.has_slabs else None)

    def gibbs_row_pass(self, rows: GibbsRows, message: Message, noise: PinnedNoise) -> tuple[GibbsRows, Sums]:
        slabs = self.slabs(rows.base**2)
        alpha = np.array(self.flat)
        if slabs is not None and noise.slabs is not None:
            learnt = self.learnt if slabs.rate.ndim == 1 else self.learnt[:, None]
            alpha = np.where(learnt, slab_generator(*noise.slabs).standard_gamma(slabs.shape) / slabs.rate, self.flat)
        whole = self.whole_message(message, alpha, np.log(alpha))
        new, sums = self.inner.gibbs_row_pass(self.whole_rows(rows), whole, noise.rows)
        free = self.free_rows(new)
        joint = sums.joint._replace(
            log_odds=sums.joint.log_odds - CERTAIN * self.G * self.d, base=self.base_density(free.base)
        )
        return free, self.free_sums(sums._replace(joint=joint))

    def gibbs_activations(self, sums: Sums, weight: Array, prior: Array, normal: Array) -> Array:
        return self.inner.gibbs_activations(sums, weight, prior, normal)

    def with_still(self, noise: ShearNoise) -> ShearNoise:
        """With shears of nothing along the directions."""
        return noise._replace(step=self.pad(noise.step, 0.0, axis=1), log_uniform=self.pad(noise.log_uniform, 0.0, 1))

    def certain(self, logit: Array) -> Array:
        """Prior log odds with those of the directions, which are included everywhere."""
        return self.pad(logit, CERTAIN, axis=-1)

    def gibbs_shear(self, rows: GibbsRows, columns: GibbsColumns, noise: ShearNoise) -> tuple[GibbsRows, Array, Array]:
        still = self.with_still(noise)
        new, F, phi = self.inner.gibbs_shear(self.whole_rows(rows), self.whole_columns(columns, rows), still)
        return self.free_rows(new), np.ascontiguousarray(F[: self.K]), free_phi(phi, self.K)

    def gibbs_rotate(
        self, rows: GibbsRows, columns: GibbsColumns, noise: RotationNoise
    ) -> tuple[GibbsRows, Array, Array, Array]:
        new, F, alpha, phi = self.inner.gibbs_rotate(self.whole_rows(rows), self.whole_columns(columns, rows), noise)
        return self.free_rows(new), np.ascontiguousarray(F[: self.K]), alpha[: self.K], free_phi(phi, self.K)

    def gibbs_columns(
        self, rows: GibbsRows, columns: GibbsColumns, noise: ColumnNoise
    ) -> tuple[GibbsRows, Array, Array]:
        new, alpha, logit = self.inner.gibbs_columns(self.whole_rows(rows), self.whole_columns(columns, rows), noise)
        return self.free_rows(new), alpha[: self.K], np.ascontiguousarray(logit[:, : self.K])

    def gibbs_precisions(
        self, rows: GibbsRows, columns: GibbsColumns, noise: PrecisionNoise
    ) -> tuple[GibbsRows, Array]:
        assert self.own_precisions is not None, "see moves"
        drawn: tuple[GibbsRows, Array] = self.own_precisions(rows, columns, noise)
        return drawn


class PinnedEngine(Pinned):
    """`Engine` of the free factors of data in this process's memory."""

    def vi_shortcut(self, joint: bool) -> VIShortcut | None:
        """Where the engine inside has one that knows of directions; those with slabs need the generic way."""
        of = getattr(self.inner, "shortcut_of", None)
        return None if of is None or self.learnt.any() else of(self.data, self.prior, joint)
