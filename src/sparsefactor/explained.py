"""Variance explained, always against the data (docs/explanation/definitions.md, "Variance explained").

The data are not kept with a result, so the few sums that the question needs are taken when the fit is done. They are
kept by chain (variational inference has one), since chains can be left out or weighted later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .data import Data, as_data
from .data.tiles import Node, Tree

Array = NDArray[np.float64]

# A factor is empty whose own contribution is no more than this share of the data's variance, or of one feature's where
# that is more. The draws of an empty factor average to a little more than nothing, hence not zero; a factor of a single
# feature among tens of thousands has more.
EMPTY = 1e-5
EMPTY_OF_ONE = 0.01
# And empty in a group of features where it is no more than this share of the group's variance. A factor that holds
# something holds it somewhere, so that the small numbers above will do; in a group that it is not in, a loading or two
# may be taken for one of its own. `python -m benchmarks.views` prints the shares where factors are and are not.
EMPTY_IN_GROUP = 0.01


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
    # Where features are in known groups: which one each is in, (n_features,), and the two sums over each of them,
    # (chain, chain, n_groups, n_factors).
    group: NDArray[np.int64] | None = None
    group_cross: Array | None = None
    group_size: Array | None = None
    unit: float = 1.0  # what the data were divided by for these sums, besides their scaling: see `Data`

    def take(self, order: ArrayLike) -> FitSums:
        """The factors in another order; signs do not matter."""
        chosen = np.asarray(order, dtype=np.intp)
        return self._each(("cross", "size", "group_cross", "group_size"), lambda values: values[..., chosen])

    def chains(self, chosen: Sequence[int]) -> FitSums:
        """Some of the chains."""
        both = np.ix_(chosen, chosen)
        names = ("residual", "cross", "size", "group_cross", "group_size")
        return self._each(names, lambda values: values[both])

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

    def cost_by_group(self, weights: ArrayLike | None = None) -> Array:
        """(n_groups, n_factors) as `cost`, by group."""
        cross, size, _ = self._grouped()
        return 2.0 * self._mixed(cross, weights) + self._mixed(size, weights)

    def empty_by_group(self, weights: ArrayLike | None = None) -> NDArray[np.bool_]:
        """(n_groups, n_factors) which factors hold nothing in which group."""
        _, size, group = self._grouped()
        return np.asarray(self._mixed(size, weights) <= EMPTY_IN_GROUP * np.bincount(group, self.total)[:, None])

    def total_by_group(self) -> Array:
        """(n_groups,) sums of squares around the features' means."""
        return np.asarray(np.bincount(self._grouped()[2], self.total), dtype=np.float64)

    def _grouped(self) -> tuple[Array, Array, NDArray[np.int64]]:
        if self.group is None or self.group_cross is None or self.group_size is None:
            raise ValueError(
                "groups of features must be given to the fit; this one had none; fit again with Prior(groups=...)"
            )
        return self.group_cross, self.group_size, self.group

    def _mixed(self, values: Array, weights: ArrayLike | None) -> Array:
        C = len(values)
        w = np.full(C, 1.0 / C) if weights is None else np.asarray(weights, dtype=np.float64)
        return np.asarray(np.einsum("c,d,cd...->...", w, w, values))

    def _each(self, names: Sequence[str], change: Callable[[Array], Array]) -> FitSums:
        """The same with some of the sums changed, where they are there."""
        present: dict[str, Any] = {name: getattr(self, name) for name in names}
        changed: dict[str, Any] = {name: change(values) for name, values in present.items() if values is not None}
        return replace(self, **changed)


def is_empty(content: ArrayLike, total: Array) -> NDArray[np.bool_]:
    """(n_factors,) the one place that says which factors are empty.

    content: (n_factors,) their sums of squares; total: (n_features,) the data's.
    A factor's loadings need not vanish for that: where inclusion is given, an empty factor rests near its prior's.
    """
    return np.asarray(np.asarray(content) <= max(EMPTY, EMPTY_OF_ONE / len(total)) * total.sum())


def solid_first(shares: ArrayLike) -> tuple[NDArray[np.intp], int]:
    """Factors by their share of the data's variance, largest first, and how many of them hold anything.

    For shares alone, where nothing is known of the features; at least one factor is returned.
    """
    share = np.asarray(shares, dtype=np.float64)
    solid = int(np.count_nonzero(share > EMPTY))
    return np.argsort(-share, kind="stable")[: max(1, solid)], solid


