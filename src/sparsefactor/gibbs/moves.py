"""Moves that leave the posterior invariant and go where single-coordinate updates creep (math.md, 2.9 to 2.16).

A move is made every so many sweeps, before the row pass. It sees the whole state and returns another; what it needs of
the data it asks of the `Gibbs` it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..kernels.contract import (
    TRIES,
    Array,
    ColumnNoise,
    GibbsColumns,
    MoveNoise,
    PrecisionNoise,
    RotationNoise,
    ShearNoise,
)
from ..kernels.noise import row_stream
from ..kernels.protocol import Engine
from .correlation import contract, correlation_noise, expand
from .inclusion import clipped, positive
from .state import GibbsState

if TYPE_CHECKING:
    from .sweep import Gibbs


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
        prior, N = gibbs.prior, gibbs.fixed.n_samples
        slab = state.alpha.reshape(len(state.alpha), -1)
        shape = 0.5 * N + slab.shape[1] * prior.loading_shape
        square = np.asarray((state.F**2).sum(axis=1))  # of activations that may be where the rows are
        rate = 0.5 * square + np.sum(prior.loading_rate * slab, axis=1)
        c = np.sqrt(positive(rng.standard_gamma(shape, size=len(rate)) / rate))
        alpha = (slab * c[:, None] ** 2).reshape(state.alpha.shape)
        return state._replace(F=state.F * c[:, None], alpha=alpha, scale=state.scale / c)


class RotationMove:
    """Exchange and turn pairs of factors, their loadings and inclusions integrated out (2.10)."""

    name = "rotation"
    every = 1
    rows = 2000  # turned in one call: a pair costs about as much as a sweep, so that large data turn few

    def __call__(self, gibbs: Gibbs, state: GibbsState, rng: np.random.Generator) -> GibbsState:
        noise = self.noise(gibbs, state, rng)
        if noise is None:
            return state
        state = expand(state, gibbs.prior.correlation_df, rng)
        rows, F, alpha, phi = gibbs.engine.gibbs_rotate(state.rows, gibbs.columns(state), noise)
        return contract(state._replace(rows=rows, F=F, alpha=alpha, scale=np.ones(len(alpha)), phi=phi))

    def noise(self, gibbs: Gibbs, state: GibbsState, rng: np.random.Generator) -> RotationNoise | None:
        K, G = len(state.alpha), gibbs.data.n_features
        if K == 1:
            return None
        P = self.n_pairs(K, G)
        pairs = rng.permutation(K)[: 2 * P].reshape(P, 2)
        unequal = gibbs.groups[pairs[:, 0]] != gibbs.groups[pairs[:, 1]]
        return RotationNoise(
            pairs=pairs,
            exchange=np.where(unequal, self.exchange(P, rng), 1.0),
            log_height=self.log_height(P, rng),
            bracket=rng.random(P),
            angle=rng.random((P, TRIES)),
            stream=row_stream(rng),
        )

    def n_pairs(self, K: int, G: int) -> int:
        return max(1, min(K // 2, round(self.rows / G)))

    def exchange(self, P: int, rng: np.random.Generator) -> Array:
        return rng.random(P)

    def log_height(self, P: int, rng: np.random.Generator) -> Array:
        return np.log(rng.random(P))


class ShearMove:
    """Shear factors along one whose loadings are integrated out: f_k -> f_k + e f_q for every k (2.11)."""

    name = "shear"
    every = 1
    directions = 2  # factors q of one call
    scales = (0.005, 0.02, 0.06, 0.15)  # standard deviations of proposed shears; the best depends on the noise

    def __call__(self, gibbs: Gibbs, state: GibbsState, rng: np.random.Generator) -> GibbsState:
        noise = self.noise(gibbs, state, rng)
        if noise is None:
            return state
        state = expand(state, gibbs.prior.correlation_df, rng)
        rows, F, phi = gibbs.engine.gibbs_shear(state.rows, gibbs.columns(state), noise)
        return contract(state._replace(rows=rows, F=F, scale=np.ones(len(F)), phi=phi))

    def noise(self, gibbs: Gibbs, state: GibbsState, rng: np.random.Generator) -> ShearNoise | None:
        K, D = len(state.alpha), self.directions
        if K == 1:
            return None
        step = rng.standard_normal((D, K, len(self.scales))) * self.scales
        return ShearNoise(
            order=rng.choice(K, size=D, p=self.preference(gibbs, state)),
            step=step,
            log_uniform=self.log_uniform(step.shape, rng),
            stream=row_stream(rng),
        )

    def preference(self, gibbs: Gibbs, state: GibbsState) -> Array:
        """Which factors to shear along: dense ones first, judged by what the move leaves as it is."""
        pi = gibbs.rates(state)
        return np.asarray(pi / pi.sum())

    def log_uniform(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.log(rng.random(shape))


class ColumnMove:
    """Draw a factor's slab precision and inclusion rate, its loadings and inclusions integrated out (2.15)."""

    name = "column"
    every = 1
    share = 0.5  # of the factors, in one call

    def __call__(self, gibbs: Gibbs, state: GibbsState, rng: np.random.Generator) -> GibbsState:
        noise = self.noise(gibbs, state, rng)
        rows, alpha, logit = gibbs.engine.gibbs_columns(state.rows, gibbs.columns(state), noise)
        pi = gibbs.inclusion.at_logit(state, logit)
        return state._replace(rows=rows, alpha=positive(alpha), pi=pi, scale=np.ones(len(alpha)))

    def noise(self, gibbs: Gibbs, state: GibbsState, rng: np.random.Generator) -> ColumnNoise:
        prior, K = gibbs.prior, len(state.alpha)
        D, V = max(1, round(self.share * K)), state.alpha.size // K
        a, b = gibbs.inclusion.a, gibbs.inclusion.b
        empty = rng.random((D, V)) < 0.5
        alpha = positive(rng.standard_gamma(np.where(empty, prior.loading_shape, 1.0)) / prior.loading_rate)
        pi = clipped(rng.beta(a, np.where(empty, b + gibbs.sizes, b)))
        return ColumnNoise(
            order=rng.permutation(K)[:D],
            proposal=np.stack([np.log(alpha), np.log(pi) - np.log1p(-pi)], axis=2),
            log_uniform=self.log_uniform((D, V), rng),
            log_height=np.log(rng.random((D, V, 2))),
            bracket=rng.random((D, V, 2)),
            tries=rng.random((D, V, 2, TRIES)),
            stream=row_stream(rng),
        )

    def log_uniform(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        return np.log(rng.random(shape))


class NoiseMove:
    """Draw what belongs to one feature with the activations integrated out, and then the activations: its noise
    precision (2.16), and its loadings on factors whose activations are not well known without it (2.17).

    Not every engine has it for every data set: see `Engine.moves` (2.17c)."""

    name = "noise"
    every = 1
    work = 1e6  # multiplications in one call; more rows than that allows take turns
    holes = 16  # times as many for a row where samples differ in what is missing

    def __call__(self, gibbs: Gibbs, state: GibbsState, rng: np.random.Generator) -> GibbsState:
        rows, F = gibbs.engine.gibbs_precisions(state.rows, self.columns(gibbs, state), self.noise(gibbs, state, rng))
        return state._replace(rows=rows, F=F, scale=np.ones(len(F)))

    def noise(self, gibbs: Gibbs, state: GibbsState, rng: np.random.Generator) -> PrecisionNoise:
        K, N = state.F.shape
        each = K * N * (1 if gibbs.data.is_complete else self.holes)
        return PrecisionNoise(
            start=int(rng.integers(gibbs.data.n_features)),
            n_rows=min(gibbs.data.n_features, max(1, int(self.work / each))),
            stream=row_stream(rng),
            normal=rng.standard_normal((K, N)),
        )

    def columns(self, gibbs: Gibbs, state: GibbsState) -> GibbsColumns:
        return gibbs.columns(state)


MOVES = {move.name: move for move in (ScaleMove, RotationMove, ShearMove, ColumnMove, NoiseMove)}
ORDER = (RotationMove, ShearMove, ColumnMove, NoiseMove)  # the fields of `MoveNoise`


def in_one_call(moves: Sequence[Move]) -> bool:
    """Whether an engine that takes the noise of moves can make these: the scale first, then others in its order."""
    places = [(ScaleMove, *ORDER).index(type(move)) if type(move) in (ScaleMove, *ORDER) else -1 for move in moves]
    return all(a < b for a, b in pairwise([-1, *places]))


def noise_of(moves: Sequence[Move], gibbs: Gibbs, state: GibbsState, rng: np.random.Generator) -> MoveNoise:
    """The randomness of moves without the scale, as each of them would draw it, and of the draw of correlations."""
    (K, N), df, drawn = state.F.shape, gibbs.prior.correlation_df, dict[Any, Any]()
    correlation = correlation_noise(K, N, gibbs.prior, rng) if df else None
    for move in moves:
        if isinstance(move, ORDER):
            drawn[type(move)] = move.noise(gibbs, state, rng)
        if correlation is not None and isinstance(move, (RotationMove, ShearMove)):
            correlation.scales[ORDER.index(type(move)) + 1] = rng.standard_gamma(0.5 * df, K)
    return MoveNoise(*(drawn.get(kind) for kind in ORDER))._replace(correlation=correlation)


def moves_for(engine: Engine, names: Sequence[str] | None = None) -> list[Move]:
    """Moves by name, each of which the engine must have for its data; None for all that it has."""
    lacking = [name for name in names or () if name not in engine.moves]
    if lacking:
        raise ValueError(
            f"moves must be among those that the engine has for these data and this prior, for {engine.name!r} "
            f"{engine.moves}; got {lacking[0]!r}; leave it out"
        )
    return [MOVES[name]() for name in (engine.moves if names is None else names)]
