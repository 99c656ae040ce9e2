"""Executors for independent tasks: this thread, a pool of threads, or the workers of a Dask cluster.

All are executors of `concurrent.futures`. A task is a pure function of what it is sent, so that its result does not
depend on the executor, and Dask may make it again where a worker is lost.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import is_dataclass
from threading import Lock
from typing import Any

import numpy as np

from .errors import needs
from .version import __version__

ANSWER_SECONDS = 30.0  # in which workers say which version they have
WAIT_SECONDS = 0.1  # at a time: some systems do not interrupt a longer wait
LOST_SECONDS = 120.0  # without any worker, after which a cluster is given up
CONFIGURING = Lock()  # Dask's configuration is the process's


class Serial(Executor):
    """This thread, one task after another."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as problem:
            future.set_exception(problem)
        return future

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:
        """Each task is made when its result is asked for, so that none follows one that fails."""
        return map(fn, *iterables)


class Threads(ThreadPoolExecutor):
    """A pool of threads, for kernels that release the interpreter's lock."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """In a copy of the caller's context: its warnings filter, and NumPy's error state."""
        return super().submit(copy_context().run, fn, *args, **kwargs)

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], **_: Any) -> Iterator[Any]:
        return iter(results([self.submit(fn, *own) for own in zip(*iterables, strict=True)]))


class Dask(Executor):
    """The workers of a Dask cluster."""

    def __init__(self, client: Any) -> None:
        check_client(client)
        self.client, self.executor = client, client.get_executor(pure=False)

    @property
    def n_threads(self) -> int:
        """Of all workers."""
        return sum(int(worker["nthreads"]) for worker in workers_of(self.client).values())

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """name=: of the task, for those who watch the cluster."""
        key = task_name(kwargs.pop("name", "") or fn.__name__)
        with sending(self.client):
            future: Future[Any] = self.executor.submit(call_aligned, fn, *args, key=key, **kwargs)
        return future

    def map(self, fn: Callable[..., Any], *iterables: Iterable[Any], name: str = "", **_: Any) -> Iterator[Any]:
        return iter(self.results([self.submit(fn, *own, name=name) for own in zip(*iterables, strict=True)]))

    def results(self, futures: Sequence[Future[Any]]) -> list[Any]:
        """As `results`, of tasks on a cluster that may be lost."""
        return results(futures, WorkersCheck(self.client))

    def share(self, value: Any) -> Any:
        """A value for many tasks, as an argument of `submit`. It is sent once, and Dask can make it again."""
        return constant(self.client, value, "data")


class Shared:
    """Calls of functions of one value, which the workers of a cluster are sent once."""

    def __init__(self, client: Any, value: Any) -> None:
        self.executor = Dask(client)
        self.value, self.n_threads = self.executor.share(value), self.executor.n_threads

    def submit(self, fn: Callable[..., Any], *args: Any, name: str = "") -> Future[Any]:
        return self.executor.submit(fn, self.value, *args, name=name)

    def results(self, futures: Sequence[Future[Any]]) -> list[Any]:
        return self.executor.results(futures)

    def __call__(self, fn: Callable[..., Any], *args: Any, name: str = "") -> Any:
        return self.results([self.submit(fn, *args, name=name)])[0]


def results(futures: Sequence[Future[Any]], check: Callable[[], None] | None = None) -> list[Any]:
    """Those of tasks in their order. The first failure is raised at once, and tasks that have not begun are dropped.

    check: called while tasks are waited for; it may raise.
    """
    waiting = set(futures)
    try:
        while waiting:
            done, waiting = wait(waiting, WAIT_SECONDS, FIRST_EXCEPTION)
            for future in done:
                future.result()
            if waiting and check is not None:
                check()
    except CancelledError as problem:
        raise scheduler_lost() from problem
    except BaseException:
        for future in futures:
            future.cancel()
        raise
    return [future.result() for future in futures]


# ---- Dask -----------------------------------------------------------------------------------------------------------


def libraries() -> tuple[Any, Any]:
    """Dask's two."""
    try:
        import dask
        import distributed
    except ImportError as problem:
        raise needs("client=", "distributed", "dask", problem) from problem
    return dask, distributed


def submit(client: Any, function: Callable[..., Any], *args: Any, name: str, **where: Any) -> Any:
    """Dask's future of a task."""
    with sending(client):
        return client.submit(function, *args, key=task_name(name), pure=False, **where)


def constant(client: Any, value: Any, name: str) -> Any:
    """A future of a value, which the scheduler keeps: unlike scattered data, it outlives the worker that has it."""
    return submit(client, same, value, name=name)


