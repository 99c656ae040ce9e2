"""Chains side by side on threads: the compiled kernels let go of the interpreter's lock.

Measured on two idle cores (benchmarks/mcmc_chains.py), sweeps per second of two chains together, threads against
processes: 800 x 100, K = 6: 2,504 against 2,569; 1000 x 44, K = 26: 1,135 against 1,248. Processes would be 3 to 10
per cent ahead, after a second or more of starting them, and with a copy of the data each.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from ..engine.threads import available_cores, single_blas_thread
from ..storage.checkpoint import Folder
from .chain import Chain, Timer
from .progress import Display
from .watch import Watcher

logger = logging.getLogger("sparsefactor")

LOOK_SECONDS = 0.2  # between two looks at the chains


def workers(n_jobs: int | None, n_chains: int) -> int:
    """Chains that run at the same time."""
    return min(n_chains, available_cores() if n_jobs is None else n_jobs)


def threads_per_chain(n_jobs: int | None, n_chains: int) -> int:
    """Threads of each chain's row pass: the cores that n_jobs allows, shared out."""
    cores = available_cores() if n_jobs is None else n_jobs
    return max(1, min(cores, available_cores()) // workers(n_jobs, n_chains))


def run_chains(
    chains: Sequence[Chain],
    n_jobs: int | None,
    display: Display,
    watcher: Watcher,
    run: Folder | None,
    checkpoint_seconds: float,
) -> None:
    """Bring every chain to its end.

    On an interrupt, when one fails, or when the watcher has seen enough, all stop after their sweep and are saved; so
    they do when memory is full, and there is a draw to show for it.
    """
    stop = threading.Event()
    # A pool of its own: the engine's threads serve the row passes of these chains.
    engine = chains[0].gibbs.engine
    n_workers = 1 if engine.one_caller else workers(n_jobs, len(chains))
    with ThreadPoolExecutor(n_workers, "sparsefactor-chain") as pool:
        futures = [pool.submit(_run, chain, stop, watcher, run, checkpoint_seconds) for chain in chains]
        try:
            with display:
                waiting = set(futures)
                while waiting and not any(f.done() and f.exception() for f in futures):
                    _, waiting = wait(waiting, LOOK_SECONDS, FIRST_EXCEPTION)
                    display.look()
        except BaseException:
            if run is not None:
                logger.warning("sampling stopped; the same call goes on where it was, with path=%r", str(run.path))
            raise
        finally:
            stop.set()
        for future in futures:
            future.result()
    if watcher.full is not None and not any(chain.kept for chain in chains):
        raise watcher.full


def _run(
    chain: Chain,
    stop: threading.Event,
    watcher: Watcher,
    run: Folder | None,
    checkpoint_seconds: float,
) -> None:
    with single_blas_thread():  # this thread's own, where a BLAS has one for each
        _advance(chain, stop, watcher, run, checkpoint_seconds)


def _advance(
    chain: Chain, stop: threading.Event, watcher: Watcher, run: Folder | None, checkpoint_seconds: float
) -> None:
    timer = Timer(checkpoint_seconds)
    while not chain.done and not stop.is_set():
        try:
            chain.advance()
        except MemoryError as problem:  # the chain is where it was before this sweep
            stop.set()
            watcher.out_of_memory(problem)
            break
        try:
            if watcher.tell(chain):
                stop.set()
        except BaseException:  # of the caller's function: the chain itself is whole
            stop.set()
            if run is not None:
                chain.save(run)
            raise
        if run is not None and timer.due() and not chain.done:
            chain.save(run)
    if chain.done:
        chain.sink.finish(chain.number, chain.kept)
        logger.info("chain %d: done, log joint %.3f", chain.number, chain.log_joint)
    if run is not None:
        chain.save(run)
