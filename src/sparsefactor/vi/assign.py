"""Which factor has which inclusion prior, where these differ (math.md, 3.14)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..kernels.contract import Array
from .cavi import CAVI, VIState
from .factors import taken


def assignment_gain(cavi: CAVI, state: VIState) -> Array:
    """(K, K) the ELBO's part in z if factor k had the inclusion prior of factor p, q(z) adapting to it (3.14)."""
    return cavi.engine.vi_assignment_gain(state.rows, cavi.message(state.columns, np.ones(cavi.prior.K)))


def reordered(cavi: CAVI, state: VIState, order: NDArray[np.intp]) -> VIState:
    """The factors in another order, so that factor order[p] comes under prior p, and one row pass."""
    return cavi.finish(*taken(cavi.engine, state.rows, state.columns, order), np.ones(len(order)))
