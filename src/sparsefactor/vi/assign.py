"""Which factor has which inclusion prior, where these differ (docs/math.md, 3.14)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..kernels.contract import Array
from .cavi import CAVI, VIState
from .factors import taken


def assignment_gain(cavi: CAVI, state: VIState) -> Array:
    """(K, K) the ELBO's part in z if factor k had the inclusion prior of factor p, q(z) adapting to it (3.14)."""
    rows, prior = state.rows, cavi.prior
    message = cavi.message(state.columns, np.ones(prior.K))
    bayes_factor = 0.5 * (prior.by_row(message.log_alpha) + np.log(rows.s2) + rows.mu**2 / rows.s2)
    groups = prior.factor_groups()
    gain = np.empty((prior.K, prior.K))
    for group in np.unique(groups):
        logit = cavi.fixed_logit[:, [np.argmax(groups == group)]]
        value = np.logaddexp(0.0, bayes_factor + logit) - np.logaddexp(0.0, logit)
        gain[:, groups == group] = value.sum(axis=0)[:, None]
    return gain


def reordered(cavi: CAVI, state: VIState, order: NDArray[np.intp]) -> VIState:
    """The factors in another order, so that factor order[p] comes under prior p, and one row pass."""
    return cavi.finish(*taken(state.rows, state.columns, order), np.ones(len(order)))
