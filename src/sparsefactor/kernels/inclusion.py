"""How inclusion is given, for variational inference: fixed, learnt, or learnt by module (math.md, 3.6b and 3.17).

One object of these says all that the sweep needs to know of it: the update of q(pi) beside its term of the ELBO, and
what the rows are told. Functions of arrays, of whatever library `on` names, as those of columns.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from ..arrays import NUMPY, Arrays
from ..data import Data
from ..densities import beta_kl
from ..model import Beta, Prior
from .contract import NONE, Array, Sums, VIColumns


class Inclusion(Protocol):
    """A way to give inclusion."""

    def begun(self, columns: VIColumns, active: Array, known: bool) -> VIColumns:
        """With a first q(pi); active: (K, V?) how many inclusions there are, where they are known."""
        ...

    def updated(self, columns: VIColumns, sums: Sums) -> VIColumns:
        """With q(pi) given the rows' sums."""
        ...

    def emptied(self, columns: VIColumns, k: int) -> VIColumns:
        """With q(pi) of factor k as no inclusions make it."""
        ...

    def odds(self, columns: VIColumns) -> dict[str, Array]:
        """The message's fields that tell rows of inclusion."""
        ...

    def log_out(self, columns: VIColumns) -> Any:
        """The sum over rows and factors of E[log(1 - pi)], the part of E[log p(z)] that z does not change."""
        ...

    def term(self, columns: VIColumns) -> Any:
        """-KL(q(pi) || p(pi))."""
        ...

    def rate(self, columns: VIColumns) -> Array:
        """(K, V?) E[pi] of all features, or (0,) where inclusion is given."""
        ...

    def coordinates(self, columns: VIColumns) -> Array:
        """What is extrapolated (3.13): the activations, and what else creeps along."""
        ...

    def moved(self, columns: VIColumns, coordinates: Array) -> VIColumns:
        """The columns at other coordinates."""
        ...


class GivenInclusion(NamedTuple):
    """Rates that are given, for each factor or each loading."""

    logit: Array  # (1 or G, K)
    total_log_out: float

    def begun(self, columns: VIColumns, active: Array, known: bool) -> VIColumns:
        return columns

    def updated(self, columns: VIColumns, sums: Sums) -> VIColumns:
        return columns

    def emptied(self, columns: VIColumns, k: int) -> VIColumns:
        return columns

    def odds(self, columns: VIColumns) -> dict[str, Array]:
        return {"logit": self.logit}

    def log_out(self, columns: VIColumns) -> Any:
        return self.total_log_out

    def term(self, columns: VIColumns) -> Any:
        return 0.0

    def rate(self, columns: VIColumns) -> Array:
        return columns.pi_a

    def coordinates(self, columns: VIColumns) -> Array:
        return columns.f_mean

    def moved(self, columns: VIColumns, coordinates: Array) -> VIColumns:
        return columns._replace(f_mean=coordinates)


class LearntInclusion(NamedTuple):
    """A Beta on each factor's rate, or on each factor's and group's."""

    a: Array  # ()
    b: Array  # ()
    sizes: Array  # () features, or (V,) those of each group
    on: Arrays = NUMPY

    def begun(self, columns: VIColumns, active: Array, known: bool) -> VIColumns:
        if known:
            return self._counted(columns, active)
        like = self.on.xp.ones_like(columns.alpha_shape)
        return columns._replace(pi_a=self.a * like, pi_b=self.b * like)

    def updated(self, columns: VIColumns, sums: Sums) -> VIColumns:
        """q(pi_k) (3.6b)."""
        return self._counted(columns, sums.active)

    def _counted(self, columns: VIColumns, active: Array) -> VIColumns:
        return columns._replace(pi_a=self.a + active, pi_b=self.b + (self.sizes - active))

    def emptied(self, columns: VIColumns, k: int) -> VIColumns:
        return _emptied(columns, k, self.a, self.b + self.sizes, self.on)

    def odds(self, columns: VIColumns) -> dict[str, Array]:
        xp, digamma = self.on.xp, self.on.digamma
        logit = digamma(columns.pi_a) - digamma(columns.pi_b)
        return {"logit": xp.reshape(logit, (logit.shape[0], -1)).T}

    def log_out(self, columns: VIColumns) -> Any:
        xp, digamma = self.on.xp, self.on.digamma
        out = digamma(columns.pi_b) - digamma(columns.pi_a + columns.pi_b)
        return self.sizes * xp.sum(out) if out.ndim == 1 else xp.sum(out @ self.sizes)

    def term(self, columns: VIColumns) -> Any:
        """(3.9b)"""
        return -self.on.xp.sum(beta_kl(columns.pi_a, columns.pi_b, self.a, self.b, self.on))

    def rate(self, columns: VIColumns) -> Array:
        return columns.pi_a / (columns.pi_a + columns.pi_b)

    def coordinates(self, columns: VIColumns) -> Array:
        return columns.f_mean

    def moved(self, columns: VIColumns, coordinates: Array) -> VIColumns:
        return columns._replace(f_mean=coordinates)


