"""Simulated data: the truth is the truth, the noise is as asked, every refusal says why."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparsefactor.model import Beta, Prior
from sparsefactor.simulate import paper_inclusion, simulate, simulate_paper

DRAWABLE = {"noise_shape": 3.0, "noise_rate": 2.0, "loading_shape": 4.0, "loading_rate": 2.0}


def test_shapes_and_zeros() -> None:
    sim = simulate(n_features=30, n_samples=12, inclusion=[0.2, 0.9], snr=5, seed=3)
    assert sim.X.shape == (12, 30)
    assert sim.loadings.shape == sim.inclusion.shape == (30, 2)
    assert sim.activations.shape == (12, 2)
    assert sim.noise_precision.shape == (30,)
    assert (sim.n_samples, sim.n_features, sim.n_factors) == (12, 30, 2)
    assert sim.inclusion.dtype == np.bool_
    np.testing.assert_array_equal(sim.loadings != 0, sim.inclusion)
    np.testing.assert_allclose(sim.signal, np.einsum("jk,ik->ji", sim.activations, sim.loadings))
    np.testing.assert_array_equal(sim.X, sim.X_complete)
    assert not sim.missing.any()


def test_simulation_is_frozen() -> None:
    sim = simulate_paper()
    with pytest.raises(AttributeError):
        sim.X = sim.X_complete


def test_snr_is_the_papers_equation() -> None:
    sim = simulate(n_features=20, n_samples=15, inclusion=[1.0, 0.5], snr=7, seed=1)
    for i in range(20):
        row = [sim.loadings[i] @ sim.activations[j] for j in range(15)]
        sample_variance = sum((v - sum(row) / 15) ** 2 for v in row) / 14
        assert sim.noise_precision[i] == pytest.approx(7 / sample_variance)


def test_noise_has_the_precision_it_states() -> None:
    sim = simulate(n_features=4, n_samples=20_000, inclusion=[1.0, 1.0], snr=5, seed=2)
    measured = 1 / np.var(sim.X - sim.signal, axis=0)
    np.testing.assert_allclose(measured, sim.noise_precision, rtol=0.06)
    assert not np.allclose(measured, 2 * sim.noise_precision, rtol=0.06)


def test_feature_without_signal_gets_median_noise() -> None:
    Z = np.ones((5, 2))
    Z[3] = 0
    sim = simulate(n_features=5, n_samples=10, inclusion=Z, snr=2, seed=0)
    variances = np.var(np.delete(sim.signal, 3, axis=1), axis=0, ddof=1)
    assert sim.noise_precision[3] == pytest.approx(1.0 / (np.median(variances) / 2))


def test_constant_signal_counts_as_none() -> None:
    loadings = np.array([[0.1], [0.3]])
    sim = simulate(n_features=2, n_samples=7, loadings=loadings, activations=np.full((7, 1), 0.7), snr=2)
    np.testing.assert_array_equal(sim.noise_precision, [1.0, 1.0])


def test_no_signal_at_all_gets_precision_one() -> None:
    sim = simulate(n_features=4, n_samples=6, inclusion=0.0, n_factors=2, snr=2, seed=0)
    np.testing.assert_array_equal(sim.noise_precision, np.ones(4))
    assert np.isfinite(sim.X).all()


def test_probabilities_are_met() -> None:
    probability = np.tile([[0.05, 0.5, 0.95]], (4000, 1))
    probability[:2000, 0] = 0.6
    sim = simulate(n_features=4000, n_samples=3, inclusion=probability, snr=1, seed=5)
    found = [sim.inclusion[:2000, 0].mean(), sim.inclusion[2000:, 0].mean(), *sim.inclusion[:, 1:].mean(axis=0)]
    np.testing.assert_allclose(found, [0.6, 0.05, 0.5, 0.95], atol=0.04)


def test_scalar_inclusion_and_n_factors() -> None:
    sim = simulate(n_features=10, n_samples=5, inclusion=1.0, n_factors=3, snr=1)
    assert sim.inclusion.all()
    assert sim.n_factors == 3


def test_what_is_given_is_kept() -> None:
    rng = np.random.default_rng(0)
    Z = rng.random((8, 2)) < 0.5
    L, F = rng.normal(size=(8, 2)), rng.normal(size=(6, 2))
    sim = simulate(n_features=8, n_samples=6, inclusion=Z, loadings=L, activations=F, snr=3)
    np.testing.assert_array_equal(sim.inclusion, Z)
    np.testing.assert_array_equal(sim.loadings, np.where(Z, L, 0))
    np.testing.assert_array_equal(sim.activations, F)
    assert np.isnan(sim.loading_precision).all()
    bare = simulate(n_features=8, n_samples=6, loadings=np.where(Z, L, 0), snr=3)
    np.testing.assert_array_equal(bare.inclusion, Z)


def test_a_seed_may_be_a_generator_or_none() -> None:
    one, again = (simulate_paper(seed=np.random.default_rng(3)).X for _ in range(2))
    np.testing.assert_array_equal(one, again)
    assert not np.array_equal(simulate_paper(seed=None).X, simulate_paper(seed=None).X)


def test_same_seed_same_data_other_seed_other_data() -> None:
    one, again, other = simulate_paper(seed=4), simulate_paper(seed=4), simulate_paper(seed=5)
    np.testing.assert_array_equal(one.X, again.X)
    assert not np.array_equal(one.activations, other.activations)


def test_snr_and_missing_leave_the_truth_alone() -> None:
    one, other = simulate_paper(snr=1, seed=4), simulate_paper(snr=25, seed=4, missing=0.2)
    np.testing.assert_array_equal(one.loadings, other.loadings)
    np.testing.assert_array_equal(one.activations, other.activations)
    np.testing.assert_allclose(25 * one.noise_precision, other.noise_precision)


@settings(deadline=None)
@given(
    n_samples=st.integers(2, 9),
    n_features=st.integers(2, 9),
    fraction=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_missing_is_exact_and_leaves_no_row_or_column_empty(n_samples, n_features, fraction, seed) -> None:
    size = n_samples * n_features
    missing = fraction * (size - max(n_samples, n_features)) / size
    sim = simulate(
        n_features=n_features, n_samples=n_samples, inclusion=1.0, n_factors=1, snr=1, missing=missing, seed=seed
    )
    assert sim.missing.sum() == round(missing * size)
    assert not sim.missing.all(axis=0).any()
    assert not sim.missing.all(axis=1).any()
    np.testing.assert_array_equal(sim.X[~sim.missing], sim.X_complete[~sim.missing])
    assert np.isfinite(sim.X_complete).all()


def test_every_entry_is_as_likely_to_be_missing() -> None:
    holes = sum(
        simulate(n_features=3, n_samples=4, inclusion=1.0, n_factors=1, snr=1, missing=0.5, seed=s).missing
        for s in range(2000)
    )
    np.testing.assert_allclose(holes / 2000, 0.5, atol=0.05)


# ---- from a prior -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("noise", "shape"), [("feature", (9,)), ("shared", ()), ("sample", (7,))])
def test_noise_structure_of_a_prior(noise, shape) -> None:
    prior = Prior(n_factors=2, inclusion=0.5, noise=noise, **DRAWABLE)
    sim = simulate(n_features=9, n_samples=7, prior=prior, seed=0)
    assert sim.noise_precision.shape == shape
    assert sim.X.shape == (7, 9)


def test_noise_by_sample_varies_by_sample() -> None:
    prior = Prior(n_factors=1, inclusion=0.5, noise="sample", **DRAWABLE)
    sim = simulate(n_features=20_000, n_samples=4, prior=prior, seed=1)
    np.testing.assert_allclose(1 / np.var(sim.X - sim.signal, axis=1), sim.noise_precision, rtol=0.06)


def test_precisions_follow_their_gamma() -> None:
    prior = Prior(n_factors=4000, inclusion=0.5, **DRAWABLE)
    sim = simulate(n_features=4000, n_samples=2, prior=prior, seed=0)
    for draws, shape, rate in ((sim.noise_precision, 3.0, 2.0), (sim.loading_precision, 4.0, 2.0)):
        assert draws.mean() == pytest.approx(shape / rate, rel=0.05)
        assert draws.var() == pytest.approx(shape / rate**2, rel=0.15)


def test_loadings_have_the_slab_precision_drawn() -> None:
    prior = Prior(n_factors=3, inclusion=0.9, **DRAWABLE)
    sim = simulate(n_features=20_000, n_samples=2, prior=prior, seed=0)
    for k in range(3):
        slab = sim.loadings[sim.inclusion[:, k], k]
        assert 1 / slab.var() == pytest.approx(sim.loading_precision[k], rel=0.05)


def test_inclusion_rate_is_drawn_from_the_beta() -> None:
    prior = Prior(n_factors=2000, inclusion=Beta(2, 6), **DRAWABLE)
    sim = simulate(n_features=400, n_samples=2, prior=prior, seed=0)
    assert sim.inclusion_rate.mean() == pytest.approx(0.25, abs=0.02)
    np.testing.assert_allclose(sim.inclusion.mean(axis=0), sim.inclusion_rate, atol=0.15)
    assert np.corrcoef(sim.inclusion.mean(axis=0), sim.inclusion_rate)[0, 1] > 0.95


def test_given_inclusion_has_no_rate() -> None:
    assert simulate_paper().inclusion_rate.shape == (0,)


def test_prior_with_snr_takes_noise_from_snr() -> None:
    prior = Prior(inclusion=[0.5, 0.9], loading_shape=4, loading_rate=2)
    sim = simulate(n_features=10, n_samples=6, prior=prior, snr=4, seed=0)
    has_signal = sim.inclusion.any(axis=1)
    expected = 4 / np.var(sim.signal, axis=0, ddof=1)[has_signal]
    np.testing.assert_allclose(sim.noise_precision[has_signal], expected)


# ---- the paper's own ----------------------------------------------------------------------------------------------


def test_paper_structure() -> None:
    sim = simulate_paper(snr=5, seed=0)
    assert sim.X.shape == (100, 800)
    np.testing.assert_array_equal(sim.inclusion.mean(axis=0), [0.075, 0.15, 0.25, 0.375, 0.5, 1.0])
    first = np.flatnonzero(sim.inclusion[:, 0])
    np.testing.assert_array_equal(first, np.r_[600:620, 720:740, 780:800])
    np.testing.assert_array_equal(np.flatnonzero(sim.inclusion[:, 3]), np.r_[0:100, 400:600])
    assert np.abs(sim.loadings[sim.inclusion].std() - 1) < 0.05
    assert np.abs(sim.activations.std() - 1) < 0.1


def test_paper_structure_needs_fortieths() -> None:
    assert paper_inclusion(80).sum() == 80 * 2.35
    with pytest.raises(ValueError, match="multiple of 40 features; got 100"):
        paper_inclusion(100)


# ---- refusals -----------------------------------------------------------------------------------------------------

GOOD = {"n_features": 6, "n_samples": 5, "inclusion": [0.5, 0.5], "snr": 1}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_features": 0}, "n_features must be a whole number of at least 1; got 0"),
        ({"n_samples": 2.5}, r"n_samples must be a whole number of at least 1; got 2\.5"),
        ({"n_factors": True}, "n_factors must be a whole number of at least 1; got True"),
        ({"inclusion": 0.5}, "n_factors must be given when inclusion is a scalar"),
        ({"inclusion": None}, "n_factors must be given"),
        ({"inclusion": None, "n_factors": 2}, "inclusion must be given"),
        ({"inclusion": [0.5, 1.5]}, r"inclusion must lie between 0 and 1; got 1\.5"),
        ({"inclusion": [0.5, np.nan]}, "inclusion must lie between 0 and 1; got nan"),
        ({"inclusion": []}, r"inclusion must be a scalar.*got shape \(0,\)"),
        ({"inclusion": np.ones((2, 2, 2))}, r"inclusion must be a scalar.*got shape \(2, 2, 2\)"),
        ({"inclusion": "half"}, "inclusion must be a number, a vector or a matrix; got 'half'"),
        ({"inclusion": np.full((5, 2), 0.5)}, "one row per feature; got 5 rows and 6 features"),
        ({"n_factors": 3}, "number of factors must be one; got 3 by n_factors, 2 by inclusion"),
        ({"activations": np.zeros((5, 3))}, "number of factors must be one; got 2 by inclusion, 3 by activations"),
        ({"loadings": np.zeros((5, 2))}, r"loadings must be \(n_features, n_factors\); got shape \(5, 2\)"),
        ({"activations": np.zeros((6, 2))}, r"activations must be \(n_samples, n_factors\); got shape \(6, 2\)"),
        ({"loadings": np.full((6, 2), np.inf)}, "loadings must be finite; got inf"),
        ({"snr": None}, "noise must be set by snr or prior; got neither"),
        ({"snr": 0}, "snr must be a positive number; got 0"),
        ({"snr": np.nan}, "snr must be a positive number; got nan"),
        ({"snr": [1, 2]}, r"snr must be a positive number; got \[1, 2\]"),
        ({"n_samples": 1}, "n_samples >= 2; got 1"),
        ({"missing": 1.0}, r"missing must be a fraction, at least 0 and below 1; got 1\.0"),
        ({"missing": -0.1}, r"missing must be a fraction.*got -0\.1"),
        ({"missing": 0.9}, r"missing must leave an entry.*got 0\.9 at 5 samples by 6 features; the most is 0\.8"),
        ({"seed": -1}, "seed must be a whole number of at least 0, None or a numpy Generator; got -1"),
        ({"seed": "now"}, "seed must be a whole number of at least 0, None or a numpy Generator; got 'now'"),
        ({"prior": Prior(inclusion=[0.5, 0.5])}, "inclusion must come from one place"),
        (
            {"inclusion": None, "prior": Prior(n_factors=2, noise="shared", loading_shape=4)},
            "snr sets one noise precision per feature; got a prior with noise='shared'",
        ),
        (
            {"inclusion": None, "snr": None, "prior": Prior(n_factors=40, noise_shape=3, loading_shape=1e-3)},
            r"loading_shape must be large enough to draw from; got 0\.001",
        ),
        (
            {
                "inclusion": None,
                "snr": None,
                "n_features": 40,
                "prior": Prior(n_factors=2, loading_shape=3, noise_shape=1e-3),
            },
            r"noise_shape must be large enough to draw from; got 0\.001",
        ),
        (
            {"inclusion": None, "prior": Prior(inclusion=np.full((5, 2), 0.5), loading_shape=3)},
            "one row per feature; got 5 rows and 6 features",
        ),
    ],
)
def test_refusals(change, message) -> None:
    with pytest.raises(ValueError, match=message):
        simulate(**{**GOOD, **change})
