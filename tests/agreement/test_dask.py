"""Rows in blocks on workers: every pass, move and verb to the bit as the CPU engine has it, for any number of them."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from tests.agreement.cases import make_case, make_message, same_bits
from tests.agreement.test_blocks import data_of
from tests.helpers.clusters import client_of
from tests.helpers.problems import prior_for

from sparsefactor.data import as_data
from sparsefactor.data.tiles import tile_rows
from sparsefactor.design import design_of
from sparsefactor.engine import build_engine
from sparsefactor.engine.dask.engine import DaskEngine
from sparsefactor.engine.dask.futures import block_bounds
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
    correlation = "learnt" if "correlated" in kind else "none"
    noise = "sample" if kind == "by sample" else "feature"
    prior = prior_for(4, inclusion=inclusion, noise=noise, correlation=correlation)
    if kind == "groups":
        prior = replace(prior, groups=np.repeat(["a", "b"], [1500, 600]))
    if kind == "modules":
        prior = replace(prior, n_modules=3)
    if "covariates" in kind:
        data = replace(data, design=design_of(AGE, data.sample_names, center=True, holes=missing > 0, loadings="slab"))
    return data, prior


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize(
    "kind", ["learnt", "by row", "groups", "modules", "by sample", "covariates", "correlated", "correlated, covariates"]
)
def test_draws(monkeypatch, missing, kind):
    monkeypatch.setattr("sparsefactor.engine.blocks.SPANS", 3)  # of tiles of masked data, so that three may hold them
    monkeypatch.setattr("sparsefactor.engine.blocks.TILES_OF_A_SPAN", 1)
    data, prior = problem(kind, missing)
    expected = chain(build_engine(data, prior), data, prior, 4)
    for n in (1, 2, 4):
        engine = DaskEngine(data, prior, client_of(n))
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
        assert same_bits(verbs_of(DaskEngine(case.data, case.prior, client_of(n)), case), expected)


def test_sums_of_many_blocks_are_added_up_by_tasks(monkeypatch):
    monkeypatch.setattr("sparsefactor.engine.dask.futures.FAN_IN", 2)
    case = make_case("many tiles, complete", "feature", per_row=True)
    engine = DaskEngine(case.data, case.prior, client_of(5))
    assert len(engine.cluster.bounds) == 5
    assert same_bits(verbs_of(engine, case), verbs_of(build_engine(case.data, case.prior), case))


def test_a_state_that_was_sent_anew_is_the_same(monkeypatch):
    """After each task, so that nothing depends on how it was made."""
    monkeypatch.setattr("sparsefactor.engine.dask.futures.LINEAGE", 1)
    monkeypatch.setattr("sparsefactor.engine.dask.futures.SAVING", 1e9)
    data, prior = problem("learnt", 0.0)
    engine = DaskEngine(data, prior, client_of(2))
    assert same_bits(chain(engine, data, prior, 3), chain(build_engine(data, prior), data, prior, 3))
    rows = engine.gibbs_place(np.ones((2100, 4)))
    assert rows.tasks == 0
    with client_of(2).as_current():
        story = client_of(2).story(*rows.futures)
    assert not any("gibbs_place" in str(line) for line in story)


def test_sparse_data_stay_sparse():
    rng = np.random.default_rng(0)
    data = as_data(sparse.random(12, 2100, 0.1, random_state=0, format="csr"), center=True)
    prior = prior_for(4, inclusion=Beta(1.0, 2.0))
    engine, whole = DaskEngine(data, prior, client_of(3)), build_engine(data, prior)
    blocks = client_of(3).gather(engine.cluster.blocks)
    assert all(block.data.is_sparse for block in blocks)
    L = rng.standard_normal((2100, 4))
    states = [CAVI(data, prior, own).start(L, rng_F) for own, rng_F in ((engine, L[:12].T), (whole, L[:12].T))]
    assert states[0].elbo == pytest.approx(states[1].elbo, rel=1e-12)
    assert np.allclose(engine.start_matrix().gram(), whole.start_matrix().gram(), rtol=1e-10)


def test_every_verb_is_sent():
    """But for those that no row has a part in."""
    alone = {"with_prior", "with_threads", "moves", "scope", "row_noise", "vi_activations", "gibbs_activations",
             "vi_shortcut", "gibbs_shortcut"}  # fmt: skip
    names = {name for kind in (Verbs, Engine) for name, value in vars(kind).items() if callable(value)}
    assert {name for name in names if not name.startswith("_")} - alone - set(vars(DaskEngine)) <= set(KINDS)


@pytest.mark.parametrize("G", [1, 448, 5000, 200_000])
@pytest.mark.parametrize("masked", [False, True])
def test_blocks_are_whole_tiles(G, masked):
    for n in (1, 3, 64):
        bounds = block_bounds(G, 50, n, masked)
        assert [own.start for own in bounds[1:]] == [own.stop for own in bounds[:-1]]
        assert (bounds[0].start, bounds[-1].stop) == (0, G)
        assert all(own.start % tile_rows(G, 50) == 0 for own in bounds)
        assert len(bounds) <= n


def test_what_nobody_holds_is_let_go():
    """On workers, and by the scheduler, which remembers tasks until their results are not needed any more."""
    case = make_case("many tiles", "feature")
    client = client_of(2)
    engine = DaskEngine(case.data, case.prior, client)

    def n_tasks() -> int:
        return client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))

    counts = []
    for _ in range(5):
        rows = engine.vi_place(np.ones((2100, 9)))
        engine.vi_counts(rows)
        time.sleep(0.2)
        counts.append(n_tasks())
    assert counts[-1] <= counts[0]


def test_an_error_on_a_worker_is_raised_and_the_next_call_works():
    case = make_case("many tiles", "feature")
    engine = DaskEngine(case.data, case.prior, client_of(3))
    rows = engine.vi_place(np.ones((2100, 9)))
    with pytest.raises((ValueError, IndexError)):
        engine.vi_take(rows, np.array([17]), np.ones(1))
    assert np.array_equal(engine.vi_counts(rows)[0], np.full(9, 2100.0))
