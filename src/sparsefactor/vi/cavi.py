"""Coordinate-ascent variational inference: the state and one sweep (math.md, 3).

A sweep is the column step (F, column-wise tau, alpha, pi, scale) and then the row pass (tau, l and z). That is the
paper's Algorithm 2 read from another point of the same cycle: alpha and tau do not depend on each other, so
"lz, F, tau, alpha" and "F, alpha, tau, lz" are the same rotation. Read so, one product Y F' serves both tau and lz,
and the ELBO of the state at the end of a sweep needs no further pass over the data.

The equations of the columns, and the ELBO's terms, are in kernels/columns.py and kernels/inclusion.py.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..data import Data
from ..kernels.columns import (
    after_activations,
    elbo_terms,
    fixed_of,
    noise_mean,
    noise_posterior,
    rescaled,
    second_moment,
    slab_posterior,
    slid,
    vi_message,
)
from ..kernels.contract import NONE, Array, ELBOTerms, Message, Sums, VIColumns, VIRows
from ..kernels.correlation import correlation_of
from ..kernels.inclusion import inclusion_of
from ..kernels.protocol import Engine
from ..model import Prior


class VIState(NamedTuple):
    """Variational parameters at the end of a row pass, the rows' sums, and the ELBO there."""

    rows: VIRows
    columns: VIColumns
    sums: Sums
    terms: ELBOTerms
    elbo: float


class CAVI:
    """The sweeps of one data set, prior and engine."""

    def __init__(self, data: Data, prior: Prior, engine: Engine, *, joint: bool = False) -> None:
        prior = prior.in_units_of(data)
        self.data, self.prior, self.engine, self.joint = data, prior, engine, joint
        self.fixed, self.inclusion = fixed_of(data, prior), inclusion_of(prior, data)
        self.n_kinds = len(np.unique(prior.factor_groups()))  # of factors
        self.shortcut = engine.vi_shortcut(joint)

    # ---- a whole sweep ------------------------------------------------------------------------------------------

    def start(self, L: Array, F: Array, Z: NDArray[np.int8] | None = None) -> VIState:
        """The state that follows from point values of L (G, K), F (K, N) and, where they are known, inclusions Z."""
        return self.begin(self.engine.vi_place(L, Z), F, known=Z is not None)

    def begin(self, rows: VIRows, F: Array, *, known: bool = False) -> VIState:
        """The state that follows from rows at point values and F (K, N); known: whether these are a draw of Gibbs
        sampling, so that inclusions are known."""
        (K, N), empty = F.shape, np.zeros(0)
        f_var = np.zeros((self.n_covariances(), K, K)) if self.joint else np.zeros((K, N))
        if self.data.design is not None:
            rows = self.engine.vi_regress(rows, F)
        active, l2 = self.engine.vi_counts(rows)
        alpha_shape, alpha_rate = slab_posterior(active, l2, self.fixed)
        tau_shape, tau_rate = empty, empty
        if self.prior.noise != "feature":
            tau_shape, tau_rate = noise_posterior(self.engine.vi_column_rss(rows, F), self.fixed)
        columns = VIColumns(
            f_mean=F.copy(),
            f_var=f_var,
            tau_shape=tau_shape,
            tau_rate=tau_rate,
            alpha_shape=alpha_shape,
            alpha_rate=alpha_rate,
            pi_a=empty,
            pi_b=empty,
            phi=correlation_of(F, self.fixed.correlation_df) if self.fixed.correlation_df else NONE,
        )
        return self.finish(rows, self.inclusion.begun(columns, active, known), np.ones(K))

    def sweep(self, state: VIState, *, rescale: bool = False) -> VIState:
        """One iteration. `rescale` first moves every factor to its best scale (3.12); the ELBO never falls."""
        return self.finish(state.rows, *self.next_columns(state, rescale=rescale))

    def next_columns(self, state: VIState, *, rescale: bool) -> tuple[VIColumns, Array]:
        """The column step, and what the rows are to be multiplied by."""
        rescale = rescale or self.prior.correlated  # correlations are updated with the scale
        if self.shortcut is not None:
            return self.shortcut.next_columns(state.rows, state.columns, state.sums, rescale)
        columns = self.column_step(state.columns, state.sums)
        if rescale and self.data.design is not None:
            columns = self.slid(state.rows, columns)
        if rescale:
            return rescaled(columns, self.fixed)
        return columns, np.ones(len(columns.alpha_rate))

    def column_step(self, columns: VIColumns, sums: Sums) -> VIColumns:
        """q(F), q(tau) if it is column-wise, q(alpha), q(pi), in this order, from the rows' sums alone."""
        f_mean, f_var = self.engine.vi_activations(columns, sums, self.weight(columns))
        return after_activations(columns._replace(f_mean=f_mean, f_var=f_var), sums, self.inclusion, self.fixed)

    def finish(self, rows: VIRows, columns: VIColumns, scale: Array) -> VIState:
        """The row pass, and the ELBO of the state it ends in."""
        if self.shortcut is None or not self.shortcut.slides:
            rows, columns = self.landed(rows, columns)
        if self.shortcut is not None:
            rows, sums, terms, elbo = self.shortcut.finish(rows, columns, scale)
            return VIState(rows, columns._replace(slide=NONE), sums, terms, elbo)
        rows, sums = self.engine.vi_row_pass(rows, self.message(columns, scale))
        terms = ELBOTerms(*map(float, elbo_terms(columns, sums, self.inclusion, self.fixed)))
        return VIState(rows, columns, sums, terms, terms.total)

    def landed(self, rows: VIRows, columns: VIColumns) -> tuple[VIRows, VIColumns]:
        """Rows with the slide that the columns bring put into their base; it was taken at the rows' present scale."""
        if columns.slide is NONE:
            return rows, columns
        return self.engine.vi_slide(rows, columns.slide), columns._replace(slide=NONE)

    def slid(self, rows: VIRows, columns: VIColumns) -> VIColumns:
        """f_k -> f_k - e'C at the best e, which is to go to the rows' base, for directions without a slab (3.19)."""
        assert self.data.design is not None
        flat = np.flatnonzero(~self.data.design.learnt)
        if not len(flat):
            return columns
        C, place = self.data.design.basis[flat], np.eye(len(self.data.design.learnt))[flat]
        return slid(columns, self.engine.vi_spread(rows), C, place, self.fixed)

    def message(self, columns: VIColumns, scale: Array) -> Message:
        """What the rows need of the columns (4.2)."""
        return vi_message(columns, scale, self.inclusion, self.fixed)

    # ---- what others ask of the columns ---------------------------------------------------------------------------

    def n_covariances(self) -> int:
        """A joint q(f_j) has one covariance in all where every sample has the same precision, else one each."""
        return 1 if self.data.is_complete and self.prior.noise != "sample" else self.data.n_samples

    def weight(self, columns: VIColumns) -> Array:
        """(N,) E[tau] of each column; ones where noise belongs to the rows."""
        return noise_mean(columns, self.fixed)

    def strength(self, state: VIState) -> Array:
        """(K,) sum over rows of E[l_ik^2] times E|f_k|^2, by which factors are ranked."""
        l2 = state.sums.l2
        return np.asarray((l2 if l2.ndim == 1 else l2.sum(axis=1)) * second_moment(state.columns, self.fixed))
