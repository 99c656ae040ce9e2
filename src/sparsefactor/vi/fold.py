"""Samples in a basis in which most of them are zero (docs/math.md, 3.20).

Data with noise by feature say of samples that have the same entries missing only what their Y Y' says: an orthogonal
change of basis among these samples changes neither the likelihood nor the prior of the activations. Where there are
more of them than features, a basis exists in which all but as many samples as there are features are zero, and whose
activations are known without looking: their mean is zero, their covariance that of all samples in that lot. An
iteration then takes as long as if they were not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..data.folding import Lot, alike_samples, folded_samples, with_room
from ..kernels.contract import Array

if TYPE_CHECKING:
    from .cavi import CAVI, VIState


@dataclass(frozen=True)
class Fold:
    """The way there and back. whole: the sweeps of the data as they were."""

    lots: list[Lot]
    whole: CAVI

    @property
    def complete(self) -> bool:
        """Whether all samples are one lot, which has one covariance."""
        return self.whole.data.is_complete

    def into(self, F: Array) -> tuple[Array, Array]:
        """Activations (K, N) in the bases (K, M), and what is outside them as covariances of lots (1 or M, K, K)."""
        K, M = len(F), self.lots[-1].places.stop
        inside, spread = np.empty((K, M)), np.zeros((1 if self.complete else M, K, K))
        for lot in self.lots:
            own = F[:, lot.samples]
            if lot.basis is None:
                inside[:, lot.places] = own
                continue
            inside[:, lot.places] = own @ lot.basis.T
            outside = own - inside[:, lot.places] @ lot.basis
            spread[slice(0, 1) if self.complete else lot.places] = outside @ outside.T / len(lot.samples)
        return inside, spread

    def back(self, F: Array) -> Array:
        """(K, N) from (K, M)."""
        whole = np.empty((len(F), self.whole.data.n_samples))
        for lot in self.lots:
            own = F[:, lot.places]
            whole[:, lot.samples] = own if lot.basis is None else own @ lot.basis
        return whole

    def shown(self, state: VIState) -> VIState:
        """A state with the columns of the data as they were, but the sums of these."""
        columns = state.columns
        f_var = columns.f_var
        if not self.complete:
            f_var = np.empty((self.whole.data.n_samples, *f_var.shape[1:]))
            for lot in self.lots:
                own = columns.f_var[lot.places]
                f_var[lot.samples] = own if lot.basis is None else own[0]
        return state._replace(columns=columns._replace(f_mean=self.back(columns.f_mean), f_var=f_var))

    def unfolded(self, state: VIState) -> VIState:
        """A state as the data as they were have it, after a row pass over these where sums tell samples apart."""
        shown = self.shown(state)
        if self.complete:
            return shown._replace(sums=state.sums._replace(LY=self.back(state.sums.LY)))
        return self.whole.finish(shown.rows, shown.columns, np.ones(len(shown.columns.f_mean)))

    # ---- draws: of complete data with a root of what is outside the basis (2.19), else of all samples -------------

    def engine_of_draws(self, cavi: CAVI) -> Any:
        """An engine for Gibbs sampling under the prior of these sweeps."""
        if not self.complete:
            return self.whole.engine.with_prior(cavi.prior)
        return cast(Any, cavi.engine).with_data(with_room(cavi.data, cavi.prior.K))

    def to_draw(self, F: Array, n_samples: int) -> Array:
        """(K, n_samples) from means (K, M)."""
        return np.hstack([F, np.zeros((len(F), n_samples - F.shape[1]))]) if self.complete else self.back(F)

    def from_draw(self, F: Array) -> tuple[Array, Array]:
        """As `into`."""
        if not self.complete:
            return self.into(F)
        M = self.lots[-1].places.stop
        outside = F[:, M:]
        return F[:, :M], np.asarray(outside @ outside.T / self.whole.data.n_samples)[None]


def folded(cavi: CAVI) -> CAVI:
    """The same sweeps over as many samples as there are features in each lot, where that is worth it."""
    from .cavi import CAVI

    if not (cavi.prior.noise == "feature" and cavi.joint and can_fold(cavi.engine)):
        return cavi
    alike = alike_samples(cavi.data)
    if alike is None:
        return cavi
    few, lots = folded_samples(cavi.data, alike)
    return CAVI(few, cavi.prior, cast(Any, cavi.engine).with_data(few), joint=True, fold=Fold(lots, cavi))


def can_fold(engine: Any) -> bool:
    """Whether the engine, and the one inside it, take other data. One whose answers are noted does not: a fit may go on
    from its notes where rows are on workers, and must go the same way there."""
    inner = vars(engine).get("inner")
    return hasattr(engine, "with_data") and (inner is None or can_fold(inner))
