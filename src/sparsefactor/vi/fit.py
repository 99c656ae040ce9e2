"""fit_vi: several trials, raced or run to the end; the one with the best ELBO wins."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from ..checks import check_watching, checked_choice, checked_count, checked_flag, checked_number, seed_number
from ..engine import build_engine
from ..engine.readers import jobs_on, reader_for
from ..engine.threads import single_blas_thread
from ..kernels.protocol import Engine
from ..model import Prior
from ..notices import warn
from ..posterior import Status, VIPosterior
from ..preparation import prepared
from ..progress import Bars, is_shown
from ..record import record_of
from ..start import INITS, Start, checked_init
from .cavi import CAVI
from .checkpoint import fit_in
from .ladder import Ladder
from .modules import in_modules, moduled, one_module, under_modules
from .prune import pruned
from .result import elbo_shift, mean_signal, posterior
from .rounding import all_rounding
from .search import Search
from .trial import Tolerance, Trial
from .watch import Callback, Stopped, Watcher

logger = logging.getLogger("sparsefactor")

Activations = Literal["independent", "joint"]

STATE_ARRAYS = 4  # of the size of the loadings, which a trial takes along
MANY = 10  # trials of a search, and hops


class ConvergenceWarning(UserWarning):
    """The ELBO of the returned fit had not settled."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of fit_vi, checked once."""

    n_trials: int | str
    init: str | Start | Sequence[Start]
    max_iter: int
    tol: float
    rtol: float
    race: bool
    accelerate: bool
    activations: Activations
    prune: bool
    average: bool
    seed: int
    backend: str
    n_threads: int | None
    progress: bool | None
    callback: Callback | None
    client: Any = None
    path: Path | None = None
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.n_trials != "auto":
            if isinstance(self.n_trials, str):
                raise ValueError(f'n_trials must be "auto" or a whole number; got {self.n_trials!r}; choose one')
            checked_count("n_trials", self.n_trials)
        checked_count("max_iter", self.max_iter)
        for name in ("tol", "rtol", "checkpoint_seconds"):
            checked_number(name, getattr(self, name))
        checked_choice("activations", self.activations, get_args(Activations))
        for name in ("race", "accelerate", "prune", "average"):
            checked_flag(name, getattr(self, name))
        checked_init(self.init, INITS)
        check_watching(self.progress, self.callback)

    @property
    def n_jobs(self) -> int:
        """Trials and hops that could be made side by side on a cluster, each from start to end on one worker."""
        if self.client is None or self.path is not None or self.backend not in ("auto", "cpu"):
            return 1
        return MANY if self.n_trials == "auto" else int(self.n_trials)

    @property
    def tolerance(self) -> Tolerance:
        return Tolerance(self.tol, self.rtol)


