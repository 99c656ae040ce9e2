"""Many draws, one labelling: permutations and signs of the factors (docs/math.md, section 5).

The posterior does not change when factors that share a prior swap labels, or when a factor's loadings and
activations change sign together. `relabel` gives every draw the labels under which all draws look like draws around
one mode; `match` does the same for one posterior against a truth or another posterior.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .model import Prior
from .posterior import MCMCPosterior

if TYPE_CHECKING:
    import xarray

Array = NDArray[np.float64]
Signs = NDArray[np.int8]

logger = logging.getLogger("sparsefactor")

# Variables whose entries change sign with their factor; all others with a factor axis are only permuted.
SIGNED = frozenset({"loadings", "activations"})
# A variance below this share of the activations' mean square is raised to it: draws that hardly differ would
# otherwise make one entry outweigh all others (and draws that do not differ at all, divide by zero).
VARIANCE_FLOOR = 1e-6
# A new permutation must lower a draw's loss by more than rounding can; so ties never cycle.
IMPROVEMENT = 1e-10
MAX_ITER = 100  # rounds; a fixed point is usually reached in a few
# Entries of a chunk of draws: some tens of megabytes of working memory.
CHUNK_ENTRIES = 2_000_000


@dataclass(frozen=True, eq=False)
class Labelling:
    """A permutation and signs for each draw: new factor k is `signs[..., k]` times old factor `permutations[..., k]`.

    permutations, signs: (..., n_factors); the leading axes are those of the draws.
    """

    permutations: NDArray[np.intp]
    signs: Signs

    def apply(self, values: ArrayLike, *, signed: bool = True, axis: int = -1) -> NDArray[Any]:
        """Relabel a variable of shape (..., any axes) whose `axis` runs over factors.

        signed: True for loadings and activations, False for what has no sign (inclusion, precisions, rates).
        """
        old = np.asarray(values)
        lead, K = self.permutations.shape[:-1], self.permutations.shape[-1]
        axis = axis % old.ndim if -old.ndim <= axis < old.ndim else -1
        if axis < len(lead) or old.shape[: len(lead)] != lead or old.shape[axis] != K:
            raise ValueError(
                f"values must begin with the draws' axes {lead} and have {K} factors on a later axis; got shape "
                f"{old.shape}; transpose them or name the axis"
            )
        if signed and old.dtype.kind in "bu":
            raise ValueError(f"values of dtype {old.dtype} have no sign to change; got signed=True; pass signed=False")
        last = np.moveaxis(old, axis, -1)
        new = np.empty(last.shape, dtype=old.dtype)
        for t in np.ndindex(lead):
            np.take(last[t], self.permutations[t], axis=-1, out=new[t], mode="clip")
            if signed and np.any(self.signs[t] < 0):
                new[t] *= self.signs[t]
        return np.ascontiguousarray(np.moveaxis(new, -1, axis))

    def invert(self) -> Labelling:
        """The labelling that undoes this one."""
        back = np.argsort(self.permutations, axis=-1)
        return Labelling(back, np.take_along_axis(self.signs, back, axis=-1))


@dataclass(frozen=True, eq=False)
class Relabelling(Labelling):
    """The labelling `relabel` found, and what it converged to.

    mean, sd: (n_samples, n_factors) of the relabelled activations (of unit norm, where unit_norm was set).
    cost: (n_iter,) the Monte Carlo risk after each step 2; it never rises. converged: a fixed point was reached.
    """

    mean: Array
    sd: Array
    cost: Array
    converged: bool
    unit_norm: bool

    @property
    def n_iter(self) -> int:
        return len(self.cost)


@dataclass(frozen=True, eq=False)
class Matching:
    """Which factor of a posterior stands for each factor of a reference.

    permutation: (n_reference,) the posterior's factor, or -1 where none is left; signs: (n_reference,).
    similarity: (n_reference,) in [0, 1], the mean of the activations' and the loadings' cosine.
    unmatched: the posterior's factors that stand for none. missing: the reference's factors that have none.
    """

    permutation: NDArray[np.intp]
    signs: Signs
    similarity: Array
    unmatched: NDArray[np.intp]

    @property
    def missing(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.permutation < 0)

    def apply(self, values: ArrayLike, *, signed: bool = True) -> NDArray[Any]:
        """(..., n_factors) in the posterior's order to (..., n_reference) in the reference's; zeros where missing."""
        old = np.asarray(values)
        found = self.permutation >= 0
        new = np.zeros((*old.shape[:-1], len(found)), dtype=old.dtype)
        new[..., found] = old[..., self.permutation[found]]
        if signed:
            new *= self.signs
        return new


def relabel(
    draws: Any,
    *,
    prior: Prior | None = None,
    groups: ArrayLike | None = None,
    unit_norm: bool | None = None,
    max_iter: int = MAX_ITER,
) -> Any:
    """Find one labelling for many draws; only factors that share a prior may swap.

    draws: activations (draw, n_samples, n_factors) or (chain, draw, n_samples, n_factors), for a `Relabelling`; or
        an MCMCPosterior or a DataTree with group "posterior", for (relabelled DataTree, `Relabelling`).
    prior, groups: which factors may swap: those with equal labels in groups, or in prior.factor_groups(). An
        MCMCPosterior knows its prior; otherwise all factors may swap.
    unit_norm: compare activations scaled to unit norm; by default where there are several chains.
    """
    if isinstance(draws, MCMCPosterior):
        prior = draws.prior if prior is None else prior
        draws = draws.draws
    is_tree = hasattr(draws, "to_dict") and hasattr(draws, "children")
    activations = _activations_of(draws) if is_tree else np.asarray(draws)
    if activations.ndim not in (3, 4) or 0 in activations.shape:
        raise ValueError(
            "activations must be (draw, n_samples, n_factors) or (chain, draw, n_samples, n_factors), none empty; got "
            f"shape {activations.shape}; transpose or reshape them"
        )
    if not np.isfinite(activations).all():
        raise ValueError("activations must be finite; got NaN or infinite entries; drop the draws that have them")
    if isinstance(max_iter, bool) or not isinstance(max_iter, int | np.integer) or max_iter < 1:
        raise ValueError(f"max_iter must be a whole number of at least 1; got {max_iter!r}; pass e.g. max_iter=100")
    labels = _checked_groups(prior, groups, activations.shape[-1])
    if unit_norm is None:
        unit_norm = activations.ndim == 4 and activations.shape[0] > 1
    lead = activations.shape[:-2]
    F = activations.reshape(-1, *activations.shape[-2:])
    found = fixed_point(F, lead, labels, bool(unit_norm), int(max_iter))
    return (_relabel_tree(draws, found), found) if is_tree else found


def match(p: Any, reference: Any) -> Matching:
    """Match the factors of one posterior (or truth) to those of another, over permutations and signs.

    The assignment maximises the sum over pairs of |cos(f, f') + cos(l, l')|. Both matrices take part, since either
    alone may be ambiguous (two factors active in the same samples, or on the same features); the cosines are added
    before the absolute value, since one sign must serve both. Where the numbers of factors differ, some stay
    without a partner. p, reference: with loadings_mean and activations_mean, or loadings and activations.
    """
    L, F = _loadings_and_activations(p)
    L_ref, F_ref = _loadings_and_activations(reference)
    if len(L) != len(L_ref) or len(F) != len(F_ref):
        raise ValueError(
            "both sides must have the same features and samples; got "
            f"{len(L)} and {len(L_ref)} features, {len(F)} and {len(F_ref)} samples; select the common ones"
        )
    agreement = 0.5 * (_unit(F_ref).T @ _unit(F) + _unit(L_ref).T @ _unit(L))
    rows, columns = _assignment(-np.abs(agreement))
    permutation = np.full(L_ref.shape[1], -1, dtype=np.intp)
    permutation[rows] = columns
    signs = np.ones(len(permutation), dtype=np.int8)
    signs[rows] = np.where(agreement[rows, columns] < 0, -1, 1)
    similarity = np.zeros(len(permutation))
    similarity[rows] = np.abs(agreement[rows, columns])
    return Matching(permutation, signs, similarity, np.setdiff1d(np.arange(L.shape[1]), columns))


# ---- Appendix C ---------------------------------------------------------------------------------------------------


def fixed_point(
    F: Any, lead: tuple[int, ...], groups: NDArray[Any], unit_norm: bool, max_iter: int = MAX_ITER
) -> Relabelling:
    """Alternate steps 1 and 2 from draws that are all matched to the first chain's last one.

    F: (draw, n_samples, n_factors), an array or what reads one block by block; lead: the draws' own axes, chains first.
    """
    blocks = (F[part] for part in _chunks(F))
    norm = np.concatenate([np.sqrt(np.einsum("tjk,tjk->tk", block, block, dtype=np.float64)) for block in blocks])
    scale = 1.0 / np.where((norm > 0) & unit_norm, norm, 1.0)
    floor = VARIANCE_FLOOR * float(np.sum((norm * scale) ** 2)) / int(np.prod(F.shape)) or 1.0
    order, signs = _match_to_draw(F, lead[-1] - 1, groups)
    cost: list[float] = []
    converged = False
    while not converged and len(cost) < max_iter:
        mean, variance = _step_1(F, scale, order, signs, floor)
        new_order, new_signs, risk = _step_2(F, scale, order, mean, variance, groups)
        converged = np.array_equal(new_order, order) and np.array_equal(new_signs, signs)
        order, signs = new_order, new_signs
        cost.append(risk)
    if not converged:
        logger.warning("relabelling stopped at max_iter=%d before it reached a fixed point; raise max_iter", max_iter)
        mean, variance = _step_1(F, scale, order, signs, floor)
    return Relabelling(
        permutations=order.reshape(*lead, -1),
        signs=signs.reshape(*lead, -1),
        mean=mean,
        sd=np.sqrt(variance),
        cost=np.array(cost),
        converged=converged,
        unit_norm=unit_norm,
    )


def _step_1(
    F: NDArray[np.floating], scale: Array, order: NDArray[np.intp], signs: Signs, floor: float
) -> tuple[Array, Array]:
    """(N, K) means and variances of each entry under the current labels (5.2); the variance at least `floor`."""
    factor = np.take_along_axis(scale, order, axis=1) * signs
    first = np.zeros(F.shape[1:])
    second = np.zeros(F.shape[1:])
    for part in _chunks(F):
        x = np.take_along_axis(F[part], order[part, None, :], axis=2) * factor[part, None, :]
        first += x.sum(axis=0)
        second += np.einsum("tjk,tjk->jk", x, x)
    mean = first / len(F)
    return mean, np.maximum(second / len(F) - mean**2, floor)


def _step_2(
    F: NDArray[np.floating],
    scale: Array,
    order: NDArray[np.intp],
    mean: Array,
    variance: Array,
    groups: NDArray[Any],
) -> tuple[NDArray[np.intp], Signs, float]:
    """The best permutation and signs of each draw given the means and variances (5.3), and the risk there."""
    new_order = np.empty_like(order)
    new_signs = np.empty(order.shape, dtype=np.int8)
    risk = 0.0
    constant = 0.5 * np.sum(mean**2 / variance + np.log(2 * np.pi * variance), axis=0)
    for part in _chunks(F):
        x = np.swapaxes(F[part], 1, 2) * scale[part, :, None]
        # -log density of old factor k' (columns) at new factor k (rows), with the better sign.
        cross = np.swapaxes(x @ (mean / variance), 1, 2)
        loss = np.swapaxes((x**2) @ (0.5 / variance), 1, 2) - np.abs(cross) + constant[:, None]
        best = _assign(loss, groups)
        chosen, kept = _total(loss, best), _total(loss, order[part])
        stay = chosen >= kept - IMPROVEMENT * (1.0 + np.abs(kept))
        best[stay] = order[part][stay]
        new_order[part] = best
        new_signs[part] = np.where(_take(cross, best) < 0, -1, 1)
        risk += float(np.where(stay, kept, chosen).sum())
    return new_order, new_signs, risk


def _match_to_draw(F: NDArray[np.floating], reference: int, groups: NDArray[Any]) -> tuple[NDArray[np.intp], Signs]:
    """Permutations and signs that bring every draw close to draw `reference`, by the activations' cosines."""
    target = _unit(F[reference])
    order = np.empty((len(F), F.shape[2]), dtype=np.intp)
    signs = np.empty(order.shape, dtype=np.int8)
    for part in _chunks(F):
        cosine = np.swapaxes(np.swapaxes(_unit(F[part]), 1, 2) @ target, 1, 2)
        order[part] = _assign(-np.abs(cosine), groups)
        signs[part] = np.where(_take(cosine, order[part]) < 0, -1, 1)
    return order, signs


