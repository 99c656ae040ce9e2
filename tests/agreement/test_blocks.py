"""Any split of the rows into blocks gives the same bits: passes of both methods, modules, and every move."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agreement.cases import NOISES, gibbs_rows, make_case, make_message, same_bits, vi_rows
from tests.agreement.test_cpu_modules import message_for, rows_for, with_modules
from tests.helpers.problems import prior_for, random_gibbs_state, small_data

from sparsefactor.data.tiles import tile_rows
from sparsefactor.engine.blocks import span_bounds
from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.gibbs.moves import moves_for
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.model import Beta

SHAPES = ("many tiles", "many tiles, complete")
N_TILES = 5
SPLITS = st.sets(st.integers(1, N_TILES - 1), min_size=1).map(lambda cuts: tuple(sorted(cuts)))


def engines(data, prior, cuts, n_threads=1):
    assert -(-data.n_features // tile_rows(*data.Y.shape)) == N_TILES
    whole = CpuEngine(data, prior, 1)
    parts = CpuEngine(data, prior, n_threads, cuts=cuts, _split_small=True)
    assert [len(problem.Y) for problem in parts.blocks.problems] != [data.n_features]
    return whole, parts


@cache
def case_of(shape: str, noise: str, per_row: bool):
    return make_case(shape, noise, per_row=per_row)


@settings(max_examples=12, deadline=None)
@given(SPLITS, st.sampled_from(SHAPES), st.sampled_from(NOISES), st.booleans(), st.sampled_from([1, 3]))
def test_passes(cuts, shape, noise, per_row, n_threads):
    case = case_of(shape, noise, per_row)
    message = make_message(case, np.full(case.F.shape, 0.1))
    found = []
    for engine in engines(case.data, case.prior, cuts, n_threads):
        rows, sums = engine.vi_row_pass(vi_rows(case), message)
        again, more = engine.vi_row_pass(rows, message)  # from what it returned itself
        draw, draw_sums = engine.gibbs_row_pass(gibbs_rows(case), message, engine.row_noise((3, 4), 5))
        found.append((*rows, *sums, *again, *more, *draw, *draw_sums))
    assert same_bits(*found)


@settings(max_examples=6, deadline=None)
@given(SPLITS, st.sampled_from(SHAPES), st.sampled_from(NOISES))
def test_passes_with_modules(cuts, shape, noise):
    case = with_modules(case_of(shape, noise, False), 3)
    found = []
    for engine in engines(case.data, case.prior, cuts):
        rows, sums = engine.vi_row_pass(rows_for(case), message_for(case))
        found.append((*rows, *sums))
    assert same_bits(*found)


@pytest.mark.parametrize("cuts", [(2,), (1, 3), (1, 2, 3, 4)])
@pytest.mark.parametrize("modules", [False, True])
def test_spans_of_tiles(monkeypatch, cuts, modules):
    """What samples add to Gram matrices where tiles are in several spans: blocks do not matter, the sum is right."""
    case = case_of(SHAPES[0], "feature", False)
    message, rows = make_message(case, np.full(case.F.shape, 0.1)), vi_rows(case)
    if modules:
        case = with_modules(case, 3)
        message, rows = message_for(case), rows_for(case)
    one = CpuEngine(case.data, case.prior, 1).vi_row_pass(rows, message)[1]
    monkeypatch.setattr("sparsefactor.engine.blocks.SPANS", 3)
    monkeypatch.setattr("sparsefactor.engine.blocks.TILES_OF_A_SPAN", 1)
    found = []
    for engine in engines(case.data, case.prior, cuts, 2):
        assert len(engine.blocks.spans()) == 3
        _, sums = engine.vi_row_pass(rows, message)
        _, drawn = engine.gibbs_row_pass(gibbs_rows(case), message, engine.row_noise((3, 4), 5))
        found.append((*sums, *drawn))
    assert same_bits(*found)
    assert not np.array_equal(sums.LL_share, one.LL_share)  # another order
    np.testing.assert_allclose(sums.LL_share, one.LL_share, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("G", "N", "spans"), [(800, 100, 1), (20_000, 2_000, 9), (16_069, 44, 4)])
def test_spans_depend_on_the_shape_alone(G, N, spans):
    assert len(span_bounds(-(-G // tile_rows(G, N)))) == spans


@cache
def data_of(missing: float):
    return small_data(2100, 12, 4, missing=missing)


@settings(max_examples=8, deadline=None)
@given(
    SPLITS,
    st.sampled_from([0.0, 0.2]),
    st.sampled_from(NOISES),
    st.sampled_from(["given", "learnt", "by row", "groups"]),
    st.sampled_from([1, 2]),
)
def test_moves(cuts, missing, noise, inclusion, n_threads):
    data = data_of(missing)
    given_as = {"given": [0.2, 0.5, 0.9, 0.5], "by row": np.full((2100, 4), 0.3)}
    prior = prior_for(4, inclusion=given_as.get(inclusion, Beta(1.0, 2.0)), noise=noise)
    if inclusion == "groups":
        prior = replace(prior, groups=np.where(np.arange(2100) % 3, "a", "b"))
    found = []
    for engine in engines(data, prior, cuts, n_threads):
        gibbs, state = Gibbs(data, prior, engine), random_gibbs_state(data, prior)
        rng = np.random.default_rng(3)
        for move in moves_for(engine):
            state = move(gibbs, state, rng)
        found.append((*state.rows, *state[1:]))
    assert same_bits(*found)


def test_noise_counted_within_a_block_would_differ():
    """The control: a block that does not know its first row draws other noise."""
    case = case_of(SHAPES[1], "feature", False)
    message = make_message(case, np.zeros(case.F.shape))
    whole, parts = engines(case.data, case.prior, (2,))
    parts.blocks.problems = [problem._replace(first=0) for problem in parts.blocks.problems]
    expected, _ = whole.gibbs_row_pass(gibbs_rows(case), message, whole.row_noise((3, 4), 5))
    actual, _ = parts.gibbs_row_pass(gibbs_rows(case), message, parts.row_noise((3, 4), 5))
    assert not np.array_equal(actual.L, expected.L)


@pytest.mark.parametrize(("G", "N"), [(20_000, 2_000), (20_000, 20_000), (1_000_000, 100), (100_000, 5_000)])
def test_large_data_have_tiles_for_64_threads(G, N):
    assert -(-G // tile_rows(G, N)) >= 64
