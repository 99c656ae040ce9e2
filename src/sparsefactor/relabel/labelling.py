"""The paper's Appendix C: alternate a mode's mean and variance with each draw's best labels until nothing changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .pairs import assignment, unit

Array = NDArray[np.float64]
Signs = NDArray[np.int8]

# A variance below this share of the activations' mean square is raised to it: draws that hardly differ would
# otherwise make one entry outweigh all others (and draws that do not differ at all, divide by zero).
VARIANCE_FLOOR = 1e-6
# A new permutation must lower a draw's loss by more than rounding can; so ties never cycle.
IMPROVEMENT = 1e-10
MAX_ITER = 100  # rounds; a fixed point is usually reached in a few
# Up to so many draws, the share that a draw has in the means can hold it to labels that are not its best.
# Then they are relabelled one by one, and from several draws to set out from; the best is kept.
# With many samples they need it not, so there is a bound on the work, too.
FEW_DRAWS, REFERENCES, MOST_WORK = 200, 8, 5_000_000
# Of more draws than that, some (every second, every third ...) are labelled first, and all by what these lead to, until
# the risk falls by less than so many nats a draw: of thousands of draws a few change for ever, and nothing else does.
MANY_DRAWS, SETTLED = 2000, 0.005
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
    cost: (n_iter,) the Monte Carlo risk after each step 2; it never rises. converged: a fixed point was reached (of
    more than 2,000 draws, one in which the risk hardly falls any more).
    """

    mean: Array
    sd: Array
    cost: Array
    converged: bool
    unit_norm: bool

    @property
    def n_iter(self) -> int:
        return len(self.cost)


def fixed_point(
    F: Any, lead: tuple[int, ...], groups: NDArray[Any], unit_norm: bool, max_iter: int = MAX_ITER
) -> Relabelling:
    """The labelling of lowest risk that steps 1 and 2 reach, from the first chain's last draw or one of several.

    F: (draw, n_samples, n_factors), an array or what reads one block by block; lead: the draws' own axes, chains first.
    """
    blocks = (F[part] for part in _chunks(F))
    norm = np.concatenate([np.sqrt(np.einsum("tjk,tjk->tk", block, block, dtype=np.float64)) for block in blocks])
    scale = 1.0 / np.where((norm > 0) & unit_norm, norm, 1.0)
    floor = VARIANCE_FLOOR * float(np.sum((norm * scale) ** 2)) / int(np.prod(F.shape)) or 1.0
    runs = (_climb(F, groups, scale, floor, draw, max_iter) for draw in _references(F, lead[-1] - 1))
    order, signs, mean, variance, cost, converged = min(runs, key=lambda run: run.cost[-1])
    return Relabelling(
        permutations=order.reshape(*lead, -1),
        signs=signs.reshape(*lead, -1),
        mean=mean,
        sd=np.sqrt(variance),
        cost=np.array(cost),
        converged=converged,
        unit_norm=unit_norm,
    )


class _Run(NamedTuple):
    """Where steps 1 and 2 lead to from one draw."""

    order: NDArray[np.intp]
    signs: Signs
    mean: Array
    variance: Array
    cost: list[float]
    converged: bool


def _are_few(F: Any) -> bool:
    """Whether the draws have room for several fixed points."""
    n_draws, N, K = F.shape
    return n_draws <= FEW_DRAWS and n_draws * N * K * K <= MOST_WORK


def _references(F: Any, first: int) -> list[int]:
    """The draws to set out from, `first` before all others."""
    if not _are_few(F):
        return [first]
    spread = np.linspace(0, len(F) - 1, REFERENCES).round().astype(int).tolist()
    return list(dict.fromkeys([first, *spread]))


