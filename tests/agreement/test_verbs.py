"""Every verb on rows, for every engine, against the formula written out on fetched arrays."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import digamma
from tests.agreement.cases import assert_close, gibbs_rows, make_case, make_message, vi_rows
from tests.agreement.engines import ENGINES

from sparsefactor.densities import LOG_2PI
from sparsefactor.design import Design
from sparsefactor.engine.pinned import PinnedEngine, extended
from sparsefactor.gibbs.moves import MOVES, moves_for
from sparsefactor.kernels.contract import (
    MOVE_NAMES,
    TRIES,
    ColumnNoise,
    GibbsColumns,
    GibbsRows,
    PrecisionNoise,
    RotationNoise,
    RowStream,
    ShearNoise,
)
from sparsefactor.kernels.verbs import Verbs
from sparsefactor.model import Beta

SHAPE = "several tiles"
STREAM = RowStream(*map(np.uint64, (5, 6, 7)))
RNG = np.random.default_rng(0)
ORDER = np.array([3, 0, 1, 2, 8, 7, 6, 5, 4])


@pytest.fixture(params=ENGINES, scope="module")
def made(request):
    """Case, engine, and the engine's own rows of both methods after a pass; verbs leave what they are given."""
    case = make_case(SHAPE, "feature", per_row=False)
    engine = ENGINES[request.param](case.data, case.prior)
    message = make_message(case, np.full(case.F.shape, 0.1))
    rows, _ = engine.vi_row_pass(vi_rows(case), message)
    draw, _ = engine.gibbs_row_pass(gibbs_rows(case), message, engine.row_noise((3, 4), 5))
    return case, engine, rows, draw, message


def test_every_verb_is_provided_and_says_what_it_does(made):
    engine = made[1]
    verbs = [name for name, value in vars(Verbs).items() if inspect.isfunction(value) and not name.startswith("_")]
    assert len(verbs) > 20
    for name in verbs:
        assert inspect.getdoc(getattr(engine, name)), name
    assert isinstance(engine.name, str)


@pytest.mark.parametrize("kind", ENGINES)
def test_an_engine_says_which_moves_it_has(kind, monkeypatch):
    for shape, noise, extra in (
        ("plain", "feature", {"noise"}),
        ("tenth missing", "feature", {"noise"}),
        ("plain", "sample", set()),
    ):
        case = make_case(shape, noise)
        engine = ENGINES[kind](case.data, case.prior)
        assert set(engine.moves) == {"scale", "rotation", "shear", "column"} | extra
        assert [move.name for move in moves_for(engine)] == list(engine.moves)
    with pytest.raises(ValueError, match=f"for '{engine.name}' .*; got 'noise'; leave it out"):
        moves_for(engine, ["scale", "noise"])
    case = make_case("plain", "feature")
    inner = ENGINES[kind](case.data, extended(case.prior, 1))
    assert "noise" in inner.moves
    given = replace(case.data, design=Design(np.ones((1, 20)), True, None))
    # On workers a design is the business of their own engines.
    beside = ("noise",) if kind != "on workers" else ()
    assert PinnedEngine(inner, given, case.prior).moves == ("scale", "rotation", "shear", "column", *beside)
    monkeypatch.setattr("sparsefactor.engine.own_parts.SMALL", 150 * 20)
    if kind != "reference":  # which has it of data of any size
        assert PinnedEngine(inner, given, case.prior).moves == ("scale", "rotation", "shear", "column")
        case = make_case("tenth missing", "feature")
        assert ENGINES[kind](case.data, case.prior).moves == ("scale", "rotation", "shear", "column")


def test_every_move_has_its_name():
    assert tuple(MOVES) == MOVE_NAMES


def test_place_and_fetch(made):
    _, engine, _, draw, _ = made
    L = RNG.standard_normal((1000, 9)) * (RNG.random((1000, 9)) < 0.5)
    Z = (L != 0).astype(np.int8)
    placed = engine.vi_fetch(engine.vi_place(L, Z))
    assert np.array_equal(placed.mu, L)
    assert np.array_equal(placed.eta, Z)
    assert np.all(engine.vi_fetch(engine.vi_place(L)).eta == 1.0)
    rows = engine.gibbs_fetch(engine.gibbs_place(L))
    assert np.array_equal(rows.L, L)
    assert np.array_equal(rows.Z, Z)
    scale = RNG.uniform(0.5, 2.0, 9)
    assert_close(engine.gibbs_fetch(draw, scale).L, engine.gibbs_fetch(draw).L * scale, "L")
    back = engine.gibbs_fetch(engine.gibbs_return(engine.gibbs_fetch(draw)))
    assert all(np.array_equal(a, b) for a, b in zip(back, engine.gibbs_fetch(draw), strict=True))


