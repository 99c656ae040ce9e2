"""Leave a local optimum by a random rotation of a few factors (docs/math.md, 3.18).

Optima on real data mostly span the same space of activations and differ in the axes they choose there: an oblique
rotation of each other. A rotation changes nothing of the fit, so the climb from there is short, and needs no sampling.
"""

from __future__ import annotations

import numpy as np

from ..kernels.columns import second_moment
from .cavi import CAVI, VIState
from .empty import holds_nothing
from .shear import sheared

MOST = 4  # factors that turn together; other numbers were not compared


def turned(cavi: CAVI, state: VIState, rng: np.random.Generator) -> VIState | None:
    """The state after a rotation, uniform over all, of two to four factors that hold something; None without two."""
    used = np.flatnonzero(~holds_nothing(cavi, state))
    if len(used) < 2:
        return None
    own = rng.choice(used, int(rng.integers(2, min(MOST, len(used)) + 1)), replace=False)
    length = np.sqrt(np.asarray(second_moment(state.columns, cavi.fixed))[own])
    Q, R = np.linalg.qr(rng.standard_normal((len(own), len(own))))
    E = np.zeros((cavi.prior.K, cavi.prior.K))
    E[np.ix_(own, own)] = length[:, None] * (Q * np.sign(np.diag(R))) / length - np.eye(len(own))
    return sheared(cavi, state, E)
