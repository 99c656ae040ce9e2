"""Data larger than the memory of a device, which come by block of rows: the same passes, moves, verbs and fits."""

from __future__ import annotations

import numpy as np
import pytest
from tests.agreement.cases import make_case

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine import build_engine, devices
from sparsefactor.engine.jax_engine import JaxEngine
from sparsefactor.engine.jax_streamed import StreamedJaxEngine
from sparsefactor.gibbs.moves import moves_for
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.vi.cavi import CAVI

CASE = make_case("plain", "feature")
G, N, K = 50, 24, 3


def data_of(missing: float):
    X = sf.simulate(n_features=G, n_samples=N, inclusion=[0.3, 0.3, 0.8], snr=5, seed=0).X
    if missing:
        X = np.where(np.random.default_rng(1).random(X.shape) < missing, np.nan, X)
    return as_data(X)


def climbed(engine, n=3):
    """ELBO's terms and rows after a few iterations."""
    rng = np.random.default_rng(0)
    with engine.scope():
        cavi = CAVI(engine.data, engine.prior, engine, joint=True)
        state = cavi.start(rng.standard_normal((G, K)), rng.standard_normal((K, N)))
        for _ in range(n):
            state = cavi.sweep(state, rescale=True)
        return (*state.terms, *engine.vi_fetch(state.rows)[:4])


def drawn(engine, n=3):
    """The log joints and the draw after a few sweeps with every move."""
    rng = np.random.default_rng(0)
    gibbs = Gibbs(engine.data, engine.prior, engine, moves_for(engine))
    state, told = gibbs.start(rng.standard_normal((G, K)), rng.standard_normal((K, N))), []
    for sweep in range(n):
        state, info = gibbs.sweep(state, (3, 4), 20 * sweep)
        told.append(info.log_joint)
    return (*told, *engine.gibbs_fetch(state.rows)[:3], np.asarray(state.F))


def same(found, expected, rtol=1e-9):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-9)


def priors():
    return {"plain": sf.Prior(n_factors=K), "by row": sf.Prior(inclusion=np.linspace(0.1, 0.9, G * K).reshape(G, K))}


def test_a_pass_is_that_of_the_oracle():
    data, prior = data_of(0.0), priors()["plain"]
    streamed = StreamedJaxEngine(data, prior, block=25)
    same(climbed(streamed), climbed(ReferenceEngine(data, prior)))
    assert streamed.problem.Y.shape[0] == 0, "the matrix is not kept on the device"


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("structure", ["plain", "by row"])
def test_passes_and_moves_are_those_of_the_oracle(missing, structure):
    """Blocks of 20, 20 and 10 rows."""
    data, prior = data_of(missing), priors()[structure]
    streamed, oracle = StreamedJaxEngine(data, prior, block=20), ReferenceEngine(data, prior)
    same(climbed(streamed), climbed(oracle))
    same(drawn(streamed), drawn(oracle), rtol=1e-7)


@pytest.mark.parametrize("missing", [0.0, pytest.param(0.1, marks=pytest.mark.slow)])
def test_verbs_are_those_of_data_on_the_device(missing):
    data, prior = data_of(missing), sf.Prior(n_factors=K)
    found = []
    for engine in (StreamedJaxEngine(data, prior, block=25), JaxEngine(data, prior)):
        matrix = engine.start_matrix()
        V = np.linspace(-1, 1, N * K).reshape(N, K)
        L = matrix.times(V)
        own = [matrix.gram(), matrix.feature_gram(), np.asarray(L), matrix.back(L), matrix.power(V)]
        if missing:
            filled, *told = matrix.filled(L, V)
            own += [*told, filled.gram()]
        rows = engine.vi_place(L)
        found.append([*own, engine.vi_column_rss(rows, V.T), engine.vi_likelihood(rows, V.T)])
    same(*found)


def test_what_has_no_room_on_the_device_is_streamed_and_fits_the_same(monkeypatch):
    X = sf.simulate(n_features=600, n_samples=40, inclusion=[0.3, 0.3, 0.8], snr=5, seed=0).X
    data, prior = as_data(X), sf.Prior(n_factors=K)
    options = {"n_factors": K, "n_trials": 2, "init": "varimax", "tol": 1e-4, "backend": "jax"}
    whole = sf.fit_vi(X, **options)
    needed = devices.bytes_needed(data, prior, 8)
    monkeypatch.setattr(devices, "room_of", lambda device: needed - 8 * 200 * 40)
    assert devices.rows_at_a_time(data, prior) == 60
    assert build_engine(data, prior, "jax").block == 60
    streamed = sf.fit_vi(X, **options)
    assert streamed.elbo == pytest.approx(whole.elbo, abs=1e-3)
    np.testing.assert_allclose(streamed.loadings_mean, whole.loadings_mean, atol=1e-3)


@pytest.mark.slow
def test_half_precision_and_covariates_can_be_streamed(monkeypatch):
    data, age = data_of(0.1), np.random.default_rng(2).standard_normal((N, 1))
    X = np.where(data.observed, data.Y, np.nan).T
    options = {"n_factors": K, "n_trials": 1, "init": "varimax", "tol": 1e-3, "backend": "jax", "covariates": age}
    for dtype in (None, np.float16):
        fits = [sf.fit_vi(X, dtype=dtype, **options)]
        with monkeypatch.context() as patch:
            patch.setattr("sparsefactor.engine.rows_at_a_time", lambda *_: 20)
            fits.append(sf.fit_vi(X, dtype=dtype, **options))
        assert fits[1].elbo == pytest.approx(fits[0].elbo, rel=1e-6)
