"""Features in modules: the fit under a prior with more than one of them (docs/math.md, 1.8 and 3.17).

The search for factors goes on as if there were one module. What it found is where the modules set out from: features
are sorted by the inclusions they have, in several ways, and the best of these goes on. One way is to leave all
features in one module.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
from scipy.special import betaln, digamma, expit, gammaln, xlogy

from ..kernels.contract import NONE, Array, Message, Sums, VIColumns
from ..model import Beta, Prior
from .cavi import CAVI, VIState, beta_kl
from .trial import Tolerance, Trial

LOOK = 20  # iterations after which the sortings are compared


def one_module(prior: Prior) -> Prior:
    """The prior that factors are sought under."""
    return replace(prior, n_modules=1) if prior.n_modules > 1 else prior


class ModuleCAVI(CAVI):
    """The sweeps under a prior with modules."""

    def __init__(self, plain: CAVI, n_modules: int) -> None:
        prior = replace(plain.prior, n_modules=n_modules)
        super().__init__(plain.data, prior, plain.engine.with_prior(prior), joint=plain.joint)
        assert isinstance(prior.inclusion, Beta)
        self.M, self.beta = n_modules, prior.inclusion

    def sorted_by(self, state: VIState, member: Array) -> VIState:
        """The state that follows when features belong to modules as `member` (G, M) says."""
        rows, members, active_in = self.engine.vi_sort(state.rows, member)
        active, _ = self.engine.vi_counts(rows)
        sums = state.sums._replace(active=active, members=members, active_in=active_in)
        pi_a, pi_b = self.update_pi(sums)
        columns = self.with_modules(state.columns._replace(pi_a=pi_a, pi_b=pi_b), sums)
        return self.finish(rows, columns, np.ones(self.prior.K))

    # ---- a sweep ------------------------------------------------------------------------------------------------

    def column_step(self, columns: VIColumns, sums: Sums) -> VIColumns:
        return self.with_modules(super().column_step(columns, sums), sums)

    def with_modules(self, columns: VIColumns, sums: Sums) -> VIColumns:
        """q(w), and which factors have rates of their own, given their rates (3.17d, 3.17e)."""
        evidence = betaln(columns.pi_a, columns.pi_b) - betaln(self.beta.a, self.beta.b)
        own = expit(evidence[:, : self.M].sum(axis=1) - evidence[:, self.M])
        return columns._replace(own=own, w_shape=1.0 / self.M + sums.members)

    def message(self, columns: VIColumns, scale: Array) -> Message:
        both = digamma(columns.pi_a + columns.pi_b)
        return (
            super()
            .message(columns, scale)
            ._replace(
                log_in=self.seen(columns, digamma(columns.pi_a) - both),
                log_out=self.seen(columns, digamma(columns.pi_b) - both),
                log_weight=digamma(columns.w_shape) - digamma(columns.w_shape.sum()),
            )
        )

    def seen(self, columns: VIColumns, values: Array) -> Array:
        """(K, M) what a module sees of values (K, M + 1): its own, or the common one."""
        own = columns.own[:, None]
        return own * values[:, : self.M] + (1.0 - own) * values[:, self.M :]

    def coordinates(self, columns: VIColumns) -> Array:
        """The activations, and the logarithms of what belongs to modules: these, too, creep along."""
        small = np.concatenate([columns.pi_a.ravel(), columns.pi_b.ravel(), columns.w_shape])
        return np.concatenate([columns.f_mean.ravel(), np.log(small)])

    def moved(self, columns: VIColumns, coordinates: Array) -> VIColumns:
        sizes = np.cumsum([columns.f_mean.size, columns.pi_a.size, columns.pi_b.size])
        f_mean, *small = np.split(coordinates, sizes)
        pi_a, pi_b, w_shape = (np.exp(values) for values in small)
        return columns._replace(
            f_mean=f_mean.reshape(columns.f_mean.shape),
            pi_a=pi_a.reshape(columns.pi_a.shape),
            pi_b=pi_b.reshape(columns.pi_b.shape),
            w_shape=w_shape,
        )

    def logit(self, columns: VIColumns) -> Array:
        return NONE  # the message has one for each module

    def update_pi(self, sums: Sums) -> tuple[Array, Array]:
        """q(pi), (K, M + 1) (3.17c)."""
        active = np.column_stack([sums.active_in, sums.active])
        size = np.append(sums.members, self.data.n_features)
        return self.beta.a + active, self.beta.b + np.maximum(size - active, 0.0)

    def log_out(self, columns: VIColumns) -> float:
        return 0.0  # the rows know it, for it depends on their module

    def pi_term(self, columns: VIColumns) -> float:
        """-KL of the rates, of which factors have their own, and of the weights (3.17f)."""
        shape, prior_shape, own = columns.w_shape, 1.0 / self.M, columns.own
        kl = gammaln(shape.sum()) - gammaln(shape).sum() + self.M * gammaln(prior_shape)
        kl += (shape - prior_shape) @ (digamma(shape) - digamma(shape.sum()))
        kl += np.sum(xlogy(own, 2.0 * own) + xlogy(1.0 - own, 2.0 * (1.0 - own)))
        rates = beta_kl(columns.pi_a, columns.pi_b, self.beta)
        return -float(kl + own @ rates[:, : self.M].sum(axis=1) + (1.0 - own) @ rates[:, self.M])

    # ---- what the result tells ------------------------------------------------------------------------------------

    def largest_first(self, state: VIState) -> VIState:
        """The modules in the order of their sizes."""
        order = np.argsort(-state.columns.w_shape, kind="stable")
        rows, columns, sums = state.rows, state.columns, state.sums
        every = np.append(order, self.M)
        return state._replace(
            rows=self.engine.vi_order_modules(rows, order),
            columns=columns._replace(
                pi_a=columns.pi_a[:, every], pi_b=columns.pi_b[:, every], w_shape=columns.w_shape[order]
            ),
            sums=sums._replace(members=sums.members[order], active_in=sums.active_in[:, order]),
        )

    def summary(self, state: VIState) -> dict[str, Array]:
        """What the public result tells of modules."""
        columns = state.columns
        return {
            "module_prob": np.ascontiguousarray(self.engine.vi_fetch(state.rows).member),
            "module_rate_mean": np.ascontiguousarray(self.rates(columns).T),
            "module_weight_mean": columns.w_shape / columns.w_shape.sum(),
        }

    def rates(self, columns: VIColumns) -> Array:
        """(K, M) E[pi] as a module sees it."""
        return np.minimum(self.seen(columns, columns.pi_a / (columns.pi_a + columns.pi_b)), 1.0)  # but for rounding

    def inclusion_rate(self, columns: VIColumns) -> Array:
        """(K,) the mean over features: each module's rate, by its weight."""
        return np.minimum(self.rates(columns) @ (columns.w_shape / columns.w_shape.sum()), 1.0)


