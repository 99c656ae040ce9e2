"""Starts of chains at VI optima: around the best, wider than the posterior, or each at another."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ..arrange import back_to
from ..kernels.protocol import Engine
from ..model import Prior
from ..posterior import Status, VIPosterior
from ..start import PORTFOLIO, Start
from ..vi.fit import ConvergenceWarning, Options, fit_on, options_of
from ..vi.modules import one_module

INFLATION = 2.0  # chains start this many times as far from the optimum as q thinks a draw would lie
REDRAWN = 0.1  # share of the inclusions that are redrawn from the prior


def dispersed_start(vi: VIPosterior, prior: Prior, rng: np.random.Generator, unit: float) -> Start:
    """A start drawn from q with its standard deviations inflated and some inclusions drawn from the prior instead.

    Its factors stand in the order of `prior`, the one that was given to the fit. unit: of the data that chains see.
    """
    q = vi.parameters
    probability = np.broadcast_to(vi.prior.inclusion_matrix(), vi.inclusion_prob.shape)
    if vi.prior.learns_inclusion:
        probability = np.broadcast_to(vi.prior.by_row(vi.inclusion_rate_mean.T), vi.inclusion_prob.shape)
    redrawn = rng.random(probability.shape) < REDRAWN
    Z = rng.random(probability.shape) < np.where(redrawn, probability, vi.inclusion_prob)
    L = q["mu"] + INFLATION * np.sqrt(q["s2"]) * rng.standard_normal(Z.shape)
    F = vi.activations_mean + INFLATION * vi.activations_sd * rng.standard_normal(vi.activations_mean.shape)
    order = back_to(vi.prior, prior)
    return Start("vi", np.where(Z, L / unit, 0.0)[:, order], np.ascontiguousarray(F.T[order]))


def stop_if_interrupted(vi: VIPosterior) -> None:
    """fit_vi keeps what it has when it is interrupted; a half-done start is none."""
    if vi.status is Status.INTERRUPTED:
        raise KeyboardInterrupt
    if vi.status is Status.STOPPED:
        raise RuntimeError(
            "a run must have a draw before it is stopped; the callback returned True while a start was looked for; "
            "return True once progress.kept is positive"
        )


def searched_start(engine: Engine, prior: Prior, chain: int, seed: int, callback: Any) -> Start:
    """Around the best optimum of a search of the chain's own. engine: under the prior in one module."""
    own = int(np.random.SeedSequence([seed, chain]).generate_state(1)[0])
    vi = found_by(engine, prior, options_of(seed=own, max_iter=500, tol=1e-2, callback=callback))
    return dispersed_start(vi, prior, np.random.default_rng([seed, chain, 3]), engine.data.unit)


def optimum_start(engine: Engine, prior: Prior, chain: int, seed: int, callback: Any) -> Start:
    """At the VI optimum that a start of the chain's own climbs to. engine: under the prior in one module."""
    climb = {"init": PORTFOLIO[chain % len(PORTFOLIO)], "n_trials": 1, "race": False, "seed": seed + chain}
    vi = found_by(engine, prior, options_of(tol=1e-2, callback=callback, **climb))
    return dispersed_start(vi, one_module(prior), np.random.default_rng([seed, chain, 3]), engine.data.unit)


def found_by(engine: Engine, prior: Prior, options: Options) -> VIPosterior:
    """The fit that a start is taken from; chains sort the features themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a start need not have converged
        vi = fit_on(engine, one_module(prior), options)
    stop_if_interrupted(vi)
    return vi
