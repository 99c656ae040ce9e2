"""The whole sampler leaves the posterior invariant, for every parameter; and the harness notices when it does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.helpers.joint import GROUPS, K, joint_scores

from sparsefactor.design import Design
from sparsefactor.engine import build_engine
from sparsefactor.engine.pinned import PinnedEngine
from sparsefactor.gibbs.inclusion import ModuleInclusion
from sparsefactor.gibbs.moves import MOVES
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.model import Beta, Prior

HYPER = {
    "noise_shape": 4.0,
    "noise_rate": 3.0,
    "loading_shape": 4.0,
    "loading_rate": 3.0,
    "factor_correlation": "none",  # see test_correlated_factors
}
CASES = [(inclusion, missing) for inclusion in ([0.3, 0.7], Beta(2.0, 3.0)) for missing in (False, True)]
# About 24 z-scores a case: beyond 4.5 by chance less than once in 5,000 cases.
LIMIT = 4.5
# Replicates of a case: so many in `make test`, and of every case in `make test-slow`.
FEW, MANY = 60, 300


def at_length(*cases):
    """The first case, short; and all of them at length, which are slow."""
    return [(*cases[0], FEW), *(pytest.param(*case, MANY, marks=pytest.mark.slow) for case in cases)]


def oracle(data, prior):
    return Gibbs(data, prior, ReferenceEngine(data, prior))


def prior_of(inclusion, noise="feature") -> Prior:
    return Prior(n_factors=K, inclusion=inclusion, noise=noise, **HYPER)


@pytest.mark.statistical
@pytest.mark.parametrize(("inclusion", "missing", "replicates"), at_length(CASES[1], CASES[0], CASES[2], CASES[3]))
def test_sampler_passes(inclusion, missing, replicates):
    scores = joint_scores(prior_of(inclusion), oracle, missing=missing, replicates=replicates)
    assert np.abs(scores).max() < LIMIT


MODULES = Prior(n_factors=K, inclusion=Beta(0.4, 0.6), n_modules=3, **HYPER)


@pytest.mark.statistical
@pytest.mark.parametrize(("missing", "replicates"), at_length((True,), (False,)))
def test_sampler_with_modules_passes(missing, replicates):
    moves = [BoldShear() if name == "shear" else MOVES[name]() for name in MOVES]
    scores = joint_scores(MODULES, compiled, missing=missing, replicates=replicates, moves=moves)
    assert np.abs(scores).max() < LIMIT


class DenseModules(ModuleInclusion):
    """Draws the weights as if their prior were uniform."""

    def sample_rates(self, size, active, rng):
        pi, _ = super().sample_rates(size, active, rng)
        return pi, rng.dirichlet(1.0 + size)


class AlwaysOwn(ModuleInclusion):
    """Takes every factor for one with rates of its own in every module."""

    def evidence(self, size, active):
        own, common = super().evidence(size, active)
        return own, common - 50.0


class FlatMembers(ModuleInclusion):
    """Draws a row's module without regard to the modules' weights."""

    def sample_member(self, rows, pi, w, rng):
        return super().sample_member(rows, pi, np.ones_like(w), rng)


@pytest.mark.statistical
@pytest.mark.parametrize(
    "broken", [DenseModules, *(pytest.param(one, marks=pytest.mark.slow) for one in (AlwaysOwn, FlatMembers))]
)
def test_a_sampler_with_wrong_modules_fails(broken):
    def build(data, prior):
        gibbs = compiled(data, prior)
        gibbs.inclusion = broken(prior.inclusion, prior.n_modules, gibbs.engine)
        return gibbs

    scores = joint_scores(MODULES, build, missing=False, replicates=FEW)
    assert np.abs(scores).max() > 2 * LIMIT


class PaperOdds(ReferenceEngine):
    """The odds of z as Appendix A prints them, with (2 pi)^(-z/2) left in."""

    def log_bayes_factor(self, k, z, A, b, message):
        return super().log_bayes_factor(k, z, A, b, message) - 0.5 * np.log(2 * np.pi)


class StaleActivations(ReferenceEngine):
    """Draws F a third too wide."""

    def gibbs_activations(self, *args):
        return super().gibbs_activations(*args) * 1.3


@pytest.mark.statistical
@pytest.mark.parametrize("broken", [PaperOdds, pytest.param(StaleActivations, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("inclusion", "missing"), [CASES[1], pytest.param(*CASES[2], marks=pytest.mark.slow)])
def test_a_wrong_sampler_fails(broken, inclusion, missing):
    scores = joint_scores(
        prior_of(inclusion),
        lambda data, prior: Gibbs(data, prior, broken(data, prior)),
        missing=missing,
        replicates=FEW,
    )
    assert np.abs(scores).max() > 2 * LIMIT


def compiled(data, prior):
    return Gibbs(data, prior, build_engine(data, prior, "cpu", n_threads=1))


def move_scores(move, missing, replicates, design=None):
    # Factors as unequal as can be: a wrong turn or exchange of them shows.
    inclusion = [0.1, 0.9] if move.name == "rotation" else [0.3, 0.7]
    settings = {"missing": missing, "replicates": replicates, "design": design}
    return joint_scores(prior_of(inclusion), compiled, moves=[move], **settings)


class ScaleForgetsAlpha(MOVES["scale"]):
    """Scales the activations and loadings but leaves alpha behind."""

    def __call__(self, gibbs, state, rng):
        return super().__call__(gibbs, state, rng)._replace(alpha=state.alpha)


class ExchangeAlways(MOVES["rotation"]):
    """Exchanges whatever the odds."""

    def exchange(self, P, rng):
        return np.full(P, 1e-300)


class RotateAlways(MOVES["rotation"]):
    """Takes the first angle that is tried."""

    def log_height(self, P, rng):
        return np.full(P, -np.inf)


class ProposalAlways(MOVES["column"]):
    """Takes every joint proposal of slab precision and rate."""

    def log_uniform(self, D, rng):
        return np.full(D, -np.inf)


class NoiseForgetsJacobian(MOVES["noise"]):
    """Draws log tau with the density of tau, which is that of a shape smaller by one."""

    def __call__(self, gibbs, state, rng):
        return super().__call__(compiled(gibbs.data, replace(gibbs.prior, noise_shape=3.0)), state, rng)


class OwnForgetsOdds(MOVES["noise"]):
    """Gives a feature a factor of its own as if inclusion were more probable than it is."""

    def columns(self, gibbs, state):
        columns = gibbs.columns(state)
        return columns._replace(logit=columns.logit + 1.0)


class OwnForgetsSlab(MOVES["noise"]):
    """Draws such a loading under another slab."""

    def columns(self, gibbs, state):
        columns = gibbs.columns(state)
        return columns._replace(alpha=columns.alpha * 2.0)


class NoiseForgetsHoles(MOVES["noise"]):
    """Takes what is missing for zeros that were observed."""

    def __call__(self, gibbs, state, rng):
        return super().__call__(compiled(replace(gibbs.data, observed=None), gibbs.prior), state, rng)


class NoiseForgetsDirections(MOVES["noise"]):
    """Leaves in the data what the directions explain."""

    def __call__(self, gibbs, state, rng):
        plain = compiled(replace(gibbs.data, design=None), gibbs.prior)
        return super().__call__(plain, state, rng)


class BoldShear(MOVES["shear"]):
    """Proposes shears that matter on a tiny problem."""

    scales = (0.3, 1.0, 2.0)


class ShearAlways(BoldShear):
    """Takes every shear that is proposed."""

    def log_uniform(self, shape, rng):
        return np.full(shape, -np.inf)


@pytest.mark.statistical
@pytest.mark.parametrize(("order", "replicates"), at_length((tuple(MOVES),), (tuple(reversed(MOVES)),)))
def test_moves_pass_together_in_any_order(order, replicates):
    moves = [BoldShear() if name == "shear" else MOVES[name]() for name in order]
    scores = joint_scores(prior_of([0.3, 0.7]), compiled, missing=False, replicates=replicates, moves=moves)
    assert np.abs(scores).max() < LIMIT


WRONG_MOVES = [  # beside the right ones; those of the scale and of rotations take many replicates to show
    (BoldShear, ShearAlways),
    (MOVES["column"], ProposalAlways),
    (MOVES["scale"], ScaleForgetsAlpha),
    (MOVES["rotation"], ExchangeAlways),
    (MOVES["rotation"], RotateAlways),
]


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("right", "wrong", "missing", "replicates"),
    [
        *((*pair, True, FEW) for pair in WRONG_MOVES[:2]),
        *(
            pytest.param(*pair, missing, MANY, marks=pytest.mark.slow)
            for pair in WRONG_MOVES
            for missing in (True, False)
        ),
    ],
)
def test_each_move_passes_and_a_wrong_one_fails(right, wrong, missing, replicates):
    assert np.abs(move_scores(right(), missing, replicates)).max() < LIMIT
    assert np.abs(move_scores(wrong(), missing, replicates)).max() > 2 * LIMIT


@pytest.mark.slow
@pytest.mark.statistical
def test_columns_pass_where_rates_are_learnt_and_wrong_ones_fail():
    prior = prior_of(Beta(2.0, 3.0))
    right, wrong = (
        joint_scores(prior, compiled, missing=True, replicates=300, moves=[move()])
        for move in (MOVES["column"], ProposalAlways)
    )
    assert np.abs(right).max() < LIMIT
    assert np.abs(wrong).max() > 2 * LIMIT


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("noise", ["feature", "shared", "sample"])
@pytest.mark.parametrize(("inclusion", "missing"), CASES)
@pytest.mark.parametrize("with_moves", [False, True], ids=["plain", "moves"])
def test_compiled_sampler_passes_at_length(inclusion, missing, noise, with_moves):
    moves = [BoldShear() if name == "shear" else MOVES[name]() for name in MOVES] if with_moves else []
    scores = joint_scores(prior_of(inclusion, noise), compiled, missing=missing, replicates=1000, moves=moves)
    assert np.abs(scores).max() < LIMIT


class SharedSlab(Gibbs):
    """Draws one slab precision for all groups."""

    def sample_alpha(self, sums, rng):
        alpha = super().sample_alpha(sums, rng)
        return np.repeat(alpha[:, :1], alpha.shape[1], axis=1)


class ScaleForgetsGroups(MOVES["scale"]):
    """Takes a factor's slab precision for one number, whose prior counts once."""

    def __call__(self, gibbs, state, rng):
        prior, N = gibbs.prior, state.F.shape[1]
        rate = 0.5 * np.sum(state.F**2, axis=1) + prior.loading_rate * state.alpha[:, 0]
        c = np.sqrt(rng.standard_gamma(0.5 * N + prior.loading_shape, size=len(rate)) / rate)
        alpha = state.alpha * c[:, None] ** 2
        return state._replace(F=state.F * c[:, None], alpha=alpha, scale=state.scale / c)