def _assign(loss: Array, groups: NDArray[Any]) -> NDArray[np.intp]:
    """(T, K): for each draw the assignment of old factors to new that minimises the loss (T, K new, K old).

    Factors swap within their group only, so each group is an assignment problem of its own.
    """
    order = np.empty(loss.shape[:2], dtype=np.intp)
    for label in np.unique(groups):
        members = np.flatnonzero(groups == label)
        block = loss[:, members[:, None], members]
        # Where every row's smallest entry lies in another column, that is the optimum.
        local = np.argmin(block, axis=2)
        clash = np.any(np.sort(local, axis=1) != np.arange(len(members)), axis=1)
        for t in np.flatnonzero(clash):
            local[t] = _assignment(block[t])[1]
        order[:, members] = members[local]
    return order


def _assignment(cost: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    # Imported here, since it takes longer to import than all of this package.
    from scipy.optimize import linear_sum_assignment

    return linear_sum_assignment(cost)


def _take(matrix: Array, order: NDArray[np.intp]) -> Array:
    """(T, K): entry (k, order[k]) of each draw's (K, K) matrix."""
    return np.take_along_axis(matrix, order[:, :, None], axis=2)[:, :, 0]


def _total(loss: Array, order: NDArray[np.intp]) -> Array:
    return np.asarray(_take(loss, order).sum(axis=1))


def _unit(matrix: NDArray[np.floating]) -> Array:
    """(..., rows, K) with columns of unit norm; a column of zeros stays one."""
    norm = np.linalg.norm(matrix, axis=-2, keepdims=True)
    return np.asarray(matrix / np.where(norm > 0, norm, 1.0))


def _chunks(F: NDArray[np.floating]) -> Iterator[slice]:
    step = max(1, CHUNK_ENTRIES // F[0].size)
    return (slice(start, start + step) for start in range(0, len(F), step))


# ---- what users pass ----------------------------------------------------------------------------------------------


def _checked_groups(prior: Prior | None, groups: ArrayLike | None, K: int) -> NDArray[Any]:
    if groups is None:
        groups = np.zeros(K, dtype=np.intp) if prior is None else prior.factor_groups()
    labels = np.asarray(groups)
    if labels.shape != (K,):
        raise ValueError(
            f"groups must have one label per factor; got shape {labels.shape} and {K} factors; pass the prior of these "
            "draws, or one label each"
        )
    return labels


def _activations_of(draws: xarray.DataTree) -> NDArray[np.floating]:
    if "posterior" not in draws.children or "activations" not in draws["posterior"].data_vars:
        raise ValueError(
            f"draws must have a group 'posterior' with a variable 'activations'; got groups {list(draws.children)}; "
            "pass the draws of an MCMCPosterior"
        )
    activations = draws["posterior"]["activations"]
    return np.asarray(activations.transpose("chain", "draw", "observation", "factor").values)


def _relabel_tree(draws: xarray.DataTree, labelling: Labelling) -> xarray.DataTree:
    """A copy in which every variable with a factor axis of the group "posterior" is relabelled."""
    import xarray as xr

    groups = {path: node.to_dataset(inherit=False) for path, node in draws.subtree_with_keys}
    posterior = groups["posterior"]
    for name, variable in posterior.data_vars.items():
        if "factor" in variable.dims:
            ordered = variable.transpose("chain", "draw", ...)
            values = labelling.apply(ordered.values, signed=name in SIGNED, axis=ordered.dims.index("factor"))
            posterior = posterior.assign({name: ordered.copy(data=values)})
    groups["posterior"] = posterior
    return xr.DataTree.from_dict(groups, name=draws.name)


def _loadings_and_activations(p: Any) -> tuple[Array, Array]:
    for loadings, activations in (("loadings_mean", "activations_mean"), ("loadings", "activations")):
        if hasattr(p, loadings) and hasattr(p, activations):
            return np.asarray(getattr(p, loadings)), np.asarray(getattr(p, activations))
    raise TypeError(
        f"both sides must have loadings and activations (or their means); got a {type(p).__name__}; pass a posterior "
        "or a Simulation"
    )
