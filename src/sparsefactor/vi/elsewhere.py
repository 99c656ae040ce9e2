"""Who does the work of a search: this process, one thing after another or on its threads, or the workers of a cluster.

Trials are independent between two comparisons, and so are lineages within a round. A hop depends on the one before it
only where that one found something better: so the next few hops are made at once on a cluster, from where the search is
now, and are thrown away when it has moved on. What is taken is what would have been found one after another, to the
bit.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextvars import copy_context
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..data import Data
from ..engine import build_engine
from ..engine.threads import single_blas_thread
from ..kernels.contract import NONE, NOWHERE
from ..model import Prior
from .cavi import CAVI
from .trial import Trial
from .watch import Watcher

if TYPE_CHECKING:
    from .search import Search

SAME = {id(NONE): "NONE", id(NOWHERE): "NOWHERE"}  # what is told by being the same object
KNOWN = {"NONE": NONE, "NOWHERE": NOWHERE}

Work = Callable[..., Any]  # of a search: a method, whose first argument is a trial


class Alone:
    """This process."""

    spreads = False

    def each(self, work: Work, jobs: Sequence[tuple[Any, ...]]) -> Iterable[Any]:
        """What becomes of each job's trial, in their order."""
        return (work(*job) for job in jobs)

    def together(self, hop: Callable[[Any], Any], lineages: Sequence[Any]) -> None:
        """A round of hops of each."""
        for lineage in lineages:
            hop(lineage)

    def next(self, work: Work, lineage: Trial, number: int, most: int, sweeps: int) -> Any:
        """The next excursion from a lineage, which may take up to so many before it moves on."""
        return work(lineage, number, sweeps)

    def rest(self) -> None:
        """There are no more."""


class Threads(Alone):
    """Those of this process; for kernels that let go of the interpreter's lock. n: how many may work at once."""

    def __init__(self, n: int, watcher: Watcher, scope: Callable[[], Any]) -> None:
        self.n, self.watcher, self.scope = n, watcher, scope

    def each(self, work: Work, jobs: Sequence[tuple[Any, ...]]) -> Iterable[Any]:
        def scoped(*job: Any) -> Any:
            with single_blas_thread(), self.scope():
                return work(*job)

        with ThreadPoolExecutor(min(self.n, len(jobs)), "sparsefactor-search") as pool:
            begun = [pool.submit(copy_context().run, scoped, *job) for job in jobs]  # who listens to notices, errstate
            waiting = set(begun)
            try:
                while waiting:  # now and then, for not every system lets go of a wait when the user wants the end
                    done, waiting = wait(waiting, 0.1, FIRST_EXCEPTION)
                    for job in done:
                        job.result()
            except BaseException:
                self.watcher.halted = True  # the others stop where they are; what they have found is kept
                try:
                    pool.shutdown(cancel_futures=True)
                finally:
                    self.watcher.halted = False
                raise
        return [job.result() for job in begun]

    def together(self, hop: Callable[[Any], Any], lineages: Sequence[Any]) -> None:
        self.each(hop, [(lineage,) for lineage in lineages])


class Workers(Alone):
    """Those of a cluster, to which the data were sent; `jobs` makes calls there."""

    spreads = True

    def __init__(self, jobs: Any, search: Search) -> None:
        self.jobs, self.search = jobs, search
        self.begun: dict[int, Any] = {}  # excursions, by number
        self.base: Any = None  # the state that they set out from

    @property
    def what(self) -> bytes:
        """All that decides what is found; whoever looks on is here."""
        cavi = self.search.cavi
        options = replace(self.search.options, client=None, path=None, callback=None, progress=False, init="auto")
        return pickle.dumps((cavi.prior, cavi.joint, options), protocol=5)

    def each(self, work: Work, jobs: Sequence[tuple[Any, ...]]) -> Iterable[Any]:
        begun = [self.begin(work, *job) for job in jobs]
        try:
            for (trial, *_), job in zip(jobs, begun, strict=True):
                (new,) = self.back(trial, job.result())
                yield new
                new.report()
                new.looked_at()
        finally:
            for job in begun:
                job.cancel()

    def next(self, work: Work, lineage: Trial, number: int, most: int, sweeps: int) -> Any:
        if self.base is not lineage.state:
            self.rest()
            self.base = lineage.state
        for ahead in range(number, number + min(most, self.jobs.threads)):
            if ahead not in self.begun:
                self.begun[ahead] = self.begin(work, lineage, ahead, sweeps)
        new, both = self.back(lineage, self.begun.pop(number).result())
        lineage.report()
        lineage.looked_at()
        return new, both

    def rest(self) -> None:
        for job in self.begun.values():
            job.cancel()
        self.begun, self.base = {}, None

    def begin(self, work: Work, trial: Trial, *args: Any) -> Any:
        name = "hop" if work.__name__ == "excursion" else f"trial {trial.number}"
        return self.jobs.begin(made, self.what, work.__name__, packed(trial), args, name=name)

    def back(self, trial: Trial, found: list[bytes | None]) -> list[Any]:
        return [None if one is None else unpacked(one, self.search, trial) for one in found]


def made(data: Data, what: bytes, name: str, trial: bytes, args: tuple[Any, ...]) -> list[bytes | None]:
    """A worker's part: some work of a search on one of its trials."""
    from .search import Search

    prior, joint, options = pickle.loads(what)
    with single_blas_thread():
        search = Search(searching(data, prior, joint), options, {}, Watcher([], 1.0, 0.0, None, None))
        found = getattr(search, name)(unpacked(trial, search), *args)
    return [None if one is None else packed(one) for one in (found if isinstance(found, tuple) else (found,))]


def searching(data: Data, prior: Prior, joint: bool) -> CAVI:
    return CAVI(data, prior, build_engine(data, prior, "cpu", 1), joint=joint)


def crew_for(search: Search, jobs: Any | None) -> Alone:
    """Threads where climbs and runs are compiled calls of one thread each, and nobody follows them step by step."""
    if jobs is not None:
        return Workers(jobs, search)
    cavi, watcher, n = search.cavi, search.watcher, search.cavi.engine.n_threads
    compiled = cavi.shortcut is not None and cavi.shortcut.alone and not cavi.engine.one_caller
    return Threads(n, watcher, cavi.engine.scope) if n > 1 and compiled and watcher.callback is None else Alone()


class _Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return SAME.get(id(obj))


class _Unpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        return KNOWN[pid]


def packed(trial: Trial) -> bytes:
    """A trial, but for its sweeps, of which the number of factors tells which they are, and who looks on."""
    own: Any = copy(trial)
    own.cavi, own.tell, own.check = trial.cavi.prior.K, None, None
    file = io.BytesIO()
    _Pickler(file, protocol=5).dump(own)
    return file.getvalue()


def unpacked(trial: bytes, search: Search, before: Trial | None = None) -> Trial:
    """before: what it was sent as, whom whoever looks on knows."""
    own: Any = _Unpickler(io.BytesIO(trial)).load()
    own.cavi = search.hops.kit(own.cavi)[0]
    if before is not None:
        own.tell, own.check = before.tell, before.check
    new: Trial = own
    return new
