"""Features in modules: the fit under a prior with more than one of them (math.md, 1.8 and 3.17).

The search for factors goes on as if there were one module. What it found is where the modules set out from: features
are sorted by the inclusions they have, in several ways, and the best of these goes on. One way is to leave all
features in one module. The equations are in kernels/inclusion.py.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from ..kernels.contract import Array
from ..kernels.inclusion import ModuleInclusion
from ..model import Prior
from .cavi import CAVI, VIState
from .trial import Tolerance, Trial

LOOK = 20  # iterations after which the sortings are compared


def one_module(prior: Prior) -> Prior:
    """The prior that factors are sought under."""
    return replace(prior, n_modules=1) if prior.n_modules > 1 else prior


def under_modules(plain: CAVI, n_modules: int) -> CAVI:
    """The sweeps under the same prior but for so many modules."""
    prior = replace(plain.prior, n_modules=n_modules)
    return CAVI(plain.data, prior, plain.engine.with_prior(prior), joint=plain.joint)


def sorted_by(cavi: CAVI, state: VIState, member: Array) -> VIState:
    """The state that follows when features belong to modules as `member` (G, M) says."""
    rows, members, active_in = cavi.engine.vi_sort(state.rows, member)
    active, _ = cavi.engine.vi_counts(rows)
    sums = state.sums._replace(active=active, members=members, active_in=active_in)
    return cavi.finish(rows, cavi.inclusion.updated(state.columns, sums), np.ones(cavi.prior.K))


def largest_first(cavi: CAVI, state: VIState) -> VIState:
    """The modules in the order of their sizes."""
    order = np.argsort(-state.columns.w_shape, kind="stable")
    rows, columns, sums = state.rows, state.columns, state.sums
    every = np.append(order, cavi.prior.n_modules)
    return state._replace(
        rows=cavi.engine.vi_order_modules(rows, order),
        columns=columns._replace(
            pi_a=columns.pi_a[:, every], pi_b=columns.pi_b[:, every], w_shape=columns.w_shape[order]
        ),
        sums=sums._replace(members=sums.members[order], active_in=sums.active_in[:, order]),
    )


def summary(cavi: CAVI, state: VIState) -> dict[str, Array]:
    """What the public result tells of modules."""
    assert isinstance(cavi.inclusion, ModuleInclusion)
    columns = state.columns
    return {
        "module_prob": np.ascontiguousarray(cavi.engine.vi_fetch(state.rows).member),
        "module_rate_mean": np.ascontiguousarray(cavi.inclusion.module_rates(columns).T),
        "module_weight_mean": columns.w_shape / columns.w_shape.sum(),
    }


def moduled(
    trial: Trial, n_modules: int, tolerance: Tolerance, max_iter: int, rng: np.random.Generator, tried: list[Trial]
) -> Trial:
    """The trial under the prior with modules: of several ways to sort its features, the one that climbs highest.

    tried: is given every state on the way, so that an interruption finds them there.
    """
    begin, spent = time.perf_counter(), trial.iterations
    cavi = under_modules(trial.cavi, n_modules)
    whole = in_modules(trial, cavi, cavi.engine.vi_unsorted(n_modules))
    tried.append(whole)
    chosen = cavi.engine.vi_sortings(trial.state.rows, n_modules, rng)
    look = min(LOOK, (max_iter - spent) // len(chosen) - 1)
    if look < 1:
        return whole  # not converged: its features have not been sorted
    for member in chosen:
        new = in_modules(trial, cavi, member)
        tried.append(new)
        new.advance(new.iterations + look, tolerance)
        spent += new.iterations - trial.iterations
    best = max(tried, key=lambda one: one.elbo)
    best.iterations, best.seconds = spent + 1, trial.seconds + time.perf_counter() - begin
    best.begin_trace()
    best.advance(max_iter, tolerance)
    return best


def in_modules(trial: Trial, cavi: CAVI, member: Array) -> Trial:
    """The trial with its features sorted, and one row pass."""
    new = trial.continued(cavi, sorted_by(cavi, trial.state, member))
    new.begin_trace()
    return new
