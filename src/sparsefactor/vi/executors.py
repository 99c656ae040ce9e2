"""Who runs the independent tasks of a search: this thread, a pool of threads, or the workers of a Dask cluster.

A task is a method of `Search` that takes a trial and returns one, so that each can be made anywhere. The results are
taken in the order of the tasks and do not depend on the executor, to the bit.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import copy_context
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..data import Data
from ..engine import build_engine
from ..engine.threads import single_blas_thread
from ..kernels.contract import NONE, NOWHERE
from .cavi import CAVI
from .trial import Trial
from .watch import Watcher

if TYPE_CHECKING:
    from .search import Search

SAME = {id(NONE): "NONE", id(NOWHERE): "NOWHERE"}  # recognised by identity, also after they were sent
KNOWN = {"NONE": NONE, "NOWHERE": NOWHERE}


class Serial:
    """This thread, one task after another."""

    remote = False  # whether tasks are made by other processes

    def map(self, search: Search, task: str, trials: Sequence[Trial], *args: Any) -> list[Trial]:
        """The trials that `task` returns. args: of all tasks, or a range with one number for each."""
        return [getattr(search, task)(trial, *own) for trial, own in spread(trials, args)]


def spread(trials: Sequence[Trial], args: tuple[Any, ...]) -> list[tuple[Trial, tuple[Any, ...]]]:
    """Each task's trial and arguments."""
    columns = [arg if isinstance(arg, range) else [arg] * len(trials) for arg in args]
    return [(trial, tuple(column[n] for column in columns)) for n, trial in enumerate(trials)]


class Threads(Serial):
    """A pool of threads, for kernels that release the interpreter's lock."""

    def __init__(self, n: int) -> None:
        self.n = n

    def map(self, search: Search, task: str, trials: Sequence[Trial], *args: Any) -> list[Trial]:
        if len(trials) < 2:
            return super().map(search, task, trials, *args)

        def run(trial: Trial, own: tuple[Any, ...]) -> Any:
            with single_blas_thread(), search.cavi.engine.scope():
                return getattr(search, task)(trial, *own)

        with ThreadPoolExecutor(min(self.n, len(trials)), "sparsefactor-search") as pool:
            # In copies of the caller's context: its warnings filter, and NumPy's error state.
            futures = [pool.submit(copy_context().run, run, trial, own) for trial, own in spread(trials, args)]
            waiting = set(futures)
            try:
                while waiting:  # with a time limit: some systems do not interrupt a wait without one
                    done, waiting = wait(waiting, 0.1, FIRST_EXCEPTION)
                    for future in done:
                        future.result()
            except BaseException:
                search.watcher.halted = True  # the other threads stop where they are; what they have found is kept
                pool.shutdown(cancel_futures=True)
                raise
        return [future.result() for future in futures]


class Workers(Serial):
    """The workers of a cluster, to which the data were sent; `jobs` makes calls there."""

    remote = True

    def __init__(self, jobs: Any) -> None:
        self.jobs = jobs

    def map(self, search: Search, task: str, trials: Sequence[Trial], *args: Any) -> list[Trial]:
        options = replace(search.options, client=None, path=None, callback=None, progress=False, init="auto")
        # Decided here and sent along, since a worker sees one trial of several.
        settings = pickle.dumps(
            (search.cavi.prior, search.cavi.joint, options, search.coarse, search.early), protocol=5
        )
        jobs = [
            self.jobs.begin(run_task, settings, task, pack(trial), own, name=task)
            for trial, own in spread(trials, args)
        ]
        try:
            results = []
            for trial, job in zip(trials, jobs, strict=True):
                new = unpack(job.result(), search.cavi)
                new.tell, new.check = trial.tell, trial.check
                new.report()
                new.notify()
                results.append(new)
            return results
        finally:
            for job in jobs:
                job.cancel()


def run_task(data: Data, settings: bytes, task: str, trial: bytes, args: tuple[Any, ...]) -> bytes:
    """A worker's part: one task of a search."""
    from .search import Search

    prior, joint, options, coarse, early = pickle.loads(settings)

    class Part(Search):
        """A search as it was set up on the client."""

        @property
        def coarse(self) -> Any:
            return coarse

        @property
        def early(self) -> bool:
            return bool(early)

    with single_blas_thread():
        cavi = CAVI(data, prior, build_engine(data, prior, "cpu", 1), joint=joint)
        part = Part(cavi, options, Watcher([], 1.0, 0.0, None, None), Serial())
        return pack(getattr(part, task)(unpack(trial, cavi), *args))


def choose_executor(cavi: CAVI, watcher: Watcher, jobs: Any | None) -> Serial:
    """Workers where there are jobs; threads where a climb is one compiled call of a single thread."""
    if jobs is not None:
        return Workers(jobs)
    n = cavi.engine.n_threads
    compiled = cavi.shortcut is not None and cavi.shortcut.climbs and not cavi.engine.one_caller
    return Threads(n) if n > 1 and compiled and watcher.callback is None else Serial()


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return SAME.get(id(obj))


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        return KNOWN[pid]


def pack(trial: Trial) -> bytes:
    """A trial without its sweeps and its callbacks, between processes of one cluster."""
    own: Any = copy(trial)
    own.cavi, own.tell, own.check = None, None, None
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(own)
    return file.getvalue()


def unpack(trial: bytes, cavi: CAVI) -> Trial:
    own: Any = _Unpickler(io.BytesIO(trial)).load()
    own.cavi = cavi
    new: Trial = own
    return new
