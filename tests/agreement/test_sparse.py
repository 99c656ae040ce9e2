"""Rows that are held sparse, less a product of few dimensions, against the same rows held dense."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from tests.agreement.cases import (
    assert_close,
    assert_sums_close,
    gibbs_rows,
    make_case,
    make_message,
    same_bits,
    vi_rows,
)

from sparsefactor.data import Data
from sparsefactor.data.sparse import SparseRows
from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.kernels.contract import GibbsColumns, PrecisionNoise, RowStream
from sparsefactor.start import StartMaker

NOISES = ("feature", "sample")


class Pair(NamedTuple):
    case: object
    sparse: CpuEngine
    dense: CpuEngine


def thinned(data: Data, seed: int = 0) -> Data:
    """Data of the same shape: most of Y set to zero, and two directions taken off what is left."""
    rng = np.random.default_rng(seed)
    S = np.where(rng.random(data.Y.shape) < 0.2, data.Y, 0.0)
    S[3] = 0.0  # a row with nothing
    start = np.append(0, np.cumsum(np.count_nonzero(S, axis=1)))
    A, C = rng.standard_normal((len(S), 2)), np.vstack([np.ones(S.shape[1]), rng.standard_normal(S.shape[1])])
    return replace(data, Y=SparseRows(S[S != 0], np.nonzero(S)[1].astype(np.int32), start, A, C))


def pair(noise: str = "feature", **how) -> Pair:
    case = make_case("several tiles, complete", noise, **how)
    data = thinned(case.data)
    case = case._replace(data=data.dense())
    return Pair(case, CpuEngine(data, case.prior, 1), CpuEngine(case.data, case.prior, 1))


def test_rows_read_one_way_or_the_other_are_the_same():
    data = thinned(make_case("plain", "feature").data)
    Y, dense = data.Y, data.Y.dense()
    rng = np.random.default_rng(1)
    V, L = rng.standard_normal((Y.shape[1], 3)), rng.standard_normal((len(Y), 3))
    np.testing.assert_allclose(Y[5], dense[5])
    np.testing.assert_allclose(Y.times(V), dense @ V, atol=1e-12)
    np.testing.assert_allclose(Y.back(L), dense.T @ L, atol=1e-12)
    np.testing.assert_allclose(Y.feature_gram(), dense @ dense.T, atol=1e-11)
    np.testing.assert_allclose((Y / 2.0).dense(), dense / 2.0)
    np.testing.assert_allclose(Y.less(L, V.T).dense(), dense - L @ V.T, atol=1e-12)
    for name in ("row_ss", "column_ss", "centred_ss", "unit_scale", "row_sum"):
        np.testing.assert_allclose(getattr(data, name), getattr(data.dense(), name), atol=1e-11, err_msg=name)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("groups", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_the_row_pass_of_vi_agrees(noise, groups):
    case, sparse, dense = pair(noise, groups=groups)
    message, rows = make_message(case, np.full(case.F.shape, 0.1)), vi_rows(case)
    (after, sums), (expected, wanted) = (engine.vi_row_pass(rows, message) for engine in (sparse, dense))
    for name in ("mu", "s2", "eta", "tau"):
        assert_close(getattr(after, name), getattr(expected, name), name)
    assert_sums_close(sums, wanted)


@pytest.mark.parametrize("noise", NOISES)
def test_the_row_pass_of_gibbs_agrees(noise):
    case, sparse, dense = pair(noise)
    message, rows = make_message(case, np.full(case.F.shape, 0.1)), gibbs_rows(case)
    stream = RowStream(np.uint64(1), np.uint64(2), np.uint64(3))
    (after, sums), (expected, wanted) = (engine.gibbs_row_pass(rows, message, stream) for engine in (sparse, dense))
    np.testing.assert_array_equal(after.Z, expected.Z)
    assert_close(after.L, expected.L, "L")
    assert_close(after.tau, expected.tau, "tau")
    assert_sums_close(sums, wanted)


def test_moves_open_the_same_rows():
    case, sparse, dense = pair()
    rows, K = gibbs_rows(case), case.prior.K
    columns = GibbsColumns(case.F, np.ones(K), case.logit, case.weight, np.full(K, 1.3))
    opened = [engine.open_move(rows, columns).blocks[0].B for engine in (sparse, dense)]
    assert_close(*opened, "B")
    stream = RowStream(np.uint64(1), np.uint64(2), np.uint64(3))
    noise = PrecisionNoise(5, 30, stream, np.random.default_rng(0).standard_normal(case.F.shape))
    (after, F), (expected, wanted) = (engine.gibbs_precisions(rows, columns, noise) for engine in (sparse, dense))
    np.testing.assert_array_equal(after.Z, expected.Z)
    assert_close(after.tau, expected.tau, "tau")
    assert_close(F, wanted, "F", 1e-8)


@pytest.mark.parametrize("name", ["ica", "varimax"])
def test_starts_agree(name):
    _, sparse, dense = pair()
    start, expected = (StartMaker(engine, 0).make(name, 0) for engine in (sparse, dense))
    np.testing.assert_allclose(start.L @ start.F, expected.L @ expected.F, atol=1e-7)


def test_threads_and_blocks_change_no_bit():
    case, sparse, _ = pair()
    message, rows = make_message(case, np.full(case.F.shape, 0.1)), vi_rows(case)
    after, sums = sparse.vi_row_pass(rows, message)
    parts = CpuEngine(sparse.data, case.prior, 2, cuts=(1,), _split_small=True)
    again, others = parts.vi_row_pass(rows, message)
    assert same_bits(after[:4], again[:4])
    assert same_bits(sums[:2], others[:2])
