"""Starts of chains at VI optima: around the best, wider than the posterior, or each at another."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels.contract import VIColumns
from ..kernels.noise import row_stream
from ..kernels.protocol import Engine
from ..model import Prior
from ..posterior import Status
from ..start import PORTFOLIO, Start
from ..vi.fit import Found, options_of, search_on
from ..vi.search import RESTARTS
from ..vi.trial import Trial
from .clock import Deadline

INFLATION = 2.0  # chains start this many times as far from the optimum as q thinks a draw would lie
REDRAWN = 0.1  # share of the inclusions that are redrawn from the prior


def dispersed_start(trial: Trial, rng: np.random.Generator) -> Start:
    """A start drawn from q with its standard deviations inflated and some inclusions drawn from the prior instead."""
    columns, engine = VIColumns(*map(np.asarray, trial.state.columns)), trial.cavi.engine
    rate = columns.pi_a / (columns.pi_a + columns.pi_b)  # (0,) where inclusion is given
    L = engine.vi_scatter(trial.state.rows, rate, INFLATION, REDRAWN, row_stream(rng))
    variance = np.einsum("jkk->kj", columns.f_var) if columns.f_var.ndim == 3 else columns.f_var
    return Start("vi", L, columns.f_mean + INFLATION * np.sqrt(variance) * rng.standard_normal(columns.f_mean.shape))


def stop_if_interrupted(found: Found, deadline: Deadline | None) -> None:
    """A search keeps what it has when it is interrupted; a half-done start is none, unless its time was over."""
    if found.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if found.status is Status.STOPPED and not (deadline is not None and deadline.passed):
        raise RuntimeError(
            "a run must have a draw before it is stopped; the callback returned True while a start was looked for; "
            "return True once progress.kept is positive"
        )


def searched_start(
    engine: Engine, prior: Prior, chain: int, seed: int, callback: Any, deadline: Deadline | None = None
) -> Start:
    """Around the best optimum of several restarts of the chain's own, which need not have converged.

    engine: for the prior, which has one module: chains sort the features themselves. deadline: of the search, whose
    best state so far it then is.
    """
    own = int(np.random.SeedSequence([seed, chain]).generate_state(1)[0])
    options = options_of(seed=own, n_trials=RESTARTS, max_iter=500, tol=1e-2, callback=callback)
    found = search_on(engine, prior, options, over=deadline)
    stop_if_interrupted(found, deadline)
    return dispersed_start(found.winner, np.random.default_rng([seed, chain, 3]))


def optimum_start(
    engine: Engine, prior: Prior, chain: int, seed: int, callback: Any, deadline: Deadline | None = None
) -> Start:
    """At the VI optimum that a start of the chain's own climbs to. engine: for the prior, which has one module."""
    climb = {"init": PORTFOLIO[chain % len(PORTFOLIO)], "n_trials": 1, "race": False, "seed": seed + chain}
    found = search_on(engine, prior, options_of(tol=1e-2, callback=callback, **climb), over=deadline)
    stop_if_interrupted(found, deadline)
    return dispersed_start(found.winner, np.random.default_rng([seed, chain, 3]))
