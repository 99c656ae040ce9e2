"""Starts of chains around a VI optimum, wider than the posterior, so that agreement between chains means something."""

from __future__ import annotations

import numpy as np

from ..posterior import VIPosterior
from ..start import Start

INFLATION = 2.0  # chains start this many times as far from the optimum as q thinks a draw would lie
REDRAWN = 0.1  # share of the inclusions that are redrawn from the prior


def dispersed_start(vi: VIPosterior, rng: np.random.Generator) -> Start:
    """A start drawn from q with its standard deviations inflated and some inclusions drawn from the prior instead."""
    q = vi.parameters
    probability = np.broadcast_to(vi.prior.inclusion_matrix(), vi.inclusion_prob.shape)
    if vi.prior.learns_inclusion:
        probability = np.broadcast_to(vi.inclusion_rate_mean, vi.inclusion_prob.shape)
    redrawn = rng.random(probability.shape) < REDRAWN
    Z = rng.random(probability.shape) < np.where(redrawn, probability, vi.inclusion_prob)
    L = q["mu"] + INFLATION * np.sqrt(q["s2"]) * rng.standard_normal(Z.shape)
    F = vi.activations_mean + INFLATION * vi.activations_sd * rng.standard_normal(vi.activations_mean.shape)
    return Start("vi", np.where(Z, L, 0.0), np.ascontiguousarray(F.T))
