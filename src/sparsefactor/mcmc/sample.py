"""sample: several chains of the collapsed Gibbs sampler, relabelled into one posterior."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from ..checks import seed_number
from ..data import Data
from ..diagnostics import SamplingWarning
from ..engine import build_engine
from ..engine.threads import single_blas_thread
from ..gibbs.moves import MOVES, moves_for
from ..gibbs.sweep import Gibbs
from ..model import Prior
from ..notices import warn
from ..posterior import Labels, MCMCPosterior
from ..preparation import prepared
from ..progress import Bars, is_shown
from ..record import record_of
from ..start import Start, own_start, starts
from ..storage.draws import Layout, MemoryDraws, Sink
from ..storage.result import read_result, save_result, with_draws
from ..vi.modules import one_module
from . import run_folder
from .chain import Chain
from .checkpoint import Checkpoint
from .cut import cut
from .dispersed import optimum_start, searched_start
from .finish import Draws, Signal, posterior
from .options import Options
from .progress import Display
from .run_folder import RunFolder
from .runner import run_chains, threads_per_chain
from .until import run_until
from .watch import Callback, Watcher

logger = logging.getLogger("sparsefactor")


def sample(
    X: Any,
    prior: Prior | None = None,
    *,
    n_factors: int | None = None,
    n_chains: int = 4,
    n_warmup: int = 500,
    n_draws: int = 1000,
    thin: int = 1,
    init: str | Start = "auto",
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
) -> MCMCPosterior:
    """Draw from the posterior of the sparse factor model given X by collapsed Gibbs sampling.

    Each chain makes n_warmup sweeps, then n_draws * thin, of which every thin-th is kept. The draws of all chains are
    relabelled into one labelling (see `relabel`); the sampler's own can be recovered.

    Parameters
    ----------
    X : (n_samples, n_features) array or frame
        NaN where missing.
    prior : Prior, optional
        What is known beforehand.
    n_factors : int, optional
        Instead of a prior: at least as many factors as there may be, for the default prior.
    n_chains, n_warmup, n_draws, thin : int
        See above.
    init : str or Start
        "auto" (each chain dispersed around the best optimum that a VI search of its own finds: independent starts, so
        that chains which agree mean something), "optima" (each chain at the optimum that a single trial climbs to, the
        harder test for several modes), or a start by name ("random" is the paper's).
    moves : sequence of str or "auto"
        Extra steps that leave the posterior invariant, among "scale", "rotation", "shear", "column" and "noise"; "auto"
        makes all that the engine has for these data, () is the paper's sampler.
    temper : bool, optional
        Switch the likelihood on gradually during warm-up; None does so for random starts only.
    center, scale : bool
        Subtract each feature's mean first, and divide by its standard deviation; `reconstruct` undoes both.
        Where entries are missing, what is left of each mean is part of the model.
    covariates : (n_samples, c) array or frame, optional
        Known covariates of the samples (a batch, an age), so that they do not take a factor: they enter as factors with
        these activations and loadings of their own, `covariate_loadings_mean`. A frame goes by the samples' names.
    covariate_loadings : "flat" or "slab"
        Whether these loadings are unpenalised, or shrunk towards zero as the loadings of a factor are that is in every
        feature: by a slab for each covariate, whose precision is learnt.
    seed : int, None or numpy Generator
        None for a fresh one.
    backend : str
        Which engine does the work; "auto" chooses.
    n_jobs : int, optional
        Chains at the same time (None: every core); the draws do not depend on it, to the bit.
    progress : bool, optional
        Show on standard error how far the chains are; None does so in a terminal and in a notebook.
    callback : function of MCMCProgress, optional
        Called after each sweep of a chain, from the chain's thread, one call at a time. Where it returns True the run
        ends with the draws so far: as many of as many chains as make the most draws in all; mc.record["ended"] says so.
        With a path the run can be gone on.
    path : path, optional
        A folder to which draws go as they are made, so that memory does not grow with them. A call with the path
        and settings of an earlier one goes on with it, whether it was killed, interrupted, or done (with larger
        n_draws), and ends with the draws of a run that was never stopped.
    resume : path, optional
        A path that must hold a run.
    checkpoint_seconds : float
        What a kill may cost, where there is a path.
    precision : "single" or "double"
        Of loadings, activations and noise precisions on disk; "double" keeps every bit at twice the size,
        and is used for data at a scale beyond single precision.
    force : bool
        Go on with a run that another version of sparsefactor began; its draws are then a mixture of both.
    until : "converged", optional
        Doubles n_draws, up to 16 times, until the verdict is good; the draws are those of a call with
        the n_draws it ends with. In memory that may be much: pass a path. mc.record["ended"] says how it ended.
    max_seconds : float, optional
        With until, no stretch begins that would probably end later than that.

    Returns
    -------
    MCMCPosterior

    Warns
    -----
    SamplingWarning
        With the verdict of `mc.diagnostics()`, where the draws are not to be trusted.

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
        init=init,
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
    )
    settings = {"center": center, "scale": scale, "covariates": covariates, "covariate_loadings": covariate_loadings}
    watcher = Watcher(callback)
    bars = Bars() if is_shown(progress) else None
    # Starts, sweeps and moments: no sum depends on the number of BLAS threads.
    with single_blas_thread(), bars or nullcontext():
        data, prior = prepared(X, prior, n_factors, **settings)
        stretches = _stretches(data, prior, options, watcher, bars)
        result, verdict = run_until(stretches, options, watcher)
    if not verdict.ok:
        warn(verdict.text, SamplingWarning)
    return result


