"""Simulation-based calibration (Talts and others, 2018): where the truth ranks among draws given data made from it.

Draw parameters from the prior and data from them, then run the sampler from other parameters. If it draws from the
posterior, the truth is one more draw from it: its rank is uniform, for every function of parameters and data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from tests.helpers.joint import draw_data, draw_prior

from sparsefactor.data import Data
from sparsefactor.gibbs.sweep import Gibbs, GibbsState
from sparsefactor.kernels.contract import Array
from sparsefactor.kernels.noise import stream_key
from sparsefactor.model import Beta, Prior

G, N, K = 8, 6, 2
HYPER = {"noise_shape": 4.0, "noise_rate": 3.0, "loading_shape": 4.0, "loading_rate": 3.0}
WARMUP, DRAWS, THIN = 40, 9, 6


class Setting(NamedTuple):
    kind: str
    noise: Any
    missing: float
    correlation: Any = "none"

    @property
    def prior(self) -> Prior:
        inclusion: Any = {
            "fixed": 0.4,
            "unequal": [0.2, 0.8],
            "matrix": np.linspace(0.1, 0.9, G * K).reshape(G, K),
            "learnt": Beta(2.0, 3.0),
            "modules": Beta(0.8, 1.2),
        }[self.kind]
        modules = 3 if self.kind == "modules" else 1
        return Prior(
            n_factors=K,
            inclusion=inclusion,
            n_modules=modules,
            noise=self.noise,
            factor_correlation=self.correlation,
            **HYPER,
        )

    def __str__(self) -> str:
        return f"{self.kind}-{self.noise}-{self.missing:.0%}" + ("" if self.correlation == "none" else "-correlated")


def settings() -> Iterator[Setting]:
    """Every kind of inclusion with every noise, the share of missing entries going round; one more; and three with
    correlated factors."""
    shares = (0.0, 0.2, 0.6)
    for i, kind in enumerate(("fixed", "unequal", "matrix", "learnt", "modules")):
        for j, noise in enumerate(("feature", "shared", "sample")):
            yield Setting(kind, noise, shares[(i + j) % 3])
    yield Setting("learnt", "feature", 0.6)
    for i, noise in enumerate(("feature", "shared", "sample")):
        yield Setting(("learnt", "unequal", "modules")[i], noise, shares[i], "learnt")


def draw_mask(missing: float, rng: np.random.Generator) -> np.ndarray | None:
    """Which entries are observed: at least one of every row and column, and not all."""
    if not missing:
        return None
    observed = rng.random((G, N)) >= missing
    observed[np.arange(G), rng.integers(N, size=G)] = True
    observed[rng.integers(G, size=N), np.arange(N)] = True
    if observed.all():
        observed[0, 0] = False
    return observed


def quantities(state: GibbsState, data: Data, rng: np.random.Generator) -> Array:
    """Functions of parameters and data that no relabelling changes."""
    L, F, Z = state.rows.L * state.scale, state.F, state.rows.Z
    tau = state.rows.tau[:, None] if not len(state.tau) else state.tau[None, :]
    density = 0.5 * np.log(tau) - 0.5 * tau * (data.Y - L @ F) ** 2
    values = [
        Z.mean(),
        np.abs(L).sum(),
        np.sum(F**2),
        np.log(tau).mean(),
        np.log(state.alpha).mean(),
        np.sum((L @ F) ** 2),
        (L @ F)[0, 0],
        np.sum(density if data.observed is None else density[data.observed]),
    ]
    if len(state.pi):
        values.append(state.pi.mean())
    if len(state.phi):
        values += [state.phi[0, 1] ** 2, state.phi[0, 1] * (F[0] @ F[1]), np.log(1.0 - state.phi[0, 1] ** 2)]
    if len(state.rows.member):
        values += [np.sum(state.w**2), np.mean(state.rows.member[:, None] == state.rows.member)]
    return np.array(values)


def entries(state: GibbsState, data: Data, rng: np.random.Generator) -> Array:
    """The signal at some observed and some missing entries, and what would be observed at the latter.

    Signs are those of the data, so that shrinking too much or too little shows: by itself the model prefers no sign.
    """
    signal = (state.rows.L * state.scale) @ state.F
    tau = state.rows.tau[:, None] if not len(state.tau) else state.tau[None, :]
    own = signal + rng.standard_normal(signal.shape) / np.sqrt(tau)
    observed = np.ones(signal.shape, dtype=bool) if data.observed is None else data.observed
    side = np.sign(data.Y.sum(axis=1, keepdims=True)) * np.ones(signal.shape)
    seen, hidden = (_spread(np.flatnonzero(mask)) for mask in (observed, ~observed))
    values = [
        *(np.sign(data.Y) * signal).flat[seen],
        np.mean(np.sign(data.Y) * signal),
        np.sum(signal[observed] ** 2),
        *(side * signal).flat[hidden],
        *(side * own).flat[hidden],
    ]
    if not observed.all():
        values += [np.mean((side * own)[~observed]), np.sum(signal[~observed] ** 2), np.sum(own[~observed] ** 2)]
    return np.array(values)


def _spread(at: np.ndarray) -> np.ndarray:
    """Three of these, far apart."""
    return at[np.linspace(0, len(at) - 1, 3).astype(int)] if len(at) else at


def ranks(
    prior: Prior,
    missing: float,
    build: Callable[[Data, Prior], Gibbs],
    replicates: int,
    seed: int = 0,
    of: Callable[[GibbsState, Data, np.random.Generator], Array] = quantities,
) -> Array:
    """(replicates, quantities): the truth's rank in (0, 1), ties broken at random; uniform if all is well.

    of: the quantities, functions of parameters and data, perhaps of noise; drawn for the truth as for every draw.
    """
    rng = np.random.default_rng([seed, 7])
    found = []
    for replicate in range(replicates):
        truth = draw_prior(prior, rng, G, N)
        data = draw_data(truth, draw_mask(missing, rng), rng)
        gibbs, key = build(data, prior), stream_key(seed, replicate)
        state, draws = draw_prior(prior, rng, G, N), []
        for sweep in range(WARMUP + DRAWS * THIN):
            state, _ = gibbs.sweep(state, key, sweep)
            if sweep >= WARMUP and (sweep - WARMUP) % THIN == THIN - 1:
                draws.append(of(state, data, rng))
        own, others = of(truth, data, rng), np.array(draws)
        below, tied = np.sum(others < own, axis=0), np.sum(others == own, axis=0)
        rank = below + rng.integers(0, tied + 1)
        found.append((rank + rng.random(len(own))) / (DRAWS + 1))
    return np.array(found)


def scores(uniform: Array) -> Array:
    """(2, quantities): z-scores of the ranks' mean and of their spread, standard normal if all is well."""
    n = len(uniform)
    centred = uniform - 0.5
    mean = centred.mean(axis=0) / np.sqrt(1 / 12 / n)
    spread = (np.mean(centred**2, axis=0) - 1 / 12) / np.sqrt((1 / 80 - 1 / 144) / n)
    return np.array([mean, spread])
