"""Features in modules: the fit under a prior with more than one of them (docs/math.md, 1.8 and 3.17).

The search for factors goes on as if there were one module. What it found is where the modules set out from: features
are sorted by the inclusions they have, in several ways, and the best of these goes on. Where that does not pay, all
features are left in one module.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
from scipy.cluster.vq import kmeans2
from scipy.special import digamma, gammaln

from ..kernels.contract import NONE, Array, Message, Sums, VIColumns, VIRows
from ..model import Beta
from .state import CAVI, VIState
from .trial import Tolerance, Trial

ROUNDS = 10  # of k-means, which sorts the features
LOOK = 20  # iterations after which the sortings are compared
DOUBT = 0.3  # of a feature's first membership, spread over the modules in use


class ModuleCAVI(CAVI):
    """The sweeps under a prior with modules."""

    def __init__(self, plain: CAVI) -> None:
        super().__init__(plain.data, plain.prior, plain.kernels, joint=plain.joint)
        self.shortcut = None
        self.M = plain.prior.n_modules

    def sorted_by(self, state: VIState, member: Array) -> VIState:
        """The state that follows when features belong to modules as `member` (G, M) says."""
        rows = state.rows
        within = np.repeat(rows.eta[:, :, None], self.M, axis=2)
        sums = state.sums._replace(members=member.sum(axis=0), active_in=rows.eta.T @ member)
        pi_a, pi_b = self.update_pi(sums)
        columns = state.columns._replace(pi_a=pi_a, pi_b=pi_b, w_shape=self.update_weights(sums))
        return self.finish(rows._replace(member=member, within=within), columns, np.ones(self.prior.K))

    def largest_first(self, state: VIState) -> VIState:
        """The modules in the order of their sizes."""
        order = np.argsort(-state.sums.members, kind="stable")
        rows, columns, sums = state.rows, state.columns, state.sums
        return state._replace(
            rows=rows._replace(member=rows.member[:, order], within=rows.within[:, :, order]),
            columns=columns._replace(
                pi_a=columns.pi_a[:, order], pi_b=columns.pi_b[:, order], w_shape=columns.w_shape[order]
            ),
            sums=sums._replace(members=sums.members[order], active_in=sums.active_in[:, order]),
        )

    def summary(self, state: VIState) -> dict[str, Array]:
        """What the public result tells of modules."""
        columns = state.columns
        return {
            "module_prob": np.ascontiguousarray(state.rows.member),
            "module_rate_mean": np.ascontiguousarray(self.rates(columns).T),
            "module_weight_mean": columns.w_shape / columns.w_shape.sum(),
        }

    def rates(self, columns: VIColumns) -> Array:
        """(K, M) E[pi]."""
        return columns.pi_a / (columns.pi_a + columns.pi_b)

    def inclusion_rate(self, columns: VIColumns) -> Array:
        """(K,) the mean over features: each module's rate, by its weight."""
        return np.asarray(self.rates(columns) @ (columns.w_shape / columns.w_shape.sum()))

    def column_step(self, columns: VIColumns, sums: Sums) -> VIColumns:
        return super().column_step(columns, sums)._replace(w_shape=self.update_weights(sums))

    def finish(self, rows: VIRows, columns: VIColumns, scale: Array) -> VIState:
        rows, sums = self.kernels.vi_module_pass(rows, self.message(columns, scale))
        terms = self.elbo_terms(columns, sums)
        return VIState(rows, columns, sums, terms, float(terms.sum()))

    def coordinates(self, columns: VIColumns) -> Array:
        """The activations, and the logarithms of what belongs to modules: these, too, creep along."""
        small = np.concatenate([columns.pi_a.ravel(), columns.pi_b.ravel(), columns.w_shape])
        return np.concatenate([columns.f_mean.ravel(), np.log(small)])

    def moved(self, columns: VIColumns, coordinates: Array) -> VIColumns:
        sizes = np.cumsum([columns.f_mean.size, columns.pi_a.size, columns.pi_b.size])
        f_mean, *small = np.split(coordinates, sizes)
        pi_a, pi_b, w_shape = (np.exp(values) for values in small)
        shape = columns.pi_a.shape
        return columns._replace(
            f_mean=f_mean.reshape(columns.f_mean.shape),
            pi_a=pi_a.reshape(shape),
            pi_b=pi_b.reshape(shape),
            w_shape=w_shape,
        )

    def message(self, columns: VIColumns, scale: Array) -> Message:
        both = digamma(columns.pi_a + columns.pi_b)
        return (
            super()
            .message(columns, scale)
            ._replace(
                log_in=digamma(columns.pi_a) - both,
                log_out=digamma(columns.pi_b) - both,
                log_weight=digamma(columns.w_shape) - digamma(columns.w_shape.sum()),
            )
        )

    def logit(self, columns: VIColumns) -> Array:
        return NONE  # the message has one for each module

    def update_pi(self, sums: Sums) -> tuple[Array, Array]:
        """q(pi_km), (K, M) (3.17c)."""
        assert isinstance(self.prior.inclusion, Beta)
        a, b = self.prior.inclusion.a, self.prior.inclusion.b
        return a + sums.active_in, b + np.maximum(sums.members - sums.active_in, 0.0)

    def update_weights(self, sums: Sums) -> Array:
        """q(w), (M,) (3.17d)."""
        return 1.0 / self.M + sums.members

    def log_out(self, columns: VIColumns) -> float:
        return 0.0  # the rows know it, for it depends on their module

    def pi_term(self, columns: VIColumns) -> float:
        """-KL of the rates and of the weights (3.9b, 3.17e)."""
        shape, prior_shape = columns.w_shape, 1.0 / self.M
        kl = gammaln(shape.sum()) - gammaln(shape).sum() + self.M * gammaln(prior_shape)
        kl += (shape - prior_shape) @ (digamma(shape) - digamma(shape.sum()))
        return super().pi_term(columns) - float(kl)