def _climb(F: Any, groups: NDArray[Any], scale: Array, floor: float, reference: int, max_iter: int) -> _Run:
    """Alternate steps 1 and 2 from draws that are all matched to draw `reference`, or to where a few of them lead."""
    every = -(-len(F) // MANY_DRAWS)
    if every > 1:  # most rounds settle what a few draws can settle as well
        some = np.append(np.arange(0, len(F), every), reference)
        found = _climb(_Some(F, some), groups, scale[some], floor, len(some) - 1, max_iter)
        order = np.tile(np.arange(F.shape[2]), (len(F), 1))
        order, signs, *_ = _step_2(F, scale, order, found.mean, found.variance, groups)
    else:
        order, signs = _match_to_draw(F, reference, groups)
    cost: list[float] = []
    converged = False
    sums = _sums(F, scale, order, signs)
    while not converged and len(cost) < max_iter:
        mean, variance = _step_1(sums, len(F), floor)
        order, signs, risk, changed = _step_2(F, scale, order, mean, variance, groups, (signs, sums))
        cost.append(risk)
        settled = every > 1 and len(cost) > 1 and cost[-2] - risk < SETTLED * len(F)
        converged = settled or not changed
        if converged and _are_few(F):
            converged = not _regroup(F[:] * scale[:, None, :], order, signs, floor, groups)
            sums = _sums(F, scale, order, signs)
    # Sums that were brought up to date draw by draw have gathered some rounding.
    mean, variance = _step_1(_sums(F, scale, order, signs), len(F), floor)
    return _Run(order, signs, mean, variance, cost, converged)


class _Some:
    """Some of the draws, read as all of them are."""

    def __init__(self, F: Any, index: NDArray[np.intp]) -> None:
        N, K = F.shape[1:]
        self.shape = (len(index), N, K)
        self.held = np.empty(self.shape, F[0].dtype)
        for part in _chunks(F):
            first, last, _ = part.indices(len(F))
            own = (index >= first) & (index < last)
            self.held[own] = F[part][index[own] - first]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: Any) -> NDArray[np.floating]:
        return self.held[part]


def _regroup(x: Array, order: NDArray[np.intp], signs: Signs, floor: float, groups: NDArray[Any]) -> bool:
    """Relabel one draw after the other, in place, where that lowers the risk at its own means and variances.

    Steps 1 and 2 hold on to labels by the share that a draw itself has in the means; here a draw is taken out first,
    and each of its labels is judged by the means and variances it would make. x: (draw, N, K), scaled.
    """
    T, factor = len(x), np.arange(x.shape[2])
    labelled = np.take_along_axis(x, order[:, None, :], axis=2) * signs[:, None, :]
    first, second = labelled.sum(axis=0), np.sum(labelled**2, axis=0)
    moved = False
    for t in range(T):
        others, squares = first - labelled[t], second - labelled[t] ** 2
        own = x[t][:, None, :]  # (N, 1, K old) beside (N, K new, 1)
        mean_square = (squares[:, :, None] + own**2) / T
        loss = []
        for sign in (1.0, -1.0):
            variance = mean_square - ((others[:, :, None] + sign * own) / T) ** 2
            kept = np.maximum(variance, floor)
            loss.append(0.5 * T * np.sum(variance / kept + np.log(kept), axis=0))
        either = np.minimum(*loss)[None]
        best = _assign(either, groups)
        kept_loss = float(np.where(signs[t] > 0, loss[0][factor, order[t]], loss[1][factor, order[t]]).sum())
        if float(_total(either, best)[0]) < kept_loss - IMPROVEMENT * (1.0 + abs(kept_loss)):
            order[t] = best[0]
            signs[t] = np.where(loss[0][factor, order[t]] <= loss[1][factor, order[t]], 1, -1)
            labelled[t] = x[t][:, order[t]] * signs[t]
            first, second = others + labelled[t], squares + labelled[t] ** 2
            moved = True
    return moved


class _Sums(NamedTuple):
    """(N, K) sums over draws of each entry and of its square, under the current labels; brought up to date in place."""

    first: Array
    second: Array

    def add(self, x: NDArray[np.floating], order: NDArray[np.intp], factor: Array, times: float = 1.0) -> None:
        """Draws (T, N, K) under labels; factor: (T, K) what columns are multiplied by; times: -1 takes them off."""
        labelled = np.take_along_axis(x, order[:, None, :], axis=2) * factor[:, None, :]
        self.first[...] += times * labelled.sum(axis=0)
        self.second[...] += times * np.einsum("tjk,tjk->jk", labelled, labelled)


