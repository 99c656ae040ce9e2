"""Small problems and random states for them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sparsefactor.data import Data, as_data
from sparsefactor.gibbs.sweep import GibbsState
from sparsefactor.kernels.contract import NONE, GibbsRows, VIColumns, VIRows
from sparsefactor.model import Beta, Prior
from sparsefactor.vi.cavi import CAVI, VIState

MILD = {"noise_shape": 3.0, "noise_rate": 2.0, "loading_shape": 3.0, "loading_rate": 3.0}


def small_data(G: int = 6, N: int = 5, K: int = 2, *, missing: float = 0.0, seed: int = 0, noise: float = 0.5) -> Data:
    """A data set of K sparse factors, with some entries missing but none of a row or column entirely."""
    rng = np.random.default_rng(seed)
    L = rng.standard_normal((G, K)) * (rng.random((G, K)) < 0.6)
    X = (L @ rng.standard_normal((K, N)) + noise * rng.standard_normal((G, N))).T
    if missing:
        hole = rng.random(X.shape) < missing
        hole[np.arange(N), np.arange(N) % G] = False
        hole[np.arange(G) % N, np.arange(G)] = False
        X[hole] = np.nan
    return as_data(X)


def prior_for(
    K: int, *, inclusion: Any = 0.4, noise: Any = "feature", groups: Any = None, correlation: str = "none", **hyper: Any
) -> Prior:
    given = {"inclusion": inclusion, "noise": noise, "groups": groups, "factor_correlation": correlation}
    return Prior(n_factors=K, **given, **(hyper or MILD))


def by_group(prior: Prior) -> tuple[int, ...]:
    """The shape of what belongs to groups."""
    return (prior.K, len(prior.group_names)) if prior.grouped else (prior.K,)


def random_correlation(K: int, rng: np.random.Generator) -> np.ndarray:
    """(K, K) a correlation matrix far from the identity."""
    return np.corrcoef(rng.standard_normal((K, 2 * K)))


def random_vi_state(cavi: CAVI, seed: int = 0) -> VIState:
    """A q that no update has touched yet."""
    rng = np.random.default_rng(seed)
    G, N, K = cavi.data.n_features, cavi.data.n_samples, cavi.prior.K
    rows = VIRows(
        mu=rng.standard_normal((G, K)),
        s2=rng.gamma(3.0, 0.2, (G, K)),
        eta=rng.uniform(0.05, 0.95, (G, K)),
        tau=rng.gamma(3.0, 0.5, G) if cavi.prior.noise == "feature" else np.ones(G),
    )
    if cavi.joint:
        root = rng.standard_normal((cavi.n_covariances(), K, K)) / np.sqrt(K)
        f_var = root @ root.transpose(0, 2, 1) + 0.1 * np.eye(K)
    else:
        f_var = rng.gamma(3.0, 0.2, (K, N))
    shared = np.ones(N) if cavi.prior.noise == "shared" else rng.gamma(3.0, 1.0, N)
    learnt = isinstance(cavi.prior.inclusion, Beta)
    columns = VIColumns(
        f_mean=rng.standard_normal((K, N)),
        f_var=f_var,
        tau_shape=5.0 * np.ones(N) if cavi.prior.noise != "feature" else np.zeros(0),
        tau_rate=4.0 * shared if cavi.prior.noise != "feature" else np.zeros(0),
        alpha_shape=rng.gamma(5.0, 1.0, by_group(cavi.prior)),
        alpha_rate=rng.gamma(5.0, 1.0, by_group(cavi.prior)),
        pi_a=rng.gamma(5.0, 1.0, by_group(cavi.prior)) if learnt else np.zeros(0),
        pi_b=rng.gamma(5.0, 1.0, by_group(cavi.prior)) if learnt else np.zeros(0),
        phi=random_correlation(K, rng) if cavi.prior.correlated else NONE,
    )
    return cavi.finish(rows, columns, np.ones(K))


def random_gibbs_state(data: Data, prior: Prior, seed: int = 0) -> GibbsState:
    """A state that no sweep has touched yet."""
    rng = np.random.default_rng(seed)
    G, N, K = data.n_features, data.n_samples, prior.K
    Z = (rng.random((G, K)) < 0.5).astype(np.int8)
    column_noise = prior.noise != "feature"
    tau = rng.gamma(3.0, 0.5, N)
    if prior.noise == "shared":
        tau[:] = tau[0]
    return GibbsState(
        rows=GibbsRows(
            Z=Z, L=Z * rng.standard_normal((G, K)), tau=np.ones(G) if column_noise else rng.gamma(3.0, 0.5, G)
        ),
        F=rng.standard_normal((K, N)),
        alpha=rng.gamma(3.0, 0.5, by_group(prior)),
        pi=rng.uniform(0.2, 0.8, by_group(prior)) if prior.learns_inclusion else np.zeros(0),
        tau=tau if column_noise else np.zeros(0),
        scale=rng.uniform(0.5, 2.0, K),
        phi=random_correlation(K, rng) if prior.correlated else np.zeros(0),
    )


def quick(settings, step):
    """Of these parameters every so manyth, and all others where slow tests run."""
    return [
        one if n % step == 0 else pytest.param(*one.values, id=one.id, marks=pytest.mark.slow)
        for n, one in enumerate(settings)
    ]
