"""The compiled moves: one text for one thread and for several, whose bits do not differ; inputs stay as they are."""

from __future__ import annotations

import numpy as np
import pytest
from tests.agreement.cases import same_bits
from tests.helpers.problems import prior_for, random_gibbs_state, small_data

from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.gibbs.moves import moves_for
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.model import Beta

G, N, K = 1500, 15, 4  # four tiles


def after_moves(data, prior, n_threads: int):
    """The state after every move, twice."""
    engine = CpuEngine(data, prior, n_threads, _split_small=True)
    assert len(engine.move_parts) == n_threads
    gibbs, state = Gibbs(data, prior, engine), random_gibbs_state(data, prior)
    rng = np.random.default_rng(3)
    for _ in range(2):
        for move in moves_for(engine):
            state = move(gibbs, state, rng)
    return (*state.rows, *state[1:])


@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("inclusion", [[0.2, 0.5, 0.9, 0.5], Beta(1.0, 2.0)])
def test_any_number_of_threads_moves_to_the_same_bits(missing, inclusion):
    data, prior = small_data(G, N, K, missing=missing), prior_for(K, inclusion=inclusion)
    one = after_moves(data, prior, 1)
    for n_threads in (2, 4):
        assert same_bits(one, after_moves(data, prior, n_threads))


def test_moves_on_float32_data_agree_with_float64():
    exact = small_data(G, N, K)
    prior = prior_for(K, inclusion=0.4)
    one, single = (after_moves(data, prior, 1) for data in (exact, as_single(exact)))
    assert np.mean(one[0] == single[0]) > 0.99  # inclusions
    assert np.median(np.abs(one[1] - single[1])) < 1e-3


def as_single(data):
    from dataclasses import replace

    return replace(data, Y=data.Y.astype(np.float32))
