"""The first start of a search: factor analysis with dense loadings, rotated by varimax (math.md, 3.21).

Maximum-likelihood factor analysis differs from the singular value decomposition in that each feature has a noise of its
own. It is fitted here by the same sweeps as the sparse model, with every loading included, so that it takes missing
values, covariates and any backend as the model itself does. Of all starts compared, the factors found from this one
reappear most often in other samples of the same population (docs/results.md).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np

from ..kernels.contract import Array
from ..kernels.noise import row_stream
from ..start import Leading, Start, StartMaker, rotate_varimax
from .cavi import CAVI, VIState
from .trial import Tolerance, Trial
from .watch import Stopped

DENSE = 1.0 - 1e-9  # inclusion probability: the prior needs one below 1
SWEEPS = 20  # accelerated; 50 or 200 change no figure of the yardstick


def factor_analysis_start(cavi: CAVI, maker: StartMaker, check: Callable[[Trial], None] | None = None) -> Start:
    """Loadings and activations of a dense factor analysis after a varimax rotation.

    check: called now and then; where it raises `Stopped`, the start is made from the state so far.
    """
    prior = replace(cavi.prior, n_factors=cavi.prior.K, inclusion=DENSE, n_modules=1, factor_correlation="none")
    dense = CAVI(cavi.data, prior, cavi.engine.with_prior(prior), joint=True)
    first = maker.rotated("svd", np.eye(maker.leading.rank))
    trial = Trial(0, "factor_analysis", dense, dense.start(first.L, first.F), accelerate=True, check=check)
    with suppress(Stopped):
        trial.advance(SWEEPS, Tolerance(0.0, 0.0))
    F, root = whiten(trial.state)
    L = dense.engine.vi_scatter(trial.state.rows, np.zeros(0), 0.0, 0.0, row_stream(np.random.default_rng(0)))
    L = dense.engine.start_turn(L, root)
    R = rotate_varimax(Leading(dense.engine, L, F), np.random.default_rng(0), True)
    return Start("factor_analysis", dense.engine.start_turn(L, R), np.ascontiguousarray(R.T @ F))


def whiten(state: VIState) -> tuple[Array, Array]:
    """Activations (K, N) whose second moments under q are the identity, and what loadings are multiplied by."""
    mean, variance = np.asarray(state.columns.f_mean), np.asarray(state.columns.f_var)
    spread = variance.mean(axis=0) if variance.ndim == 3 else np.diag(variance.mean(axis=1))
    values, vectors = np.linalg.eigh(mean @ mean.T / mean.shape[1] + spread)
    root = np.sqrt(np.maximum(values, np.finfo(float).tiny))
    return np.asarray((vectors / root) @ vectors.T @ mean), np.asarray((vectors * root) @ vectors.T)
