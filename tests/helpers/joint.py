"""The joint-distribution test (Geweke, 2004): alternate the sampler with fresh data and the prior must come back.

Start from the prior, then repeat: draw data given the parameters, apply the sampler once. If the sampler leaves the
posterior invariant, the parameters have the prior's distribution at every step. Each replicate's average over its
steps is therefore an unbiased and independent estimate of a prior expectation, and a z-score needs no correction for
autocorrelation.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats
from tests.helpers.problems import by_group

from sparsefactor.data import Data
from sparsefactor.design import Design
from sparsefactor.gibbs.correlation import correlations_of
from sparsefactor.gibbs.moves import Move
from sparsefactor.gibbs.sweep import Gibbs, GibbsState
from sparsefactor.kernels.contract import Array, GibbsRows
from sparsefactor.kernels.noise import stream_key
from sparsefactor.model import Beta, Prior

G, N, K = 3, 4, 2
GROUPS = ["a", "b", "a"]  # of the rows, where the prior has groups
GROUP = np.array([0, 1, 0])
# Draws from a prior, and the generator after them: several samplers are held against the same ones.
FROM_PRIOR: dict[bytes, tuple[Array, Any]] = {}


def mask_for(missing: bool) -> np.ndarray | None:
    if not missing:
        return None
    observed = np.ones((G, N), dtype=bool)
    observed[0, 1] = observed[1, 0] = observed[1, 3] = observed[2, 2] = False
    return observed


def draw_prior(prior: Prior, rng: np.random.Generator, G: int = G, N: int = N) -> GibbsState:
    """Parameters from the prior."""
    K, pi = prior.K, np.zeros(0)
    probability = prior.inclusion_matrix()
    if isinstance(prior.inclusion, Beta):
        pi = rng.beta(prior.inclusion.a, prior.inclusion.b, by_group(prior))
        probability = prior.by_row(pi)
    member, w = np.zeros(0, np.intp), np.zeros(0)
    if prior.n_modules > 1:
        M = prior.n_modules
        a, b, own = prior.inclusion.a, prior.inclusion.b, rng.random((K, 1)) < 0.5
        pi, w = np.where(own, rng.beta(a, b, (K, M)), rng.beta(a, b, (K, 1))), rng.dirichlet(np.full(M, 1 / M))
        member = rng.choice(M, size=G, p=w)
        probability = pi.T[member]
    alpha = rng.gamma(prior.loading_shape, 1 / prior.loading_rate, by_group(prior))
    Z = (rng.random((G, K)) < probability).astype(np.int8)
    L = Z * rng.standard_normal((G, K)) / np.sqrt(prior.by_row(alpha))
    row_tau, tau = np.ones(G), np.zeros(0)
    if prior.noise == "feature":
        row_tau = rng.gamma(prior.noise_shape, 1 / prior.noise_rate, G)
    else:
        tau = rng.gamma(prior.noise_shape, 1 / prior.noise_rate, N)
        if prior.noise == "shared":
            tau[:] = tau[0]
    F, phi = rng.standard_normal((K, N)), np.zeros(0)
    if prior.correlated:
        phi = correlations_of(stats.invwishart(prior.correlation_df, np.eye(K)).rvs(random_state=rng))
        F = np.linalg.cholesky(phi) @ F
    return GibbsState(GibbsRows(Z, L, row_tau, member=member), F, alpha, pi, tau, np.ones(K), w, phi)


def draw_data(state: GibbsState, observed: np.ndarray | None, rng: np.random.Generator) -> Data:
    """Data given the parameters."""
    G, N = len(state.rows.Z), state.F.shape[1]
    precision = state.rows.tau[:, None] if not len(state.tau) else state.tau[None, :]
    Y = (state.rows.L * state.scale) @ state.F + rng.standard_normal((G, N)) / np.sqrt(precision)
    if observed is not None:
        Y[~observed] = 0.0
    return Data(Y=Y, observed=observed, offset=np.zeros(G), feature_names=np.arange(G), sample_names=np.arange(N))


def statistics(state: GibbsState) -> Array:
    """Functions of the parameters with light tails, for every block of them and across blocks."""
    Z, L, F = state.rows.Z.astype(float), state.rows.L * state.scale, state.F
    tau = np.log(state.tau) if len(state.tau) else np.log(state.rows.tau)
    signal = np.tanh(L @ F)
    values = [
        Z.mean(),
        Z.mean() ** 2,
        Z[:, 0].mean(),
        np.mean(Z[:, 0] * Z[:, 1]),
        tau.mean(),
        (tau**2).mean(),
        np.log(state.alpha).mean(),
        (np.log(state.alpha) ** 2).mean(),
        np.log(state.alpha).reshape(K, -1).mean(axis=1) @ Z.sum(axis=0),
        np.abs(L).mean(),
        np.tanh(L).mean(),
        np.mean(np.tanh(L**2)),
        (F**2).mean(),
        (F**4).mean(),
        F.mean(),
        (F[0] * F[1]).mean(),
        (signal**2).mean(),
        signal.mean(),
        tau.mean() * Z.mean(),
        np.mean(F**2) * Z.mean(),
        np.mean(np.sum(F**2, axis=1) * np.log(state.alpha).reshape(K, -1).mean(axis=1)),
    ]
    if len(state.phi):
        off, cross = state.phi[0, 1], F[0] @ F[1]
        values += [off, off**2, off**4, off * cross, off**2 * np.sum(F**2), (cross / N) ** 2]
        values += [off**2 * np.log(state.alpha).mean(), off**2 * Z.mean(), off * np.tanh(L[:, 0] @ L[:, 1])]
    if state.alpha.ndim == 2:
        # By group: each row's with its own group's, and with the other's.
        log_alpha = np.log(state.alpha).T[GROUP]
        values += [np.mean(log_alpha * Z), np.mean(log_alpha[::-1] * Z), np.mean(np.tanh(L**2) * log_alpha)]
        values += [np.log(state.alpha)[:, 0].mean(), np.log(state.alpha)[:, 1].mean(), np.mean(Z[0] * log_alpha[0])]
        values += [np.mean((np.log(state.alpha)[:, 0] - np.log(state.alpha)[:, 1]) ** 2)]
        if len(state.pi):
            values += [np.mean((state.pi[:, 0] - state.pi[:, 1]) ** 2)]
            own = state.pi.T[GROUP]
            values += [np.mean(own * Z), np.mean(own[::-1] * Z), state.pi[:, 0].mean(), state.pi[:, 1].mean()]
    if len(state.rows.member):
        own = state.pi.T[state.rows.member]
        together = state.rows.member[:, None] == state.rows.member
        values += [
            state.pi.mean(),
            (state.pi**2).mean(),
            np.mean(np.ptp(state.pi, axis=1) == 0),
            np.mean(own * Z),
            np.mean(own),
            np.sum(state.w**2),
            np.sum(np.log(np.maximum(state.w, 1e-12))),
            together.mean(),
            np.mean(together[:, :, None] * (Z[:, None] == Z[None])),
            state.w[state.rows.member].mean(),
        ]
    elif len(state.pi):
        values += [
            state.pi.mean(),
            (state.pi**2).mean(),
            np.mean(state.pi.reshape(K, -1).mean(axis=1) * Z.mean(axis=0)),
        ]
    return np.array(values)


def design_statistics(state: GibbsState, design: Design) -> Array:
    """Of the loadings on a design's directions, and of what of these is in the activations."""
    base, along = state.rows.base, state.F @ design.basis.T
    values = [np.tanh(base).mean(), np.tanh(base**2).mean(), np.tanh(along).mean(), np.tanh(along**2).mean()]
    values += [np.mean(np.tanh(base @ along.T)), np.mean(np.tanh((state.rows.L * state.scale).T @ base * along))]
    return np.array([*values, np.mean(np.tanh(((state.rows.L * state.scale) @ state.F + base @ design.basis) ** 2))])