def moduled(
    trial: Trial, n_modules: int, tolerance: Tolerance, max_iter: int, rng: np.random.Generator, tried: list[Trial]
) -> Trial:
    """The trial under the prior with modules: of several ways to sort its features, the one that climbs highest.

    tried: is given every state on the way, so that an interruption finds them there.
    """
    begin, spent = time.perf_counter(), trial.iterations
    cavi = ModuleCAVI(trial.cavi, n_modules)
    whole = in_modules(trial, cavi, cavi.engine.vi_unsorted(cavi.M))
    tried.append(whole)
    chosen = cavi.engine.vi_sortings(trial.state.rows, cavi.M, rng)
    look = min(LOOK, (max_iter - spent) // len(chosen) - 1)
    if look < 1:
        return whole  # not converged: its features have not been sorted
    for member in chosen:
        new = in_modules(trial, cavi, member)
        tried.append(new)
        new.advance(new.iterations + look, tolerance)
        spent += new.iterations - trial.iterations
    best = max(tried, key=lambda one: one.elbo)
    best.iterations, best.seconds = spent + 1, trial.seconds + time.perf_counter() - begin
    best.begin_trace()
    best.advance(max_iter, tolerance)
    return best


def in_modules(trial: Trial, cavi: ModuleCAVI, member: Array) -> Trial:
    """The trial with its features sorted, and one row pass."""
    new = trial.continued(cavi, cavi.sorted_by(trial.state, member))
    new.begin_trace()
    return new
