"""The paper's measures: perfect where the truth is met, by hand elsewhere, never NaN."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsefactor.metrics import baseline, confusion, fill_in_error, score
from sparsefactor.model import Beta, Prior
from sparsefactor.simulate import simulate, simulate_paper

KEYS = ["z_accuracy", "rrmse_loadings", "rrmse_activations", "rrmse_signal"]


@dataclass
class Estimate:
    loadings_mean: np.ndarray
    activations_mean: np.ndarray
    inclusion_prob: np.ndarray
    offset: np.ndarray | float = 0.0
    labels: SimpleNamespace = field(init=False)

    def __post_init__(self) -> None:
        self.labels = SimpleNamespace(offset=self.offset)

    def reconstruct(self) -> np.ndarray:
        return self.activations_mean @ self.loadings_mean.T + self.offset


def truth_of(K=3, seed=0):
    return simulate(n_features=30, n_samples=20, inclusion=[0.5] * K, snr=1, seed=seed)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1), K=st.integers(1, 5))
def test_the_truth_relabelled_and_rescaled_scores_perfectly(seed, K) -> None:
    rng = np.random.default_rng(seed)
    sim = simulate(n_features=30, n_samples=20, inclusion=[0.9] * K, snr=1, seed=seed)
    order = rng.permutation(K)
    scale = rng.choice([-1, 1], size=K) * rng.uniform(0.1, 10, size=K)
    p = Estimate(
        (sim.loadings / scale)[:, order],
        ((sim.activations - sim.activations.mean(axis=0)) * scale)[:, order],  # of centred data
        0.9 * sim.inclusion[:, order] + 0.05,
        offset=rng.normal(size=30),
    )
    found = score(p, sim)
    assert list(found) == KEYS
    assert found["z_accuracy"] == 1.0
    np.testing.assert_allclose([found[key] for key in KEYS[1:]], 0, atol=1e-12)


def test_scores_by_hand() -> None:
    sim = truth_of()
    noise = np.random.default_rng(0).normal(size=(20, 3))
    wrong = sim.inclusion.astype(float)
    wrong[0] = 1 - wrong[0]
    p = Estimate(1.2 * sim.loadings, sim.activations + 0.1 * noise, wrong)
    found = score(p, sim)
    scale = np.linalg.norm(sim.activations, axis=0) / np.linalg.norm(p.activations_mean, axis=0)

    def rrmse(a, b):
        return np.sqrt(np.sum((a - b) ** 2) / np.sum(b**2))

    assert found["z_accuracy"] == pytest.approx(1 - 1 / 30)
    assert found["rrmse_loadings"] == pytest.approx(rrmse(p.loadings_mean / scale, sim.loadings))
    assert found["rrmse_activations"] == pytest.approx(rrmse(p.activations_mean * scale, sim.activations))
    assert found["rrmse_signal"] == pytest.approx(rrmse(p.reconstruct(), sim.signal))


def test_rounding_at_one_half() -> None:
    sim = truth_of()
    p = Estimate(sim.loadings, sim.activations, np.where(sim.inclusion, 0.51, 0.49))
    assert score(p, sim)["z_accuracy"] == 1.0


def test_confusion_by_hand() -> None:
    sim = truth_of()
    found = sim.inclusion.astype(float)
    found[:4, 0] = 1.0
    found[4:14, 1] = 0.0
    order = [2, 0, 1]
    p = Estimate(sim.loadings[:, order], sim.activations[:, order], found[:, order])
    false_in, false_out = int(np.sum(~sim.inclusion[:4, 0])), int(np.sum(sim.inclusion[4:14, 1]))
    assert false_in > 0
    assert false_out > 0
    total_in, total_out = int(sim.inclusion.sum()), int((~sim.inclusion).sum())
    expected = [[total_out - false_in, false_in], [false_out, total_in - false_out]]
    np.testing.assert_array_equal(confusion(p, sim), expected)
    assert np.trace(confusion(p, sim)) / 90 == pytest.approx(score(p, sim)["z_accuracy"])


@pytest.mark.parametrize("dead", ["loadings", "activations", "both", "nearly"])
def test_a_dead_factor_gives_no_nan(dead) -> None:
    sim = truth_of()
    keep = np.array([1.0, 0.0, 1.0])
    L = sim.loadings * (1 if dead in ("activations", "nearly") else keep)
    F = sim.activations * {"loadings": 1, "nearly": [1, 1e-200, 1]}.get(dead, keep)
    found = score(Estimate(L, F, sim.inclusion * keep), sim)
    assert np.isfinite(list(found.values())).all()
    assert found["z_accuracy"] == pytest.approx(1 - sim.inclusion[:, 1].sum() / 90)
    assert found["rrmse_signal"] > 0.1


def test_missing_factor_counts_as_zeros() -> None:
    sim = truth_of()
    two = [0, 2]
    p = Estimate(sim.loadings[:, two], sim.activations[:, two], sim.inclusion[:, two].astype(float))
    found = score(p, sim)
    lost = np.sum(sim.loadings[:, 1] ** 2) / np.sum(sim.loadings**2)
    assert found["rrmse_loadings"] == pytest.approx(np.sqrt(lost))
    assert found["z_accuracy"] == pytest.approx(1 - sim.inclusion[:, 1].sum() / 90)


def test_superfluous_factor_counts_in_the_signal_only() -> None:
    sim = truth_of()
    rng = np.random.default_rng(0)
    p = Estimate(
        np.column_stack([rng.normal(size=30), sim.loadings]),
        np.column_stack([rng.normal(size=20), sim.activations]),
        np.column_stack([np.ones(30), sim.inclusion]),
    )
    found = score(p, sim)
    assert found["z_accuracy"] == 1.0
    assert found["rrmse_loadings"] == pytest.approx(0, abs=1e-12)
    extra = np.outer(p.activations_mean[:, 0], p.loadings_mean[:, 0])
    assert found["rrmse_signal"] == pytest.approx(np.sqrt(np.sum(extra**2) / np.sum(sim.signal**2)))


def test_truth_without_signal() -> None:
    sim = simulate(n_features=5, n_samples=4, inclusion=0.0, n_factors=2, snr=1)
    still = score(Estimate(np.zeros((5, 2)), np.zeros((4, 2)), np.zeros((5, 2))), sim)
    assert still["rrmse_signal"] == still["rrmse_loadings"] == 0.0
    assert score(Estimate(np.ones((5, 2)), np.ones((4, 2)), np.zeros((5, 2))), sim)["rrmse_signal"] == np.inf


# ---- the prior mean -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inclusion", [[0.1] * 5 + [0.9], [0.9] + [0.1] * 5])
def test_baseline_of_the_paper(inclusion) -> None:
    found = baseline(simulate_paper(), Prior(inclusion=inclusion))
    assert list(found) == KEYS
    # All out for the sparse factors, all in for the dense one.
    assert found["z_accuracy"] == pytest.approx((0.925 + 0.85 + 0.75 + 0.625 + 0.5 + 1) / 6)
    assert [found[key] for key in KEYS[1:]] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("prior", "accuracy"),
    [
        (Prior(n_factors=6, inclusion=0.1), (0.925 + 0.85 + 0.75 + 0.625 + 0.5) / 6),
        (Prior(n_factors=6, inclusion=Beta(1, 9)), (0.925 + 0.85 + 0.75 + 0.625 + 0.5) / 6),
        (Prior(inclusion=[0.9]), (0.925 + 0.85 + 0.75 + 0.625 + 0.5 + 1) / 6),
        (Prior(inclusion=[0.9] * 2 + [0.1] * 9), (0.925 + 0.85 + 0.75 + 0.625 + 0.5 + 1) / 6),
        (Prior(inclusion=np.where(simulate_paper().inclusion, 0.8, 0.2)), 1.0),
    ],
    ids=["sparse", "beta", "one", "many", "annotated"],
)
def test_baseline_of_other_priors(prior, accuracy) -> None:
    assert baseline(simulate_paper(), prior)["z_accuracy"] == pytest.approx(accuracy)


def test_baseline_with_too_few_factors_uses_them_where_they_gain_most() -> None:
    Z = np.arange(10)[:, None] < [9, 4]
    truth = simulate(n_features=10, n_samples=4, inclusion=Z, snr=1)
    prior = Prior(inclusion=np.where(np.arange(10)[:, None] < 5, 0.8, 0.2))
    # At the first factor it gains .6 over .1, at the second .9 over .6.
    assert baseline(truth, prior)["z_accuracy"] == pytest.approx((0.6 + 0.6) / 2)


# ---- the fill-in test ---------------------------------------------------------------------------------------------


def test_fill_in_error_by_hand() -> None:
    sim = simulate(n_features=30, n_samples=20, inclusion=[0.5] * 3, snr=1, missing=0.3)
    p = Estimate(sim.loadings, sim.activations, sim.inclusion, offset=np.arange(30.0))
    held_out = [(j, i) for j in range(20) for i in range(30) if np.isnan(sim.X[j, i])]
    predicted = {(j, i): sim.signal[j, i] + i for j, i in held_out}
    error = sum((predicted[at] - sim.X_complete[at]) ** 2 for at in held_out)
    size = sum(sim.X_complete[at] ** 2 for at in held_out)
    assert fill_in_error(p, sim.X_complete, sim.missing) == pytest.approx(np.sqrt(error / size))


def test_fill_in_error_ignores_what_is_not_held_out() -> None:
    sim = truth_of()
    p = Estimate(sim.loadings, sim.activations, sim.inclusion)
    mask = np.zeros((20, 30), dtype=bool)
    mask[3, 4] = True
    X = np.full((20, 30), np.nan)
    X[3, 4] = 2 * sim.signal[3, 4] + 1
    expected = abs(sim.signal[3, 4] + 1) / abs(X[3, 4])
    assert fill_in_error(p, X, mask) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("X", "mask", "message"),
    [
        (
            np.zeros((30, 20)),
            np.ones((20, 30), bool),
            r"X_true .* shape of the training data, \(20, 30\); got \(30, 20\)",
        ),
        (np.zeros((20, 30)), np.ones(30, bool), r"mask .* shape of the training data.*got \(30,\)"),
        (np.zeros((20, 30)), np.ones((20, 30)), "mask must be boolean; got dtype float64"),
        (np.zeros((20, 30)), np.zeros((20, 30), bool), "mask must hold out at least one entry"),
        (np.full((20, 30), np.nan), np.ones((20, 30), bool), "X_true must be finite where mask is True"),
    ],
)
def test_fill_in_refusals(X, mask, message) -> None:
    sim = truth_of()
    with pytest.raises(ValueError, match=message):
        fill_in_error(Estimate(sim.loadings, sim.activations, sim.inclusion), X, mask)