def test_sums_over_draws(made):
    case, engine, _, draw, _ = made
    L, scale, F = engine.gibbs_fetch(draw).L, RNG.uniform(0.5, 2.0, 9), RNG.standard_normal(case.F.shape)
    tally = engine.gibbs_tally_add(engine.gibbs_tally(), draw, scale, case.F)
    total = engine.gibbs_tally_fetch(tally).copy()
    assert_close(total, ((L * scale) @ case.F).T, "one draw")
    again = engine.gibbs_tally_return(total.copy())
    sums = [engine.gibbs_tally_fetch(engine.gibbs_tally_add(own, draw, scale, F)) for own in (tally, again)]
    assert_close(sums[0], total + ((L * scale) @ F).T, "two draws")
    assert np.array_equal(*sums)


def test_factors(made):
    _, engine, rows, _, _ = made
    host = engine.vi_fetch(rows)
    signs = np.where(np.arange(9) % 2, -1.0, 1.0)
    taken = engine.vi_fetch(engine.vi_take(rows, ORDER, signs))
    assert np.array_equal(taken.mu, host.mu[:, ORDER] * signs)
    assert np.array_equal(taken.s2, host.s2[:, ORDER])
    assert np.array_equal(taken.eta, host.eta[:, ORDER])
    cleared = engine.vi_fetch(engine.vi_clear(rows, 4))
    assert not np.any(cleared.mu[:, 4])
    assert not np.any(cleared.eta[:, 4])
    assert np.array_equal(np.delete(cleared.mu, 4, axis=1), np.delete(host.mu, 4, axis=1))
    T = np.eye(9) + 0.1 * RNG.standard_normal((9, 9))
    turned = engine.vi_fetch(engine.vi_turn(rows, T))
    sure = host.eta > 0.5
    assert 0 < sure.sum() < sure.size
    assert_close((turned.mu * host.eta)[sure], ((host.eta * host.mu) @ T)[sure], "mu")
    assert np.array_equal(turned.mu[~sure], host.mu[~sure])


def test_draws_from_q_and_back(made):
    _, engine, rows, draw, _ = made
    host = engine.vi_fetch(rows)
    drawn = engine.gibbs_fetch(engine.vi_draw(rows, STREAM))
    assert np.array_equal(drawn.L, np.where(drawn.Z, host.mu, 0.0))
    assert abs(drawn.Z.mean() - host.eta.mean()) < 0.02
    assert np.array_equal(drawn.Z, engine.gibbs_fetch(engine.vi_draw(rows, STREAM)).Z)
    other = RowStream(*map(np.uint64, (5, 6, 8)))
    assert not np.array_equal(drawn.Z, engine.gibbs_fetch(engine.vi_draw(rows, other)).Z)
    at = engine.vi_fetch(engine.vi_at_draw(draw, np.full(9, 2.0)))
    own = engine.gibbs_fetch(draw)
    assert np.array_equal(at.mu, 2.0 * own.L)
    assert np.array_equal(at.eta, own.Z)


def test_a_start_around_q(made):
    case, engine, rows, _, _ = made
    host, rate = engine.vi_fetch(rows), RNG.uniform(0.2, 0.8, 9)

    def scattered(rates, spread, redrawn, stream=STREAM):
        return engine.vi_fetch(engine.vi_place(engine.vi_scatter(rows, rates, spread, redrawn, stream))).mu

    still = scattered(rate, 0.0, 0.0)
    assert np.array_equal(still, np.where(still != 0, host.mu, 0.0))
    assert abs(np.mean(still != 0) - host.eta.mean()) < 0.02
    wide = scattered(rate, 3.0, 0.0)
    assert np.array_equal(wide != 0, still != 0)
    z = ((wide - host.mu) / np.sqrt(host.s2))[wide != 0]
    assert abs(z.std() - 3.0) < 0.2
    assert np.all(np.abs(np.mean(scattered(rate, 1.0, 1.0) != 0, axis=0) - rate) < 0.08)
    given = np.mean(scattered(np.zeros(0), 1.0, 1.0) != 0, axis=0)
    assert np.all(np.abs(given - case.prior.inclusion_matrix()[0]) < 0.08)
    assert np.array_equal(wide, scattered(rate, 3.0, 0.0))
    assert not np.array_equal(wide, scattered(rate, 3.0, 0.0, RowStream(*map(np.uint64, (5, 6, 8)))))


