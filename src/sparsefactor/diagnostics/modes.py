"""Which chains describe the same factors."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_uppercase

import numpy as np
from numpy.typing import NDArray

from ..posterior import MCMCPosterior
from ..relabel import assignment
from ..storage.moments import chain_moments

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

SAME_MODE = 0.95  # correlation of two chains' mean activations, for every factor that one of them finds
FOUND = 0.5  # a factor is found where its activations' squared mean is this share of their mean square, or more


@dataclass(frozen=True)
class Mode:
    """Chains that describe the same factors. log_joint: the mean over their draws."""

    name: str
    chains: tuple[int, ...]
    log_joint: float


def found_factors(mc: MCMCPosterior) -> tuple[Array, Flags]:
    """The chains' mean activations (chain, n_samples, n_factors), and which factors each finds (chain, n_factors).

    The activations of a factor that is empty, or of one that comes and goes, are draws around zero: it is not found.
    """
    mean, variance = chain_moments(mc.draws, ["activations"])["activations"]
    with np.errstate(invalid="ignore"):
        return mean, np.sum(mean**2, axis=1) >= FOUND * np.sum(mean**2 + variance, axis=1)


def find_modes(mc: MCMCPosterior) -> tuple[Mode, ...]:
    """Group the chains by what they found; the largest group first, then the one with the higher log joint."""
    mean, found = found_factors(mc)
    group = np.arange(mc.n_chains)
    for a in range(mc.n_chains):
        for b in range(a):
            if same_mode(mean[a], mean[b], found[a], found[b]):
                group[group == group[a]] = group[b]
    with np.errstate(invalid="ignore"):
        log_joint = mc.draws["sample_stats"].to_dataset()["lp"].values.mean(axis=1)
    members = [np.flatnonzero(group == g) for g in np.unique(group)]
    members.sort(key=lambda chains: (-len(chains), -log_joint[chains].mean()))
    return tuple(
        Mode(_name(n), tuple(mc.chain_numbers[c] for c in chains), float(log_joint[chains].mean()))
        for n, chains in enumerate(members)
    )


def same_mode(a: Array, b: Array, found_a: Flags, found_b: Flags) -> bool:
    """Do two chains' mean activations (n_samples, n_factors), matched, correlate for every factor one of them finds?"""
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return False
    correlation = np.abs(_standard(a).T @ _standard(b))
    rows, columns = assignment(-correlation)
    matters = found_a[rows] | found_b[columns]
    return bool(np.all(correlation[rows, columns][matters] > SAME_MODE))


def _standard(x: Array) -> Array:
    centred = x - x.mean(axis=0)
    norm = np.linalg.norm(centred, axis=0)
    return np.asarray(centred / np.where(norm > 0, norm, 1.0))


def _name(n: int) -> str:
    return ascii_uppercase[n] if n < len(ascii_uppercase) else f"mode {n + 1}"