def grouped(inclusion) -> Prior:
    return Prior(n_factors=K, inclusion=inclusion, groups=GROUPS, **HYPER)


@pytest.mark.statistical
@pytest.mark.parametrize(("inclusion", "missing", "replicates"), at_length((Beta(2.0, 3.0), False), ([0.3, 0.7], True)))
def test_sampler_with_groups_passes(inclusion, missing, replicates):
    moves = [BoldShear() if name == "shear" else MOVES[name]() for name in MOVES]
    scores = joint_scores(grouped(inclusion), compiled, missing=missing, replicates=replicates, moves=moves)
    assert np.abs(scores).max() < LIMIT


@pytest.mark.slow
@pytest.mark.statistical
def test_a_sampler_with_wrong_groups_fails():
    def build(data, prior):
        return SharedSlab(data, prior, build_engine(data, prior, "cpu", n_threads=1))

    scores = joint_scores(grouped(Beta(2.0, 3.0)), build, missing=False, replicates=FEW)
    assert np.abs(scores).max() > 2 * LIMIT
    scores = joint_scores(grouped([0.3, 0.7]), compiled, missing=False, replicates=300, moves=[ScaleForgetsGroups()])
    assert np.abs(scores).max() > 2 * LIMIT


DESIGN = Design(np.array([[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 0.5, 0.0]]), False, None, precision=0.8)