class ModuleInclusion(NamedTuple):
    """A Beta on each factor's rate in each of M modules of features, or on the one that it has in all of them."""

    a: Array  # ()
    b: Array  # ()
    n_features: int
    M: int
    on: Arrays = NUMPY

    def begun(self, columns: VIColumns, active: Array, known: bool) -> VIColumns:
        raise NotImplementedError("a fit under modules sets out from one without: see vi/modules.py")

    def updated(self, columns: VIColumns, sums: Sums) -> VIColumns:
        """q(pi), (K, M + 1), q(w), and which factors have rates of their own given their rates (3.17c to 3.17e)."""
        xp, betaln = self.on.xp, self.on.betaln
        active = xp.concat([sums.active_in, sums.active[:, None]], axis=1)
        G = xp.asarray([float(self.n_features)], dtype=active.dtype)
        out = xp.concat([sums.members, G]) - active
        pi_a, pi_b = self.a + active, self.b + xp.maximum(out, xp.zeros_like(out))
        evidence = betaln(pi_a, pi_b) - betaln(self.a, self.b)
        own = self.on.expit(xp.sum(evidence[:, : self.M], axis=1) - evidence[:, self.M])
        return columns._replace(pi_a=pi_a, pi_b=pi_b, own=own, w_shape=1.0 / self.M + sums.members)

    def emptied(self, columns: VIColumns, k: int) -> VIColumns:
        return _emptied(columns, k, self.a, self.b + self.n_features, self.on)

    def odds(self, columns: VIColumns) -> dict[str, Array]:
        digamma, both = self.on.digamma, self.on.digamma(columns.pi_a + columns.pi_b)
        return {
            "logit": NONE,  # there is one for each module
            "log_in": self.seen(columns, digamma(columns.pi_a) - both),
            "log_out": self.seen(columns, digamma(columns.pi_b) - both),
            "log_weight": digamma(columns.w_shape) - digamma(self.on.xp.sum(columns.w_shape)),
        }

    def seen(self, columns: VIColumns, values: Array) -> Array:
        """(K, M) what a module sees of values (K, M + 1): its own, or the common one."""
        own = columns.own[:, None]
        return own * values[:, : self.M] + (1.0 - own) * values[:, self.M :]

    def log_out(self, columns: VIColumns) -> Any:
        return 0.0  # the rows know it, for it depends on their module

    def term(self, columns: VIColumns) -> Any:
        """Of the rates, of which factors have their own, and of the weights (3.17f)."""
        xp, gammaln, digamma, xlogy = self.on.xp, self.on.gammaln, self.on.digamma, self.on.xlogy
        shape, prior_shape, own = columns.w_shape, xp.asarray(1.0 / self.M), columns.own
        total = xp.sum(shape)
        kl = gammaln(total) - xp.sum(gammaln(shape)) + self.M * gammaln(prior_shape)
        kl = kl + (shape - prior_shape) @ (digamma(shape) - digamma(total))
        kl = kl + xp.sum(xlogy(own, 2.0 * own) + xlogy(1.0 - own, 2.0 * (1.0 - own)))
        rates = beta_kl(columns.pi_a, columns.pi_b, self.a, self.b, self.on)
        return -(kl + own @ xp.sum(rates[:, : self.M], axis=1) + (1.0 - own) @ rates[:, self.M])

    def module_rates(self, columns: VIColumns) -> Array:
        """(K, M) E[pi] as a module sees it."""
        rates = self.seen(columns, columns.pi_a / (columns.pi_a + columns.pi_b))
        return self.on.xp.minimum(rates, self.on.xp.ones_like(rates))  # but for rounding

    def rate(self, columns: VIColumns) -> Array:
        """(K,) the mean over features: each module's rate, by its weight."""
        xp = self.on.xp
        rate = self.module_rates(columns) @ (columns.w_shape / xp.sum(columns.w_shape))
        return xp.minimum(rate, xp.ones_like(rate))

    def coordinates(self, columns: VIColumns) -> Array:
        """The activations, and the logarithms of what belongs to modules: these, too, creep along."""
        xp = self.on.xp
        small = xp.concat([xp.reshape(columns.pi_a, (-1,)), xp.reshape(columns.pi_b, (-1,)), columns.w_shape])
        return xp.concat([xp.reshape(columns.f_mean, (-1,)), xp.log(small)])

    def moved(self, columns: VIColumns, coordinates: Array) -> VIColumns:
        xp, at, parts = self.on.xp, 0, []
        for old in (columns.f_mean, columns.pi_a, columns.pi_b, columns.w_shape):
            parts.append(xp.reshape(coordinates[at : at + old.size], old.shape))
            at += old.size
        f_mean, *small = parts
        pi_a, pi_b, w_shape = (xp.exp(values) for values in small)
        return columns._replace(f_mean=f_mean, pi_a=pi_a, pi_b=pi_b, w_shape=w_shape)


def _emptied(columns: VIColumns, k: int, a: Any, b: Any, on: Arrays) -> VIColumns:
    xp = on.xp
    this = xp.arange(columns.pi_a.shape[0]) == k
    this = this if columns.pi_a.ndim == 1 else this[:, None]
    return columns._replace(pi_a=xp.where(this, a, columns.pi_a), pi_b=xp.where(this, b, columns.pi_b))


def inclusion_of(prior: Prior, data: Data, on: Arrays = NUMPY) -> Inclusion:
    """As a prior gives it."""
    xp = on.xp
    if not isinstance(prior.inclusion, Beta):
        pi = prior.inclusion_matrix()
        log_out = float(np.sum(np.log1p(-np.broadcast_to(pi, (data.n_features, prior.K)))))
        return GivenInclusion(xp.asarray(np.log(pi) - np.log1p(-pi)), log_out)
    a, b = (xp.asarray(value, dtype=xp.float64) for value in (prior.inclusion.a, prior.inclusion.b))
    if prior.n_modules > 1:
        return ModuleInclusion(a, b, data.n_features, prior.n_modules, on)
    sizes = prior.group_sizes if prior.grouped else data.n_features
    return LearntInclusion(a, b, xp.asarray(sizes, dtype=xp.float64), on)