def joint_scores(
    prior: Prior,
    build: Callable[[Data, Prior], Gibbs],
    *,
    missing: bool,
    replicates: int,
    steps: int = 30,
    seed: int = 0,
    moves: Sequence[Move] = (),
    design: Design | None = None,
) -> Array:
    """z-scores of the replicates' averages against the prior; standard normal when the sampler is right.

    moves: made after each sweep, so that what they get wrong is seen before the next sweep can mend it.
    """
    rng = np.random.default_rng(seed)
    observed = mask_for(missing)

    def parameters() -> GibbsState:
        state = draw_prior(prior, rng)
        if design is None:
            return state
        alpha = np.full(len(design.basis), design.precision)
        drawn = rng.gamma(prior.loading_shape, 1.0 / prior.loading_rate, len(alpha))
        base = rng.standard_normal((G, len(alpha))) / np.sqrt(np.where(design.learnt, drawn, alpha))
        return state._replace(rows=state.rows._replace(base=base))

    def given(state: GibbsState) -> Data:
        data = draw_data(state, observed, rng)
        if design is None:
            return data
        Y = data.Y + state.rows.base @ design.basis
        return replace(data, Y=Y if observed is None else Y * observed, design=design)

    def values(state: GibbsState) -> Array:
        own = statistics(state)
        return own if design is None else np.append(own, design_statistics(state, design))

    of = pickle.dumps((prior, design, replicates, seed))
    if of not in FROM_PRIOR:
        FROM_PRIOR[of] = np.array([values(parameters()) for _ in range(40 * replicates)]), rng.bit_generator.state
    expected, rng.bit_generator.state = FROM_PRIOR[of]
    averages = []
    for replicate in range(replicates):
        state = parameters()
        key = stream_key(seed, replicate)
        total = np.zeros(expected.shape[1])
        for step in range(steps):
            gibbs = build(given(state), prior)
            state, _ = gibbs.sweep(state, key, step)
            for move in (move for move in moves if move.name in gibbs.engine.moves):
                state = move(gibbs, state, rng)
            total += values(state)
        averages.append(total / steps)
    own = np.array(averages)
    error = np.sqrt(own.var(axis=0, ddof=1) / len(own) + expected.var(axis=0, ddof=1) / len(expected))
    return (own.mean(axis=0) - expected.mean(axis=0)) / error
