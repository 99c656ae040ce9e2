"""Features in modules, in Gibbs sampling (docs/math.md, 1.8 and 2.13)."""

from __future__ import annotations

import numpy as np
from scipy.special import betaln, expit, gammaln

from ..kernels.contract import Array, GibbsRows
from ..kernels.noise import row_stream
from ..kernels.protocol import Engine
from ..model import Beta


class Modules:
    """The conditionals of what belongs to modules: members (G,), rates pi (K, M) and weights w (M,)."""

    def __init__(self, inclusion: Beta, M: int) -> None:
        self.a, self.b, self.M = inclusion.a, inclusion.b, M

    def logit(self, pi: Array) -> Array:
        """(M, K) prior log odds of inclusion."""
        return np.ascontiguousarray((np.log(pi) - np.log1p(-pi)).T)

    def rate(self, pi: Array, size: Array) -> Array:
        """(K,) the mean over rows of their module's rate; size: (M,) rows in each module."""
        return np.asarray(pi @ (size / size.sum()))

    def sample_member(
        self, engine: Engine, rows: GibbsRows, pi: Array, w: Array, rng: np.random.Generator
    ) -> GibbsRows:
        """The rows with c_i drawn given z_i, the rates and the weights (2.13a)."""
        return engine.gibbs_members(rows, pi, w, row_stream(rng))

    def evidence(self, size: Array, active: Array) -> tuple[Array, Array]:
        """(K,) log p(z_k | c) with rates of the modules' own, and with a common one, the rates integrated out."""
        none = betaln(self.a, self.b)
        own = betaln(self.a + active, self.b + size[None, :] - active) - none
        total = active.sum(axis=1)
        return own.sum(axis=1), betaln(self.a + total, self.b + size.sum() - total) - none

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

    def mean_rates(self, size: Array, active: Array) -> tuple[Array, Array]:
        """The expectations of the modules' own rates and of w given the members."""
        return (self.a + active) / (self.a + self.b + size), (1.0 / self.M + size) / (1.0 + size.sum())

    def log_density(self, size: Array, active: Array) -> float:
        """log p(Z, c) with rates and weights integrated out: an empty module's would tell nothing but noise (2.14)."""
        own, common = self.evidence(size, active)
        total = np.sum(np.logaddexp(own, common)) - len(own) * np.log(2.0)
        total += np.sum(gammaln(1.0 / self.M + size) - gammaln(1.0 / self.M)) - gammaln(1.0 + size.sum())
        return float(total)


def clipped(pi: Array) -> Array:
    """A draw of a rate that rounds to 0 or 1 would have infinite odds."""
    return np.clip(pi, 1e-300, 1.0 - 2.0**-53)


def positive(x: Array) -> Array:
    """Lift what underflowed to zero: a gamma of tiny shape can, and a precision of zero is no precision."""
    return np.maximum(x, np.finfo(np.float64).tiny)
