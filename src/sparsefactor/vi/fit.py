"""fit_vi: fit the model by variational inference."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from ..checks import (
    check_watching,
    checked_choice,
    checked_count,
    checked_flag,
    checked_number,
    is_number,
    seed_number,
    with_name_hints,
)
from ..engine import build_engine
from ..engine.readers import jobs_on, reader_for
from ..engine.threads import single_blas_thread
from ..executors import Serial, Shared
from ..kernels.protocol import Engine
from ..model import Beta, Prior
from ..notices import warn
from ..posterior import Status, VIPosterior
from ..preparation import prepared
from ..progress import Bars, is_shown
from ..record import record_of
from ..start import INITS, Start, checked_init
from ..storage.checkpoint import FIT, Folder, resolve
from .cavi import CAVI
from .checkpoint import Checkpoints, identity_of
from .modules import in_modules, moduled, one_module, under_modules
from .prune import pruned
from .result import elbo_shift, mean_signal, posterior
from .rounding import all_rounding
from .search import RESTARTS, TIGHT, Search
from .tasks import Tasks, choose_executor
from .trial import THIN_AFTER, Tolerance, Trial
from .watch import Callback, Stopped, Watcher

logger = logging.getLogger("sparsefactor")

Activations = Literal["independent", "joint"]
SEARCHES = ("fast", "thorough")

STATE_ARRAYS = 4  # of the size of the loadings, in the state of a trial
LITTLE_GAIN = 1.0  # nats: a climb that max_iter ended with no more than this left to gain has converged,
ENOUGH_ITERATIONS = 2 * THIN_AFTER  # provided that it had the iterations to empty factors


class ConvergenceWarning(UserWarning):
    """The returned fit has not converged."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of fit_vi, checked once."""

    search: str
    n_trials: int | str
    init: str | Start | Sequence[Start]
    max_iter: int
    tol: float | str
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
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        checked_choice("search", self.search, SEARCHES)
        if not isinstance(self.n_trials, str):
            checked_count("n_trials", self.n_trials)
        elif self.n_trials != "auto":
            raise ValueError(f'n_trials must be "auto" or a whole number; got {self.n_trials!r}; choose one')
        checked_count("max_iter", self.max_iter)
        if not isinstance(self.tol, str) or self.tol != "auto":
            checked_number("tol", self.tol, 'pass "auto" or a number of nats')
        for name in ("rtol", "checkpoint_seconds"):
            checked_number(name, getattr(self, name))
        if self.max_seconds is not None and not (is_number(self.max_seconds) and self.max_seconds > 0):
            raise ValueError(f"max_seconds must be positive; got {self.max_seconds!r}; leave it out for no limit")
        checked_choice("activations", self.activations, get_args(Activations))
        for name in ("race", "accelerate", "prune", "average"):
            checked_flag(name, getattr(self, name))
        checked_init(self.init, INITS)
        check_watching(self.progress, self.callback)

    @property
    def n_jobs(self) -> int:
        """Restarts and proposals that can be made side by side on a cluster, each by one worker."""
        if self.client is None or self.path is not None or self.backend not in ("auto", "cpu"):
            return 1
        if self.search == "thorough" or self.average:
            return RESTARTS
        return 1 if self.n_trials == "auto" else int(self.n_trials)

    @property
    def tolerance(self) -> Tolerance:
        """Of what follows the search: fewer factors, modules."""
        return Tolerance(TIGHT if isinstance(self.tol, str) else self.tol, self.rtol)


