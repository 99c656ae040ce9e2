"""What starts ask of every engine, against the formula written out; and starts in blocks, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from tests.agreement.cases import assert_close, make_case
from tests.agreement.engines import ENGINES

from sparsefactor.kernels.contract import RowStream
from sparsefactor.start import MADE, StartMaker

RNG = np.random.default_rng(0)
STREAM = RowStream(*map(np.uint64, (5, 6, 7)))


@pytest.fixture(params=ENGINES)
def build(request):
    return ENGINES[request.param]


def host(engine, L) -> np.ndarray:
    """Loadings of a start as an array."""
    return engine.vi_fetch(engine.vi_place(L)).mu


@pytest.mark.parametrize("shape", ["several tiles", "several tiles, complete"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_matrix(build, shape, dtype):
    case = make_case(shape, "feature", dtype=dtype)
    engine, seen = build(case.data, case.prior), case.data.observed
    matrix = engine.start_matrix()
    Y = case.data.Y.astype(np.float64)
    assert matrix.scale == pytest.approx(np.sqrt(np.sum(Y**2) / case.data.n_observed), rel=1e-6)
    Y /= matrix.scale
    V, L = RNG.standard_normal((17, 9)), RNG.standard_normal((1000, 9))
    filled = [(matrix, Y)]
    if seen is not None:
        new = np.where(seen, Y, L @ V.T)
        other, change, size = matrix.filled(L, V)
        assert change == pytest.approx(np.sum((new - Y) ** 2))
        assert size == pytest.approx(np.sum(new[~seen] ** 2))
        again, change, _ = other.filled(2 * L, V)
        assert change == pytest.approx(size)  # from L V' to twice that
        filled += [(other, new), (again, np.where(seen, Y, 2 * L @ V.T))]
    for own, values in filled:
        assert_close(own.gram(), values.T @ values, "gram")
        assert_close(own.feature_gram(), values @ values.T, "gram of features")
        assert_close(host(engine, own.times(V)), values @ V, "times")
        assert_close(own.back(L), values.T @ L, "back")


def test_loadings(build):
    case = make_case("several tiles", "feature")
    engine = build(case.data, case.prior)
    L, T = RNG.standard_normal((1000, 4)), RNG.standard_normal((4, 9))
    assert_close(host(engine, engine.start_turn(L, T)), L @ T, "turn")
    joined = host(engine, engine.start_join(L, engine.start_normals(5, 2.0, STREAM)))
    assert np.array_equal(joined[:, :4], L)
    assert_close(engine.start_products(L), L.T @ L, "products")
    x = L @ T
    products, slopes = engine.start_bend(L, T, "cube")
    assert_close(products, L.T @ x**3, "cube")
    assert_close(slopes, (3 * x**2).sum(axis=0), "slope")
    products, slopes = engine.start_bend(L, T, "tanh")
    assert_close(products, L.T @ np.tanh(x), "tanh")
    assert_close(slopes, (1 / np.cosh(x) ** 2).sum(axis=0), "slope")


def test_random_loadings_are_named_by_row(build):
    case = make_case("several tiles", "feature")
    engine = build(case.data, case.prior)
    normals = host(engine, engine.start_normals(9, 2.0, STREAM))
    assert abs(normals.std() - 2.0) < 0.1
    assert abs(normals.mean()) < 0.1
    assert np.unique(normals).size == normals.size
    few = make_case("tenth missing", "feature")  # 150 rows: the first of the same
    short = build(few.data, case.prior)
    assert_close(host(short, short.start_normals(9, 2.0, STREAM)), normals[:150], "rows")


@pytest.mark.parametrize("name", MADE)
def test_blocks_do_not_change_a_start(name):
    case = make_case("several tiles", "feature")
    whole, parts = (
        StartMaker(ENGINES[kind](case.data, case.prior), 0).make(name, 3) for kind in ("cpu", "cpu in blocks")
    )
    assert np.array_equal(whole.L, parts.L)
    assert np.array_equal(whole.F, parts.F)
