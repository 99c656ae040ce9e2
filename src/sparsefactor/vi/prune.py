"""Remove factors that the data do not support: a factor goes when the model without it has the higher ELBO."""

from __future__ import annotations

import numpy as np

from ..kernels.contract import NONE
from .cavi import CAVI
from .empty import is_empty_factor
from .factors import taken
from .trial import Tolerance, Trial

SETTLE = 60  # iterations that the rest may take to make up for a factor's removal


def without(trial: Trial, gone: list[int]) -> Trial:
    """The trial with some factors taken out and one row pass made without them."""
    old = trial.cavi
    keep = np.array([k for k in range(old.prior.K) if k not in gone])
    prior = old.prior.take(keep)
    cavi = CAVI(old.data, prior, old.engine.with_prior(prior), joint=old.joint)
    rows, columns = taken(old.engine, trial.state.rows, trial.state.columns, keep)
    if not cavi.prior.correlated:  # a single factor has no correlations
        columns = columns._replace(phi=NONE)
    state = cavi.finish(rows, columns, np.ones(len(keep)))
    return trial.continued(cavi, state)


def pruned(trial: Trial, tolerance: Tolerance) -> Trial:
    """The trial after every removal that raises its ELBO: the empty factors at once, then the weakest one by one."""
    best = trial
    bare = is_empty_factor(best.cavi, best.state)
    empty = np.flatnonzero(bare).tolist()
    if bare.all():
        empty = empty[1:]  # a model keeps at least one factor
    if empty:
        best = _better(best, without(best, empty), tolerance)
    while best.cavi.prior.K > 1:
        strength = best.cavi.strength(best.state)
        smaller = _better(best, without(best, [int(np.argmin(strength))]), tolerance)
        if smaller is best:
            return best
        best = smaller
    return best


def _better(old: Trial, new: Trial, tolerance: Tolerance) -> Trial:
    """`new`, after it has settled, if its ELBO is the higher one."""
    length = len(new.trace)
    while new.elbo <= old.elbo and new.status is None and new.iterations < old.iterations + SETTLE:
        new.advance(new.iterations + 10, tolerance)
    if new.elbo <= old.elbo:
        return old
    new.trace[length:] = [point for point in new.trace[length:] if point[1] > old.elbo]
    return new