@contextmanager
def sending(client: Any) -> Iterator[None]:
    """Without Dask's warning of large values in a graph, which are meant to be there."""
    try:
        with CONFIGURING, libraries()[0].config.set({"distributed.admin.large-graph-warning-threshold": "1 PB"}):
            yield
    except Exception as problem:
        if client.status in ("closing", "closed"):
            raise scheduler_lost() from problem
        raise


def task_name(words: str) -> str:
    """A task's key that no other has; Dask's dashboard shows its tasks by what is before the last hyphen."""
    return f"{words}-{uuid.uuid4().hex}"


def same(value: Any) -> Any:
    return value


def call_aligned(function: Callable[..., Any], *args: Any) -> Any:
    """A worker's part."""
    return function(*map(aligned, args))


def aligned(value: Any) -> Any:
    """The same, its arrays where numbers may begin, and writable.

    What comes by the network may lie anywhere, and NumPy's products of such arrays round otherwise.
    """
    if isinstance(value, np.ndarray):
        return np.require(value, requirements=["A", "W"])
    if isinstance(value, tuple | list):
        own = [aligned(each) for each in value]
        if all(new is old for new, old in zip(own, value, strict=True)):
            return value
        return type(value)(*own) if hasattr(value, "_fields") else type(value)(own)
    if is_dataclass(value) and not isinstance(value, type):
        for name, old in vars(value).items():
            if (new := aligned(old)) is not old:
                vars(value)[name] = new
    return value


def gathered(client: Any, futures: Sequence[Any]) -> list[Any]:
    """What tasks return. A cluster that is gone is an error, not a wait for ever."""
    check, distributed = WorkersCheck(client), libraries()[1]
    try:
        while True:
            try:
                with client.as_current():  # for whom `wait` looks
                    distributed.wait(futures, timeout=ANSWER_SECONDS)
                break
            except TimeoutError:
                check()
        found: list[Any] = client.gather(futures)
    except CancelledError as problem:
        raise scheduler_lost() from problem
    except Exception as problem:
        if client.status in ("closing", "closed"):
            raise scheduler_lost() from problem
        raise
    return found


class WorkersCheck:
    """Raises an error when a cluster has had no workers for long; looks now and then."""

    def __init__(self, client: Any) -> None:
        self.client, self.looked = client, time.monotonic()
        self.empty_since: float | None = None

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self.looked < ANSWER_SECONDS:
            return
        self.looked = now
        try:
            there = workers_of(self.client)
        except (OSError, ValueError) as problem:
            raise scheduler_lost() from problem
        self.empty_since = None if there else self.empty_since or now
        if self.empty_since is not None and now - self.empty_since > LOST_SECONDS:
            raise RuntimeError(
                f"a cluster must have workers; it has had none for {now - self.empty_since:.0f} s; start some, and "
                "call again"
            )


def scheduler_lost() -> RuntimeError:
    return RuntimeError(
        "the client must stay connected to its scheduler; the connection is lost; make a new client and call again: "
        "with path= the call resumes from its last checkpoint"
    )


def workers_of(client: Any) -> dict[str, Any]:
    """What the scheduler says of each worker.

    Not by `client.scheduler_info`, which returns what the client has noted: now and then that is without workers.
    """
    workers: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
    return workers


def check_client(client: Any) -> None:
    """Refuse what is no client, and workers that could not take part."""
    if not isinstance(client, libraries()[1].Client):
        raise TypeError(f"client must be a dask.distributed Client; got a {type(client).__name__}; pass Client(...)")
    if client.status != "running":
        raise RuntimeError(f"the client must be connected to its scheduler; it is {client.status}; make a new one")

    def version_here() -> str | None:  # in here, so that it is sent as it stands to workers that lack the package
        from importlib import import_module

        try:
            return str(import_module("sparsefactor").__version__)
        except ImportError:
            return None

    try:
        if not workers_of(client):
            raise RuntimeError(
                "a cluster must have workers; this one has none; start some, or wait: client.wait_for_workers(1)"
            )
        found = client.sync(client._run, version_here, on_error="return", callback_timeout=ANSWER_SECONDS)
    except TimeoutError as problem:
        raise RuntimeError(
            f"every worker must answer; some did not within {ANSWER_SECONDS:.0f} s; look at the workers' logs, and "
            "restart those that hang"
        ) from problem
    except OSError as problem:
        raise scheduler_lost() from problem
    for worker, version in found.items():
        if isinstance(version, OSError):  # it is gone by now
            continue
        if version != __version__:
            what = "has none" if version is None else f"has version {version}"
            raise RuntimeError(
                f"every worker must have sparsefactor {__version__}, as this process has; {worker} {what}; install the "
                "same version there"
            )
