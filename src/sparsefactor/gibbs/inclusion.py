"""How inclusion is given, for Gibbs sampling: fixed, learnt, or learnt by module (math.md, 1.8, 2.8 and 2.13).

One object of these draws what belongs to it and tells the rows their odds, so that the sweep is the same for all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from scipy.special import betaln, expit, gammaln

from ..data import Data
from ..kernels.contract import NONE, Array, GibbsRows, Sums
from ..kernels.noise import row_stream
from ..kernels.protocol import Engine
from ..model import Beta, Prior

if TYPE_CHECKING:
    from .state import GibbsState


class Rates(NamedTuple):
    """What of a draw belongs to inclusion: rows, which know their modules, and the rest as in `GibbsState`."""

    rows: GibbsRows
    pi: Array
    w: Array = NONE


class Inclusion(Protocol):
    """A way to give inclusion."""

    a: float  # of the Beta that rates are proposed from
    b: float

    def begin(self, rows: GibbsRows, count: Array) -> Rates:
        """Rates around a draw of the rows with so many inclusions, (K, V?)."""
        ...

    def sample(self, state: GibbsState, rows: GibbsRows, sums: Sums, rng: np.random.Generator) -> Rates:
        """Rates given the rows that follow `state`."""
        ...

    def logit(self, state: GibbsState) -> Array:
        """(1, V or G, K) prior log odds of inclusion, or (M, K) of the modules."""
        ...

    def at_logit(self, state: GibbsState, logit: Array) -> Array:
        """The state's pi where a move has changed these odds."""
        ...

    def rate(self, state: GibbsState) -> Array:
        """(K,) the rate of inclusion over all rows; (0,) where it is given."""
        ...

    def log_density(self, state: GibbsState, sums: Sums) -> float:
        """log p(Z), rates that are learnt integrated out (2.14)."""
        ...


class GivenInclusion:
    """Rates that are given, for each factor or each loading."""

    a = b = 1.0

    def __init__(self, pi: Array, n_features: int) -> None:
        """pi: (1 or G, K)."""
        self.fixed = np.log(pi) - np.log1p(-pi)
        self.log_out = float(np.sum(np.log1p(-np.broadcast_to(pi, (n_features, pi.shape[1])))))

    def begin(self, rows: GibbsRows, count: Array) -> Rates:
        return Rates(rows, np.zeros(0))

    def sample(self, state: GibbsState, rows: GibbsRows, sums: Sums, rng: np.random.Generator) -> Rates:
        return Rates(rows, np.zeros(0))

    def logit(self, state: GibbsState) -> Array:
        return self.fixed

    def at_logit(self, state: GibbsState, logit: Array) -> Array:
        return state.pi

    def rate(self, state: GibbsState) -> Array:
        return state.pi

    def log_density(self, state: GibbsState, sums: Sums) -> float:
        return sums.joint.log_odds + self.log_out


class LearntInclusion:
    """A Beta on each factor's rate, or on each factor's and group's."""

    def __init__(self, inclusion: Beta, sizes: Any) -> None:
        """sizes: the number of features, or (V,) of those in each group."""
        self.a, self.b, self.sizes = inclusion.a, inclusion.b, sizes

    def begin(self, rows: GibbsRows, count: Array) -> Rates:
        return Rates(rows, (self.a + count) / (self.a + self.b + self.sizes))

    def sample(self, state: GibbsState, rows: GibbsRows, sums: Sums, rng: np.random.Generator) -> Rates:
        """pi_k given the rest (2.8)."""
        return Rates(rows, clipped(rng.beta(self.a + sums.active, self.b + self.sizes - sums.active)))

    def logit(self, state: GibbsState) -> Array:
        logit = np.log(state.pi) - np.log1p(-state.pi)
        return np.ascontiguousarray(logit.reshape(len(logit), -1).T)

    def at_logit(self, state: GibbsState, logit: Array) -> Array:
        return clipped(expit(logit.T.reshape(state.pi.shape)))

    def rate(self, state: GibbsState) -> Array:
        return state.pi if state.pi.ndim == 1 else np.asarray(state.pi @ (self.sizes / self.sizes.sum()))

    def log_density(self, state: GibbsState, sums: Sums) -> float:
        evidence = betaln(self.a + sums.active, self.b + self.sizes - sums.active) - betaln(self.a, self.b)
        return float(np.sum(evidence))


