"""sample: several chains of the collapsed Gibbs sampler, relabelled into one posterior."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing, nullcontext
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import seed_number, with_name_hints
from ..diagnostics import SamplingWarning
from ..engine.readers import reader_for
from ..engine.threads import single_blas_thread
from ..gibbs.moves import MOVES
from ..model import Beta, Prior
from ..notices import warn
from ..posterior import MCMCPosterior, Posterior
from ..preparation import prepared
from ..progress import Bars, is_shown
from ..start import Start
from ..storage.checkpoint import resolve
from .clock import Clock
from .options import Options
from .stretches import stretches_of
from .until import run_until
from .watch import Callback, Watcher


@with_name_hints
def sample(
    X: Any,
    prior: Prior | None = None,
    *,
    n_factors: int | None = None,
    inclusion: float | Beta | None = None,
    n_chains: int = 4,
    n_warmup: int = 500,
    n_draws: int = 1000,
    thin: int = 1,
    init: str | Start | Posterior = "auto",
    moves: Sequence[str] = "auto",
    temper: bool | None = None,
    center: bool = True,
    scale: bool = False,
    covariates: Any = None,
    covariate_loadings: str = "flat",
    seed: int | np.random.Generator | None = 0,
    backend: str = "auto",
    n_jobs: int | None = None,
    progress: bool | None = None,
    callback: Callback | None = None,
    path: str | PathLike[str] | None = None,
    resume: str | PathLike[str] | None = None,
    checkpoint_seconds: float = 30.0,
    precision: str = "single",
    force: bool = False,
    until: str | None = None,
    max_seconds: float | None = None,
    client: Any = None,
) -> MCMCPosterior:
    """Draw from the posterior of the sparse factor model given X by collapsed Gibbs sampling.

    Each chain makes n_warmup sweeps, then n_draws * thin, of which every thin-th is kept. The draws of all chains are
    relabelled into one labelling (see `relabel`); the sampler's own can be recovered.

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
    n_chains, n_warmup, n_draws, thin : int
        Number of chains; sweeps discarded at the start of each; draws kept of each; sweeps per kept draw.
    init : str, Start or posterior
        "auto" (each chain at an overdispersed point around the best of its own VI restarts, so that agreement of the
        chains is informative), "optima" (each chain where a single VI restart ends, a harder test for several modes),
        or a start by name ("random" is the paper's). Or a fit of the same data and settings, where all chains then
        start: fewer sweeps are needed, but agreement then says nothing about other modes.
    moves : sequence of str or "auto"
        Extra steps that leave the posterior invariant, among "scale", "rotation", "shear", "column" and "noise"; "auto"
        makes all that are available for these data, () is the paper's sampler.
    temper : bool, optional
        Switch the likelihood on gradually during warm-up; None does so only for random starts.
    center, scale : bool
        center subtracts each feature's mean, scale divides by its standard deviation; `reconstruct` undoes both.
        If entries are missing, the rest of each mean is part of the model.
    covariates : (n_samples, c) array or frame, optional
        Known properties of the samples (a batch, an age), so that they do not take a factor: they enter as factors with
        known activations; their loadings are `covariate_loadings_mean`. A frame is matched by sample names.
    covariate_loadings : "flat" or "slab"
        Leave these loadings unpenalised, or shrink them by a slab for each covariate, whose precision is learnt.
    seed : int, None or numpy Generator
        Seed of the random numbers; None for a new one each time.
    backend : str
        "cpu"; "gpu", or "jax" (any device of JAX), with the extra `gpu`; "auto" is "cpu".
    n_jobs : int, optional
        Chains at the same time (None: every core); the draws do not depend on it, to the bit.
    progress : bool, optional
        Show progress on standard error; None does so in a terminal and in a notebook.
    callback : function of MCMCProgress, optional
        Called after each sweep of a chain, from the chain's thread, one call at a time. If it returns True, the run
        ends with the draws so far (of those chains that give the most draws in all); mc.record["ended"] says so. With
        a path the run can be resumed.
    path : path, optional
        A folder to which draws are written while they are made, so that memory does not grow. A call with the path
        and settings of an earlier one resumes it if it was interrupted, or extends it (larger n_draws), and ends with
        the draws of an uninterrupted run.
    resume : path, optional
        As path, but the folder must hold a run.
    checkpoint_seconds : float
        Time between checkpoints, if there is a path.
    precision : "single" or "double"
        Precision of loadings, activations and noise precisions on disk; "double" keeps every bit at twice the size,
        and is used for data at a scale beyond single precision.
    force : bool
        Resume a run that another version of sparsefactor started; its draws are then a mixture of both.
    until : "converged", optional
        Double n_draws, up to 16 times, until the verdict is good; the draws are those of a call with the final
        n_draws. They may need much memory: pass a path. mc.record["ended"] says how the run ended.
    max_seconds : float, optional
        Limit of the call, with until. The searches for starts share a third of it; one that takes longer gives its
        best state so far (mc.record["ended"] says so). The first n_draws are always made; after them no extension
        starts that would probably end too late.
    client : dask.distributed.Client, optional
        Its workers do the work: each some of the chains if the data are small (up to 64 MB). Else features live on the
        workers, which read them themselves if X is not in memory. The result is the same.

    Returns
    -------
    MCMCPosterior

    Warns
    -----
    SamplingWarning
        With `mc.verdict`, where the draws are not reliable.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> mc = sf.sample(sim.X, n_factors=2, n_chains=2, n_draws=500)
    >>> mc.diagnostics().ok
    True
    """
    options = Options(
        n_chains=n_chains,
        n_warmup=n_warmup,
        n_draws=n_draws,
        thin=thin,
        init=Start("posterior", init.loadings_mean, init.activations_mean.T) if isinstance(init, Posterior) else init,
        moves=_moves(moves),
        temper=isinstance(init, str) and init == "random" if temper is None else bool(temper),
        seed=seed_number(seed),
        backend=backend,
        n_jobs=n_jobs,
        progress=progress,
        callback=callback,
        path=_chosen_path(path, resume),
        checkpoint_seconds=checkpoint_seconds,
        precision=precision,
        force=bool(force),
        until=until,
        max_seconds=max_seconds,
        client=client,
    )
    settings = {"center": center, "scale": scale, "covariates": covariates, "covariate_loadings": covariate_loadings}
    watcher, clock = Watcher(callback), Clock(options.max_seconds)
    bars = Bars() if is_shown(progress) else None
    # Starts, sweeps and moments: no sum depends on the number of BLAS threads.
    with single_blas_thread(), bars or nullcontext():
        data, prior = prepared(X, prior, n_factors, inclusion, read=reader_for(client, n_chains), **settings)
        with closing(stretches_of(data, prior, options, watcher, bars, clock)) as stretches:
            result, verdict = run_until(stretches, options, watcher, clock)
    if watcher.full is not None:
        warn(f"sampling ended early, and the draws so far are returned: {watcher.full}", SamplingWarning)
    if not verdict.ok:
        warn(str(verdict), SamplingWarning)
    return result


def _moves(moves: Any) -> tuple[str, ...] | None:
    """The names asked for; None for all that there are."""
    if isinstance(moves, str) and moves == "auto":
        return None
    if isinstance(moves, str) or not isinstance(moves, Iterable):
        raise TypeError(
            f"moves must be a list of names among {tuple(MOVES)}; got {moves!r}; pass a list, or () for none"
        )
    return tuple(moves)


def _chosen_path(path: str | PathLike[str] | None, resume: str | PathLike[str] | None) -> Path | None:
    """The folder of the run, absolute: its draws are read later, wherever the process may be by then."""
    if resume is None:
        return None if path is None else resolve(path)
    chosen = resolve(resume)
    if path is not None and resolve(path) != chosen:
        raise ValueError(f"path and resume must agree; got {str(path)!r} and {str(resume)!r}; pass one of them")
    if not chosen.exists():
        raise FileNotFoundError(
            f"resume must hold a run; {str(resume)!r} does not exist; pass path= to begin one there"
        )
    if chosen.is_dir() and not any(chosen.iterdir()):
        raise FileNotFoundError(f"resume must hold a run; {str(resume)!r} is empty; pass path= to begin one there")
    return chosen
