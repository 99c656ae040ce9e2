"""One BLAS thread while fitting, from any thread and process, and the caller's own setting afterwards."""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import threadpoolctl

import sparsefactor as sf
from sparsefactor.engine.blas import BlasLimit, Library, find_libraries, hold_single_blas_thread, single_blas_thread

# ---- with made-up libraries: one number for the process, one for each thread ------------------------------------


class Shared:
    threads = 8

    def library(self) -> Library:
        return Library(lambda: self.threads, lambda n: setattr(self, "threads", n), per_thread=False)


class PerThread(threading.local):
    threads = 8

    def library(self) -> Library:
        return Library(lambda: self.threads, lambda n: setattr(self, "threads", n), per_thread=True)


class Visitor(threading.Thread):
    """Enters and leaves when told to, and says what it sees."""

    def __init__(self, limit: BlasLimit, own: PerThread) -> None:
        super().__init__(daemon=True)
        self.limit, self.own = limit, own
        self.go, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self.seen: list[int] = []
        self.start()

    def run(self) -> None:
        for act in (self.limit.enter, self.limit.leave):
            self.go.acquire()
            act()
            self.seen.append(self.own.threads)
            self.done.release()

    def step(self) -> None:
        self.go.release()
        assert self.done.acquire(timeout=10)


@pytest.mark.parametrize("leaving", list(itertools.permutations(range(3))))
def test_visits_that_end_in_any_order_restore_the_setting(leaving):
    shared, own = Shared(), PerThread()
    limit = BlasLimit(lambda: [shared.library(), own.library()])
    visitors = [Visitor(limit, own) for _ in range(3)]
    for visitor in visitors:
        visitor.step()
        assert shared.threads == 1
    for number in leaving:
        assert shared.threads == 1
        visitors[number].step()
    assert shared.threads == 8
    assert [visitor.seen for visitor in visitors] == [[1, 8]] * 3
    assert own.threads == 8


def test_visits_nest():
    shared, own = Shared(), PerThread()
    limit = BlasLimit(lambda: [shared.library(), own.library()])
    limit.enter()
    limit.enter()
    limit.leave()
    assert (shared.threads, own.threads) == (1, 1)
    limit.leave()
    assert (shared.threads, own.threads) == (8, 8)


def test_what_somebody_else_sets_meanwhile_is_restored():
    shared = Shared()
    limit = BlasLimit(lambda: [shared.library()])
    limit.enter()
    shared.threads = 4
    limit.hold()
    assert shared.threads == 1
    limit.leave()
    assert shared.threads == 4
    limit.enter()
    shared.threads = 6
    limit.leave()
    assert shared.threads == 6
    limit.hold()
    assert shared.threads == 6


def test_a_thread_of_ours_keeps_to_one():
    shared, own = Shared(), PerThread()
    limit = BlasLimit(lambda: [shared.library(), own.library()])
    with ThreadPoolExecutor(1, initializer=limit.keep) as pool:
        assert pool.submit(lambda: own.threads).result() == 1
    assert (shared.threads, own.threads) == (8, 8)


def test_a_child_is_fitting_only_if_its_thread_was():
    shared = Shared()
    limit = BlasLimit(lambda: [shared.library()])
    visitor = Visitor(limit, PerThread())
    visitor.step()
    limit.after_fork()  # as in a child that this thread has forked
    assert (limit.inside, shared.threads) == (0, 8)
    limit.enter()
    limit.after_fork()
    assert (limit.inside, shared.threads) == (1, 1)
    limit.leave()
    assert shared.threads == 8


# ---- with the libraries of this process --------------------------------------------------------------------------


@pytest.fixture
def two_threads():
    """All BLAS libraries at two threads, and threadpoolctl under the control of this thread."""
    libraries = find_libraries()
    before = [library.get() for library in libraries]
    with threadpoolctl.threadpool_limits(limits=2, user_api="blas"):
        assert [library.get() for library in libraries] == [2] * len(libraries)
        yield libraries
    for library, threads in zip(libraries, before, strict=True):
        library.set(threads)


def test_a_thread_without_control_of_threadpoolctl_limits_and_restores(two_threads):
    def inside() -> list[int]:
        with single_blas_thread():
            return [library.get() for library in two_threads]

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(inside).result() == [1] * len(two_threads)
    assert [library.get() for library in two_threads] == [2] * len(two_threads)


def test_a_limit_that_another_library_lifts_is_set_again(two_threads):
    with single_blas_thread():
        with threadpoolctl.threadpool_limits(limits=3, user_api="blas"):
            pass
        for library in two_threads:
            library.set(2)
        hold_single_blas_thread()
        assert [library.get() for library in two_threads] == [1] * len(two_threads)
    assert [library.get() for library in two_threads] == [2] * len(two_threads)


SIM = {"n_features": 600, "n_samples": 400, "inclusion": [0.3] * 12, "snr": 5, "seed": 0}  # products BLAS would share


def digest() -> str:
    """The bits of a fit and of a short chain."""
    sim = sf.simulate(**SIM)
    prior = sf.Prior(n_factors=12, inclusion=0.3)
    vi = sf.fit_vi(sim.X, prior, n_trials=1, max_iter=8, seed=0)
    mc = sf.sample(sim.X, prior, n_chains=1, n_warmup=2, n_draws=2, init="random", seed=0, progress=False)
    found = [vi.loadings_mean, vi.activations_mean, mc.loadings_mean, mc.activations_mean]
    return hashlib.sha256(b"".join(values.tobytes() for values in found)).hexdigest()


@pytest.mark.filterwarnings("ignore")  # here, for filters that threads set and take back are those of all threads
def test_every_thread_gets_the_bits_of_the_main_thread(two_threads):
    own = digest()
    with ThreadPoolExecutor(3) as pool:
        assert {each.result() for each in [pool.submit(digest) for _ in range(6)]} == {own}
    assert [library.get() for library in two_threads] == [2] * len(two_threads)


PROCESSES = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
sys.path.insert(0, {tests!r})
from test_blas_threads import digest
if __name__ == "__main__":
    found = {{digest()}}
    for method in ("spawn", "fork"):
        if method in multiprocessing.get_all_start_methods():
            with ProcessPoolExecutor(2, multiprocessing.get_context(method)) as pool:
                found |= {{each.result() for each in [pool.submit(digest) for _ in range(2)]}}
    print(*found)
"""


@pytest.mark.filterwarnings("ignore")
def test_process_pools_get_the_bits_of_this_process(tmp_path):
    script = tmp_path / "pools.py"
    script.write_text(PROCESSES.format(tests=str(__file__).rpartition("/")[0]))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [digest()]
