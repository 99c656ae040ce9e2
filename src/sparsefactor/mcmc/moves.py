"""Moves that leave the posterior invariant and go where single-coordinate updates creep."""

from __future__ import annotations

import numpy as np

from ..kernels.contract import Sums
from ..model import Prior
from .state import GibbsState, positive


class ScaleMove:
    """Draw each factor's scale exactly: (l_k, f_k, alpha_k) -> (l_k / c, c f_k, c^2 alpha_k) (2.9)."""

    name = "scale"

    def __call__(self, state: GibbsState, sums: Sums, prior: Prior, rng: np.random.Generator) -> GibbsState:
        N = state.F.shape[1]
        shape = 0.5 * N + prior.loading_shape
        rate = 0.5 * np.sum(state.F**2, axis=1) + prior.loading_rate * state.alpha
        c = np.sqrt(positive(rng.standard_gamma(shape, size=len(rate)) / rate))
        return state._replace(F=state.F * c[:, None], alpha=state.alpha * c**2, scale=state.scale / c)


MOVES = {move.name: move for move in (ScaleMove,)}
