"""The public result of a fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..arrange import arranged_prior, arrangement
from ..data import Data
from ..explained import fit_sums
from ..kernels.contract import NONE, Array, VIColumns
from ..model import Prior
from ..posterior import Labels, Status, VIPosterior
from .cavi import VIState
from .factors import taken
from .modules import largest_first, summary
from .stability import agreement, recurrence
from .trial import Trial

# Restarts count for stability if their ELBO is this many nats below the best at most, or this many per observed entry:
# others ended in a poor optimum, and say nothing about the factors of a good one.
NEAR, NEAR_EACH = 10.0, 1e-3


def mean_signal(trials: list[Trial]) -> Array:
    """(n_samples, n_features): the mean of E[F'L'] over the trials that have one."""
    fetched = [
        (trial.cavi.engine.vi_fetch(trial.state.rows), trial.state) for trial in trials if np.isfinite(trial.elbo)
    ]
    # One trial at a time: all their signals together could be many times the data.
    total = sum(np.asarray(state.columns.f_mean).T @ (rows.eta * rows.mu).T for rows, state in fetched)
    return np.asarray(total / len(fetched))


def histories(trials: list[Trial], shift: float) -> dict[str, Any]:
    """The traces of all trials, one below the other; shift: added to their ELBOs."""
    points = [(trial.number, *point) for trial in trials for point in trial.trace]
    number, iteration, elbo, seconds = np.array(points).reshape(-1, 4).T
    return {"trial": number.astype(int), "iteration": iteration.astype(int), "elbo": elbo + shift, "seconds": seconds}


def in_units_of_x(state: VIState, data: Data) -> VIState:
    """The state of q for the data as the user has them, where these were brought to an ordinary size (section 1.9)."""
    c = data.unit
    rows, columns = state.rows, state.columns
    shift = elbo_shift(data)
    return state._replace(
        rows=rows._replace(
            mu=rows.mu * c,
            s2=rows.s2 * c**2,
            base=rows.base if rows.base is NONE else rows.base * c,
            base_var=rows.base_var if rows.base_var is NONE else rows.base_var * c**2,
            tau=rows.tau / c**2 if rows_have_noise(state) else rows.tau,
        ),
        columns=columns._replace(alpha_rate=columns.alpha_rate * c**2, tau_rate=columns.tau_rate * c**2),
        terms=state.terms._replace(likelihood=state.terms.likelihood + shift),
        elbo=state.elbo + shift,
    )


def rows_have_noise(state: VIState) -> bool:
    return not len(state.columns.tau_shape)


def elbo_shift(data: Data) -> float:
    """The log density of the data as the user has them, less that of data.Y."""
    return -data.n_observed * float(np.log(data.unit))


def own_factors(prior: Prior, fitted: Prior) -> Prior:
    """The prior as it was passed, of the factors that were fitted."""
    return replace(prior, n_factors=fitted.K, inclusion=fitted.inclusion, factor_names=fitted.factor_names)


def correlation_sd(correlation: Array, n: float) -> Array:
    """(K, K) standard deviations of correlations, from n samples whose activations are taken as known."""
    return np.asarray((1.0 - correlation**2) / np.sqrt(n))


def posterior(
    winner: Trial,
    trials: list[Trial],
    status: Status,
    prior: Prior,
    signal: Array | None = None,
    record: dict[str, Any] | None = None,
) -> VIPosterior:
    """The public result of a trial.

    prior: as it was passed, its rates perhaps in units of the data. signal: (n_samples, n_features), the mean over
    trials where it was asked for, in the units of data.Y.
    """
    cavi, data = winner.cavi, winner.cavi.data
    state = winner.state._replace(
        rows=cavi.engine.vi_fetch(winner.state.rows), columns=VIColumns(*map(np.asarray, winner.state.columns))
    )
    modules: dict[str, Any] = {}
    if cavi.prior.n_modules > 1:
        state = largest_first(cavi, state)
        state = state._replace(rows=cavi.engine.vi_fetch(state.rows))
        modules = summary(cavi, state)
    rows, columns = state.rows, state.columns
    mean = rows.eta * rows.mu
    fits = None if signal is None else [lambda i: signal[:, i].T]
    labels = Labels.of(data)
    rest = data.less(rows.base)
    if data.design is not None:
        base = rows.base * data.unit
        sd = data.design.spread(rows.base_var) * data.unit
        labels = labels.with_base(data.design.intercepts(base), data.design.loadings(base), sd)
    sums = fit_sums(rest, fits, mean[None], columns.f_mean.T[None], cavi.prior.group_index)
    order, signs = arrangement(sums, mean)
    sums = sums.take(order)
    rows, columns = taken(cavi.engine, rows, columns, order, signs)
    rows = cavi.engine.vi_fetch(rows)
    rows, columns, _, terms, elbo = in_units_of_x(state._replace(rows=rows, columns=columns), data)
    if modules:
        modules["module_rate_mean"] = np.ascontiguousarray(modules["module_rate_mean"][:, order])
    mean = rows.eta * rows.mu
    variance = rows.eta * (rows.mu**2 + rows.s2) - mean**2
    f_variance = np.einsum("jkk->kj", columns.f_var) if columns.f_var.ndim == 3 else columns.f_var
    noise = {"feature": rows.tau, "sample": cavi.weight(columns), "shared": cavi.weight(columns)[0]}
    trace = np.array(winner.trace).reshape(-1, 3)
    trace[:, 1] += elbo_shift(data)
    near = max(NEAR, NEAR_EACH * data.n_observed)
    others = [
        np.asarray(trial.state.columns.f_mean)
        for trial in trials
        if trial.number != winner.number and trial.status is Status.CONVERGED and winner.elbo - trial.elbo < near
    ]
    parameters = {name: a for name, a in (rows._asdict() | columns._asdict()).items() if a is not NONE}
    if cavi.prior.noise == "feature":
        parameters["tau_shape"] = cavi.prior.noise_shape + 0.5 * data.row_count  # its mean is `tau`
    if cavi.prior.noise == "sample" and data.design is not None:
        # What was taken off samples for the units of their noise (1.9), of which those of new samples are, too.
        of_units = np.zeros_like(rows.base) if data.design.covariates is None else data.regression() * data.unit
        parameters["base_of_units"] = of_units
    cosines = agreement(columns.f_mean, others)
    correlation: dict[str, Any] = {}
    if len(columns.phi):
        correlation = {
            "factor_correlation_mean": np.ascontiguousarray(columns.phi),
            "factor_correlation_sd": correlation_sd(columns.phi, data.n_samples + cavi.fixed.correlation_df),
        }
    records = [trial.record(won=trial.number == winner.number) for trial in trials]
    return VIPosterior(
        prior=arranged_prior(own_factors(prior, cavi.prior), order),
        labels=labels,
        loadings_mean=np.ascontiguousarray(mean),
        loadings_sd=np.ascontiguousarray(np.sqrt(np.maximum(variance, 0.0))),
        inclusion_prob=np.ascontiguousarray(rows.eta),
        activations_mean=np.ascontiguousarray(columns.f_mean.T),
        activations_sd=np.ascontiguousarray(np.broadcast_to(np.sqrt(f_variance), columns.f_mean.shape).T),
        noise_precision_mean=np.array(noise[cavi.prior.noise]),
        loading_precision_mean=np.ascontiguousarray((columns.alpha_shape / columns.alpha_rate).T),
        inclusion_rate_mean=np.ascontiguousarray(cavi.inclusion.rate(columns).T),
        elbo=elbo,
        elbo_terms=terms._asdict(),
        elbo_history={"iteration": trace[:, 0].astype(int), "elbo": trace[:, 1], "seconds": trace[:, 2]},
        trial_records=[record | {"elbo": record["elbo"] + elbo_shift(data)} for record in records],
        stability=recurrence(cosines, sums.empty()),
        trial_history=histories(trials, elbo_shift(data)),
        trial_agreement=cosines,
        status=status,
        parameters=parameters,
        signal_mean=None if signal is None else signal * data.unit,
        fit_sums=sums,
        record=record or {},
        **correlation,
        **modules,
    )
