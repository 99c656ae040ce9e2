"""Runs of Gibbs sampling of small data with holes, filled in once at the beginning (docs/math.md, 3.18).

A hop only has to leave an optimum, and is judged by where the climb from its end leads, on the data as they are. So a
run need not draw from the posterior. With the missing entries drawn around what the optimum says of them, and what its
intercepts and covariates explain taken off, data are complete: sweeps are then compiled, and of a few samples alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..data.folding import MOST_BYTES, alike_samples, folded_samples, with_room
from ..gibbs.moves import Move
from ..gibbs.sweep import Gibbs
from ..kernels.contract import Array, VIColumns, VIRows
from ..kernels.noise import row_stream, stream_key
from .cavi import CAVI, VIState
from .fold import can_fold


class Filled:
    """Runs from states of one `CAVI`. engine: for its prior and all samples."""

    def __init__(self, cavi: CAVI, engine: Any, moves: Sequence[Move]) -> None:
        self.cavi, self.engine, self.moves = cavi, engine, moves

    def from_state(self, rows: VIRows, columns: VIColumns, number: tuple[int, ...], sweeps: int, seed: int) -> VIState:
        """Where a run from these rows and columns leads to."""
        cavi, rng = self.cavi, np.random.default_rng([seed, *number, 11])
        F = np.array(columns.f_mean)
        F = F if cavi.fold is None else cavi.fold.back(F)
        engine = self.engine.with_holes_filled(rows, F, rng)
        alike, basis = alike_samples(engine.data), None
        if alike is not None:
            few, (lot,) = folded_samples(engine.data, alike)
            engine, basis = engine.with_data(with_room(few, len(F))), lot.basis
        if basis is not None:
            F = np.hstack([F @ basis.T, np.zeros((len(F), engine.data.n_gathered))])
        gibbs = Gibbs(engine.data, cavi.prior, engine, self.moves)
        draw = gibbs.begin(engine.vi_draw(rows, row_stream(rng)), F)
        draw = gibbs.run(draw, stream_key(seed, *number), sweeps)
        F = draw.F if basis is None else unfolded(draw.F, basis, rng)
        return cavi.begin(cavi.engine.vi_at_draw(draw.rows, draw.scale), F, known=True)


def unfolded(F: Array, basis: Array, rng: np.random.Generator) -> Array:
    """Activations of all samples (K, N) from those in the basis (M, N) and a root of what is outside, (K, M + r)."""
    M, root = len(basis), F[:, len(basis) :]
    free = rng.standard_normal((root.shape[1], basis.shape[1]))
    free -= (free @ basis.T) @ basis
    return np.asarray(F[:, :M] @ basis + root @ np.linalg.qr(free.T)[0].T)


def filled_runs(cavi: CAVI, moves: Sequence[Move]) -> Filled | None:
    """Where data have holes, are in this process and so small that their copies cost little."""
    whole = cavi if cavi.fold is None else cavi.fold.whole
    data, prior = whole.data, cavi.prior
    plain = prior.noise == "feature" and not prior.grouped and prior.n_modules == 1 and not data.is_single
    small = 8 * data.n_features * data.n_samples <= MOST_BYTES
    if data.is_complete or not plain or not small or not can_fold(whole.engine):
        return None
    return Filled(cavi, whole.engine.with_prior(prior), moves)
