"""Samples in a basis in which most of them are zero (docs/math.md, 3.20).

Complete data with noise by feature say of the samples only what Y Y' says: an orthogonal change of basis among the
samples changes neither the likelihood nor the prior of the activations. Where there are more samples than features, a
basis exists in which all but as many samples as there are features are zero, and whose activations are known without
looking: their mean is zero, their covariance everybody's. An iteration then takes as long as if they were not there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ..data.folding import folded_samples, is_tall
from ..kernels.contract import Array

if TYPE_CHECKING:
    from .cavi import CAVI, VIState


@dataclass(frozen=True)
class Fold:
    """The way there and back. basis: (M, N), orthonormal rows; whole: the sweeps of the data as they were."""

    basis: Array
    whole: CAVI

    def into(self, F: Array) -> tuple[Array, Array]:
        """Activations (K, N) in the basis (K, M), and what is outside it as a covariance (1, K, K) of all samples."""
        inside = F @ self.basis.T
        outside = F - inside @ self.basis
        return inside, (outside @ outside.T / F.shape[1])[None]

    def back(self, F: Array) -> Array:
        """(K, N) from (K, M)."""
        return F @ self.basis

    def unfolded(self, state: VIState) -> VIState:
        """A state as the data as they were have it."""
        columns, sums = state.columns, state.sums
        return state._replace(
            columns=columns._replace(f_mean=self.back(columns.f_mean)), sums=sums._replace(LY=self.back(sums.LY))
        )


def folded(cavi: CAVI) -> CAVI:
    """The same sweeps over as many samples as there are features, where there were more and the engine can."""
    from .cavi import CAVI

    engine = cast(Any, cavi.engine)
    plain = cavi.prior.noise == "feature" and cavi.joint and hasattr(engine, "with_data")
    if not (plain and is_tall(cavi.data)):
        return cavi
    few, basis = folded_samples(cavi.data)
    return CAVI(few, cavi.prior, engine.with_data(few), joint=True, fold=Fold(basis, cavi))