def moduled(trial: Trial, tolerance: Tolerance, max_iter: int, rng: np.random.Generator) -> Trial:
    """The trial under the prior with modules: of several ways to sort its features, the one that climbs highest."""
    begin = time.perf_counter()
    cavi = ModuleCAVI(trial.cavi)
    best, spent = trial, trial.iterations
    for member in sortings(trial.state.rows.eta, cavi.M, rng):
        new = in_modules(trial, cavi, member)
        new.advance(min(new.iterations + LOOK, max_iter), tolerance)
        spent += new.iterations - trial.iterations
        if best is trial or new.elbo > best.elbo:
            best = new
    best.iterations, best.seconds = spent, trial.seconds + time.perf_counter() - begin
    best.trace = [(spent, best.elbo, best.seconds)]  # the ELBO before was that of another model
    best.advance(max_iter, tolerance)
    if best.elbo > trial.elbo:
        return best
    # One module explains the data as well as many. All features in one is an optimum here too.
    whole = in_modules(trial, cavi, unsorted(len(trial.state.rows.eta), cavi.M))
    whole.iterations, whole.seconds = best.iterations + 1, best.seconds
    whole.trace = [(whole.iterations, whole.elbo, whole.seconds)]
    whole.advance(max_iter, tolerance)
    return whole if whole.elbo > best.elbo else best


def in_modules(trial: Trial, cavi: ModuleCAVI, member: Array) -> Trial:
    """The trial with its features sorted."""
    state = cavi.sorted_by(trial.state, member)
    new = Trial(trial.number, trial.name, cavi, state, accelerate=trial.momentum is not None)
    new.iterations, new.seconds = trial.iterations + 1, trial.seconds
    return new


def unsorted(n_features: int, M: int) -> Array:
    """(G, M) memberships: all features in one module."""
    member = np.zeros((n_features, M))
    member[:, 0] = 1.0
    return member


def sortings(eta: Array, M: int, rng: np.random.Generator) -> list[Array]:
    """(G, M) memberships to set out from: 2, 4, 8, ... and at last M clusters of the features by their inclusions."""
    found = []
    most = min(M, len(eta))
    for k in [2**power for power in range(1, 30) if 2**power < most] + [most]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an empty cluster is a module to spare
            _, label = kmeans2(eta, k, iter=ROUNDS, minit="++", seed=rng)
        found.append((1.0 - DOUBT) * np.eye(M)[label] + DOUBT * (np.arange(M) < k) / k)
    return found
