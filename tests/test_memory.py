"""Memory is used again when nobody can see it, and never before; passes allocate nothing that grows with the data."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.engine.memory import Memory
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.vi.cavi import CAVI
from sparsefactor.vi.modules import sorted_by, under_modules


def count(memory: Memory) -> int:
    return sum(map(len, memory.blocks.values()))


def test_what_nobody_sees_is_used_again():
    memory = Memory()
    first = memory.take(3, 4)
    address = first.ctypes.data
    del first
    assert memory.take(3, 4).ctypes.data == address
    assert memory.take(3, 4).ctypes.data == address  # the one before is gone already
    assert count(memory) == 1


@pytest.mark.parametrize("keep", [lambda a: a[1], lambda a: a.T, lambda a: a[:, ::2].T[1:], lambda a: (a, 0)])
def test_any_view_keeps_it(keep):
    memory = Memory()
    array = memory.take(3, 4)
    array[:] = 7.0
    kept = keep(array)
    del array
    other = memory.take(3, 4)
    other[:] = -1.0
    assert np.all(np.asarray(kept[0] if isinstance(kept, tuple) else kept) == 7.0)
    del kept, other
    memory.take(3, 4)
    assert count(memory) == 2


def test_another_shape_or_type_is_another_block():
    memory = Memory()
    memory.take(6)
    assert memory.take(6, dtype=np.int8).dtype == np.int8
    assert memory.take(7).shape == (7,)
    assert count(memory) == 3


def test_threads_never_share_a_block():
    memory, wrong = Memory(), []

    def work(number: int) -> None:
        for _ in range(2000):
            array = memory.take(50)
            array[:] = number
            if not np.all(array == number):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert count(memory) <= 8  # each thread holds its last one until it has the next


def growth(step: Callable[[], None]) -> int:
    """The most bytes that were held during a step beyond those before it; the least of some, for others may be here."""
    for _ in range(4):
        step()
    tracemalloc.start()
    found = []
    try:
        step()
        for _ in range(5):
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            step()
            found.append(tracemalloc.get_traced_memory()[1] - before)
        return min(found)
    finally:
        tracemalloc.stop()


class Sweeps:
    """Repeats a step from one state to the next, as a fit does."""

    def __init__(self, state, step) -> None:
        self.state, self.step = state, step

    def __call__(self) -> None:
        self.state = self.step(self.state)


SIZES = (500, 6000)
K = 4


def sweeps(kind: str, G: int, missing: float) -> Sweeps:
    X = np.random.default_rng(0).standard_normal((20, G))
    X[np.random.default_rng(1).random(X.shape) < missing] = np.nan
    data = as_data(X)
    prior = sf.Prior(n_factors=K, inclusion=sf.Beta(1, 1))
    engine = CpuEngine(data, prior, 1)
    L, F = np.ones((G, K)), np.random.default_rng(2).standard_normal((K, 20))
    if kind == "gibbs":
        gibbs, numbers = Gibbs(data, prior, engine), iter(range(100))
        return Sweeps(gibbs.start(L, F), lambda state: gibbs.sweep(state, (1, 2), next(numbers))[0])
    cavi = CAVI(data, prior, engine)
    state = cavi.start(L, F)
    if kind == "vi":
        return Sweeps(state, lambda state: cavi.sweep(state, rescale=True))
    modules = under_modules(cavi, 3)
    return Sweeps(sorted_by(modules, state, engine.vi_unsorted(3)), lambda state: modules.sweep(state, rescale=True))


@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["vi", "modules", "gibbs"])
def test_a_sweep_allocates_nothing_that_grows_with_the_features(kind, missing):
    """A sweep of VI, or of Gibbs sampling without moves, which have their own needs."""
    small, large = (growth(sweeps(kind, G, missing)) for G in SIZES)
    # The rows' state alone would take K doubles for each of the 5,500 features more: 176,000 bytes.
    assert large < small + 30_000
    assert large < 100_000


def test_of_many_blocks_few_are_in_memory_besides_the_states():
    """Data on disk have a block for each round of a pass."""
    data = as_data(np.random.default_rng(0).standard_normal((20, 20 * 448)))
    prior = sf.Prior(n_factors=K, inclusion=sf.Beta(1, 1))
    engine = CpuEngine(data, prior, 1, cuts=range(1, -(-data.n_features // data.tile)))
    engine.blocks.by_round = True
    engine.vi_rounds = engine.blocks.rounds(1)
    assert len(engine.vi_rounds) > 10
    engine.blocks.ahead = engine.blocks.release = lambda parts: None  # there is no file
    cavi = CAVI(data, prior, engine)
    state = cavi.start(np.ones((data.n_features, K)), np.random.default_rng(2).standard_normal((K, 20)))
    for _ in range(4):
        state = cavi.sweep(state, rescale=True)
    of_a_state = 8 * data.n_features * (3 * K + 1)
    held = sum(array.nbytes for arrays in engine.memory.blocks.values() for array in arrays)
    assert 2 * of_a_state < held < 2.3 * of_a_state