def _stretches(
    data: Data, prior: Prior, options: Options, watcher: Watcher, bars: Bars | None
) -> Iterator[MCMCPosterior]:
    """The posterior with n_draws, then with twice as many, and so on: each goes on where the one before ended."""
    if isinstance(options.init, Start):
        options = replace(options, init=own_start(options.init, data, prior))
    n_threads = threads_per_chain(options.n_jobs, options.n_chains)
    engine = build_engine(data, prior, options.backend, n_threads)
    gibbs = Gibbs(data, prior, engine, moves_for(engine, options.moves))
    options = replace(options, moves=tuple(move.name for move in gibbs.moves))
    labels = Labels.of(data)
    layout = Layout(prior, labels)
    path = options.path
    if path is not None:
        if options.until is not None:  # it may have gone on before
            options = replace(options, n_draws=max(options.n_draws, run_folder.draws_so_far(path)))
        while True:
            yield _sample_to(path, gibbs, prior, layout, labels, options, watcher, bars)
            options = replace(options, n_draws=2 * options.n_draws)
    sink = MemoryDraws(layout, options.n_chains, options.n_draws)
    chains = _started(gibbs, options, sink, chain_starts(gibbs, prior, options, watcher, bars))
    while True:
        run_chains(chains, options.n_jobs, Display(chains, bars), watcher, None, options.checkpoint_seconds)
        result = posterior(prior, labels, *found(chains, sink, watcher), data, record_of("mcmc", options))
        yield result
        options = replace(options, n_draws=2 * options.n_draws)
        sink = sink.grown(options.n_draws, result.permutations, result.signs)
        for chain in chains:
            chain.plan, chain.sink = options.plan, sink


def found(chains: Sequence[Chain], sink: Sink, watcher: Watcher) -> tuple[Draws, list[Signal]]:
    """The draws that there are, and the sums of their signals: all, unless the run was stopped."""
    if watcher.stopped and not all(chain.done for chain in chains):
        return cut(chains, sink)
    return sink, [Signal(chain.signal, chain.kept) for chain in chains]