class SlideForgetsBase(Gibbs):
    """Takes out of the activations what it does not put into the directions' loadings."""

    def slide(self, state, rng):
        return super().slide(state, rng)._replace(rows=state.rows)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("inclusion", "missing", "noise", "replicates"),
    at_length((Beta(2.0, 3.0), True, "feature"), ([0.3, 0.7], False, "sample")),
)
def test_sampler_with_given_activations_passes(inclusion, missing, noise, replicates):
    moves = [BoldShear() if name == "shear" else MOVES[name]() for name in MOVES]
    prior = prior_of(inclusion, noise)
    scores = joint_scores(prior, compiled, missing=missing, replicates=replicates, moves=moves, design=DESIGN)
    assert np.abs(scores).max() < LIMIT


HOLES = [(False, None), (True, None), (True, DESIGN), (False, DESIGN)]  # all that the move for noise is made for


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("missing", "design", "replicates"),
    [*((*case, FEW) for case in HOLES[:3]), *(pytest.param(*case, MANY, marks=pytest.mark.slow) for case in HOLES)],
)
def test_noise_drawn_without_activations_passes(missing, design, replicates):
    assert np.abs(move_scores(MOVES["noise"](), missing, replicates, design)).max() < LIMIT


WRONG_NOISE = [
    (OwnForgetsOdds, False, None),
    (OwnForgetsOdds, True, DESIGN),
    (NoiseForgetsHoles, True, None),
    (NoiseForgetsDirections, True, DESIGN),
    *((wrong, missing, None) for wrong in (NoiseForgetsJacobian, OwnForgetsSlab) for missing in (False, True)),
]


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("wrong", "missing", "design", "replicates"),
    [
        *((*case, FEW) for case in WRONG_NOISE[:4]),
        *(pytest.param(*case, MANY, marks=pytest.mark.slow) for case in WRONG_NOISE),
    ],
)
def test_noise_drawn_wrongly_without_activations_fails(wrong, missing, design, replicates):
    assert np.abs(move_scores(wrong(), missing, replicates, design)).max() > 2 * LIMIT


