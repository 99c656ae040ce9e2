"""From the draws of all chains to one posterior: one labelling, then moments, in passes over blocks of draws."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..arrange import arranged_prior, arrangement
from ..data import Data
from ..data.spool import Spool
from ..explained import fit_sums
from ..model import Prior
from ..posterior import Labels, MCMCPosterior
from ..relabel import Relabelling, fixed_point
from ..storage.lazy import relabelled_tree
from ..storage.moments import arranged, blocks, chain_moments, mixture, posterior_fields

logger = logging.getLogger("sparsefactor")

HELD_BYTES = 100e6  # activations up to this size are read once and held


class Activations:
    """(draws of all chains, n_samples, n_factors) without holding them: has a shape, a length and slices."""

    def __init__(self, draws: xr.DataTree) -> None:
        array = draws["posterior"]["activations"].variable.transpose("chain", "draw", "observation", "factor")
        self.source = array
        n_chains, n_draws, N, K = array.shape
        self.n_draws: int = n_draws
        self.shape = (n_chains * n_draws, N, K)
        self.held: NDArray[np.float64] | None = None
        if array.size * 8 <= HELD_BYTES:
            self.held = array.values.reshape(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, part: int | slice) -> NDArray[np.float64]:
        if self.held is not None:
            return self.held[part]
        if isinstance(part, int | np.integer):
            return np.asarray(self.source[part // self.n_draws, part % self.n_draws].values)
        first, last, _ = part.indices(len(self))
        pieces = []
        while first < last:
            chain, draw = divmod(first, self.n_draws)
            length = min(last - first, self.n_draws - draw)
            pieces.append(self.source[chain, draw : draw + length].values)
            first += length
        return np.concatenate(pieces)


def label(draws: xr.DataTree, prior: Prior) -> Relabelling:
    """What `relabel` finds for these draws, reading the activations block by block (section 5)."""
    F = Activations(draws)
    lead = F.source.shape[:2]
    found = fixed_point(F, lead, prior.factor_groups(), unit_norm=lead[0] > 1)
    if not found.converged:
        logger.warning("relabelling stopped after %d rounds, before nothing changed any more", found.n_iter)
    return found


class Draws(Protocol):
    """Draws that a posterior is made of."""

    def tree(self) -> xr.DataTree: ...

    def labelled(self, permutations: NDArray[np.intp], signs: NDArray[np.int8]) -> xr.DataTree: ...


class Signal(NamedTuple):
    """(n_samples, n_features) the sum of F'L' over a chain's draws, and their number."""

    total: NDArray[np.float64]
    n: int
    tally: Any = None  # the same where the rows are, for an engine that has them elsewhere


def posterior(
    prior: Prior, labels: Labels, sink: Draws, signals: Sequence[Signal], data: Data, record: dict[str, Any]
) -> MCMCPosterior:
    """The public result: one labelling for all draws, strongest factor first, and their moments."""
    labelling = label(sink.tree(), prior)
    weights = np.full(len(signals), 1.0 / len(signals))
    moments = chain_moments(relabelled_tree(sink.tree(), labelling.permutations, labelling.signs))
    L, F = moments["loadings"][0], moments["activations"][0]
    each = [partial(_fit, signal, data.unit) for signal in signals]
    if data.design is not None:
        parts = {name: moments[name][0].mean(axis=0) for name in ("intercept",) if name in moments}
        nothing = np.zeros(data.n_features)
        both = mixture({name: moments[name] for name in moments if name == "covariate_loadings"}, weights)
        mean, variance = both.get("covariate_loadings", (labels.covariate_loadings,) * 2)
        labels = labels.with_base(parts.get("intercept", nothing), mean, np.sqrt(variance))
        loadings = np.column_stack([parts.get("intercept", nothing), labels.covariate_loadings])
        known = np.column_stack([np.ones(data.n_samples), labels.covariates - labels.covariate_mean])
        data = data.without(loadings / data.unit, known.T)
    tallies = [(signal.tally, signal.n * data.unit) for signal in signals]
    sums = fit_sums(data, each, L / data.unit, F, prior.group_index, tallies)
    order, signs = arrangement(sums, L.mean(axis=0))
    permutations, all_signs = labelling.permutations[..., order], labelling.signs[..., order] * signs
    draws = sink.labelled(permutations, all_signs)
    draws["posterior"].attrs.update(
        relabelling_converged=int(labelling.converged), relabelling_iterations=labelling.n_iter
    )
    return MCMCPosterior(
        prior=arranged_prior(prior, order),
        labels=labels,
        **posterior_fields(mixture(arranged(moments, order, signs), weights)),
        draws=draws,
        signal_mean=_mean_signal(signals, data.spool),
        permutations=permutations,
        signs=all_signs,
        fit_sums=sums.take(order),
        record=record,
    )


def _fit(signal: Signal, unit: float, rows: slice) -> NDArray[np.float64]:
    """(features, n_samples) the chain's mean of LF, in the units of data.Y."""
    return np.asarray(signal.total[:, rows].T / (signal.n * unit))


def _mean_signal(signals: Sequence[Signal], spool: Spool | None) -> NDArray[np.float64]:
    """(n_samples, n_features): the chains' mean of F'L', a sample at a time; in a file where the sums are."""
    totals = [signal.total for signal in signals]
    mean = np.empty_like(totals[0]) if spool is None else spool.empty(totals[0].shape, np.float64)
    for part in blocks(len(mean), 1):
        mean[part] = np.mean([total[part] / signal.n for total, signal in zip(totals, signals, strict=True)], axis=0)
        if spool is not None:
            for own in (mean, *totals):
                spool.release(own[part])
    return mean