def test_reductions(made):
    case, engine, rows, draw, message = made
    host, own, Y, seen = engine.vi_fetch(rows), engine.gibbs_fetch(draw), case.data.Y, case.data.observed
    mean = host.eta * host.mu
    active, l2 = engine.vi_counts(rows)
    assert_close(active, host.eta.sum(axis=0), "active")
    assert_close(l2, (host.eta * (host.mu**2 + host.s2)).sum(axis=0), "l2")
    active, l2 = engine.gibbs_counts(draw)
    assert np.array_equal(active, own.Z.sum(axis=0))
    assert_close(l2, (own.L**2).sum(axis=0), "l2")
    assert_close(engine.vi_content(rows), (mean**2).sum(axis=0), "content")
    rss = (seen * (Y - mean @ case.F) ** 2).sum(axis=0)
    assert_close(engine.vi_column_rss(rows, case.F), rss, "rss")
    assert_close(engine.gibbs_column_rss(draw, case.F), (seen * (Y - own.L @ case.F) ** 2).sum(axis=0), "rss")
    shape = case.prior.noise_shape + 0.5 * seen.sum(axis=1)
    log_tau = digamma(shape) - np.log(shape / host.tau)
    density = 0.5 * (seen * (log_tau[:, None] - LOG_2PI - host.tau[:, None] * (Y - mean @ case.F) ** 2)).sum()
    assert engine.vi_likelihood(rows, case.F) == pytest.approx(density, rel=1e-9)
    gain = engine.vi_assignment_gain(rows, message)
    factor = 0.5 * (message.log_alpha + np.log(host.s2) + host.mu**2 / host.s2)
    pi = case.prior.inclusion_matrix()[0]
    for k, p in ((0, 0), (2, 5), (8, 1)):
        assert gain[k, p] == pytest.approx(np.log(1 - pi[p] + pi[p] * np.exp(factor[:, k])).sum(), rel=1e-9)


def test_shears(made):
    _, engine, rows, _, message = made
    host = engine.vi_fetch(rows)
    used = host.eta > 0.5
    shears = engine.vi_shears(rows, message)
    assert np.array_equal(shears.shared, used.T.astype(float) @ used)
    k, q = 0, 1
    v = 1.0 / (1.0 / host.s2[:, q] - message.alpha[q])
    m = host.mu[:, q] / host.s2[:, q] * v

    def direct(steps):
        """log of the spike-and-slab marginal of what a row's likelihood says of l_q, sheared, over rows that use k."""
        at = (m[:, None] - (host.eta * host.mu)[:, [k]] * steps)[used[:, k]]
        own, wide = v[used[:, k]][:, None], (v + 1.0 / message.alpha[q])[used[:, k]][:, None]
        slab = message.logit[0, q] - 0.5 * np.log(wide / own) - 0.5 * at**2 / wide
        return np.logaddexp(-0.5 * at**2 / own, slab).sum(axis=0)

    steps = np.linspace(-0.3, 0.3, 7)
    assert_close(shears.profile(k, q, steps), direct(steps), "profile")
    shears.apply(k, q, 0.1)
    assert_close(shears.profile(k, q, steps), direct(steps + 0.1), "after a shear")


def test_loadings_on_a_designs_directions(made):
    case, engine, rows, draw, _ = made
    host, own, seen, d = engine.vi_fetch(rows), engine.gibbs_fetch(draw), case.data.observed, 2
    variance = host.eta * (host.mu**2 + host.s2) - (host.eta * host.mu) ** 2
    assert_close(engine.vi_spread(rows), seen.T.astype(float) @ (host.tau[:, None] * variance), "spread")
    base, slide = RNG.standard_normal((1000, d)), RNG.standard_normal((9, d))
    moved = engine.vi_fetch(engine.vi_slide(host._replace(base=base), slide))
    assert_close(moved.base, base + (host.eta * host.mu) @ slide, "base")
    scale = RNG.uniform(0.5, 2.0, 9)
    LL, Lb = engine.gibbs_products(own._replace(base=base), scale)
    assert_close(LL, (own.L * scale).T @ (own.L * scale), "LL")
    assert_close(Lb, (own.L * scale).T @ base, "L'base")
    slid = engine.gibbs_fetch(engine.gibbs_slide(own._replace(base=base), slide))
    assert_close(slid.base, base + own.L @ slide, "base")


