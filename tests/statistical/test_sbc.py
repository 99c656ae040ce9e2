"""Simulation-based calibration of the compiled sampler with all its moves, in 19 settings; a bias of 10 % is caught."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers.sbc import Setting, entries, quantities, ranks, scores, settings

from sparsefactor.engine import build_engine
from sparsefactor.gibbs.moves import moves_for
from sparsefactor.gibbs.sweep import Gibbs

LIMIT = 4.5  # up to 22 z-scores a setting: beyond it by chance less than once in 6,000 settings
REPLICATES, CONTROL, ENTRIES = 150, 400, 500


def gibbs_of(kind=Gibbs):
    def build(data, prior):
        engine = build_engine(data, prior, "cpu", n_threads=1)
        return kind(data, prior, engine, moves_for(engine))

    return build


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("setting", list(settings()), ids=str)
def test_the_truth_ranks_uniformly(setting):
    found = scores(ranks(setting.prior, setting.missing, gibbs_of(), REPLICATES))
    assert np.abs(found).max() < LIMIT


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(
    "setting",
    [
        Setting("fixed", "feature", 0.2),
        Setting("learnt", "feature", 0.6),
        Setting("learnt", "shared", 0.2),
        Setting("unequal", "sample", 0.6),
    ],
    ids=str,
)
def test_signals_and_missing_entries_rank_uniformly(setting):
    found = scores(ranks(setting.prior, setting.missing, gibbs_of(), ENTRIES, of=entries))
    assert np.abs(found).max() < LIMIT


class WideActivations(Gibbs):
    """Draws activations 10 % too wide where entries are missing; complete small data are drawn in one compiled call."""

    def sample_f(self, *args):
        return 1.1 * super().sample_f(*args)


class SureOfNoise(Gibbs):
    """Draws noise precisions 10 % too high."""

    def sample_tau(self, *args):
        return 1.1 * super().sample_tau(*args)


class ShyRates(Gibbs):
    """Draws inclusion rates 10 % too low."""

    def __init__(self, *args):
        super().__init__(*args)
        sample = self.inclusion.sample
        self.inclusion.sample = lambda *args: (drawn := sample(*args))._replace(pi=0.9 * drawn.pi)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize(
    ("broken", "setting", "of"),
    [
        (WideActivations, Setting("fixed", "feature", 0.2), quantities),
        (SureOfNoise, Setting("fixed", "shared", 0.2), quantities),
        (ShyRates, Setting("learnt", "feature", 0.0), quantities),
        (WideActivations, Setting("fixed", "feature", 0.2), entries),
    ],
)
def test_a_conditional_that_is_off_by_ten_per_cent_is_caught(broken, setting, of):
    found = scores(ranks(setting.prior, setting.missing, gibbs_of(broken), CONTROL, of=of))
    assert np.abs(found).max() > LIMIT


def test_the_scores_of_uniform_ranks_are_standard_normal():
    rng = np.random.default_rng(0)
    found = np.array([scores(rng.random((100, 5))) for _ in range(400)])
    np.testing.assert_allclose(found.std(axis=(0, 2)), 1.0, atol=0.06)
    np.testing.assert_allclose(found.mean(axis=(0, 2)), 0.0, atol=0.1)
