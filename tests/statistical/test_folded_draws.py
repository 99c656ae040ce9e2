"""Gibbs sampling over folded samples has the law of that over all of them (docs/math.md, 2.19)."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.problems import prior_for, small_data

from sparsefactor.data.folding import alike_samples, folded_samples, with_room
from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.gibbs.moves import moves_for
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.noise import stream_key
from sparsefactor.model import Beta

G, N, K = 5, 40, 2
SWEEPS, WARM, BATCHES = 6000, 300, 50

pytestmark = pytest.mark.statistical


def measures(data, apart: bool, change=None) -> np.ndarray:
    """(SWEEPS, 5) what does not depend on labels, of a run of sweeps."""
    prior = prior_for(K, inclusion=Beta(1.0, 1.0))
    engine = CpuEngine(data, prior)
    gibbs = Gibbs(data, prior, engine, moves_for(engine, ["scale", "rotation", "shear"]))
    if apart:
        gibbs.shortcut, gibbs.moves_within = None, False
    if change is not None:
        change(gibbs)
    rng = np.random.default_rng(1)
    state = gibbs.start(rng.standard_normal((G, K)), rng.standard_normal((K, data.n_samples)))
    found = []
    for sweep in range(WARM + SWEEPS):
        state = gibbs.draw(state, stream_key(5, int(apart)), sweep)[0]
        rows, gram = state.rows, state.F @ state.F.T
        found.append((np.trace(gram), np.linalg.det(gram), np.log(rows.tau).sum(), rows.Z.sum(), (rows.L**2).sum()))
    return np.array(found[WARM:])


def scores(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Differences of means in units of their standard error, by the means of batches."""
    means = [run.reshape(BATCHES, -1, run.shape[1]).mean(axis=1) for run in (one, other)]
    error = np.sqrt(sum(batch.var(axis=0, ddof=1) / BATCHES for batch in means))
    return np.asarray(np.abs(means[0].mean(axis=0) - means[1].mean(axis=0)) / error)


@pytest.fixture(scope="module")
def tall():
    return small_data(G, N, K, noise=1.0)


@pytest.fixture(scope="module")
def whole(tall):
    return measures(tall, apart=False)


def folded(tall):
    return with_room(folded_samples(tall, alike_samples(tall))[0], K)


@pytest.mark.parametrize("apart", [False, True], ids=["compiled", "in parts"])
def test_folded_draws_have_the_law_of_all_samples(tall, whole, apart):
    few = folded(tall)
    assert few.Y.shape == (G, G + K)
    assert (few.n_gathered, few.n_folded) == (K, N - G - K)
    assert np.all(scores(measures(few, apart), whole) < 4.0)


def test_columns_that_stand_for_themselves_alone_are_noticed(tall, whole):
    def plain(gibbs):
        gibbs.normals = lambda rng: rng.standard_normal((K, gibbs.data.n_samples))

    assert scores(measures(folded(tall), False, plain), whole)[0] > 8.0


def test_a_scale_that_counts_the_columns_alone_is_noticed(tall, whole):
    def few(gibbs):
        gibbs.fixed = gibbs.fixed._replace(n_samples=float(gibbs.data.n_samples))

    assert scores(measures(folded(tall), False, few), whole)[0] > 8.0
