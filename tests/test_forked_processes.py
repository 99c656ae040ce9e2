"""A process may fork while another of its threads is fitting: the child finds no lock held by a thread it lacks.

Each case runs in an interpreter of its own, since forking beside threads is what newer Pythons warn of.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

SECONDS = 60  # more than any child needs, and the end of one that hangs

FORKING = """
import os, signal, sys, threading
import numpy as np

def in_a_child(work):
    child = os.fork()
    if child == 0:
        signal.alarm({seconds})  # a hanging child is killed by its own alarm
        try:
            work()
        except BaseException as problem:
            print(repr(problem), file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status)
"""


def run(script: str, seconds: int = SECONDS) -> str:
    """The output of a script in which every child must end well; `in_a_child` gives a child's exit code."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING.format(seconds=seconds) + script],
        capture_output=True,
        text=True,
        timeout=3 * seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_an_attribute_that_a_thread_computes_can_be_computed_in_a_child():
    run(
        """
from sparsefactor.data import Data, as_data

class Blocks:
    def __getitem__(self, _):
        return self

    def sum(self, **_):
        entered.set()
        leave.wait()
        return np.ones(3)

entered, leave = threading.Event(), threading.Event()
names = np.arange(3)
slow = Data(np.ones((3, 3)), Blocks(), np.zeros(3), names, names)
thread = threading.Thread(target=lambda: slow.row_count)
thread.start()
entered.wait()
code = in_a_child(lambda: as_data(np.eye(3)).row_count)
leave.set()
thread.join()
sys.exit(code)
""",
        seconds=5,
    )


def test_children_fit_while_a_thread_is_fitting():
    run(
        """
import sparsefactor as sf
from sparsefactor.engine.blas import find_libraries

sim = sf.simulate(n_features=600, n_samples=400, inclusion=[0.3] * 6, snr=5, seed=0)

def fit():
    return sf.fit_vi(sim.X, sf.Prior(n_factors=6, inclusion=0.3), n_trials=1, seed=0, n_threads=2).elbo

def fit_as_before():
    assert fit() == own
    assert [library.get() for library in libraries] == threads

own = fit()
libraries = find_libraries()
threads = [library.get() for library in libraries]
stop = threading.Event()

def keep_fitting():
    while not stop.is_set():
        fit()

thread = threading.Thread(target=keep_fitting)
thread.start()
codes = [in_a_child(fit_as_before) for _ in range(12)]
stop.set()
thread.join()
assert codes == [0] * 12, codes
"""
    )


def test_a_child_compiles_though_a_thread_was_compiling():
    run(
        """
from numba.core.compiler_lock import global_compiler_lock
from sparsefactor.kernels.cpu.compiled import OPTIONS, njit

compiling, leave = threading.Event(), threading.Event()

def compile():
    with global_compiler_lock:
        compiling.set()
        leave.wait(1.0)

thread = threading.Thread(target=compile)
thread.start()
compiling.wait()

def twice():
    assert njit(**OPTIONS)(lambda x: 2 * x)(2.0) == 4.0

sys.exit(in_a_child(twice))
""",
        seconds=20,
    )
