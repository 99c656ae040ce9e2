"""Rows dealt out to shards: every pass, move and verb to the bit as the CPU engine has it, for any number of them."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from tests.agreement.cases import make_case, make_message, same_bits
from tests.agreement.test_blocks import data_of
from tests.helpers.problems import prior_for
from tests.helpers.shards import Future, Here

from sparsefactor.data import as_data
from sparsefactor.data.tiles import tile_rows
from sparsefactor.design import design_of
from sparsefactor.engine import build_engine
from sparsefactor.engine.dask.engine import DaskEngine
from sparsefactor.engine.dask.gathering import ask
from sparsefactor.engine.dask.workers import shard_bounds
from sparsefactor.gibbs.moves import moves_for
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.contract import RowStream
from sparsefactor.kernels.protocol import Engine
from sparsefactor.kernels.verbs import KINDS, Verbs
from sparsefactor.model import Beta
from sparsefactor.vi.cavi import CAVI

STREAM = RowStream(*map(np.uint64, (5, 6, 7)))
AGE = np.random.default_rng(0).standard_normal((12, 1))


def chain(engine, data, prior, n: int):
    """A few sweeps with every move, from a random start."""
    gibbs = Gibbs(data, prior, engine, moves_for(engine))
    rng = np.random.default_rng(0)
    L = rng.standard_normal((data.n_features, 4)) * (rng.random((data.n_features, 4)) < 0.5)
    state = gibbs.start(L, rng.standard_normal((4, data.n_samples)))
    told = []
    for sweep in range(1, n):
        state, info = gibbs.sweep(state, (3, 4), 20 * sweep)  # when all moves are made
        told.append(info.log_joint)
    return (*engine.gibbs_fetch(state.rows), *state[1:], told)


def problem(kind: str, missing: float):
    data = data_of(missing)
    inclusion = {"by row": np.full((2100, 4), 0.3)}.get(kind, Beta(1.0, 2.0))
    prior = prior_for(4, inclusion=inclusion, noise="sample" if kind == "by sample" else "feature")
    if kind == "groups":
        prior = replace(prior, groups=np.repeat(["a", "b"], [1500, 600]))
    if kind == "modules":
        prior = replace(prior, n_modules=3)
    if kind == "covariates":
        data = replace(data, design=design_of(AGE, data.sample_names, center=True, holes=missing > 0, loadings="slab"))
    return data, prior


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("learnt", 0.0),
        ("covariates", 0.2),
        *(pytest.param(kind, 0.2, marks=pytest.mark.slow) for kind in ("by row", "groups", "by sample")),
    ],
)
def test_passes_by_jax(kind, missing):
    """On workers with a device: within rounding, whoever has which rows."""
    pytest.importorskip("jax")
    data, prior = problem(kind, missing)
    rng = np.random.default_rng(0)
    L, F = rng.standard_normal((data.n_features, 4)), rng.standard_normal((4, data.n_samples))

    def climbed(engine):
        cavi = CAVI(data, prior, engine, joint=True)
        state = cavi.start(L, F)
        for _ in range(3):
            state = cavi.sweep(state, rescale=True)
        return [*engine.vi_fetch(state.rows), state.columns.f_mean, *state.terms]

    expected = climbed(build_engine(data, prior, "cpu"))
    for n in (1, 3):
        engine = DaskEngine(data, prior, Here(n), by_jax=True)
        for found, known in zip(climbed(engine), expected, strict=True):
            np.testing.assert_allclose(found, known, rtol=1e-8, atol=1e-10)
        assert engine.name != "cpu"
        assert engine.with_prior(prior).by_jax


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "missing"),
    [("learnt", 0.0), *((kind, 0.2) for kind in ("covariates", "by row", "groups", "modules", "by sample"))],
)
def test_draws_by_jax(monkeypatch, kind, missing):
    """By the same random numbers, whoever has which rows."""
    pytest.importorskip("jax")
    monkeypatch.setattr("sparsefactor.engine.blocks.SPANS", 3)
    monkeypatch.setattr("sparsefactor.engine.blocks.TILES_OF_A_SPAN", 1)
    data, prior = problem(kind, missing)
    expected = chain(build_engine(data, prior), data, prior, 2)
    for n in (1, 3):
        found = chain(DaskEngine(data, prior, Here(n), by_jax=True), data, prior, 2)
        for own, known in zip(found, expected, strict=True):
            np.testing.assert_allclose(own, known, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("kind", ["learnt", "by row", "groups", "modules", "by sample", "covariates"])
def test_draws(monkeypatch, missing, kind):
    monkeypatch.setattr("sparsefactor.engine.blocks.SPANS", 3)  # of tiles of masked data, so that three may hold them
    monkeypatch.setattr("sparsefactor.engine.blocks.TILES_OF_A_SPAN", 1)
    data, prior = problem(kind, missing)
    expected = chain(build_engine(data, prior), data, prior, 4)
    for n in (1, 2, 4):
        engine = DaskEngine(data, prior, Here(n))
        assert same_bits(chain(engine, data, prior, 4), expected)
    assert len(engine.cluster.bounds) == (3 if missing else 4)


def verbs_of(engine, case):
    """What verbs return, but for passes and moves."""
    matrix = engine.start_matrix()
    V, T = np.linspace(-1, 1, 17 * 9).reshape(17, 9), np.linspace(0, 1, 81).reshape(9, 9)
    L = matrix.times(V)
    found = [matrix.scale, matrix.gram(), matrix.back(L), matrix.power(V), matrix.feature_gram()]
    found += [engine.start_products(L), *engine.start_bend(L, T, "tanh"), *engine.start_bend(L, T, "cube")]
    if not case.data.is_complete:
        filled, change, size = matrix.filled(L, V)
        found += [change, size, filled.gram()]
    message = make_message(case, np.full(case.F.shape, 0.1))
    rows, sums = engine.vi_row_pass(engine.vi_place(engine.start_turn(L, T)), message)
    found += [*sums, *engine.vi_fetch(rows), *engine.vi_counts(rows), engine.vi_content(rows), engine.vi_spread(rows)]
    found += [engine.vi_likelihood(rows, case.F), engine.vi_column_rss(rows, case.F)]
    found += [engine.vi_assignment_gain(rows, message), engine.vi_fetch(engine.vi_turn(rows, T)).mu]
    shears = engine.vi_shears(rows, message)
    shears.apply(0, 1, 0.3)
    found += [shears.shared, shears.profile(0, 1, np.array([0.0, 0.1]))]
    draw = engine.vi_draw(rows, STREAM)
    found += [*engine.gibbs_fetch(draw), *engine.gibbs_counts(draw), engine.gibbs_column_rss(draw, case.F)]
    tally = engine.gibbs_tally_add(engine.gibbs_tally(), draw, np.ones(9), case.F)
    found += [
        engine.gibbs_tally_fetch(tally),
        engine.vi_fetch(engine.vi_place(engine.start_normals(9, 1.0, STREAM))).mu,
    ]
    found += [engine.vi_fetch(engine.vi_place(engine.vi_scatter(rows, np.zeros(0), 1.0, 0.2, STREAM))).mu]
    sorted_rows, members, active = engine.vi_sort(rows, engine.vi_sortings(rows, 3, np.random.default_rng(1))[-1])
    found += [members, active, engine.vi_fetch(sorted_rows).member]
    dealt = engine.gibbs_members(engine.gibbs_deal(draw, 3), np.full((9, 3), 0.3), np.full(3, 1 / 3), STREAM)
    return [*found, *engine.gibbs_module_counts(dealt, 3), engine.gibbs_fetch(dealt).member]


@pytest.mark.parametrize("shape", ["many tiles", "many tiles, complete"])
def test_verbs(shape):
    case = make_case(shape, "feature", per_row=True)
    expected = verbs_of(build_engine(case.data, case.prior), case)
    for n in (2, 5):
        assert same_bits(verbs_of(DaskEngine(case.data, case.prior, Here(n)), case), expected)


def test_many_shards_add_up_among_themselves(monkeypatch):
    """Groups of neighbours first, as many as each has shards; the bits stay the same."""
    monkeypatch.setattr("sparsefactor.engine.dask.messages.FEW", 2)
    monkeypatch.setattr("sparsefactor.engine.dask.messages.MUCH", 0)
    groups = []
    monkeypatch.setattr("sparsefactor.engine.dask.gathering.ask", lambda *args: groups.append(args[2:4]) or ask(*args))
    case = make_case("many tiles, complete", "feature", per_row=True)
    expected = verbs_of(build_engine(case.data, case.prior), case)
    engine = DaskEngine(case.data, case.prior, Here(5))
    assert same_bits(verbs_of(engine, case), expected)
    assert groups[:3] == [(0, 1), (1, 3), (3, 5)]
    assert engine.cluster.passings > 10


def test_who_lacks_a_message_or_a_sum_is_noticed(monkeypatch):
    """The one gets it from the client, the other is made again; the sums are the same."""
    monkeypatch.setattr("sparsefactor.engine.dask.messages.FEW", 2)
    monkeypatch.setattr("sparsefactor.engine.dask.messages.MUCH", 0)
    case = make_case("many tiles, complete", "feature")
    expected = build_engine(case.data, case.prior)
    engine = DaskEngine(case.data, case.prior, Here(5))
    rows = engine.vi_place(np.ones((2100, 9)))
    message, told = make_message(case, np.full(case.F.shape, 0.1)), []
    monkeypatch.setattr(engine.cluster, "renew", lambda number, why: told.append(number))
    places, lost = engine.cluster.places, []

    class Deaf:
        """An actor that is passed no message, and cannot fetch what the one after it holds, once."""

        def __init__(self, actor):
            self.actor = actor

        def take_on(self, *args):
            raise OSError("gone")

        def gathered(self, key, others, patience):
            if lost:
                return self.actor.gathered(key, others, patience)
            lost.append(key)
            return Future(pickle.dumps((None, [0])))

        def __getattr__(self, name):
            return getattr(self.actor, name)

    places[1] = places[1]._replace(actor=Deaf(places[1].actor))
    found = engine.vi_row_pass(rows, message)[1]
    assert same_bits(found, expected.vi_row_pass(expected.vi_place(np.ones((2100, 9))), message)[1])
    assert told == [2]


def test_sparse_data_stay_sparse():
    rng = np.random.default_rng(0)
    data = as_data(sparse.random(12, 2100, 0.1, random_state=0, format="csr"), center=True)
    prior = prior_for(4, inclusion=Beta(1.0, 2.0))
    engine, whole = DaskEngine(data, prior, Here(3)), build_engine(data, prior)
    assert all(place.actor.shard.data.is_sparse for place in engine.cluster.places)
    L = rng.standard_normal((2100, 4))
    states = [CAVI(data, prior, own).start(L, rng_F) for own, rng_F in ((engine, L[:12].T), (whole, L[:12].T))]
    assert states[0].elbo == pytest.approx(states[1].elbo, rel=1e-12)
    assert np.allclose(engine.start_matrix().gram(), whole.start_matrix().gram(), rtol=1e-10)


def test_every_verb_is_sent():
    """But for those that no row has a part in."""
    alone = {"with_prior", "with_threads", "moves", "scope", "row_noise", "vi_activations", "gibbs_activations",
             "vi_shortcut", "gibbs_shortcut"}  # fmt: skip
    names = {name for kind in (Verbs, Engine) for name, value in vars(kind).items() if callable(value)}
    assert {name for name in names if not name.startswith("_")} - alone == set(KINDS)


@pytest.mark.parametrize("G", [1, 448, 5000, 200_000])
@pytest.mark.parametrize("masked", [False, True])
def test_shards_are_whole_tiles(G, masked):
    for n in (1, 3, 64):
        bounds = shard_bounds(G, 50, n, masked)
        assert [own.start for own in bounds[1:]] == [own.stop for own in bounds[:-1]]
        assert (bounds[0].start, bounds[-1].stop) == (0, G)
        assert all(own.start % tile_rows(G, 50) == 0 for own in bounds)
        assert len(bounds) <= n


def test_what_nobody_holds_is_let_go():
    case = make_case("many tiles", "feature")
    engine = DaskEngine(case.data, case.prior, Here(2))
    shard = engine.cluster.places[0].actor.shard
    for _ in range(5):
        rows = engine.vi_place(np.ones((2100, 9)))
    engine.vi_counts(rows)
    assert len(shard.kept) <= 3  # the engine, these rows, and at most one that is not yet known to be gone


def test_an_error_on_a_worker_is_raised_and_the_next_call_works():
    case = make_case("many tiles", "feature")
    engine = DaskEngine(case.data, case.prior, Here(3))
    rows = engine.vi_place(np.ones((2100, 9)))
    with pytest.raises((ValueError, IndexError)):
        engine.vi_take(rows, np.array([17]), np.ones(1))
    assert np.array_equal(engine.vi_counts(rows)[0], np.full(9, 2100.0))