def _sample_to(
    path: Path,
    gibbs: Gibbs,
    prior: Prior,
    layout: Layout,
    labels: Labels,
    options: Options,
    watcher: Watcher,
    bars: Bars | None,
) -> MCMCPosterior:
    """Begin the run at `path`, or go on with it."""
    settings = options.settings(gibbs.data, prior, gibbs.engine.name)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        begin = list(chain_starts(gibbs, prior, options, watcher, bars))

        def save_starts(run: RunFolder) -> None:
            for chain in _started(gibbs, options, run.draws(layout, options.n_chains, options.n_draws), begin):
                chain.save(run.checkpoints, run.token)

        run_folder.create(path, layout.chunk, options.n_draws, settings, save_starts)
    run = run_folder.reopen(path, settings)
    done = _finished(run, options.n_draws)  # before the lock: what is only read may lie on a read-only disk
    if done is not None:
        return done
    with run_folder.sole_writer(path):
        done = _finished(run, options.n_draws)  # perhaps by a process that held the lock until now
        if done is not None:
            return done
        sink = run.draws(layout, options.n_chains, options.n_draws)

        def check(found: list[Checkpoint]) -> None:
            """What waits in a checkpoint is written again; all draws before it must be whole."""
            sink.check([options.plan.kept(checkpoint.sweep) // run.chunk * run.chunk for checkpoint in found])

        checkpoints = run_folder.extend(run, options.n_draws, options.force, check)
        chains = [Chain(number, gibbs, options.plan, sink) for number in range(options.n_chains)]
        for chain in chains:
            chain.restore(checkpoints.pop(0))
            if chain.sweep:
                logger.info("chain %d: goes on at sweep %d of %d", chain.number, chain.sweep, chain.plan.n_sweeps)
        run_chains(chains, options.n_jobs, Display(chains, bars), watcher, run, options.checkpoint_seconds)
        draws, signals = found(chains, sink, watcher)
        result = posterior(prior, labels, draws, signals, gibbs.data, record_of("mcmc", options))
        if draws is sink:  # a run that was stopped is not done
            save_result(result, path, run.token)
    return result


def _finished(run: RunFolder, n_draws: int) -> MCMCPosterior | None:
    """What the run found, where it is done with this many draws."""
    if not run.result.exists():
        return None
    try:
        result = read_result(run.path, run.token)
        return with_draws(result, run.path, run.token, run.chunk) if result.permutations.shape[1] == n_draws else None
    except ValueError as problem:
        logger.warning("the result of a run is made again from its draws: %s", problem)
        return None


def _moves(moves: Any) -> tuple[str, ...] | None:
    """The names asked for; None for all that there are."""
    if isinstance(moves, str) and moves == "auto":
        return None
    if isinstance(moves, str) or not isinstance(moves, Iterable):
        raise TypeError(
            f"moves must be a list of names among {tuple(MOVES)}; got {moves!r}; pass a list, or () for none"
        )
    return tuple(moves)


def _started(gibbs: Gibbs, options: Options, sink: Sink, begin: Iterable[Start]) -> list[Chain]:
    """Chains before their first sweep."""
    chains = []
    for number, start in enumerate(begin):
        chain = Chain(number, gibbs, options.plan, sink)
        chain.state = gibbs.start(start.L, start.F)
        chains.append(chain)
    return chains


def _chosen_path(path: str | PathLike[str] | None, resume: str | PathLike[str] | None) -> Path | None:
    """The folder of the run, absolute: its draws are read later, wherever the process may be by then."""
    if resume is None:
        return None if path is None else _resolved(path)
    chosen = _resolved(resume)
    if path is not None and _resolved(path) != chosen:
        raise ValueError(f"path and resume must agree; got {str(path)!r} and {str(resume)!r}; pass one of them")
    if not chosen.exists():
        raise FileNotFoundError(
            f"resume must hold a run; {str(resume)!r} does not exist; pass path= to begin one there"
        )
    if chosen.is_dir() and not any(chosen.iterdir()):
        raise FileNotFoundError(f"resume must hold a run; {str(resume)!r} is empty; pass path= to begin one there")
    return chosen


def _resolved(path: str | PathLike[str]) -> Path:
    """Where a path leads, whether or not anything is there yet."""
    real = Path(os.path.realpath(path))
    if real.is_symlink():
        raise ValueError(f"a path must lead somewhere; {str(path)!r} leads back to itself; pass another path")
    return real


def chain_starts(
    gibbs: Gibbs, prior: Prior, options: Options, watcher: Watcher, bars: Bars | None = None
) -> Iterator[Start]:
    """Where each chain sets out: for "auto" around the best optimum of a search of its own, else as `starts` has it."""
    if isinstance(options.init, Start):
        for _ in range(options.n_chains):
            yield options.init
    elif options.init in ("auto", "optima"):
        sought = searched_start if options.init == "auto" else optimum_start
        engine = gibbs.engine.with_prior(one_module(prior)).with_threads(threads_per_chain(options.n_jobs, 1))
        for chain in range(options.n_chains):
            if bars is not None:
                bars.show("starts", f"VI looks for that of chain {chain}, of {options.n_chains}")
            told = watcher.of_start(chain, options.plan)
            yield sought(engine, prior, chain, options.seed, told)
        if bars is not None:
            bars.show("starts", f"found for {options.n_chains} chains")
    else:
        yield from starts(gibbs.engine, options.init, options.n_chains, options.seed)