def fit_vi(
    X: Any,
    prior: Prior | None = None,
    *,
    n_factors: int | None = None,
    n_trials: int | Literal["auto"] = "auto",
    init: str | Start | Sequence[Start] = "auto",
    max_iter: int = 5000,
    tol: float = 1e-6,
    rtol: float = 1e-14,
    race: bool = True,
    accelerate: bool = True,
    activations: Activations = "joint",
    prune: bool = False,
    average: bool = False,
    center: bool = True,
    scale: bool = False,
    covariates: Any = None,
    covariate_loadings: str = "flat",
    dtype: Any = None,
    seed: int | np.random.Generator | None = 0,
    backend: str = "auto",
    n_threads: int | None = None,
    progress: bool | None = None,
    callback: Callback | None = None,
    client: Any = None,
    path: str | PathLike[str] | None = None,
    checkpoint_seconds: float = 60.0,
) -> VIPosterior:
    """Fit the sparse factor model to X by coordinate-ascent variational inference.

    Parameters
    ----------
    X : (n_samples, n_features) array or frame
        NaN where missing. Or, read a part at a time: a dask array, a zarr array or path, a Parquet folder, an AnnData
        that is backed by a file.
    prior : Prior, optional
        What is known beforehand.
    n_factors : int, optional
        Instead of a prior: the maximum number of factors, for the default prior. Without both, as many as parallel
        analysis finds (X in memory only); `prior.parallel_analysis` of the result is then that number.
    n_trials : int or "auto"
        So many starts, of which the best ELBO wins; "auto" tries ten, and where the best three of them end in
        different optima it goes on from there by rotations, runs of Gibbs sampling and recombination, if need be
        from ten further starts, until nothing better turns up; `certainty` tells how often the best optimum recurred.
    init : str, Start or list of Start
        "auto" (a portfolio of starts), or one of the starts by name ("random" is the paper's). A Start of your own is
        the only one; a list of them races beside the portfolio, half of it where n_trials is "auto".
    max_iter : int
        Most iterations of a trial.
    tol, rtol : float
        A trial ends when one iteration changes the ELBO by less than tol, or rtol times its size.
    race : bool
        Advance all trials together and drop the worst early; only the leaders run to convergence.
    accelerate : bool
        Exact rescaling of factors, assignment of unequal inclusion priors, momentum, and ways out of local
        optima: shears, and emptying factors. The paper's plain recipe is init="random", race=False, accelerate=False.
    activations : "joint" or "independent"
        A full Gaussian over the factors of each sample, or the paper's.
    prune : bool
        Remove factors where that raises the ELBO, so that n_factors is an upper bound.
    average : bool
        `reconstruct` is the mean over all trials, each run to its own optimum (there is no race then): on real
        data optima differ in what they predict, and their mean errs less than the best. All else is that of the trial
        with the best ELBO.
    center, scale : bool
        Subtract each feature's mean first, and divide by its standard deviation; `reconstruct` undoes both.
        Where entries are missing, what is left of each mean is part of the model.
    covariates : (n_samples, c) array or frame, optional
        Known covariates of the samples (a batch, an age), so that they do not take a factor: they enter as factors with
        these activations and loadings of their own, `covariate_loadings_mean`. A frame goes by the samples' names.
    covariate_loadings : "flat" or "slab"
        Whether these loadings are unpenalised, or shrunk towards zero as the loadings of a factor are that is in every
        feature: by a slab for each covariate, whose precision is learnt.
    dtype : dtype, optional
        Of the data matrix: float64, but float32 on a GPU, unless you say. float32 halves its memory, and its two
        products then agree to about 1e-4. float16, on a GPU alone, halves it again, and entries have
        3 digits.
    seed : int, None or numpy Generator
        None for a fresh one.
    backend : str
        Which engine does the work: "cpu"; "gpu", or "jax" (wherever JAX runs), with the extra `gpu`; "auto" takes a
        GPU where JAX has one and the job is large, else "cpu". With a client: on every worker.
    n_threads : int, optional
        Threads of the row pass, and of searches side by side where data are small and there is no callback; None for
        every core. Results do not depend on it.
    progress : bool, optional
        Show on standard error how the search goes; None does so in a terminal and in a notebook.
    callback : function of VIProgress, optional
        Called after each iteration. Where it returns True the search ends with the best state so far, and its
        `status` is STOPPED.
    client : dask.distributed.Client, optional
        Whose workers do the work. Little data (64 MB, with the states of a trial) are sent to all of them, and trials
        and hops are spread over them, unless there is a path; the callback is then called when one has come back. Else
        features live on the workers, which read them themselves where X is not in memory. The result is the same.
    path : path, optional
        A folder that the fit leaves its traces in. A call with the path and settings of an earlier one goes on with
        it, however that ended, on a cluster or without one, and ends as a fit that was never stopped; where it was
        done, its result is returned.
    checkpoint_seconds : float
        How often the state of the search is written there.

    Returns
    -------
    VIPosterior

    Warns
    -----
    ConvergenceWarning
        Where the ELBO had not settled.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> p = sf.fit_vi(sim.X, n_factors=2)
    >>> p.loadings_mean.shape
    (40, 2)
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
        prune=prune,
        average=average,
        seed=seed_number(seed),
        backend=backend,
        n_threads=n_threads,
        progress=progress,
        callback=callback,
        client=client,
        path=None if path is None else Path(path),
        checkpoint_seconds=checkpoint_seconds,
    )
    settings = {"center": center, "scale": scale, "covariates": covariates, "covariate_loadings": covariate_loadings}
    bars = Bars() if is_shown(progress) else None
    with single_blas_thread(), bars or nullcontext():
        half = is_half(dtype)
        own = np.float32 if half else np.float64 if dtype is None else dtype
        read = reader_for(client, options.n_jobs)
        data, prior = prepared(X, prior, n_factors, dtype=own, read=read, **settings)
        jobs = jobs_on(client, data, options.n_jobs, STATE_ARRAYS * 8 * data.n_features * prior.K)
        engine = build_engine(
            data,
            one_module(prior),
            options.backend if jobs is None else "cpu",
            options.n_threads,
            client if jobs is None else None,
            any_precision=dtype is None,
            half=half,
        )
        if options.path is not None:
            return fit_in(options.path, engine, prior, options, lambda noted: _fit(noted, prior, options, bars))
        return _fit(engine, prior, options, bars, jobs)


def is_half(dtype: Any) -> bool:
    """Whether float16 is asked for, which is how a device holds the data, not how they are read."""
    try:
        return dtype is not None and np.dtype(dtype) == np.float16
    except TypeError:
        return False  # as_data says what it must be


def options_of(**changes: Any) -> Options:
    """The settings of fit_vi by default, but for these."""
    names = {field.name for field in fields(Options)}
    own = {name: p.default for name, p in inspect.signature(fit_vi).parameters.items() if name in names}
    return Options(**(own | changes))


class Found(NamedTuple):
    """What a search has found. averaged: the trials that predictions are averaged over, where that is asked for."""

    winner: Trial
    trials: list[Trial]
    averaged: list[Trial]
    status: Status
    told: dict[str, Any]


def search_on(
    engine: Engine,
    prior: Prior,
    options: Options,
    bars: Bars | None = None,
    jobs: Any | None = None,
    over: Callable[[], bool] | None = None,
) -> Found:
    """The search on an engine that was built for the data and the prior's factors, in one module.

    jobs: a way to have trials and hops made by the workers of a cluster. over: asked now and then, once there is
    something to keep; True ends the search there, as a callback does, but leaves the climbs their compiled calls.
    """
    with engine.scope():
        return _search_on(engine, prior, options, bars, jobs, over)


def _search_on(
    engine: Engine,
    prior: Prior,
    options: Options,
    bars: Bars | None,
    jobs: Any | None,
    over: Callable[[], bool] | None,
) -> Found:
    data = engine.data
    cavi = CAVI(data, one_module(prior), engine, joint=options.activations == "joint")
    trials: list[Trial] = []
    watcher = Watcher(trials, data.unit, elbo_shift(data), options.callback, bars, over)
    search = Search(cavi, options, trials, watcher, jobs)
    ladder = Ladder(search)
    winner: Trial | None = None
    averaged = trials
    tried: list[Trial] = []  # under modules, of the trial that is being refined
    try:
        ladder.run()
        for trial in list(trials) if options.average else [best_of(trials)]:
            trials[trial.number] = refined(trial, prior.n_modules, options, trials, tried, watcher)
            tried.clear()
        winner = best_of(trials if options.average else [trials[trial.number]])
    except (KeyboardInterrupt, Stopped, MemoryError) as end:
        found = ladder.before is not None or any(np.isfinite(trial.elbo) for trial in trials)
        if not isinstance(end, Stopped) and not found:
            raise
        if isinstance(end, MemoryError):
            warn(f"the search ended early, and what it had found is returned: {end}", ConvergenceWarning)
        ladder.settle()
        winner = best_under_modules(trials, tried, prior.n_modules) if prior.n_modules > 1 else best_of(trials)
        trials[winner.number] = winner
        averaged = [trial for trial in trials if trial.status is Status.CONVERGED] or [winner]
        ended = Status.STOPPED if isinstance(end, Stopped) else Status.INTERRUPTED
        for trial in trials:
            trial.status = trial.status or ended
        winner.status = ended
    status = winner.status or Status.MAX_ITER
    watcher.end(winner, status)
    watcher.trials = ()  # which have it, too: states would live on until cycles are looked for
    logger.info("VI: %d trials, best ELBO %.6f, %s", len(trials), winner.elbo, status.name)
    return Found(winner, trials, averaged, status, search.told)


def _fit(engine: Engine, prior: Prior, options: Options, bars: Bars | None, jobs: Any | None = None) -> VIPosterior:
    winner, trials, averaged, status, told = search_on(engine, prior, options, bars, jobs)
    if status is not Status.CONVERGED:
        warn(f"VI has not converged. {status.value}", ConvergenceWarning)
    record = record_of("vi", options) | {"search": told}
    if not options.average:
        return posterior(winner, trials, status, prior, record=record)
    short = sum(trial.status is not Status.CONVERGED for trial in averaged)
    if short and status is Status.CONVERGED:
        text = f"{short} of the {len(averaged)} trials averaged have not converged. {Status.MAX_ITER.value}"
        warn(text, ConvergenceWarning)
    return posterior(winner, trials, status, prior, mean_signal(averaged), record)


def best_of(trials: list[Trial]) -> Trial:
    """The trial with the highest ELBO."""
    best = max(trials, key=lambda trial: trial.elbo)
    finite = bool(np.isfinite(best.elbo))
    if not finite or (best.sound is not best.state and all_rounding(best.cavi, best.state)):
        why = (
            "the factors explain these data to within rounding" if finite else "sums of squares of these data overflow"
        )
        single = best.cavi.data.is_single
        remedy = "pass dtype=float64" if single else "rescale X to unit variance, or raise noise_rate"
        raise ValueError(f"the ELBO must be one that this precision can compute; it is not, since {why}; {remedy}")
    best.sound = best.state
    return best


def best_under_modules(trials: list[Trial], tried: list[Trial], n_modules: int) -> Trial:
    """After an interruption: the best of what has modules already, or else the best trial, all features in one."""
    done = [trial for trial in [*trials, *tried] if trial.cavi.prior.n_modules > 1]
    if any(np.isfinite(trial.elbo) for trial in done):
        return best_of(done)
    best = best_of(trials)
    return in_modules(best, under_modules(best.cavi, n_modules), best.cavi.engine.vi_unsorted(n_modules))


def refined(
    winner: Trial, n_modules: int, options: Options, trials: list[Trial], tried: list[Trial], watcher: Watcher
) -> Trial:
    """What is asked for beyond the fit: fewer factors, modules."""
    if options.prune:
        watcher.phase = "prune"
        winner = trials[winner.number] = pruned(winner, options.tolerance)
        winner.advance(options.max_iter, options.tolerance)
    if n_modules > 1 and np.isfinite(winner.elbo):
        watcher.phase = "modules"
        rng = np.random.default_rng([options.seed, winner.number, 5])
        winner = moduled(winner, n_modules, options.tolerance, options.max_iter, rng, tried)
    return winner
