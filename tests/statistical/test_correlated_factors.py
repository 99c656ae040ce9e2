"""The sampler leaves the posterior invariant where the factors' correlations are learnt, and wrong ones are noticed.

For the draw of the correlations by itself, and wrong ones, see tests/test_gibbs_correlation.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.helpers.joint import GROUPS, K, joint_scores
from tests.statistical.test_joint_distribution import DESIGN, HYPER, LIMIT, SLAB, BoldShear, at_length, compiled, oracle

from sparsefactor.gibbs.correlation import draw_correlation
from sparsefactor.gibbs.moves import MOVES
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.contract import NONE
from sparsefactor.model import Beta, Prior

MANY = 300
CORRELATED = {**HYPER, "n_factors": K, "factor_correlation": "learnt"}


def all_moves():
    return [BoldShear() if name == "shear" else MOVES[name]() for name in MOVES]


def prior_of(inclusion=(0.3, 0.7), **settings) -> Prior:
    return Prior(inclusion=inclusion if isinstance(inclusion, Beta) else list(inclusion), **CORRELATED | settings)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("build", "inclusion", "missing", "noise", "replicates"),
    at_length(
        (compiled, Beta(2.0, 3.0), False, "feature"),
        (oracle, (0.3, 0.7), True, "feature"),
        (compiled, (0.3, 0.7), True, "feature"),
        (compiled, Beta(2.0, 3.0), True, "shared"),
        (compiled, (0.3, 0.7), False, "sample"),
    ),
)
def test_sampler_passes(build, inclusion, missing, noise, replicates):
    moves = all_moves() if build is compiled else []
    scores = joint_scores(prior_of(inclusion, noise=noise), build, missing=missing, replicates=replicates, moves=moves)
    assert np.abs(scores).max() < LIMIT


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("settings", "missing", "design", "replicates"),
    at_length(
        ({"inclusion": Beta(2.0, 3.0), "groups": GROUPS}, False, None),
        ({"inclusion": Beta(0.4, 0.6), "n_modules": 3}, True, None),
        ({}, True, DESIGN),
        ({"inclusion": Beta(2.0, 3.0)}, False, SLAB),
    ),
)
def test_sampler_passes_with_groups_modules_and_covariates(settings, missing, design, replicates):
    given = {"missing": missing, "replicates": replicates, "design": design}
    scores = joint_scores(prior_of(**settings), compiled, moves=all_moves(), **given)
    assert np.abs(scores).max() < LIMIT


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("name", ["rotation", "shear", "column", "noise"])
@pytest.mark.parametrize("missing", [False, True])
def test_each_move_passes(name, missing):
    move = BoldShear() if name == "shear" else MOVES[name]()
    inclusion = (0.1, 0.9) if name == "rotation" else (0.3, 0.7)
    scores = joint_scores(prior_of(inclusion), compiled, missing=missing, replicates=MANY, moves=[move])
    assert np.abs(scores).max() < LIMIT


class WrongDf(Gibbs):
    """Draws correlations as if their prior were sharper."""

    def sample_phi(self, state, rng):
        return draw_correlation(state, self.prior, 3.0 * self.prior.correlation_df, rng)


class ForgetsCorrelation(Gibbs):
    """Takes activations for uncorrelated when they are drawn; complete small data are drawn in one compiled call."""

    def sample_f(self, state, *args):
        return super().sample_f(state._replace(phi=NONE), *args)


@pytest.mark.statistical
@pytest.mark.parametrize("broken", [WrongDf, ForgetsCorrelation])
def test_a_wrong_sampler_fails(broken):
    def build(data, prior):
        return broken(data, prior, compiled(data, prior).engine)

    scores = joint_scores(prior_of(), build, missing=True, replicates=150)
    assert np.abs(scores).max() > 2 * LIMIT


class ShearForgetsSlab(BoldShear):
    """Leaves out what a shear does to the prior of slab precisions in the expanded model."""

    def __call__(self, gibbs, state, rng):
        other = replace(gibbs.prior, loading_shape=1e-6, loading_rate=1e-6)
        return super().__call__(compiled(gibbs.data, other), state, rng)


class RotationForgetsSlab(MOVES["rotation"]):
    """The same of a rotation."""

    def __call__(self, gibbs, state, rng):
        other = replace(gibbs.prior, loading_shape=1e-6, loading_rate=1e-6)
        return super().__call__(compiled(gibbs.data, other), state, rng)


class NoiseForgetsCorrelation(MOVES["noise"]):
    """Integrates out activations as if they were uncorrelated."""

    def columns(self, gibbs, state):
        return gibbs.columns(state)._replace(phi=NONE)


@pytest.mark.statistical
@pytest.mark.slow
@pytest.mark.parametrize("wrong", [ShearForgetsSlab, RotationForgetsSlab, NoiseForgetsCorrelation])
def test_a_wrong_move_fails(wrong):
    inclusion = (0.1, 0.9) if wrong is RotationForgetsSlab else (0.3, 0.7)
    scores = joint_scores(prior_of(inclusion), compiled, missing=False, replicates=MANY, moves=[wrong()])
    assert np.abs(scores).max() > 2 * LIMIT