def test_modules(made):
    _, engine, rows, draw, _ = made
    host, own, M = engine.vi_fetch(rows), engine.gibbs_fetch(draw), 3
    sorting = engine.vi_sortings(rows, M, np.random.default_rng(1))[-1]
    sorted_rows, members, active_in = engine.vi_sort(rows, sorting)
    member = engine.vi_fetch(sorted_rows).member
    assert np.allclose(member.sum(axis=1), 1.0)
    assert np.array_equal(engine.vi_sort(rows, engine.vi_unsorted(M))[1], [1000, 0, 0])
    assert_close(members, member.sum(axis=0), "members")
    assert_close(active_in, host.eta.T @ member, "active_in")
    assert np.array_equal(engine.vi_fetch(sorted_rows).within[:, :, 1], host.eta)
    swapped = engine.vi_fetch(engine.vi_order_modules(sorted_rows, np.array([2, 0, 1])))
    assert np.array_equal(swapped.member, member[:, [2, 0, 1]])
    dealt = engine.gibbs_fetch(engine.gibbs_deal(draw, M))
    assert np.array_equal(np.bincount(dealt.member), [334, 333, 333])
    assert np.array_equal(dealt.L, own.L)
    pi, w = RNG.uniform(0.1, 0.9, (9, M)), np.array([0.2, 0.3, 0.5])
    drawn = engine.gibbs_members(draw, pi, w, STREAM)
    c = engine.gibbs_fetch(drawn).member
    p = w * np.prod(np.where(own.Z[:, :, None], pi, 1 - pi), axis=1)
    expected = (p / p.sum(axis=1, keepdims=True)).sum(axis=0)
    assert np.all(np.abs(np.bincount(c, minlength=M) - expected) < 80)
    size, active = engine.gibbs_module_counts(drawn, M)
    assert np.array_equal(size, np.bincount(c, minlength=M))
    assert np.array_equal(active[:, 1], own.Z[c == 1].sum(axis=0))


@pytest.mark.parametrize("kind", ENGINES)
def test_rows_in_modules_have_their_modules_odds(kind):
    """A pass and every move, as if each row's odds had been given."""
    case = make_case("plain", "feature")
    prior = replace(case.prior, inclusion=Beta(1, 1), n_modules=3)
    message, odds = make_message(case, np.zeros(case.F.shape)), RNG.normal(0.0, 2.0, (3, 5))
    found = []
    for modules in (True, False):
        engine = ENGINES[kind](case.data, prior)
        plain = gibbs_rows(case)
        rows, member = engine.gibbs_deal(plain, 3), np.arange(150) % 3
        rows, logit = (rows, odds) if modules else (plain, odds[member])
        after, sums = engine.gibbs_row_pass(rows, message._replace(logit=logit), engine.row_noise((3, 4), 5))
        rng, made = np.random.default_rng(0), [engine.gibbs_fetch(after), *sums]
        columns = GibbsColumns(case.F, message.alpha, logit, np.ones(20), message.scale)
        for name, move in MOVES_OF_ROWS.items():
            after, *rest = getattr(engine, name)(after, columns, move(rng))
            made += [engine.gibbs_fetch(after), *(rest[:1] if name == "gibbs_columns" else rest)]
        assert len(engine.gibbs_fetch(after).member) == 150 * modules
        found.append([np.asarray(v) for x in made for v in (x[:3] if isinstance(x, GibbsRows) else [x])])
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


def uniform_tries(rng, *shape):
    return rng.random((*shape, TRIES))


MOVES_OF_ROWS = {
    "gibbs_shear": lambda rng: ShearNoise(
        np.array([1, 3]), 0.05 * rng.standard_normal((2, 5, 2)), np.log(rng.random((2, 5, 2))), STREAM
    ),
    "gibbs_rotate": lambda rng: RotationNoise(
        np.array([[0, 2]]), np.ones(1), np.log(rng.random(1)), rng.random(1), uniform_tries(rng, 1), STREAM
    ),
    "gibbs_columns": lambda rng: ColumnNoise(
        np.array([2]), rng.standard_normal((1, 1, 2)), np.log(rng.random((1, 1))), np.log(rng.random((1, 1, 2))),
        rng.random((1, 1, 2)), uniform_tries(rng, 1, 1, 2), STREAM,
    ),
    "gibbs_precisions": lambda rng: PrecisionNoise(3, 2, STREAM, rng.standard_normal((5, 20))),
}  # fmt: skip


def test_another_prior_keeps_the_data_where_they_are(made):
    case, engine, _, _, _ = made
    smaller = engine.with_prior(case.prior.take(np.arange(4)))
    assert smaller.prior.K == 4
    assert smaller.name == engine.name
    if hasattr(engine, "blocks"):
        assert smaller.blocks is engine.blocks
