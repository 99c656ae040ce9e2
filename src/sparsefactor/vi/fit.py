"""fit_vi: several trials, raced or run to the end; the one with the best ELBO wins."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from ..data import Data, as_data
from ..engine import build_kernels
from ..model import Prior
from ..posterior import Labels, Status, VIPosterior
from ..start import Start, starts
from .state import CAVI, TERMS, VIState
from .trial import Tolerance, Trial

logger = logging.getLogger("sparsefactor")

# The race: up to so many iterations, then so large a share of the trials goes on.
LAPS = ((20, 0.7), (40, 0.4), (80, 0.2))
COARSE = 1e-3  # nats: while racing, an optimum known this well is known well enough
KICKS = 3  # further directions tried when the finalists look for a way out of their optimum

Activations = Literal["independent", "joint"]


class ConvergenceWarning(UserWarning):
    """The ELBO of the returned fit had not settled."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of fit_vi, checked once."""

    n_trials: int
    init: str | Start
    max_iter: int
    tol: float
    rtol: float
    race: bool
    accelerate: bool
    activations: Activations
    seed: int
    backend: str
    n_threads: int | None

    def __post_init__(self) -> None:
        for name in ("n_trials", "max_iter"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}; raise it")
        for name in ("tol", "rtol"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise ValueError(f"{name} must be zero or positive; got {value!r}; the default suits most data")
        if self.activations not in get_args(Activations):
            raise ValueError(
                f"activations must be one of {get_args(Activations)}; got {self.activations!r}; choose one of them"
            )
        if isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer) or self.seed < 0:
            raise ValueError(f"seed must be a whole number of at least 0; got {self.seed!r}; pass e.g. seed=0")


def fit_vi(
    X: Any,
    prior: Prior,
    *,
    n_trials: int = 10,
    init: str | Start = "auto",
    max_iter: int = 5000,
    tol: float = 1e-6,
    rtol: float = 1e-14,
    race: bool = True,
    accelerate: bool = True,
    activations: Activations = "independent",
    center: bool = False,
    seed: int = 0,
    backend: str = "auto",
    n_threads: int | None = None,
) -> VIPosterior:
    """Fit the sparse factor model to X by coordinate-ascent variational inference.

    X: (n_samples, n_features), NaN where missing. n_trials starts are tried; the best ELBO wins.
    init: "auto" (a portfolio of starts), or one of the starts by name ("random" is the paper's).
    max_iter, tol, rtol: a trial ends when one iteration changes the ELBO by less than tol, or rtol times its size.
    race: advance all trials together and drop the worst early; only the leaders run to convergence.
    accelerate: exact rescaling of factors, assignment of unequal inclusion priors, safeguarded extrapolation.
    activations: "independent" (the paper's), or "joint", a full Gaussian over the factors of each sample.
    center: subtract each feature's mean first; `reconstruct` adds it back.
    """
    options = Options(
        n_trials=n_trials,
        init=init,
        max_iter=max_iter,
        tol=tol,
        rtol=rtol,
        race=race,
        accelerate=accelerate,
        activations=activations,
        seed=seed,
        backend=backend,
        n_threads=n_threads,
    )
    data = as_data(X, center=center)
    prior.check_fits(data)
    return _fit(data, prior, options)


def _fit(data: Data, prior: Prior, options: Options) -> VIPosterior:
    kernels = build_kernels(data, prior, options.backend)
    cavi = CAVI(data, prior, kernels)
    tolerance = Tolerance(options.tol, options.rtol)
    trials: list[Trial] = []
    interrupted = False
    try:
        for number, start in enumerate(starts(data, prior, options.init, options.n_trials, options.seed)):
            trials.append(Trial(number, cavi, start, accelerate=options.accelerate))
        rng = np.random.default_rng([options.seed, 0, 4])
        if options.race:
            race(trials, tolerance, options.max_iter, rng)
        else:
            for trial in trials:
                trial.polish(tolerance, options.max_iter, rng, kicks=KICKS)
    except KeyboardInterrupt:
        if not trials:
            raise
        interrupted = True
    winner = max(trials, key=lambda trial: trial.elbo)
    if interrupted:
        winner.status = Status.INTERRUPTED
    status = winner.status or Status.MAX_ITER
    if status is not Status.CONVERGED:
        warnings.warn(f"VI has not converged. {status.value}", ConvergenceWarning, stacklevel=3)
    logger.info("VI: %d trials, best ELBO %.6f, %s", len(trials), winner.elbo, status.name)
    return posterior(cavi, winner, trials, status)


def race(trials: list[Trial], tolerance: Tolerance, max_iter: int, rng: np.random.Generator) -> None:
    """Advance all trials together and drop the worst after each lap; the finalists' optima are compared in full."""
    coarse = Tolerance(max(tolerance.absolute, COARSE), tolerance.relative)
    running = list(trials)
    for lap, share in LAPS:
        for trial in running:
            trial.advance(min(lap - trial.iterations, max_iter - trial.iterations), coarse)
        running.sort(key=lambda trial: -trial.elbo)
        keep = max(1, round(share * len(trials)))
        for trial in running[keep:]:
            trial.status = trial.status or Status.DROPPED
        running = running[:keep]
    for trial in running:
        trial.polish(coarse, max_iter, rng, kicks=KICKS)
    leader = max(running, key=lambda trial: trial.elbo)
    for trial in running:
        if trial is not leader:
            trial.status = Status.DROPPED
    leader.status = None
    leader.polish(tolerance, max_iter, rng, kicks=KICKS)


def posterior(cavi: CAVI, winner: Trial, trials: list[Trial], status: Status) -> VIPosterior:
    """The public result of a trial."""
    state: VIState = winner.state
    rows, columns = state.rows, state.columns
    mean = rows.eta * rows.mu
    variance = rows.eta * (rows.mu**2 + rows.s2) - mean**2
    f_variance = np.einsum("jkk->kj", columns.f_var) if columns.f_var.ndim == 3 else columns.f_var
    noise = {"feature": rows.tau, "sample": cavi.weight(columns), "shared": cavi.weight(columns)[0]}
    learnt = cavi.prior.learns_inclusion
    trace = np.array(winner.trace)
    return VIPosterior(
        prior=cavi.prior,
        labels=Labels(
            feature_names=cavi.data.feature_names, sample_names=cavi.data.sample_names, offset=cavi.data.offset
        ),
        loadings_mean=mean,
        loadings_sd=np.sqrt(np.maximum(variance, 0.0)),
        inclusion_prob=rows.eta,
        activations_mean=np.ascontiguousarray(columns.f_mean.T),
        activations_sd=np.ascontiguousarray(np.broadcast_to(np.sqrt(f_variance), columns.f_mean.shape).T),
        noise_precision_mean=np.array(noise[cavi.prior.noise]),
        loading_precision_mean=columns.alpha_shape / columns.alpha_rate,
        inclusion_rate_mean=columns.pi_a / (columns.pi_a + columns.pi_b) if learnt else np.zeros(0),
        elbo=state.elbo,
        elbo_terms=dict(zip(TERMS, state.terms.tolist(), strict=True)),
        elbo_history={"iteration": trace[:, 0].astype(int), "elbo": trace[:, 1], "seconds": trace[:, 2]},
        trial_records=[trial.record(won=trial is winner) for trial in trials],
        status=status,
        parameters={**rows._asdict(), **columns._asdict()},
    )
