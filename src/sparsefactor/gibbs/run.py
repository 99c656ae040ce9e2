"""Many sweeps at once, where only the last draw counts: what an engine must know to make them without the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..kernels.contract import RunRule
from ..model import Beta
from .moves import RotationMove, ScaleMove, ShearMove

if TYPE_CHECKING:
    from .sweep import Gibbs

# Of activations, which are standard normal beforehand. Residual sums of squares are differences of sums of squares,
# known to about eps of these: where factors explain the data to within that and the prior allows noise below it,
# precisions follow the rounding, and activations that are solved for with them may be anything.
LARGEST = 1e100


def rule_of(gibbs: Gibbs, sweeps: int) -> RunRule | None:
    """Of runs with exactly the moves of a proposal (vi/proposals.py), all of them due at the same sweeps."""
    prior, data, K = gibbs.prior, gibbs.data, gibbs.prior.K
    expected = [RotationMove, ShearMove] if prior.correlated else [ScaleMove, RotationMove, ShearMove]
    if [type(move) for move in gibbs.moves] != expected:
        return None
    every = {move.every for move in gibbs.moves}
    if len(every) > 1 or prior.grouped or prior.n_modules > 1 or prior.noise != "feature":
        return None
    return RunRule(
        sweeps=sweeps,
        every=every.pop(),
        n_samples=float(gibbs.fixed.n_samples),
        n_pairs=RotationMove().n_pairs(K, data.n_features),
        shears=np.array(ShearMove.scales),
        directions=ShearMove.directions,
        kinds=np.asarray(gibbs.groups, dtype=np.int64),
        loading_shape=float(prior.loading_shape),
        loading_rate=float(prior.loading_rate),
        learnt=isinstance(prior.inclusion, Beta),
        a=float(gibbs.inclusion.a),
        b=float(gibbs.inclusion.b),
        correlation_df=prior.correlation_df,
        largest=LARGEST,
    )