def fit_sums(
    data: Data,
    signals: Sequence[Callable[[slice], Any]] | None,
    L: ArrayLike,
    F: ArrayLike,
    group: NDArray[np.int64] | None = None,
    tallies: Sequence[tuple[Any, float]] = (),
) -> FitSums:
    """Take the sums, a chunk of features at a time.

    signals: for each chain, a function from a slice of features to their fit (features, n_samples); None for L F'.
    L: (chain, n_features, n_factors) and F: (chain, n_samples, n_factors), the chains' means. group: (n_features,), or
    (0,) or None where features are in no groups. tallies: the fits as sums where the data are, and what divides them.
    """
    L, F = np.asarray(L, dtype=np.float64), np.asarray(F, dtype=np.float64)
    own = None if group is None or not len(group) else group
    there = signals is None or (len(tallies) == len(signals) and all(tally is not None for tally, _ in tallies))
    if there and hasattr(data, "fit_parts"):  # others have the data
        residual, nodes = data.fit_parts(L, F, own, tallies)
    else:
        residual, nodes = fit_parts(data, signals, L, F, own, 1 if own is None else int(own.max()) + 1)
    cross, size = Tree(nodes).total()
    return FitSums(
        total=data.centred_ss,
        count=data.row_count,
        residual=residual,
        cross=cross.sum(axis=2),
        size=size.sum(axis=2),
        group=own,
        group_cross=None if own is None else cross,
        group_size=None if own is None else size,
        unit=data.unit,
    )


def fit_parts(
    data: Data,
    signals: Sequence[Callable[[slice], Any]] | None,
    L: Array,
    F: Array,
    group: NDArray[np.int64] | None,
    n_groups: int,
) -> tuple[Array, list[Node]]:
    """Of some rows: (chain, chain, features) sums of R_c R_d, and sums over features as branches of the tree."""
    C, G, K = L.shape
    residual, tree = np.zeros((C, C, G)), Tree()
    for number, tile in enumerate(data.tiles(), data.first_tile):
        cross, size = np.zeros((C, C, n_groups, K)), np.zeros((C, C, n_groups, K))
        data.ahead(slice(tile.stop, tile.stop + data.tile))
        for rows in data.chunks(tile):
            seen = None if data.observed is None else data.observed[rows].astype(np.float64)
            fits = [L[c, rows] @ F[c].T for c in range(C)] if signals is None else [signal(rows) for signal in signals]
            left = [data.Y[rows] - fit for fit in fits]
            if seen is not None:
                left = [R * seen for R in left]
            for c in range(C):
                for d in range(C):
                    residual[c, d, rows] = np.einsum("ij,ij->i", left[c], left[d])
                    norm = np.sum(F[c] * F[d], axis=0) if seen is None else seen @ (F[c] * F[d])
                    if group is None:
                        cross[c, d, 0] += np.einsum("ik,ik->k", left[c] @ F[d], L[d, rows])
                        size[c, d, 0] += np.sum(L[c, rows] * L[d, rows] * norm, axis=0)
                    else:
                        np.add.at(cross[c, d], group[rows], (left[c] @ F[d]) * L[d, rows])
                        np.add.at(size[c, d], group[rows], L[c, rows] * L[d, rows] * norm)
        tree.add(number, (cross, size))
    return residual, tree.nodes


def variance_explained(sums: FitSums, by: str | None = None, weights: ArrayLike | None = None) -> Any:
    """One minus residual sum of squares over sum of squares around the mean: a number, or an array.

    by: None (in total), "feature", "factor" (what leaving the factor out would cost), or "group" (the same in each
    group of features). NaN for a constant feature or group, and in total where all features are constant.
    """
    whole = float(sums.total.sum()) or np.nan
    if by is None:
        return float(1.0 - sums.rss(weights).sum() / whole)
    if by == "feature":
        varies = sums.total > 0
        return np.where(varies, 1.0 - sums.rss(weights) / np.where(varies, sums.total, 1.0), np.nan)
    if by == "factor":
        return sums.cost(weights) / whole
    if by == "group":
        total = sums.total_by_group()[:, None]
        return np.where(total > 0, sums.cost_by_group(weights) / np.where(total > 0, total, 1.0), np.nan)
    raise ValueError(f"by must be None, 'factor', 'feature', 'group' or 'sample'; got {by!r}; choose one of them")


def factor_shares(X: ArrayLike, loadings: ArrayLike, activations: ArrayLike) -> Array:
    """(n_factors,) the share of X's variance that leaving each factor out costs, for a fit that is not a posterior.

    X: (n_samples, n_features), NaN where missing.
    """
    L, F = np.asarray(loadings, dtype=np.float64), np.asarray(activations, dtype=np.float64)
    sums = fit_sums(as_data(X), None, L[None], F[None])
    return np.asarray(variance_explained(sums, "factor"))
