"""A compiled whole sweep of small data draws what moves, row pass and activations draw one after the other."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.problems import prior_for, random_gibbs_state, small_data

from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.gibbs.moves import ColumnMove, Move, NoiseMove, RotationMove, ScaleMove, in_one_call, moves_for
from sparsefactor.gibbs.run import rule_of
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.noise import stream_key
from sparsefactor.model import Beta
from sparsefactor.vi.proposals import MOVES

G, N, K = 30, 20, 3


def apart(gibbs: Gibbs) -> Gibbs:
    """The same sampler, asking for one thing after the other."""
    gibbs.shortcut, gibbs.moves_within = None, False
    return gibbs


@pytest.mark.parametrize("noise", ["feature", "shared", "sample"])
@pytest.mark.parametrize("inclusion", [Beta(1.0, 1.0), [0.2, 0.5, 0.9], np.full((30, 3), 0.3)], ids=str)
@pytest.mark.parametrize("correlation", ["none", "learnt"])
def test_sweeps_agree(noise, inclusion, correlation):
    data, prior = small_data(G, N, K), prior_for(K, inclusion=inclusion, noise=noise, correlation=correlation)
    engine = CpuEngine(data, prior)
    both = [Gibbs(data, prior, engine, moves_for(engine)) for _ in range(2)]
    assert both[0].moves_within
    whole, parts = both[0], apart(both[1])
    state, key = random_gibbs_state(data, prior), stream_key(0, 0)
    for sweep in range(5):  # the first makes no moves, every second one draws the features' own parts
        before = [a.copy() for a in (*state.rows, state.F, state.alpha, state.pi)]
        new, info = whole.sweep(state, key, sweep, power=0.7)
        expected, told = parts.sweep(state, key, sweep, power=0.7)
        assert all(np.array_equal(a, b) for a, b in zip(before, (*state.rows, *state[1:4]), strict=True))
        assert np.array_equal(new.rows.Z, expected.rows.Z)
        for a, b in zip((*new.rows, *new[1:]), (*expected.rows, *expected[1:]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
        assert info.log_joint == pytest.approx(told.log_joint, rel=1e-9)
        assert info.n_active == told.n_active
        state = new


def test_moves_are_made_within_in_their_order_alone():
    class Own(NoiseMove):
        """One that does something else."""

    assert in_one_call([ScaleMove(), RotationMove(), ColumnMove(), NoiseMove()])
    assert in_one_call([])
    assert not in_one_call([ColumnMove(), RotationMove()])
    assert not in_one_call([RotationMove(), ScaleMove()])
    assert not in_one_call([RotationMove(), Own()])


@pytest.mark.parametrize("other", ["missing", "groups", "modules", "large"])
def test_other_data_are_asked_for_in_parts(other):
    data = small_data(*((3000, 200, 3) if other == "large" else (G, N, K)), missing=0.2 if other == "missing" else 0.0)
    extra = {"groups": {"groups": [0, 1, 2] * 10}, "modules": {"n_modules": 2}}.get(other, {})
    prior = prior_for(K, inclusion=Beta(1.0, 1.0), **extra)
    assert CpuEngine(data, prior).gibbs_shortcut() is None


@pytest.mark.parametrize("inclusion", [Beta(1.0, 1.0), [0.2, 0.5, 0.9], np.full((G, 3), 0.3)], ids=str)
@pytest.mark.parametrize("correlation", ["none", "learnt"])
def test_runs_agree(inclusion, correlation):
    """A compiled run draws what its sweeps draw one after another from the same generator."""
    data, prior = small_data(G, N, K), prior_for(K, inclusion=inclusion, correlation=correlation)
    engine = CpuEngine(data, prior)
    both = [Gibbs(data, prior, engine, proposal_moves(engine)) for _ in range(2)]
    assert rule_of(both[0], 1) is not None
    for gibbs in both:
        for move in gibbs.moves:
            move.every = 3
    whole, parts = both[0], apart(both[1])
    state, key = random_gibbs_state(data, prior), stream_key(0, 1)
    for sweeps in (1, 4, 10):  # of which the first has no moves, the last three of each
        new, expected = whole.run(state, key, sweeps), parts.run(state, key, sweeps)
        assert np.array_equal(new.rows.Z, expected.rows.Z)
        for a, b in zip((*new.rows, *new[1:]), (*expected.rows, *expected[1:]), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7)


def proposal_moves(engine: CpuEngine) -> list[Move]:
    """Those of vi/proposals.py; with learnt correlations the scale is not among them."""
    return moves_for(engine, [name for name in MOVES if name in engine.moves])


@pytest.mark.parametrize("correlation", ["none", "learnt"])
def test_only_the_moves_of_a_proposal_make_a_run(correlation):
    data, prior = small_data(G, N, K), prior_for(K, correlation=correlation)
    engine = CpuEngine(data, prior)
    assert rule_of(Gibbs(data, prior, engine, proposal_moves(engine)), 5) is not None
    assert rule_of(Gibbs(data, prior, engine, moves_for(engine)), 5) is None
    assert rule_of(Gibbs(data, prior, engine), 5) is None
