"""The public result of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrange import arranged_prior, arrangement
from ..explained import fit_sums
from ..kernels.contract import NONE, Array
from ..posterior import Labels, Status, VIPosterior
from .factors import taken
from .modules import ModuleCAVI
from .stability import agreement, recurrence
from .state import TERMS
from .trial import Trial


def mean_signal(trials: list[Trial]) -> Array:
    """(n_samples, n_features): the mean of E[F'L'] over the trials that have one."""
    states = [trial.state for trial in trials if np.isfinite(trial.elbo)]
    # One trial at a time: all their signals together could be many times the data.
    total = sum(state.columns.f_mean.T @ (state.rows.eta * state.rows.mu).T for state in states)
    return np.asarray(total / len(states))


def histories(trials: list[Trial]) -> dict[str, Any]:
    """The traces of all trials, one below the other."""
    points = [(trial.number, *point) for trial in trials for point in trial.trace]
    number, iteration, elbo, seconds = np.array(points).reshape(-1, 4).T
    return {"trial": number.astype(int), "iteration": iteration.astype(int), "elbo": elbo, "seconds": seconds}


def posterior(
    winner: Trial,
    trials: list[Trial],
    status: Status,
    signal: Array | None = None,
    record: dict[str, Any] | None = None,
) -> VIPosterior:
    """The public result of a trial. signal: (n_samples, n_features), the mean over trials where it was asked for."""
    cavi, state = winner.cavi, winner.state
    modules: dict[str, Any] = {}
    if isinstance(cavi, ModuleCAVI):
        state = cavi.largest_first(state)
        modules = cavi.summary(state)
    rows, columns, _, terms, elbo = state
    data, mean = cavi.data, rows.eta * rows.mu
    fit = (lambda i: mean[i] @ columns.f_mean) if signal is None else (lambda i: signal[:, i].T)
    sums = fit_sums(data, [fit], mean[None], columns.f_mean.T[None])
    order, signs = arrangement(sums, mean)
    sums = sums.take(order)
    rows, columns = taken(rows, columns, order, signs)
    if modules:
        modules["module_rate_mean"] = np.ascontiguousarray(modules["module_rate_mean"][:, order])
    mean = rows.eta * rows.mu
    variance = rows.eta * (rows.mu**2 + rows.s2) - mean**2
    f_variance = np.einsum("jkk->kj", columns.f_var) if columns.f_var.ndim == 3 else columns.f_var
    noise = {"feature": rows.tau, "sample": cavi.weight(columns), "shared": cavi.weight(columns)[0]}
    trace = np.array(winner.trace).reshape(-1, 3)
    others = [
        trial.state.columns.f_mean
        for trial in trials
        if trial.number != winner.number and trial.status is Status.CONVERGED
    ]
    parameters = {name: a for name, a in (rows._asdict() | columns._asdict()).items() if a is not NONE}
    if cavi.prior.noise == "feature":
        parameters["tau_shape"] = cavi.prior.noise_shape + 0.5 * data.row_count  # its mean is `tau`
    cosines = agreement(columns.f_mean, others)
    return VIPosterior(
        prior=arranged_prior(cavi.prior, order),
        labels=Labels.of(data),
        loadings_mean=np.ascontiguousarray(mean),
        loadings_sd=np.ascontiguousarray(np.sqrt(np.maximum(variance, 0.0))),
        inclusion_prob=np.ascontiguousarray(rows.eta),
        activations_mean=np.ascontiguousarray(columns.f_mean.T),
        activations_sd=np.ascontiguousarray(np.broadcast_to(np.sqrt(f_variance), columns.f_mean.shape).T),
        noise_precision_mean=np.array(noise[cavi.prior.noise]),
        loading_precision_mean=columns.alpha_shape / columns.alpha_rate,
        inclusion_rate_mean=cavi.inclusion_rate(columns),
        elbo=elbo,
        elbo_terms=dict(zip(TERMS, terms.tolist(), strict=True)),
        elbo_history={"iteration": trace[:, 0].astype(int), "elbo": trace[:, 1], "seconds": trace[:, 2]},
        trial_records=[trial.record(won=trial.number == winner.number) for trial in trials],
        stability=recurrence(cosines, sums.empty()),
        trial_history=histories(trials),
        trial_agreement=cosines,
        status=status,
        parameters=parameters,
        signal_mean=signal,
        fit_sums=sums,
        record=record or {},
        **modules,
    )