@with_name_hints
def fit_vi(
    X: Any,
    prior: Prior | None = None,
    *,
    n_factors: int | None = None,
    inclusion: float | Beta | None = None,
    search: Literal["fast", "thorough"] = "fast",
    max_seconds: float | None = None,
    n_trials: int | Literal["auto"] = "auto",
    init: str | Start | Sequence[Start] = "auto",
    max_iter: int = 5000,
    tol: float | Literal["auto"] = "auto",
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
    inclusion : float or Beta, optional
        Instead of a prior: the probability that a feature is in a factor, or the Beta distribution that it is learnt
        under; see `Prior`. A small number, such as 0.1, keeps factors short where learnt inclusion keeps every feature.
    search : "fast" or "thorough"
        "fast" makes one fit from factor analysis rotated by varimax: of all that was compared, its factors reappear
        most often in other samples of the same population. "thorough" looks for the highest ELBO: ten restarts, and
        then attempts to improve on the best of them until several rounds have found nothing better. `certainty`
        says what was tried. `refine` continues from a result.
    max_seconds : float, optional
        End the search after this time and return the best state so far.
    n_trials : int or "auto"
        Number of restarts, of which the best ELBO is taken; "auto" is 1, or 10 for a thorough search or an average.
    init : str, Start or list of Start
        Where restarts begin: "auto" is "factor_analysis" for the first, and then a mixture of "ica", "varimax",
        "rotation" and "random" (the paper's); or one of these for all. A `Start` replaces these, a list of them is
        added.
    max_iter : int
        Maximum number of iterations of a restart.
    tol, rtol : float
        A climb ends when an iteration changes the ELBO by less than tol nats, or rtol times its size. "auto" is 1e-6;
        but 0.1 nats a sample (less in wide data) for a single restart under a prior that learns inclusion, where later
        iterations decide on a sparse pattern that other samples do not confirm.
    race : bool
        With several restarts, drop the worst early, so that only the best run to convergence.
    accelerate : bool
        Rescale factors exactly, assign unequal inclusion priors, use momentum, and leave local optima by emptying
        factors and by shears (unless the fit stops early). False, with init="random" and race=False, is the paper's
        algorithm.
    activations : "joint" or "independent"
        Approximate the activations of a sample by a full Gaussian, or by independent ones as in the paper.
    prune : bool
        Remove factors where that raises the ELBO, so that n_factors is an upper bound.
    average : bool
        Let `reconstruct` return the mean over ten restarts (or n_trials), each run to convergence: on real data this
        predicts better than the best restart. All else is that of the restart with the best ELBO.
    center, scale : bool
        center subtracts each feature's mean, scale divides by its standard deviation; `reconstruct` undoes both.
        If entries are missing, the rest of each mean is part of the model.
    covariates : (n_samples, c) array or frame, optional
        Known properties of the samples (a batch, an age), so that they do not take a factor: they enter as factors with
        known activations; their loadings are `covariate_loadings_mean`. A frame is matched by sample names.
    covariate_loadings : "flat" or "slab"
        Leave these loadings unpenalised, or shrink them by a slab for each covariate, whose precision is learnt.
    dtype : dtype, optional
        Type of the data matrix; by default float64, on a GPU float32. float32 halves its memory; products then agree
        to about 1e-4. float16, on a GPU only, halves it again; entries then have 3 digits.
    seed : int, None or numpy Generator
        Seed of the random numbers; None for a new one each time.
    backend : str
        "cpu"; "gpu", or "jax" (any device of JAX), with the extra `gpu`; "auto" takes a GPU if JAX has one and
        the job is large, else "cpu". The workers of a client compute on their CPUs.
    n_threads : int, optional
        Threads of the row updates, and of restarts and proposals side by side where data are small and there is no
        callback; None for every core. Results do not depend on it.
    progress : bool, optional
        Show progress on standard error; None does so in a terminal and in a notebook.
    callback : function of VIProgress, optional
        Called after each iteration. If it returns True, the search ends with the best state so far, and its `status`
        is STOPPED.
    client : dask.distributed.Client, optional
        Its workers do the work. With several restarts of small data (up to 64 MB), each restart and proposal is made by
        one worker, unless there is a path. Else features live on the workers, which read them themselves where X is
        not in memory. The result is the same.
    path : path, optional
        A folder for checkpoints and the result. A call with the path and settings of an earlier one resumes it from
        its last checkpoint and ends with the same result as one that was never stopped; a finished fit is loaded.
    checkpoint_seconds : float
        Time between checkpoints; a thorough search also writes one after each round of proposals.

    Returns
    -------
    VIPosterior

    Warns
    -----
    ConvergenceWarning
        If the fit has not converged.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> p = sf.fit_vi(sim.X, n_factors=2)
    >>> p.loadings_mean.shape
    (40, 2)
    """
    options = Options(
        search=search,
        max_seconds=max_seconds,
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
        data, prior = prepared(X, prior, n_factors, inclusion, dtype=own, read=read, **settings)
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
        if options.path is None:
            return _fit(engine, prior, options, bars, jobs)
        with Folder.open(resolve(options.path), FIT, identity_of(engine, prior, options), {}) as folder:
            done: VIPosterior | None = folder.result()
            if done is not None:
                return done
            result = _fit(engine, prior, options, bars, checkpoints=Checkpoints(folder, options.checkpoint_seconds))
            if result.record["search"]["ended"] == "complete":
                folder.save_result(result)
                folder.remove_checkpoints()
            return result


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
    """The result of a search. averaged: the trials that predictions are averaged over, where that is asked for."""

    winner: Trial
    trials: list[Trial]
    averaged: list[Trial]
    status: Status
    facts: dict[str, Any]


def search_on(
    engine: Engine,
    prior: Prior,
    options: Options,
    bars: Bars | None = None,
    jobs: Shared | None = None,
    over: Callable[[], bool] | None = None,
    checkpoints: Checkpoints | None = None,
) -> Found:
    """The search on an engine that was built for the data and the prior's factors, in one module.

    jobs: a way to have restarts and proposals made by the workers of a cluster. over: called now and then; True ends
    the search as a callback does.
    """
    with engine.scope():
        return _search_on(engine, prior, options, bars, jobs, over or time_limit(options.max_seconds), checkpoints)


def time_limit(seconds: float | None) -> Callable[[], bool] | None:
    """A function that says whether the time is over."""
    if seconds is None:
        return None
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def _search_on(
    engine: Engine,
    prior: Prior,
    options: Options,
    bars: Bars | None,
    jobs: Shared | None,
    over: Callable[[], bool] | None,
    checkpoints: Checkpoints | None,
) -> Found:
    data = engine.data
    cavi = CAVI(data, one_module(prior), engine, joint=options.activations == "joint")
    trials: list[Trial] = []
    watcher = Watcher(trials, data.unit, elbo_shift(data), options.callback, bars, over)
    # Modules are found by inclusions, which must have converged for that.
    early = prior.n_modules == 1
    # With checkpoints in this thread alone: they must not be written while another thread changes a state.
    tasks = Tasks(Serial()) if checkpoints is not None else choose_executor(cavi, watcher, jobs)
    search = Search(cavi, options, watcher, tasks, may_stop_early=early)
    if checkpoints is not None:
        checkpoints.follow(search)
    averaged, ended = trials, None
    tried: list[Trial] = []  # under modules, of the trial that is being refined
    try:
        best = search.run()
        watcher.save = None  # what follows is repeated by a fit that is resumed
        for trial in list(trials) if options.average else [best_of([best])]:
            trials[trial.number] = refined(trial, prior.n_modules, options, trials, tried, watcher)
            tried.clear()
        winner = best_of(trials if options.average else [trials[best.number]])
        whole = options.max_iter >= ENOUGH_ITERATIONS or not options.accelerate
        if winner.status in (None, Status.MAX_ITER) and whole and winner.remaining_gain < LITTLE_GAIN:
            winner.status = Status.CONVERGED
    except (KeyboardInterrupt, Stopped, MemoryError) as end:
        if not isinstance(end, Stopped) and not any(np.isfinite(trial.elbo) for trial in trials):
            raise
        if isinstance(end, MemoryError):
            warn(f"the search ended early; the best state so far is returned: {end}", ConvergenceWarning)
        for trial in trials:
            trial.restore_best()
        winner = best_under_modules(trials, tried, prior.n_modules) if prior.n_modules > 1 else best_of(trials)
        trials[winner.number] = winner
        averaged = [trial for trial in trials if trial.status is Status.CONVERGED and trial.finished] or [winner]
        reason = Status.INTERRUPTED
        if isinstance(end, Stopped):
            reason = Status.TIME_LIMIT if over is not None and over() else Status.STOPPED
        ended = reason.name.lower()
        # A proposal that was cut short leaves an optimum that stands.
        last_step = watcher.phase == "search" and not options.prune and prior.n_modules == 1
        stands = reason is Status.TIME_LIMIT and last_step and winner.status is Status.CONVERGED
        for trial in trials:
            unfinished = trial.status is None or (trial.status is Status.CONVERGED and not trial.finished)
            trial.status = reason if unfinished else trial.status
        winner.status = Status.CONVERGED if stands else reason
    status = winner.status or Status.MAX_ITER
    watcher.end(winner, status)
    facts = search.facts(ended=ended)
    watcher.trials, watcher.save = [], None  # they refer to each other, and would keep states alive
    logger.info("VI: %d restarts, best ELBO %.6f, %s", len(trials), winner.elbo, status.name)
    return Found(winner, trials, averaged, status, facts)


def _fit(
    engine: Engine,
    prior: Prior,
    options: Options,
    bars: Bars | None,
    jobs: Shared | None = None,
    checkpoints: Checkpoints | None = None,
) -> VIPosterior:
    winner, trials, averaged, status, facts = search_on(engine, prior, options, bars, jobs, None, checkpoints)
    if status is not Status.CONVERGED:
        warn(f"The fit has not converged. {status.value}", ConvergenceWarning)
    record = record_of("vi", options) | {"search": facts}
    if not options.average:
        return posterior(winner, trials, status, prior, record=record)
    short = sum(trial.status is not Status.CONVERGED for trial in averaged)
    if short and status is Status.CONVERGED:
        text = f"{short} of the {len(averaged)} restarts averaged have not converged. {Status.MAX_ITER.value}"
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
