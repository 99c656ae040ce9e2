"""Collapsed Gibbs sampling: the state and one sweep (docs/math.md, section 2).

A sweep is the row pass (tau, z, l) and then the column step (F, column-wise tau, alpha, pi): the paper's Algorithm 1
read from another point of its cycle, with moves that leave the posterior invariant before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.special import betaln, gammaln

from ..data import Data
from ..kernels.contract import NONE, Array, GibbsColumns, GibbsRows, Message, Sums
from ..kernels.noise import column_generator
from ..kernels.protocol import Engine
from ..model import LOG_2PI, Beta, Prior, column_noise_posterior, log_gamma_density
from .modules import Modules, clipped, positive

if TYPE_CHECKING:
    from .moves import Move


# Of activations, which are standard normal beforehand. Residual sums of squares are differences of sums of squares,
# known to about eps of these: where factors explain the data to within that and the prior allows noise below it,
# precisions follow the rounding, and activations that are solved for with them may be anything.
LARGEST = 1e100


class GibbsState(NamedTuple):
    """A draw. The rows' loadings are still to be multiplied by `scale`."""

    rows: GibbsRows
    F: Array  # (K, N)
    alpha: Array  # (K,), (K, V) with groups
    pi: Array  # as alpha, (K, M) with modules, or (0,) where inclusion is given
    tau: Array  # (N,) column-wise noise precision, or (0,) for noise="feature"
    scale: Array  # (K,)
    w: Array = NONE  # (M,) the modules' weights, where there are several


class GibbsInfo(NamedTuple):
    """What a sweep tells beside its draw."""

    log_joint: float
    n_active: int  # loadings