class ModuleInclusion:
    """A Beta on each factor's rate in each of M modules, or on the one it has in all: pi (K, M), w (M,)."""

    def __init__(self, inclusion: Beta, M: int, engine: Engine) -> None:
        self.a, self.b, self.M, self.engine = inclusion.a, inclusion.b, M, engine

    def begin(self, rows: GibbsRows, count: Array) -> Rates:
        rows = self.engine.gibbs_deal(rows, self.M)
        size, active = self.counts(rows)
        pi = (self.a + active) / (self.a + self.b + size)
        return Rates(rows, pi, (1.0 / self.M + size) / (1.0 + size.sum()))

    def sample(self, state: GibbsState, rows: GibbsRows, sums: Sums, rng: np.random.Generator) -> Rates:
        rows = self.sample_member(rows, state.pi, state.w, rng)
        return Rates(rows, *self.sample_rates(*self.counts(rows), rng))

    def counts(self, rows: GibbsRows) -> tuple[Array, Array]:
        """(M,) rows in each module, and (K, M) how many of them are active."""
        return self.engine.gibbs_module_counts(rows, self.M)

    def sample_member(self, rows: GibbsRows, pi: Array, w: Array, rng: np.random.Generator) -> GibbsRows:
        """The rows with c_i drawn given z_i, the rates and the weights (2.13a)."""
        return self.engine.gibbs_members(rows, pi, w, row_stream(rng))

    def sample_rates(self, size: Array, active: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """Which factors have rates of their own, these rates, and w, given the members (2.13b to 2.13d).

        size: (M,) rows in each module; active: (K, M) how many of them are active.
        """
        own, common = self.evidence(size, active)
        total = active.sum(axis=1, keepdims=True)
        pi = np.where(
            (rng.random(len(own)) < expit(own - common))[:, None],
            rng.beta(self.a + active, self.b + size - active),
            rng.beta(self.a + total, self.b + size.sum() - total),
        )
        w = positive(rng.standard_gamma(1.0 / self.M + size))
        return clipped(pi), positive(w / w.sum())

    def evidence(self, size: Array, active: Array) -> tuple[Array, Array]:
        """(K,) log p(z_k | c) with rates of the modules' own, and with a common one, the rates integrated out."""
        none = betaln(self.a, self.b)
        own = betaln(self.a + active, self.b + size[None, :] - active) - none
        total = active.sum(axis=1)
        return own.sum(axis=1), betaln(self.a + total, self.b + size.sum() - total) - none

    def logit(self, state: GibbsState) -> Array:
        return np.ascontiguousarray((np.log(state.pi) - np.log1p(-state.pi)).T)

    def at_logit(self, state: GibbsState, logit: Array) -> Array:
        return state.pi

    def rate(self, state: GibbsState) -> Array:
        """The mean over rows of their module's rate."""
        size, _ = self.counts(state.rows)
        return np.asarray(state.pi @ (size / size.sum()))

    def log_density(self, state: GibbsState, sums: Sums) -> float:
        """log p(Z, c), the weights integrated out as well: an empty module's would tell nothing but noise."""
        size, active = self.counts(state.rows)
        own, common = self.evidence(size, active)
        total = np.sum(np.logaddexp(own, common)) - len(own) * np.log(2.0)
        total += np.sum(gammaln(1.0 / self.M + size) - gammaln(1.0 / self.M)) - gammaln(1.0 + size.sum())
        return float(total)


def inclusion_of(prior: Prior, data: Data, engine: Engine) -> Inclusion:
    """As a prior gives it."""
    if not isinstance(prior.inclusion, Beta):
        return GivenInclusion(prior.inclusion_matrix(), data.n_features)
    if prior.n_modules > 1:
        return ModuleInclusion(prior.inclusion, prior.n_modules, engine)
    return LearntInclusion(prior.inclusion, prior.group_sizes if prior.grouped else data.n_features)


def clipped(pi: Array) -> Array:
    """A draw of a rate that rounds to 0 or 1 would have infinite odds."""
    return np.clip(pi, 1e-300, 1.0 - 2.0**-53)


def positive(x: Array) -> Array:
    """Lift what underflowed to zero: a gamma of tiny shape can, and a precision of zero is no precision."""
    return np.maximum(x, np.finfo(np.float64).tiny)
