"""Variance explained, always against the data (docs/guide.md, "Variance explained").

The data are not kept with a result, so the few sums that the question needs are taken when the fit is done. They are
kept by chain (variational inference has one), since chains can be left out or weighted later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .data import Data, as_data

Array = NDArray[np.float64]

# A factor is empty whose own contribution is no more than this share of the data's variance, or of one feature's where
# that is more. The draws of an empty factor average to a little more than nothing, hence not zero; a factor of a single
# feature among tens of thousands has more.
EMPTY = 1e-5
EMPTY_OF_ONE = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class FitSums:
    """What tells how much of the data a fit explains. Sums are over observed entries, in the units that were fitted.

    With R_c the residuals of chain c, and l_kc f_kc' the contribution of its factor k (means over its draws):
    """

    total: Array  # (n_features,) sum of squares around each feature's mean
    count: Array  # (n_features,) observed entries
    residual: Array  # (chain, chain, n_features) sum of R_c R_d
    cross: Array  # (chain, chain, n_factors) sum of R_c (l_kd f_kd')
    size: Array  # (chain, chain, n_factors) sum of (l_kc f_kc') (l_kd f_kd')

    def take(self, order: ArrayLike) -> FitSums:
        """The factors in another order; signs do not matter."""
        chosen = np.asarray(order, dtype=np.intp)
        return self._with(cross=self.cross[..., chosen], size=self.size[..., chosen])

    def chains(self, chosen: Sequence[int]) -> FitSums:
        """Some of the chains."""
        both = np.ix_(chosen, chosen)
        return self._with(residual=self.residual[both], cross=self.cross[both], size=self.size[both])

    def rss(self, weights: ArrayLike | None = None) -> Array:
        """(n_features,) residual sum of squares of the weighted mean of the chains' fits."""
        return np.maximum(self._mixed(self.residual, weights), 0.0)

    def cost(self, weights: ArrayLike | None = None) -> Array:
        """(n_factors,) by how much the residual sum of squares grows when a factor is left out, the rest as it is."""
        return 2.0 * self._mixed(self.cross, weights) + self._mixed(self.size, weights)

    def content(self, weights: ArrayLike | None = None) -> Array:
        """(n_factors,) sum of squares of each factor's own contribution."""
        return self._mixed(self.size, weights)

    def empty(self, weights: ArrayLike | None = None) -> NDArray[np.bool_]:
        """(n_factors,) which factors hold nothing."""
        return is_empty(self.content(weights), self.total)

    def _mixed(self, values: Array, weights: ArrayLike | None) -> Array:
        C = len(values)
        w = np.full(C, 1.0 / C) if weights is None else np.asarray(weights, dtype=np.float64)
        return np.asarray(np.einsum("c,d,cdi->i", w, w, values))

    def _with(self, **changed: Any) -> FitSums:
        return FitSums(**{**self.__dict__, **changed})


def is_empty(content: ArrayLike, total: Array) -> NDArray[np.bool_]:
    """(n_factors,) the one place that says which factors are empty.

    content: (n_factors,) their sums of squares; total: (n_features,) the data's.
    A factor's loadings need not vanish for that: where inclusion is given, an empty factor rests near its prior's.
    """
    return np.asarray(np.asarray(content) <= max(EMPTY, EMPTY_OF_ONE / len(total)) * total.sum())


def fit_sums(data: Data, signals: Sequence[Callable[[slice], Any]], L: ArrayLike, F: ArrayLike) -> FitSums:
    """Take the sums, a chunk of features at a time.

    signals: for each chain, a function from a slice of features to their fit (features, n_samples).
    L: (chain, n_features, n_factors) and F: (chain, n_samples, n_factors), the chains' means.
    """
    L, F = np.asarray(L, dtype=np.float64), np.asarray(F, dtype=np.float64)
    C, G, K = L.shape
    residual, cross, size = np.zeros((C, C, G)), np.zeros((C, C, K)), np.zeros((C, C, K))
    for rows in data.chunks():
        seen = None if data.observed is None else data.observed[rows].astype(np.float64)
        left = [data.Y[rows] - signal(rows) for signal in signals]
        if seen is not None:
            left = [R * seen for R in left]
        for c in range(C):
            for d in range(C):
                residual[c, d, rows] = np.einsum("ij,ij->i", left[c], left[d])
                cross[c, d] += np.einsum("ik,ik->k", left[c] @ F[d], L[d, rows])
                norm = np.sum(F[c] * F[d], axis=0) if seen is None else seen @ (F[c] * F[d])
                size[c, d] += np.sum(L[c, rows] * L[d, rows] * norm, axis=0)
    return FitSums(total=data.centred_ss, count=data.row_count, residual=residual, cross=cross, size=size)


def variance_explained(sums: FitSums, by: str | None = None, weights: ArrayLike | None = None) -> Any:
    """One minus residual sum of squares over sum of squares around the mean: a number, or an array.

    by: None (in total), "feature", or "factor" (what leaving the factor out would cost). NaN for a constant feature.
    """
    if by is None:
        return float(1.0 - sums.rss(weights).sum() / sums.total.sum())
    if by == "feature":
        varies = sums.total > 0
        return np.where(varies, 1.0 - sums.rss(weights) / np.where(varies, sums.total, 1.0), np.nan)
    if by == "factor":
        return sums.cost(weights) / sums.total.sum()
    raise ValueError(f"by must be None, 'factor' or 'feature'; got {by!r}; choose one of them")


def factor_shares(X: ArrayLike, loadings: ArrayLike, activations: ArrayLike) -> Array:
    """(n_factors,) the share of X's variance that leaving each factor out costs, for a fit that is not a posterior.

    X: (n_samples, n_features), NaN where missing.
    """
    L, F = np.asarray(loadings, dtype=np.float64), np.asarray(activations, dtype=np.float64)
    sums = fit_sums(as_data(X), [lambda rows: L[rows] @ F.T], L[None], F[None])
    return np.asarray(variance_explained(sums, "factor"))
