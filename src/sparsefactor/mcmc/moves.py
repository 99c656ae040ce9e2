"""Moves that leave the posterior invariant and go where single-coordinate updates creep (docs/math.md, 2.9 to 2.11).

A move is made every so many sweeps, before the row pass. It sees the whole state and returns another; what it needs of
the data it asks of the `Gibbs` it is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from scipy.special import expit

from ..kernels.contract import Array, ShearNoise
from .modules import positive
from .state import GibbsState

if TYPE_CHECKING:
    from .state import Gibbs


class Move(Protocol):
    """A step that leaves the posterior invariant."""

    name: str
    every: int  # sweeps between two calls

    def __call__(self, gibbs: Gibbs, state: GibbsState, rng: np.random.Generator) -> GibbsState: ...


class ScaleMove:
    """Draw each factor's scale exactly: (l_k, f_k, alpha_k) -> (l_k / c, c f_k, c^2 alpha_k) (2.9)."""

    name = "scale"
    every = 1

    def __call__(self, gibbs: Gibbs, state: GibbsState, rng: np.random.Generator) -> GibbsState:
        prior, N = gibbs.prior, state.F.shape[1]
        shape = 0.5 * N + prior.loading_shape
        rate = 0.5 * np.sum(state.F**2, axis=1) + prior.loading_rate * state.alpha
        c = np.sqrt(positive(rng.standard_gamma(shape, size=len(rate)) / rate))
        return state._replace(F=state.F * c[:, None], alpha=state.alpha * c**2, scale=state.scale / c)


class ExchangeMove:
    """Exchange two factors with unequal inclusion priors, their loadings and inclusions integrated out (2.10)."""

    name = "exchange"
    every = 5

    def __call__(self, gibbs: Gibbs, state: GibbsState, rng: np.random.Generator) -> GibbsState:
        groups = gibbs.prior.factor_groups()
        if gibbs.prior.learns_inclusion or len(np.unique(groups)) == 1:
            return state
        k = int(rng.integers(len(groups)))
        q = int(rng.choice(np.flatnonzero(groups != groups[k])))
        pair = [k, q]
        linear, Q = gibbs.conditional(state, pair)
        evidence = pair_evidence(linear, Q, state.alpha[pair])
        logit = np.broadcast_to(gibbs.logit(state), (len(linear), len(groups)))
        stay, swap = (prior_of(evidence, logit[:, [a, b]]) for a, b in ((k, q), (q, k)))
        totals = [np.logaddexp.reduce(option, axis=1) for option in (stay, swap)]
        exchange = rng.random() < self.probability(np.sum(totals[1] - totals[0]))
        chosen, total = (swap, totals[1]) if exchange else (stay, totals[0])
        weights = np.exp(chosen - total[:, None])
        code = np.sum(rng.random((len(weights), 1)) > np.cumsum(weights, axis=1)[:, :-1], axis=1)
        Z = np.stack([code % 2, code // 2], axis=1)
        state = gibbs.with_columns(state, pair, Z, draw_pair(linear, Q, Z, rng.standard_normal(linear.shape)))
        return swapped(state, k, q) if exchange else state

    def probability(self, log_odds: float) -> float:
        return float(expit(log_odds))


def pair_evidence(linear: Array, Q: Array, alpha: Array) -> Array:
    """(G, 4) log p(y_i | z) over z = 00, 10, 01, 11 of two loadings with precision Q (G, 2, 2), up to a constant."""
    one = 0.5 * (np.log(alpha) - np.log(Q[:, [0, 1], [0, 1]]) + linear**2 / Q[:, [0, 1], [0, 1]])
    det = Q[:, 0, 0] * Q[:, 1, 1] - Q[:, 0, 1] ** 2
    square = (
        Q[:, 1, 1] * linear[:, 0] ** 2 - 2 * Q[:, 0, 1] * linear[:, 0] * linear[:, 1] + Q[:, 0, 0] * linear[:, 1] ** 2
    )
    both = 0.5 * (np.log(alpha).sum() - np.log(det) + square / det)
    return np.stack([np.zeros(len(linear)), one[:, 0], one[:, 1], both], axis=1)


def prior_of(evidence: Array, logit: Array) -> Array:
    """(G, 4) evidence plus the prior log odds of z = 00, 10, 01, 11; logit: (G, 2)."""
    return evidence + np.stack([0 * logit[:, 0], logit[:, 0], logit[:, 1], logit.sum(axis=1)], axis=1)


def draw_pair(linear: Array, Q: Array, Z: np.ndarray, normal: Array) -> Array:
    """(G, 2) two loadings given their inclusions: zero where excluded, else Gaussian with precision Q."""
    both = Z.all(axis=1)
    cross = np.where(both, Q[:, 0, 1], 0.0)
    # Draw the second one alone (the first integrated out where both are in), then the first given it.
    precision = Q[:, 1, 1] - cross**2 / Q[:, 0, 0]
    mean = (linear[:, 1] - cross / Q[:, 0, 0] * linear[:, 0]) / precision
    second = np.where(Z[:, 1] == 1, mean + normal[:, 1] / np.sqrt(precision), 0.0)
    first = (linear[:, 0] - cross * second) / Q[:, 0, 0] + normal[:, 0] / np.sqrt(Q[:, 0, 0])
    return np.stack([np.where(Z[:, 0] == 1, first, 0.0), second], axis=1)


def swapped(state: GibbsState, k: int, q: int) -> GibbsState:
    """Factors k and q change places."""
    order = np.arange(len(state.alpha))
    order[[k, q]] = q, k
    rows = state.rows._replace(
        Z=np.ascontiguousarray(state.rows.Z[:, order]), L=np.ascontiguousarray(state.rows.L[:, order])
    )
    return state._replace(rows=rows, F=state.F[order], alpha=state.alpha[order])


class ShearMove:
    """Shear factors along one whose loadings are integrated out: f_k -> f_k + e f_q for every k (2.11)."""

    name = "shear"
    every = 1
    directions = 2  # factors q of one call
    scales = (0.005, 0.02, 0.06, 0.15)  # standard deviations of proposed shears; the best depends on the noise

    def __call__(self, gibbs: Gibbs, state: GibbsState, rng: np.random.Generator) -> GibbsState:
        K, G, D = len(state.alpha), gibbs.data.n_features, self.directions
        if K == 1:
            return state
        step = rng.standard_normal((D, K, len(self.scales))) * self.scales
        noise = ShearNoise(
            order=rng.choice(K, size=D, p=self.preference(gibbs, state)),
            step=step,
            log_uniform=self.log_uniform(step.shape, rng),
            uniform=rng.random((D, G)),
            normal=rng.standard_normal((D, G)),
        )
        rows = state.rows._replace(L=state.loadings)
        rows, F = gibbs.kernels.gibbs_shear(
            rows, state.F, state.alpha, gibbs.logit(state), gibbs.weight(state.tau), noise
        )
        return state._replace(rows=rows, F=F, scale=np.ones(K))

    def preference(self, gibbs: Gibbs, state: GibbsState) -> Array:
        """Which factors to shear along: dense ones first, judged by what the move leaves as it is."""
        pi = gibbs.rate(state) if len(state.pi) else gibbs.prior.inclusion_matrix().mean(axis=0)
        return np.asarray(pi / pi.sum())

    def log_uniform(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.log(rng.random(shape))


MOVES = {move.name: move for move in (ScaleMove, ExchangeMove, ShearMove)}
