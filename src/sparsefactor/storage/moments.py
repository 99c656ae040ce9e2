"""Means and variances over draws, one block of draws at a time, by chain; and their mixture over chains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from ..arrange import arranged_prior, arrangement
from ..posterior import CORRELATION_DIMS, DIMS, SIGNED, MCMCPosterior
from ..signals import add_signal
from .lazy import draws_per_block, relabelled_tree

Array = NDArray[np.float64]

Moments = dict[str, tuple[Array, Array]]  # variable: (mean, variance), each (chain, ...)


def blocks(n_draws: int, step: int) -> Iterator[slice]:
    return (slice(first, min(first + step, n_draws)) for first in range(0, n_draws, step))


def chain_moments(draws: xr.DataTree, names: Sequence[str] | None = None) -> Moments:
    """The exact mean and variance of every variable (or of those named) over each chain's draws."""
    variables = draws["posterior"].data_vars
    return {str(name): _moments(variables[name]) for name in (variables if names is None else names)}


def _moments(array: xr.DataArray) -> tuple[Array, Array]:
    source = array.variable.transpose("chain", "draw", ...)
    n_chains, _, *own = source.shape
    mean, scatter = np.zeros((n_chains, *own)), np.zeros((n_chains, *own))
    # The square of a precision may be beyond all numbers, in units that make the data tiny; only its mean is asked for.
    with np.errstate(over="ignore", invalid="ignore"):
        return _joined(source, mean, scatter)


def _joined(source: Any, mean: Array, scatter: Array) -> tuple[Array, Array]:
    n_chains, n_draws, *own = source.shape
    for chain in range(n_chains):
        seen = 0
        for part in blocks(n_draws, draws_per_block(tuple(own), np.float64)):
            x = source[chain, part].values.astype(np.float64, copy=False)
            # Blocks are joined as Chan, Golub and LeVeque do it: no difference of large squares.
            block_mean = x.mean(axis=0)
            x = x - block_mean
            delta = block_mean - mean[chain]
            total = seen + len(x)
            scatter[chain] += np.einsum("t...,t...->...", x, x) + delta**2 * (seen * len(x) / total)
            mean[chain] += delta * (len(x) / total)
            seen = total
    return mean, scatter / n_draws


def arranged(moments: Moments, order: NDArray[np.intp], signs: NDArray[np.int8]) -> Moments:
    """The moments with their factors in another order and under other signs."""
    out = {}
    for name, (mean, variance) in moments.items():
        if name in CORRELATION_DIMS:
            mean, variance = mean[..., order, :] * signs[:, None], variance[..., order, :]
        if "factor" in (DIMS | CORRELATION_DIMS).get(name, ()):
            mean, variance = mean[..., order], variance[..., order]
            mean = mean * signs if name in SIGNED else mean
        out[name] = np.ascontiguousarray(mean), np.ascontiguousarray(variance)
    return out


def mixture(moments: Moments, weights: Array) -> Moments:
    """Moments of the chains taken together, each with its weight; weights: (chain,), adding up to one."""
    out = {}
    for name, (mean, variance) in moments.items():
        centre = np.tensordot(weights, mean, axes=1)
        with np.errstate(over="ignore", invalid="ignore"):  # see _moments
            spread = np.tensordot(weights, variance + (mean - centre) ** 2, axes=1)
        out[name] = np.asarray(centre), np.asarray(spread)
    return out


def posterior_fields(moments: Moments) -> dict[str, Any]:
    """What a posterior says of its draws' mixture, by the names of its fields."""
    fields = {
        "loadings_mean": moments["loadings"][0],
        "loadings_sd": np.sqrt(moments["loadings"][1]),
        "inclusion_prob": np.clip(moments["inclusion"][0], 0.0, 1.0),  # weights add up to one but for rounding
        "activations_mean": moments["activations"][0],
        "activations_sd": np.sqrt(moments["activations"][1]),
        "noise_precision_mean": moments["noise_precision"][0],
        "loading_precision_mean": moments["loading_precision"][0],
        "inclusion_rate_mean": np.zeros(0),
    }
    if "inclusion_rate" in moments:
        fields["inclusion_rate_mean"] = np.clip(moments["inclusion_rate"][0], 0.0, 1.0)
    if "factor_correlation" in moments:
        mean, variance = moments["factor_correlation"]
        fields |= {"factor_correlation_mean": mean, "factor_correlation_sd": np.sqrt(variance)}
    return fields


def mean_signal(draws: xr.DataTree, weights: Array) -> Array:
    """(n_samples, n_features): the mean over draws of F'L' with a weight for each chain."""
    posterior = draws["posterior"]
    F = posterior["activations"].variable.transpose("chain", "draw", "observation", "factor")
    L = posterior["loadings"].variable.transpose("chain", "draw", "feature", "factor")
    _, n_draws, N, _ = F.shape
    signal = np.zeros((N, L.shape[2]))
    for chain in np.flatnonzero(weights):
        for part in blocks(n_draws, draws_per_block(L.shape[2:], np.float64)):
            for f, l in zip(F[chain, part].values, L[chain, part].values, strict=True):
                add_signal(signal, f * (weights[chain] / n_draws), l)
    return signal


def reduced(posterior: Any, weights: Array) -> dict[str, Any]:
    """All fields of an MCMC posterior that depend on the chains' weights, (chain,), adding up to one."""
    fields = posterior_fields(mixture(chain_moments(posterior.draws), weights))
    fields["signal_mean"] = mean_signal(posterior.draws, weights)
    return fields


def rearranged(mc: MCMCPosterior) -> MCMCPosterior:
    """The posterior with its strongest factor first again, after chains were left out or weighted."""
    if mc.fit_sums is None:
        return mc
    order, signs = arrangement(mc.fit_sums, mc.loadings_mean, mc.weights)
    if np.array_equal(order, np.arange(len(order))) and np.all(signs > 0):
        return mc
    wide = (*mc.permutations.shape[:2], 1)
    changed = {
        name: getattr(mc, name)[..., order]
        for name in ("inclusion_prob", "loadings_sd", "activations_sd", "loading_precision_mean", "inclusion_rate_mean")
        if getattr(mc, name).size
    }
    return replace(
        mc,
        **changed,
        factor_correlation_mean=np.asarray(mc.factor_correlation_mean)[order][:, order] * np.outer(signs, signs),
        factor_correlation_sd=np.asarray(mc.factor_correlation_sd)[order][:, order],
        prior=arranged_prior(mc.prior, order),
        loadings_mean=mc.loadings_mean[:, order] * signs,
        activations_mean=mc.activations_mean[:, order] * signs,
        draws=relabelled_tree(mc.draws, np.tile(order, wide), np.tile(signs, wide)),
        permutations=mc.permutations[..., order],
        signs=mc.signs[..., order] * signs,
        fit_sums=mc.fit_sums.take(order),
    )
