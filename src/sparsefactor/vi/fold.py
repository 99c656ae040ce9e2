"""Samples in a basis in which most of them are zero (docs/math.md, 3.20).

Complete data with noise by feature say of the samples only what Y Y' says: an orthogonal change of basis among the
samples changes neither the likelihood nor the prior of the activations. Where there are more samples than features, a
basis exists in which all but as many samples as there are features are zero, and whose activations are known without
looking: their mean is zero, their covariance everybody's. An iteration then takes as long as if they were not there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ..data.matrix import BY_ROW
from ..kernels.contract import Array

if TYPE_CHECKING:
    from .cavi import CAVI, VIState

TALL = 1.5  # samples to a feature, from which on it is worth it
MOST_BYTES = 2**26  # of the data


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


def is_tall(cavi: CAVI) -> bool:
    """Whether it can be done, and is worth it."""
    data, prior = cavi.data, cavi.prior
    plain = data.is_complete and data.design is None and data.spool is None and not data.is_sparse
    plain = plain and prior.noise == "feature" and cavi.joint and hasattr(cavi.engine, "with_data")
    return plain and data.n_samples >= TALL * data.n_features and data.Y.nbytes <= MOST_BYTES


def folded(cavi: CAVI) -> CAVI:
    """The same sweeps over as many samples as there are features, where there were more."""
    from .cavi import CAVI

    if not is_tall(cavi):
        return cavi
    data, engine = cavi.data, cast(Any, cavi.engine)
    N, G = data.n_samples, data.n_features
    Q, R = np.linalg.qr(np.asarray(data.Y, np.float64).T)
    known: dict[str, Any] = {name: getattr(data, name) for name in (*BY_ROW, "n_observed", "unit_scale")}
    few = replace(data, Y=np.ascontiguousarray(R.T, data.Y.dtype), sample_names=np.arange(G), n_folded=N - G)
    vars(few).update(known)
    return CAVI(few, cavi.prior, engine.with_data(few), joint=True, fold=Fold(np.ascontiguousarray(Q.T), cavi))
