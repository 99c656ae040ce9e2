"""The compiled sampler and one written separately, a coordinate at a time, agree in the means of what has no label."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.plain_gibbs import PlainGibbs

import sparsefactor as sf
from sparsefactor.data import Data
from sparsefactor.engine import build_engine
from sparsefactor.gibbs.moves import MOVES
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.noise import stream_key

G, N, K = 8, 7, 2
NOISE_PRIOR, LOADING_PRIOR = (3.0, 2.0), (3.0, 2.0)
LIMIT = 4.5
BATCHES = 25
SWEEPS = 6000


def data_of(missing: float) -> np.ndarray:
    """(N, G) of two factors, of which some entries are missing."""
    rng = np.random.default_rng(3)
    L = rng.standard_normal((G, K)) * (rng.random((G, K)) < 0.6)
    X = (L @ rng.standard_normal((K, N)) + 0.6 * rng.standard_normal((G, N))).T
    hole = rng.random(X.shape) < missing
    hole[np.arange(N), np.arange(N) % G] = False
    hole[np.arange(G) % N, np.arange(G)] = False
    X[hole] = np.nan
    return X


def quantities(L, F, Z, tau, alpha, pi) -> np.ndarray:
    signal = L @ F
    return np.array(
        [
            Z.mean(),
            np.abs(L).mean(),
            np.mean(F**2),
            np.log(tau).mean(),
            np.log(alpha).mean(),
            np.mean(signal**2),
            signal[0, 0],
            signal[3, 2],
            np.mean(pi),
            Z.mean() * np.log(alpha).mean(),
        ]
    )


def plain_draws(X, noise, pi, beta) -> np.ndarray:
    sampler = PlainGibbs(X, K, noise=noise, noise_prior=NOISE_PRIOR, loading_prior=LOADING_PRIOR, pi=pi, beta=beta)
    found = []
    for sweep in range(SWEEPS + SWEEPS // 10):
        sampler.sweep()
        if sweep >= SWEEPS // 10:
            found.append(quantities(sampler.L, sampler.F, sampler.Z, sampler.T, sampler.alpha, sampler.pi))
    return np.array(found)


def compiled_draws(X, noise, inclusion, moves, bias=1.0) -> np.ndarray:
    observed = ~np.isnan(X).T
    data = Data(
        Y=np.ascontiguousarray(np.where(np.isnan(X), 0.0, X).T),
        observed=None if observed.all() else np.ascontiguousarray(observed),
        offset=np.zeros(G),
        feature_names=np.arange(G),
        sample_names=np.arange(N),
    )
    prior = sf.Prior(
        n_factors=K,
        inclusion=inclusion,
        noise=noise,
        noise_shape=NOISE_PRIOR[0],
        noise_rate=bias * NOISE_PRIOR[1],
        loading_shape=LOADING_PRIOR[0],
        loading_rate=LOADING_PRIOR[1],
        factor_correlation="none",
    )
    engine = build_engine(data, prior, "cpu", n_threads=1)
    gibbs = Gibbs(data, prior, engine, [MOVES[name]() for name in moves if name in engine.moves])
    rng = np.random.default_rng(0)
    state, key, found = gibbs.start(rng.standard_normal((G, K)), rng.standard_normal((K, N))), stream_key(0), []
    for sweep in range(SWEEPS + SWEEPS // 10):
        state, _ = gibbs.sweep(state, key, sweep)
        if sweep >= SWEEPS // 10:
            tau = state.tau[None, :] if len(state.tau) else state.rows.tau[:, None]
            pi = state.pi if len(state.pi) else prior.inclusion_matrix()
            found.append(
                quantities(
                    state.rows.L * state.scale, state.F, state.rows.Z, np.broadcast_to(tau, (G, N)), state.alpha, pi
                )
            )
    return np.array(found)


def z_scores(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Of the difference of means, their errors from the means of batches."""
    error = 0.0
    for draws in (one, other):
        batches = draws.reshape(BATCHES, -1, draws.shape[1]).mean(axis=1)
        error = error + batches.var(axis=0, ddof=1) / BATCHES
    difference = one.mean(axis=0) - other.mean(axis=0)
    return difference / np.sqrt(np.maximum(error, 1e-24))


CASES = [("feature", [0.3, 0.6], 0.0), ("feature", sf.Beta(2.0, 2.0), 0.3), ("shared", 0.4, 0.2), ("sample", 0.4, 0.0)]


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(("noise", "inclusion", "missing"), CASES)
def test_two_samplers_of_one_posterior_agree(noise, inclusion, missing):
    X = data_of(missing)
    learnt = isinstance(inclusion, sf.Beta)
    plain = plain_draws(
        X,
        noise,
        pi=None if learnt else np.broadcast_to(inclusion, K),
        beta=(inclusion.a, inclusion.b) if learnt else None,
    )
    for moves in ((), tuple(MOVES)):
        assert np.abs(z_scores(compiled_draws(X, noise, inclusion, moves), plain)).max() < LIMIT
    # Negative control: another prior rate of the noise is seen.
    assert np.abs(z_scores(compiled_draws(X, noise, inclusion, tuple(MOVES), bias=1.5), plain)).max() > LIMIT
