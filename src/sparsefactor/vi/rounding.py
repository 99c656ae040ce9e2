"""Whether a state's likelihood is one, or rounding.

Expected residual sums of squares are formed by differences of far larger sums (3.4), so that a sweep reads the data
twice and no more. Where factors explain features to within the rounding of those sums, they mean nothing, and neither
does the ELBO. But residuals can be taken entry by entry as well, and then bound it from above.
"""

from __future__ import annotations

import numpy as np
from scipy.special import digamma

from ..densities import LOG_2PI
from .cavi import CAVI, VIState

SLACK = 1e-6  # of the likelihood's size, for the rounding of an ordinary sum


def most_likelihood(cavi: CAVI, state: VIState) -> float:
    """What the ELBO's term `likelihood` cannot exceed: (3.10) without the variances of loadings and activations."""
    data, prior, columns = cavi.data, cavi.prior, state.columns
    if prior.noise == "feature":
        return cavi.engine.vi_likelihood(state.rows, columns.f_mean)
    tau, rss, count = cavi.weight(columns), cavi.engine.vi_column_rss(state.rows, columns.f_mean), data.column_count
    shape = columns.tau_shape
    log_tau = digamma(shape) - np.log(shape) + np.log(tau)
    return float(0.5 * (count @ (log_tau - LOG_2PI) - tau @ rss))


def all_rounding(cavi: CAVI, state: VIState) -> bool:
    """Whether the likelihood is higher than it can be."""
    most = most_likelihood(cavi, state)
    return bool(state.terms.likelihood > most + SLACK * max(1.0, abs(most)))