class Gibbs:
    """The sweeps of one data set, prior and engine."""

    def __init__(self, data: Data, prior: Prior, engine: Engine, moves: Sequence[Move] = ()) -> None:
        prior = prior.in_units_of(data)
        self.data, self.prior, self.engine, self.moves = data, prior, engine, tuple(moves)
        self.modules = Modules(prior.inclusion, prior.n_modules) if prior.n_modules > 1 else None
        self.column_noise = prior.noise != "feature"
        self.ones = np.ones(data.n_samples)
        self.n_base = 0 if data.design is None else data.n_features * len(data.design.basis)  # loadings on directions
        self.groups = prior.factor_groups()
        pi = prior.inclusion_matrix()
        self.fixed_logit = np.log(pi) - np.log1p(-pi)
        self.fixed_log_out = float(np.sum(np.log1p(-np.broadcast_to(pi, (data.n_features, prior.K)))))
        self.sizes: Any = prior.group_sizes if prior.grouped else data.n_features  # of the groups

    def sweep(
        self, state: GibbsState, key: tuple[int, int], sweep: int, power: float = 1.0
    ) -> tuple[GibbsState, GibbsInfo]:
        """One sweep; its randomness is a function of (key, sweep) alone.

        power: of the likelihood (2.12). Below 1 the sweep is only for warming up.
        """
        state, sums = self.draw(state, key, sweep, power)
        return state, GibbsInfo(log_joint=self.log_joint(state, sums), n_active=int(sums.active.sum()))

    def draw(self, state: GibbsState, key: tuple[int, int], sweep: int, power: float = 1.0) -> tuple[GibbsState, Sums]:
        """A sweep's draw, and the sums over its rows."""
        rng = column_generator(key, sweep)
        for move in self.moves:
            if sweep > 0 and sweep % move.every == 0:
                state = move(self, state, rng)
        if self.data.design is not None:
            state = self.slide(state, rng)
        rows, sums = self.engine.gibbs_row_pass(
            state.rows, self.message(state, power), self.engine.row_noise(key, sweep)
        )
        F = self.sample_f(state, sums, power, rng)
        tau = self.sample_tau(F, sums, rng)
        alpha = self.sample_alpha(sums, rng)
        if self.modules is None:
            pi, w = self.sample_pi(sums, rng), state.w
        else:
            rows = self.modules.sample_member(self.engine, rows, state.pi, state.w, rng)
            pi, w = self.modules.sample_rates(*self.module_counts(rows), rng)
        return GibbsState(rows, F, alpha, pi, tau, np.ones(len(alpha)), w), sums

    def start(self, L: Array, F: Array) -> GibbsState:
        """A state around point values of L (G, K) and F (K, N); the first sweep redraws every row."""
        return self.begin(self.engine.gibbs_place(L), F)

    def begin(self, rows: GibbsRows, F: Array) -> GibbsState:
        """A state around a draw of the rows and F (K, N)."""
        K = len(F)
        if self.data.design is not None:
            rows = self.engine.gibbs_regress(rows, F)
        count, l2 = self.engine.gibbs_counts(rows)
        alpha = (self.prior.loading_shape + 0.5 * count) / (self.prior.loading_rate + 0.5 * l2)
        pi = np.zeros(0)
        if isinstance(self.prior.inclusion, Beta):
            a, b = self.prior.inclusion.a, self.prior.inclusion.b
            pi = (a + count) / (a + b + self.sizes)
        w = NONE
        if self.modules is not None:
            rows = self.engine.gibbs_deal(rows, self.modules.M)
            pi, w = self.modules.mean_rates(*self.module_counts(rows))
        tau = np.zeros(0)
        if self.column_noise:
            shape, rate = column_noise_posterior(self.data, self.prior, self.engine.gibbs_column_rss(rows, F))
            tau = shape / rate
        return GibbsState(rows, F.copy(), alpha, pi, tau, np.ones(K), w)

    def message(self, state: GibbsState, power: float = 1.0) -> Message:
        """What the rows need of the columns (4.2)."""
        F, weight = state.F, power * self.weight(state.tau)
        weighted = F * weight
        K = len(F)
        share = np.zeros((0, K, K))
        if not self.data.is_complete:
            share = weighted.T[:, :, None] * F.T[:, None, :]
        return Message(
            F=np.ascontiguousarray(weighted.T),
            gram=weighted @ F.T,
            share=share,
            alpha=state.alpha,
            log_alpha=np.log(state.alpha),
            logit=self.logit(state),
            scale=state.scale,
            weight=weight,
        )

    def columns(self, state: GibbsState) -> GibbsColumns:
        """What a move's rows need of the columns."""
        return GibbsColumns(state.F, state.alpha, self.logit(state), self.weight(state.tau), state.scale)

    def logit(self, state: GibbsState) -> Array:
        """(1, V or G, K) prior log odds of inclusion, or (M, K) of the modules."""
        if self.modules is not None:
            return self.modules.logit(state.pi)
        if self.prior.learns_inclusion:
            logit = np.log(state.pi) - np.log1p(-state.pi)
            return np.ascontiguousarray(logit.reshape(len(logit), -1).T)
        return self.fixed_logit

    def rate(self, state: GibbsState) -> Array:
        """(K,) the rate of inclusion over all rows; (0,) where it is given."""
        if self.modules is not None:
            return self.modules.rate(state.pi, self.module_counts(state.rows)[0])
        return state.pi if state.pi.ndim == 1 else np.asarray(state.pi @ (self.sizes / self.sizes.sum()))

    def module_counts(self, rows: GibbsRows) -> tuple[Array, Array]:
        """(M,) rows in each module, and (K, M) how many of them are active."""
        assert self.modules is not None
        return self.engine.gibbs_module_counts(rows, self.modules.M)

    def weight(self, tau: Array) -> Array:
        return tau if self.column_noise else self.ones

    def slide(self, state: GibbsState, rng: np.random.Generator) -> GibbsState:
        """f_k -> f_k - e'C and base -> base + e l_k, e drawn exactly, for each factor in turn (2.18)."""
        assert self.data.design is not None
        flat, alpha = ~self.data.design.learnt, self.data.base_precision
        C = self.data.design.basis[flat]
        if not len(C):
            return state
        F, E = state.F.copy(), np.zeros((len(state.F), len(C)))
        LL, base = self.engine.gibbs_products(state.rows, state.scale)
        base = base[:, flat]
        for k in range(len(F)):
            Q = C @ C.T + alpha * LL[k, k] * np.eye(len(C))
            root = np.linalg.cholesky(Q)
            linear = C @ F[k] - alpha * (base[k] + LL[k] @ E)
            e = np.linalg.solve(root.T, np.linalg.solve(root, linear) + rng.standard_normal(len(C)))
            F[k] -= e @ C
            E[k] = e
        slide = np.zeros((len(F), len(flat)))
        slide[:, flat] = state.scale[:, None] * E
        return state._replace(F=F, rows=self.engine.gibbs_slide(state.rows, slide))

    # ---- the column step, one conditional each ------------------------------------------------------------------

    def sample_f(self, state: GibbsState, sums: Sums, power: float, rng: np.random.Generator) -> Array:
        """F given the rest (2.5)."""
        weight = power * self.weight(state.tau)
        F = self.engine.gibbs_activations(sums, weight, rng.standard_normal(state.F.shape))
        if not np.abs(F).max(initial=0.0) < LARGEST:
            raise ValueError(
                "draws must be finite; the activations are not, since the factors explain these data to within "
                "rounding; rescale X to unit variance, or raise noise_rate"
            )
        return F

    def sample_tau(self, F: Array, sums: Sums, rng: np.random.Generator) -> Array:
        """Column-wise tau given the rest (2.1)."""
        if not self.column_noise:
            return np.zeros(0)
        shape, rate = column_noise_posterior(self.data, self.prior, self.data.column_ss - self.explained(F, sums))
        if self.prior.noise == "shared":
            return np.full(len(rate), rng.standard_gamma(shape[0]) / rate[0])
        return np.asarray(rng.standard_gamma(shape) / rate)

    def explained(self, F: Array, sums: Sums) -> Array:
        """(N,) 2 f_j'(sum w l y_j) - f_j' D_j f_j: what the factors take off a sample's weighted sum of squares."""
        if self.data.is_complete:
            quadratic = np.sum(F * (sums.LL @ F), axis=0)
        else:
            quadratic = np.sum(F * np.einsum("jkl,lj->kj", sums.LL + sums.LL_share, F), axis=0)
        taken = 2.0 * np.sum(F * sums.LY, axis=0) - quadratic
        return np.asarray(taken if sums.shift is NONE else taken - sums.shift)

    def sample_alpha(self, sums: Sums, rng: np.random.Generator) -> Array:
        """alpha_k given the rest (2.7)."""
        shape = self.prior.loading_shape + 0.5 * sums.active
        return positive(rng.standard_gamma(shape) / (self.prior.loading_rate + 0.5 * sums.l2))

    def sample_pi(self, sums: Sums, rng: np.random.Generator) -> Array:
        """pi_k given the rest, where it is learnt (2.8)."""
        if not isinstance(self.prior.inclusion, Beta):
            return np.zeros(0)
        pi = rng.beta(self.prior.inclusion.a + sums.active, self.prior.inclusion.b + self.sizes - sums.active)
        return clipped(pi)

    # ---- the log joint density of the draw (2.14), from the sums alone --------------------------------------------

    def log_joint(self, state: GibbsState, sums: Sums) -> float:
        """log p(Y, L, Z, F, tau) of a state at scale one with these sums; alpha and pi are integrated out (2.14)."""
        prior, data = self.prior, self.data
        F, tau = state.F, state.tau
        total = float(-0.5 * data.n_observed * LOG_2PI - 0.5 * np.sum(F**2 + LOG_2PI))
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
        if self.modules is not None:
            total += self.modules.log_density(*self.module_counts(state.rows))
        elif isinstance(prior.inclusion, Beta):
            a, b = prior.inclusion.a, prior.inclusion.b
            total += np.sum(betaln(a + sums.active, b + self.sizes - sums.active) - betaln(a, b))
        else:
            total += sums.joint.log_odds + self.fixed_log_out
        return float(total) + sums.joint.base + self.unit_term(float(sums.active.sum()) + self.n_base)

    def unit_term(self, active: float) -> float:
        """What the log joint gains when Y, L and tau are taken from the units of `data.Y` back to those of X."""
        n_noise = {"feature": self.data.n_features, "sample": self.data.n_samples, "shared": 1}[self.prior.noise]
        return float(np.log(self.data.unit) * (2.0 * n_noise - self.data.n_observed - active))
