"""The tasks of a search, on an executor: methods of `Search` that take a trial and return one.

The results are taken in the order of the tasks and do not depend on the executor, to the bit.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from concurrent.futures import Executor
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..data import Data
from ..engine import build_engine
from ..engine.threads import single_blas_thread
from ..executors import Serial, Shared, Threads
from ..kernels.contract import NONE, NOWHERE
from .cavi import CAVI
from .trial import Trial
from .watch import Watcher

if TYPE_CHECKING:
    from .search import Search

SAME = {id(NONE): "NONE", id(NOWHERE): "NOWHERE"}  # recognised by identity, also after they were sent
KNOWN = {"NONE": NONE, "NOWHERE": NOWHERE}


class Tasks:
    """On an executor of this process."""

    remote = False  # whether tasks are made by other processes

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def map(self, search: Search, task: str, trials: Sequence[Trial], *args: Any) -> list[Trial]:
        """The trials that `task` returns. args: of all tasks, or a range with one number for each."""

        def run(trial: Trial, own: tuple[Any, ...]) -> Trial:
            with single_blas_thread(), search.cavi.engine.scope():
                new: Trial = getattr(search, task)(trial, *own)
                return new

        executor = self.executor if len(trials) > 1 else Serial()
        try:
            return list(executor.map(run, trials, spread(trials, args)))
        except BaseException:
            if isinstance(executor, Threads):
                search.watcher.halted = True  # the other threads stop where they are; what they have found is kept
                executor.shutdown(cancel_futures=True)
            raise


def spread(trials: Sequence[Trial], args: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Each task's arguments besides its trial."""
    columns = [arg if isinstance(arg, range) else [arg] * len(trials) for arg in args]
    return [tuple(column[n] for column in columns) for n in range(len(trials))]


class RemoteTasks(Tasks):
    """On the workers of a cluster, to which the data were sent."""

    remote = True

    def __init__(self, jobs: Shared) -> None:
        super().__init__(jobs.executor)
        self.jobs = jobs

    def map(self, search: Search, task: str, trials: Sequence[Trial], *args: Any) -> list[Trial]:
        options = replace(search.options, client=None, path=None, callback=None, progress=False, init="auto")
        # Decided here and sent along, since a worker sees one trial of several.
        settings = pickle.dumps(
            (search.cavi.prior, search.cavi.joint, options, search.coarse, search.early), protocol=5
        )
        futures = [
            self.jobs.submit(run_task, settings, task, pack(trial), own, name=task)
            for trial, own in zip(trials, spread(trials, args), strict=True)
        ]
        try:
            found = []
            for trial, future in zip(trials, futures, strict=True):
                new = unpack(self.jobs.results([future])[0], search.cavi)
                new.tell, new.check = trial.tell, trial.check
                new.report()
                new.notify()
                found.append(new)
            return found
        finally:
            for future in futures:
                future.cancel()


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
        part = Part(cavi, options, Watcher([], 1.0, 0.0, None, None), Tasks(Serial()))
        return pack(getattr(part, task)(unpack(trial, cavi), *args))


def choose_executor(cavi: CAVI, watcher: Watcher, jobs: Shared | None) -> Tasks:
    """Workers where there are jobs; threads where a climb is one compiled call of a single thread."""
    if jobs is not None:
        return RemoteTasks(jobs)
    n = cavi.engine.n_threads
    compiled = cavi.shortcut is not None and cavi.shortcut.climbs and not cavi.engine.one_caller
    return Tasks(Threads(n) if n > 1 and compiled and watcher.callback is None else Serial())


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
