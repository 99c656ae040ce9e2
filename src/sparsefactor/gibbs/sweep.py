"""Collapsed Gibbs sampling: the state and one sweep (math.md, section 2).

A sweep is the row pass (tau, z, l) and then the column step (F, column-wise tau, alpha, pi): the paper's Algorithm 1
read from another point of its cycle, with moves that leave the posterior invariant before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import gammaln

from ..arrays import NUMPY
from ..data import Data
from ..densities import LOG_2PI, log_gamma_density
from ..kernels.columns import explained, fixed_of, message, noise_posterior, slab_posterior
from ..kernels.contract import NONE, Array, GibbsColumns, GibbsRows, Message, MoveNoise, Sums
from ..kernels.correlation import correlation_of, gaussian_density, inverse_of, log_prior
from ..kernels.noise import column_generator
from ..kernels.protocol import Engine, RunStart
from ..model import Prior
from .correlation import draw_correlation
from .inclusion import inclusion_of, positive
from .moves import Move, ScaleMove, in_one_call, noise_of
from .run import LARGEST, rule_of
from .state import GibbsInfo as GibbsInfo
from .state import GibbsState as GibbsState


class Gibbs:
    """The sweeps of one data set, prior and engine."""

    def __init__(
        self, data: Data, prior: Prior, engine: Engine, moves: Sequence[Move] = (), *, any_normals: bool = False
    ) -> None:
        """any_normals: the engine may draw the activations' noise where its rows are; the draws are then its own."""
        prior = prior.in_units_of(data)
        self.data, self.prior, self.engine, self.moves = data, prior, engine, tuple(moves)
        self.fixed, self.inclusion = fixed_of(data, prior), inclusion_of(prior, data, engine)
        self.column_noise = prior.noise != "feature"
        self.shortcut = engine.gibbs_shortcut()
        self.any_normals = any_normals and self.shortcut is not None and self.shortcut.draws_normals
        self.moves_within = self.shortcut is not None and self.shortcut.takes_moves and in_one_call(self.moves)
        self.n_base = 0 if data.design is None else data.n_features * len(data.design.basis)  # loadings on directions
        if data.design is not None:
            C = data.design.basis[~data.design.learnt]
            values, vectors = np.linalg.eigh(C @ C.T)
            self.flat = values, vectors, vectors.T @ C  # along which the precision of a slide is diagonal
        self.groups = prior.factor_groups()
        self.sizes: Any = prior.group_sizes if prior.grouped else data.n_features  # of the groups of features

    def sweep(
        self, state: GibbsState, key: tuple[int, int], sweep: int, power: float = 1.0
    ) -> tuple[GibbsState, GibbsInfo]:
        """One sweep; its randomness is a function of (key, sweep) alone.

        power: of the likelihood (2.12). Below 1 the sweep is only for warming up.
        """
        with self.engine.scope():
            state, sums = self.draw(state, key, sweep, power)
            return state, GibbsInfo(log_joint=self.log_joint(state, sums), n_active=int(sums.active.sum()))

    def run(self, state: GibbsState, key: tuple[int, int], sweeps: int) -> GibbsState:
        """Where so many sweeps lead; their columns' randomness comes from one generator."""
        rng, rule = column_generator(key, 0), rule_of(self, sweeps)
        if rule is not None and self.shortcut is not None and self.shortcut.runs:
            rates, logit = self.rates(state), self.inclusion.logit(state)
            start = RunStart(state.rows, state.F, state.alpha, rates, logit, state.scale, state.phi)
            end, largest = self.shortcut.run(start, rule, key, rng)
            check_size(largest)
            pi = end.rate if len(state.pi) else state.pi
            return state._replace(rows=end.rows, F=end.F, alpha=end.alpha, pi=pi, scale=end.scale, phi=end.phi)
        for sweep in range(sweeps):
            state = self.draw(state, key, sweep, rng=rng)[0]
        return state

    def draw(
        self,
        state: GibbsState,
        key: tuple[int, int],
        sweep: int,
        power: float = 1.0,
        rng: np.random.Generator | None = None,
    ) -> tuple[GibbsState, Sums]:
        """A sweep's draw, and the sums over its rows. rng: of the columns, where it is not the sweep's own."""
        rng, within = rng or column_generator(key, sweep), MoveNoise()
        if self.prior.correlation_df and not self.moves_within:
            state = self.sample_phi(state, rng)
        due = [move for move in self.moves if sweep > 0 and sweep % move.every == 0]
        if self.moves_within:
            for move in due:
                state = move(self, state, rng) if isinstance(move, ScaleMove) else state
            within = noise_of(due, self, state, rng)
        else:
            for move in due:
                state = move(self, state, rng)
        if self.data.design is not None:
            state = self.slide(state, rng)
        rows, F, phi, sums = self.sample_rows_and_f(state, key, sweep, power, rng, within)
        tau = self.sample_tau(F, sums, rng)
        alpha = self.sample_alpha(sums, rng)
        rows, pi, w = self.inclusion.sample(state, rows, sums, rng)
        return GibbsState(rows, F, alpha, pi, tau, np.ones(len(alpha)), w, phi), sums

    def sample_rows_and_f(
        self,
        state: GibbsState,
        key: tuple[int, int],
        sweep: int,
        power: float,
        rng: np.random.Generator,
        within: MoveNoise,
    ) -> tuple[GibbsRows, Array, Array, Sums]:
        """tau, z, l and then F; and phi. within: the noise of moves that the engine's shortcut makes first."""
        if self.shortcut is not None:
            normal = None if self.any_normals else self.normals(rng)
            drawn = self.shortcut.draw(state.rows, self.columns(state), key, sweep, power, normal, within)
            check_size(drawn.largest)
            return drawn.rows, drawn.F, drawn.phi, drawn.sums
        noise = self.engine.row_noise(key, sweep)
        rows, sums = self.engine.gibbs_row_pass(state.rows, self.message(state, power), noise)
        return rows, self.sample_f(state, sums, power, rng), state.phi, sums

    def sample_phi(self, state: GibbsState, rng: np.random.Generator) -> GibbsState:
        """The factors' correlations, and their scales, given the rest (2.19)."""
        return draw_correlation(state, self.prior, self.prior.correlation_df, rng)

    def start(self, L: Array, F: Array) -> GibbsState:
        """A state around point values of L (G, K) and F (K, N); the first sweep redraws every row."""
        return self.begin(self.engine.gibbs_place(L), F)

    def begin(self, rows: GibbsRows, F: Array) -> GibbsState:
        """A state around a draw of the rows and F (K, N)."""
        K = len(F)
        if self.data.design is not None:
            rows = self.engine.gibbs_regress(rows, F)
        count, l2 = self.engine.gibbs_counts(rows)
        shape, rate = slab_posterior(count, l2, self.fixed)
        alpha = shape / rate
        rows, pi, w = self.inclusion.begin(rows, count)
        tau = np.zeros(0)
        if self.column_noise:
            shape, rate = noise_posterior(self.engine.gibbs_column_rss(rows, F), self.fixed)
            tau = shape / rate
        phi = correlation_of(F, self.prior.correlation_df) if self.prior.correlated else NONE
        return GibbsState(rows, F.copy(), alpha, pi, tau, np.ones(K), w, phi)

    def message(self, state: GibbsState, power: float = 1.0) -> Message:
        """What the rows need of the columns (4.2)."""
        weight, odds = power * self.weight(state.tau), {"logit": self.inclusion.logit(state)}
        return message(state.F, None, weight, state.alpha, np.log(state.alpha), state.scale, odds, self.fixed)

    def columns(self, state: GibbsState) -> GibbsColumns:
        """What a move's rows need of the columns."""
        logit, weight = self.inclusion.logit(state), self.weight(state.tau)
        return GibbsColumns(state.F, state.alpha, logit, weight, state.scale, state.phi)

    def rates(self, state: GibbsState) -> Array:
        """(K,) of inclusion, learnt or given."""
        return self.inclusion.rate(state) if len(state.pi) else self.prior.inclusion_matrix().mean(axis=0)

    def weight(self, tau: Array) -> Array:
        return tau if self.column_noise else self.fixed.ones

    def slide(self, state: GibbsState, rng: np.random.Generator) -> GibbsState:
        """f_k -> f_k - e'C and base -> base + e l_k, e drawn exactly, for each factor in turn (2.18)."""
        assert self.data.design is not None
        flat, alpha = ~self.data.design.learnt, self.data.base_precision
        if not flat.any():
            return state
        values, vectors, turned = self.flat
        LL, base = self.engine.gibbs_products(state.rows, state.scale)
        normal = rng.standard_normal((len(state.F), len(values)))
        prior = inverse_of(state.phi, len(normal), NUMPY)
        precision = np.diagonal(prior)[:, None] * values + alpha * np.diagonal(LL)[:, None]
        noise, linear = normal / np.sqrt(precision), prior @ (state.F @ turned.T) - alpha * (base[:, flat] @ vectors)
        E = np.zeros(noise.shape)
        for k in range(len(E)):
            E[k] = (linear[k] - alpha * (LL[k] @ E) - values * (prior[k] @ E)) / precision[k] + noise[k]
        slide = np.zeros((len(E), len(flat)))
        slide[:, flat] = state.scale[:, None] * (E @ vectors.T)
        return state._replace(F=state.F - E @ turned, rows=self.engine.gibbs_slide(state.rows, slide))

    # ---- the column step, one conditional each ------------------------------------------------------------------

    def sample_f(self, state: GibbsState, sums: Sums, power: float, rng: np.random.Generator) -> Array:
        """F given the rest (2.5)."""
        weight = power * self.weight(state.tau)
        prior = inverse_of(state.phi, self.prior.K, NUMPY)
        F = self.engine.gibbs_activations(sums, weight, prior, self.normals(rng))
        check_size(float(np.abs(F).max(initial=0.0)))
        return F

    def normals(self, rng: np.random.Generator) -> Array:
        """(K, N) of the activations."""
        return rng.standard_normal((self.prior.K, self.data.n_samples))

    def sample_tau(self, F: Array, sums: Sums, rng: np.random.Generator) -> Array:
        """Column-wise tau given the rest (2.1)."""
        if not self.column_noise:
            return np.zeros(0)
        shape, rate = noise_posterior(self.data.column_ss - self.explained(F, sums), self.fixed)
        if self.prior.noise == "shared":
            return np.full(len(rate), rng.standard_gamma(shape[0]) / rate[0])
        return np.asarray(rng.standard_gamma(shape) / rate)

    def sample_alpha(self, sums: Sums, rng: np.random.Generator) -> Array:
        """alpha_k given the rest (2.7)."""
        shape, rate = slab_posterior(sums.active, sums.l2, self.fixed)
        return positive(rng.standard_gamma(shape) / rate)

    def explained(self, F: Array, sums: Sums) -> Array:
        """(N,) what F takes off each sample's sum of squares; the sums over rows may still be where the rows are."""
        if len(sums.explained):
            return np.asarray(sums.explained)
        LY, LL, share, shift = map(np.asarray, (sums.LY, sums.LL, sums.LL_share, sums.shift))
        return explained(F, sums._replace(LY=LY, LL=LL, LL_share=share, shift=shift), self.fixed)

    # ---- the log joint density of the draw (2.14), from the sums alone --------------------------------------------

    def log_joint(self, state: GibbsState, sums: Sums) -> float:
        """log p(Y, L, Z, F, tau) of a state at scale one with these sums; alpha and pi are integrated out (2.14)."""
        prior, data = self.prior, self.data
        F, tau = state.F, state.tau
        total = -0.5 * data.n_observed * LOG_2PI
        if prior.correlation_df:
            inverse, moments = inverse_of(state.phi, prior.K, NUMPY), np.asarray(F @ F.T)
            total += gaussian_density(state.phi, inverse, moments, float(F.shape[1]), NUMPY) - 0.5 * F.size * LOG_2PI
            total += log_prior(state.phi, inverse, prior.correlation_df, NUMPY)
        else:
            total -= 0.5 * (sums.f2.sum() + F.size * LOG_2PI if len(sums.f2) else np.sum(F**2 + LOG_2PI))
        if self.column_noise:
            total += float(0.5 * data.column_count @ np.log(tau))
            total -= float(0.5 * tau @ (data.column_ss - self.explained(F, sums)))
            own = tau[:1] if prior.noise == "shared" else tau
            total += np.sum(log_gamma_density(own, prior.noise_shape, prior.noise_rate))
        else:
            total += sums.joint.noise - 0.5 * (sums.joint.weighted_ss - np.sum(self.explained(F, sums)))
        shape, rate = prior.loading_shape, prior.loading_rate
        total += np.sum(gammaln(shape + 0.5 * sums.active) - gammaln(shape) - 0.5 * sums.active * LOG_2PI)
        total += np.sum(shape * np.log(rate) - (shape + 0.5 * sums.active) * np.log(rate + 0.5 * sums.l2))
        total += self.inclusion.log_density(state, sums)
        return float(total) + sums.joint.base + self.unit_term(float(sums.active.sum()) + self.n_base)

    def unit_term(self, active: float) -> float:
        """What the log joint gains when Y, L and tau are taken from the units of `data.Y` back to those of X."""
        n_noise = {"feature": self.data.n_features, "sample": self.data.n_samples, "shared": 1}[self.prior.noise]
        return float(np.log(self.data.unit) * (2.0 * n_noise - self.data.n_observed - active))


def check_size(largest: float) -> None:
    """Refuse activations that are not numbers, or larger than any can be."""
    if not largest < LARGEST:
        raise ValueError(
            "draws must be finite; the activations are not, since the factors explain these data to within "
            "rounding; rescale X to unit variance, or raise noise_rate"
        )
