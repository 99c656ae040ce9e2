"""Whether a state's residuals are residuals, or rounding.

Residual sums of squares are formed by differences of far larger sums (3.4), so that a sweep reads the data twice and
no more. Where factors explain a feature or a sample to within the rounding of those sums, its noise precision means
nothing, and neither does the ELBO. A fit looks at its end, by residuals that are taken entry by entry.
"""

from __future__ import annotations

import numpy as np

from .state import CAVI, VIState

# E[tau] times the residual is at most about the number of entries, for tau was learnt from that residual.
TOO_MUCH = 3.0


def learnt_from_rounding(cavi: CAVI, state: VIState) -> bool:
    """Whether the noise of some feature or sample was."""
    data, prior = cavi.data, cavi.prior
    L, F = state.rows.eta * state.rows.mu, state.columns.f_mean
    if prior.noise == "feature":
        tau, rss, count = state.rows.tau, data.row_rss(L, F), data.row_count
    else:
        tau, rss, count = cavi.weight(state.columns), data.column_rss(L, F), data.column_count
        if prior.noise == "shared":
            rss, count = rss.sum(keepdims=True), count.sum(keepdims=True)
            tau = tau[:1]
    return bool(np.any(tau * rss > TOO_MUCH * (count + 2.0 * prior.noise_shape)))