SLAB = replace(DESIGN, intercept=True, slab=True)  # the first direction flat, the second with a slab of its own


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("inclusion", "missing", "noise", "replicates"),
    at_length((Beta(2.0, 3.0), True, "feature"), ([0.3, 0.7], False, "shared")),
)
def test_sampler_with_slabs_of_given_activations_passes(inclusion, missing, noise, replicates):
    prior = prior_of(inclusion, noise)
    moves = [MOVES[name]() for name in MOVES]
    scores = joint_scores(prior, compiled, missing=missing, replicates=replicates, moves=moves, design=SLAB)
    assert np.abs(scores).max() < LIMIT


class WideSlab(PinnedEngine):
    """Draws a slab's precision at twice its rate."""

    def slabs(self, square):
        given = super().slabs(square)
        return given._replace(rate=2.0 * given.rate)


@pytest.mark.statistical
@pytest.mark.slow
def test_a_sampler_with_wrong_slabs_fails():
    def build(data, prior):
        right = build_engine(data, prior, "cpu", n_threads=1)
        return Gibbs(data, prior, WideSlab(right.inner, data, prior))

    scores = joint_scores(prior_of([0.3, 0.7]), build, missing=False, replicates=150, design=SLAB)
    assert np.abs(scores).max() > 2 * LIMIT


@pytest.mark.statistical
@pytest.mark.slow
def test_a_sampler_with_wrong_given_activations_fails():
    def build(data, prior):
        return SlideForgetsBase(data, prior, build_engine(data, prior, "cpu", n_threads=1))

    scores = joint_scores(prior_of([0.3, 0.7]), build, missing=False, replicates=150, design=DESIGN)
    assert np.abs(scores).max() > 2 * LIMIT
