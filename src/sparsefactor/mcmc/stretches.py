"""A run of chains in stretches, in memory or in a folder: begun, gone on with, and lengthened."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ..data import Data
from ..engine import build_engine
from ..engine.readers import jobs_on
from ..executors import Shared
from ..gibbs.moves import moves_for
from ..gibbs.sweep import Gibbs
from ..model import Prior
from ..posterior import Labels, MCMCPosterior
from ..progress import Bars
from ..record import record_of
from ..start import Start, StartMaker, own_start
from ..storage.checkpoint import RUN, Folder
from ..storage.draws import Layout, MemoryDraws, Sink
from ..vi.modules import one_module
from . import run_folder
from .chain import Chain
from .clock import Clock, Deadline
from .cut import cut
from .dispersed import optimum_start, searched_start
from .finish import Draws, Signal, posterior
from .look import Done, Stretch
from .options import Options
from .progress import Display
from .remote import RemoteChain, remote_starts
from .run_folder import finished
from .runner import run_chains, threads_per_chain
from .watch import Watcher

logger = logging.getLogger("sparsefactor")


def stretches_of(
    data: Data, prior: Prior, options: Options, watcher: Watcher, bars: Bars | None, clock: Clock
) -> Generator[Stretch | Done, int | None, None]:
    """The run with n_draws, then with as many as are asked for: each goes on where the one before ended."""
    if isinstance(options.init, Start):
        options = replace(options, init=own_start(options.init, data, prior))
    call = jobs_on(options.client, data, options.n_chains) if options.backend in ("auto", "cpu") else None
    if call is not None:  # a chain is a job: what is done here is to wait for them
        options = replace(options, client=None, backend="cpu", n_jobs=options.n_jobs or options.n_chains)
    n_threads = threads_per_chain(options.n_jobs, options.n_chains)
    engine = build_engine(data, prior, options.backend, n_threads, options.client)
    gibbs = Gibbs(data, prior, engine, moves_for(engine, options.moves))
    options = replace(options, moves=tuple(move.name for move in gibbs.moves))
    labels = Labels.of(data)
    layout = Layout(prior, labels)
    path = options.path
    if path is not None:
        if options.until is not None:  # it may have gone on before
            options = replace(options, n_draws=max(options.n_draws, run_folder.draws_so_far(path)))
        while True:
            with ExitStack() as held:
                asked = yield sample_to(path, gibbs, prior, layout, labels, options, watcher, bars, call, clock, held)
            options = replace(options, n_draws=asked or 2 * options.n_draws)
    sink = MemoryDraws(layout, options.n_chains, options.n_draws)
    begin = chain_starts(gibbs, prior, options, watcher, bars, call, clock)
    chains = started(gibbs, options, sink, begin, call)
    while True:
        with clock.sweeping(chains):
            run_chains(chains, options.n_jobs, Display(chains, bars), watcher, None, options.checkpoint_seconds)
        draws, signals = found(chains, sink, watcher)
        stretch = Stretch(options.n_draws, sink, draws, maker(prior, labels, signals, data, options))
        asked = yield stretch
        options = replace(options, n_draws=asked or 2 * options.n_draws)
        sink = sink.grown(options.n_draws, stretch.made)
        for chain in chains:
            chain.plan, chain.sink = options.plan, sink


def maker(
    prior: Prior, labels: Labels, signals: list[Signal], data: Data, options: Options
) -> Callable[[Draws], MCMCPosterior]:
    """What makes the posterior of draws, of all or of some; signals: of all."""
    return lambda draws: posterior(prior, labels, draws, signals, data, record_of("mcmc", options))


def found(chains: Sequence[Chain], sink: Sink, watcher: Watcher) -> tuple[Draws, list[Signal]]:
    """The draws that there are, and the sums of their signals: all, unless the run was stopped."""
    if watcher.stopped and not all(chain.done for chain in chains):
        return cut(chains, sink)
    return sink, [Signal(chain.signal, chain.kept, chain.tally) for chain in chains]


def sample_to(
    path: Path,
    gibbs: Gibbs,
    prior: Prior,
    layout: Layout,
    labels: Labels,
    options: Options,
    watcher: Watcher,
    bars: Bars | None,
    call: Shared | None,
    clock: Clock,
    held: ExitStack,
) -> Stretch | Done:
    """Begin the run at `path`, or go on with it; held: what is let go of when all has been made of it."""
    settings = options.settings(gibbs.data, prior, gibbs.engine.name)
    # Before the lock: what is only read may lie on a read-only disk.
    done = finished(Folder.find(path, RUN, settings), options.n_draws)
    if done is not None:
        return Done(done)
    sizes = {"chunk": layout.chunk, "n_draws": options.n_draws}
    run = held.enter_context(Folder.open(path, RUN, settings, sizes, options.force))
    done = finished(run, options.n_draws)  # perhaps by a process that held the lock until now
    if done is not None:
        return Done(done)
    sink, checkpoints = run_folder.resume(run, layout, options.plan)
    if None in checkpoints:
        starts = chain_starts(gibbs, prior, options, watcher, bars, call, clock)
        chains = started(gibbs, options, sink, list(starts), call)
    else:
        chains = [new_chain(number, gibbs, options, sink, call) for number in range(options.n_chains)]
    for chain, checkpoint in zip(chains, checkpoints, strict=True):
        if checkpoint is None:
            chain.save(run)
        else:
            chain.restore(checkpoint)
            logger.info("chain %d: resumed at sweep %d of %d", chain.number, chain.sweep, chain.plan.n_sweeps)
    with clock.sweeping(chains):
        run_chains(chains, options.n_jobs, Display(chains, bars), watcher, run, options.checkpoint_seconds)
    draws, signals = found(chains, sink, watcher)
    made = maker(prior, labels, signals, gibbs.data, options)

    def make(own: Draws) -> MCMCPosterior:
        result = made(own)
        if own is sink:  # a run that was stopped is not done
            result = run.save_result(result)
            sink.remove()
        return result

    return Stretch(options.n_draws, sink, draws, make)


def new_chain(number: int, gibbs: Gibbs, options: Options, sink: Sink, call: Shared | None) -> Chain:
    """A chain here, or on workers."""
    if call is None:
        return Chain(number, gibbs, options.plan, sink)
    return RemoteChain(number, gibbs, options.plan, sink, call)


def started(
    gibbs: Gibbs, options: Options, sink: Sink, begin: Iterable[Start], call: Shared | None = None
) -> list[Chain]:
    """Chains before their first sweep."""
    chains = []
    for number, start in enumerate(begin):
        chain = new_chain(number, gibbs, options, sink, call)
        chain.state = gibbs.start(start.L, start.F)
        chains.append(chain)
    return chains


def chain_starts(
    gibbs: Gibbs,
    prior: Prior,
    options: Options,
    watcher: Watcher,
    bars: Bars | None,
    call: Shared | None,
    clock: Clock,
) -> Iterator[Start]:
    """Where each chain sets out: for "auto" around the best optimum of a search of its own, else by name.

    clock: says what time each search has; what one leaves goes to those after it.
    """
    if isinstance(options.init, Start):
        for _ in range(options.n_chains):
            yield options.init
    elif options.init in ("auto", "optima") and call is not None:
        if bars is not None:
            bars.show("starts", f"VI looks for those of {options.n_chains} chains")
        yield from remote_starts(call, prior, options.init, options.n_chains, options.seed, clock)
    elif options.init in ("auto", "optima"):
        sought = searched_start if options.init == "auto" else optimum_start
        plain = one_module(prior)
        engine = gibbs.engine.with_prior(plain).with_threads(threads_per_chain(options.n_jobs, 1))
        for chain in range(options.n_chains):
            if bars is not None:
                bars.show("starts", f"VI looks for that of chain {chain}, of {options.n_chains}")
            told = watcher.of_start(chain, options.plan)
            seconds = clock.for_search(options.n_chains - chain)
            deadline = None if seconds is None else Deadline(seconds)
            start = sought(engine, plain, chain, options.seed, told, deadline)
            if deadline is not None and deadline.passed:
                clock.cut += 1
                logger.info("chain %d: its start is the best state of a search of %.1f s", chain, seconds)
            yield start
        if bars is not None:
            bars.show("starts", f"found for {options.n_chains} chains")
    else:
        maker = StartMaker(gibbs.engine, options.seed)
        for chain in range(options.n_chains):
            yield maker.make(options.init, chain)