def _sums(F: Any, scale: Array, order: NDArray[np.intp], signs: Signs) -> _Sums:
    sums = _Sums(np.zeros(F.shape[1:]), np.zeros(F.shape[1:]))
    factor = np.take_along_axis(scale, order, axis=1) * signs
    for part in _chunks(F):
        sums.add(F[part], order[part], factor[part])
    return sums


def _step_1(sums: _Sums, n_draws: int, floor: float) -> tuple[Array, Array]:
    """(N, K) means and variances of each entry under the current labels (5.2); the variance at least `floor`."""
    mean = sums.first / n_draws
    return mean, np.maximum(sums.second / n_draws - mean**2, floor)


def _step_2(
    F: Any,
    scale: Array,
    order: NDArray[np.intp],
    mean: Array,
    variance: Array,
    groups: NDArray[Any],
    known: tuple[Signs, _Sums] | None = None,
) -> tuple[NDArray[np.intp], Signs, float, bool]:
    """The best permutation and signs of each draw given the means and variances (5.3), the risk there, and whether any
    draw has new ones. known: the signs before, and the sums, which follow."""
    new_order = np.empty_like(order)
    new_signs = np.empty(order.shape, dtype=np.int8)
    risk, changed = 0.0, known is None
    constant = 0.5 * np.sum(mean**2 / variance + np.log(2 * np.pi * variance), axis=0)
    linear, quadratic = np.ascontiguousarray((mean / variance).T), np.ascontiguousarray((0.5 / variance).T)
    for part in _chunks(F):
        x, own = F[part], scale[part, None, :]
        # -log density of old factor k' (columns) at new factor k (rows), with the better sign.
        cross = (linear @ x) * own
        loss = (quadratic @ np.square(x, dtype=np.float64)) * own**2 - np.abs(cross) + constant[:, None]
        best = _assign(loss, groups)
        chosen, kept = _total(loss, best), _total(loss, order[part])
        stay = chosen >= kept - IMPROVEMENT * (1.0 + np.abs(kept))
        best[stay] = order[part][stay]
        sign = np.where(_take(cross, best) < 0, -1, 1).astype(np.int8)
        new_order[part], new_signs[part] = best, sign
        risk += float(np.where(stay, kept, chosen).sum())
        if known is not None:
            signs, sums = known
            moved = np.flatnonzero(np.any((best != order[part]) | (sign != signs[part]), axis=1))
            if len(moved):
                changed, old, of = True, order[part][moved], scale[part][moved]
                sums.add(x[moved], old, np.take_along_axis(of, old, axis=1) * signs[part][moved], -1.0)
                sums.add(x[moved], best[moved], np.take_along_axis(of, best[moved], axis=1) * sign[moved])
    return new_order, new_signs, risk, changed


def _match_to_draw(F: NDArray[np.floating], reference: int, groups: NDArray[Any]) -> tuple[NDArray[np.intp], Signs]:
    """Permutations and signs that bring every draw close to draw `reference`, by the activations' cosines."""
    target = unit(F[reference])
    order = np.empty((len(F), F.shape[2]), dtype=np.intp)
    signs = np.empty(order.shape, dtype=np.int8)
    for part in _chunks(F):
        cosine = target.T @ unit(F[part])
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
            local[t] = assignment(block[t])[1]
        order[:, members] = members[local]
    return order


def _take(matrix: Array, order: NDArray[np.intp]) -> Array:
    """(T, K): entry (k, order[k]) of each draw's (K, K) matrix."""
    return np.take_along_axis(matrix, order[:, :, None], axis=2)[:, :, 0]


def _total(loss: Array, order: NDArray[np.intp]) -> Array:
    return np.asarray(_take(loss, order).sum(axis=1))


def _chunks(F: NDArray[np.floating]) -> Iterator[slice]:
    step = max(1, CHUNK_ENTRIES // F[0].size)
    return (slice(start, start + step) for start in range(0, len(F), step))
