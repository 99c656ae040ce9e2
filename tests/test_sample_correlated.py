"""sample with correlated factors, as its user sees it."""

from __future__ import annotations

import numpy as np
import pytest

import sparsefactor as sf

PRIOR = sf.Prior(n_factors=3, inclusion=sf.Beta(1, 1), factor_correlation="learnt")
SHORT = {"n_chains": 2, "n_warmup": 20, "n_draws": 30, "seed": 3, "progress": False}


@pytest.fixture(scope="module")
def correlated() -> sf.Simulation:
    phi = np.array([[1.0, 0.7, 0.0], [0.7, 1.0, -0.4], [0.0, -0.4, 1.0]])
    return sf.simulate(n_features=40, n_samples=120, inclusion=[0.5, 0.4, 0.3], snr=8, factor_correlation=phi, seed=2)


@pytest.fixture(scope="module")
def start(correlated) -> sf.Start:
    return sf.Start("given", correlated.loadings, correlated.activations.T)


@pytest.fixture(scope="module")
def mc(correlated, start) -> sf.MCMCPosterior:
    long = {**SHORT, "n_warmup": 100, "n_draws": 300}
    return sf.sample(correlated.X, PRIOR, init=start, **long)


def test_correlations_are_found(correlated, mc):
    realised = np.corrcoef(correlated.activations.T)
    pairs = sf.match(mc, correlated)
    found = mc.factor_correlation_mean
    order, signs = pairs.permutation, pairs.signs
    found = found[order][:, order] * np.outer(signs, signs)
    assert np.abs(found - realised).max() < 0.15
    assert np.all(np.diagonal(found) == 1.0)
    off = ~np.eye(3, dtype=bool)
    assert np.all((mc.factor_correlation_sd[off] > 0.02) & (mc.factor_correlation_sd[off] < 0.15))
    assert np.all(mc.factor_correlation_sd[~off] == 0.0)


def test_draws_have_the_labels_of_the_activations(mc):
    draws = mc.draws["posterior"]
    assert draws["factor_correlation"].dims == ("chain", "draw", "other_factor", "factor")
    phi, F = draws["factor_correlation"].values, draws["activations"].values
    np.testing.assert_array_equal(phi, np.swapaxes(phi, -1, -2))
    before = mc.unlabelled_draws()["posterior"]
    order, signs = mc.permutations[0, 7], mc.signs[0, 7]
    old = before["factor_correlation"].values[0, 7]
    np.testing.assert_array_equal(phi[0, 7], old[order][:, order] * np.outer(signs, signs))
    own = np.array([np.corrcoef(f.T) for f in F.reshape(-1, *F.shape[2:])]).mean(axis=0)
    assert np.abs(own - mc.factor_correlation_mean).max() < 0.1
    np.testing.assert_allclose(phi.mean(axis=(0, 1)), mc.factor_correlation_mean, atol=1e-12)
    np.testing.assert_allclose(phi.std(axis=(0, 1)), mc.factor_correlation_sd, atol=1e-12)


def test_relabelling_turns_rows_and_columns(mc):
    draws = mc.unlabelled_draws()
    relabelled, found = sf.relabel(draws, prior=mc.prior)
    order, signs = found.permutations[1, 4], found.signs[1, 4]
    old = draws["posterior"]["factor_correlation"].values[1, 4]
    new = relabelled["posterior"]["factor_correlation"].values[1, 4]
    np.testing.assert_array_equal(new, old[order][:, order] * np.outer(signs, signs))


def test_some_chains_have_their_own_correlations(mc):
    one = mc.keep_chains([1])
    np.testing.assert_allclose(
        one.factor_correlation_mean, one.draws["posterior"]["factor_correlation"].values.mean(axis=(0, 1)), atol=1e-12
    )


def test_diagnostics_measure_correlations_of_factors_that_are_found(correlated, start, mc):
    lines = mc.diagnostics().quantities.xs("factor_correlation", level="quantity")
    assert list(lines.index) == ["factor 1", "factor 2", "factor 3"]
    assert lines["n_parameters"].tolist() == [2, 2, 2]
    assert lines["r_hat"].max() < 1.1
    with_empty = sf.Start("given", np.column_stack([start.L, np.zeros(40)]), np.vstack([start.F, 0.1 * start.F[:1]]))
    prior = sf.Prior(n_factors=4, inclusion=[0.5, 0.4, 0.3, 1e-6], factor_correlation="learnt")
    other = sf.sample(correlated.X, prior, init=with_empty, **SHORT)
    assert other.inclusion_prob[:, -1].max() == 0.0
    lines = other.diagnostics().quantities.xs("factor_correlation", level="quantity")
    assert lines["n_parameters"].tolist() == [2, 2, 2, 0]


def test_a_run_resumes_and_is_stored(correlated, start, tmp_path):
    whole = sf.sample(correlated.X, PRIOR, init=start, **SHORT)
    sf.sample(correlated.X, PRIOR, init=start, path=tmp_path / "run", precision="double", **{**SHORT, "n_draws": 11})
    resumed = sf.sample(correlated.X, PRIOR, init=start, path=tmp_path / "run", precision="double", **SHORT)
    for name in ("factor_correlation", "activations"):
        same = resumed.draws["posterior"][name].values, whole.draws["posterior"][name].values
        np.testing.assert_array_equal(*same)
    np.testing.assert_array_equal(resumed.factor_correlation_mean, whole.factor_correlation_mean)
    loaded = sf.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.factor_correlation_sd, whole.factor_correlation_sd)


def test_draws_do_not_depend_on_the_number_of_jobs(correlated, start):
    one, two = (sf.sample(correlated.X, PRIOR, init=start, n_jobs=n, **SHORT) for n in (1, 2))
    np.testing.assert_array_equal(*(p.draws["posterior"]["factor_correlation"].values for p in (one, two)))


def test_uncorrelated_factors_have_the_identity(correlated, start):
    prior = sf.Prior(n_factors=3, inclusion=0.4, factor_correlation="none")
    mc = sf.sample(correlated.X, prior, init=start, **SHORT)
    assert "factor_correlation" not in mc.draws["posterior"]
    np.testing.assert_array_equal(mc.factor_correlation_mean, np.eye(3))


def test_scales_are_drawn_with_the_correlations(correlated, start):
    with pytest.raises(ValueError, match=r"moves must be among those .* got 'scale'"):
        sf.sample(correlated.X, PRIOR, init=start, moves=["scale"], **SHORT)


# ---- simulate -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [0.5, [[1.0, 0.5], [0.5, 1.0]]])
def test_simulated_activations_have_the_correlations_that_were_given(given):
    sim = sf.simulate(n_features=5, n_samples=20_000, inclusion=[0.5, 0.5], snr=4, factor_correlation=given)
    assert np.corrcoef(sim.activations.T)[0, 1] == pytest.approx(0.5, abs=0.03)
    np.testing.assert_array_equal(sim.factor_correlation, [[1.0, 0.5], [0.5, 1.0]])
    plain = sf.simulate(n_features=5, n_samples=20_000, inclusion=[0.5, 0.5], snr=4)
    np.testing.assert_array_equal(plain.factor_correlation, np.eye(2))
    np.testing.assert_array_equal(plain.loadings, sim.loadings)


def test_correlations_may_come_from_corrcoef():
    """Whose diagonal may miss one by rounding."""
    rng = np.random.default_rng(0)
    for _ in range(10):
        given = np.corrcoef(rng.standard_normal((4, 30)))
        sim = sf.simulate(n_features=5, n_samples=6, inclusion=[0.5] * 4, snr=4, factor_correlation=given)
        np.testing.assert_allclose(sim.factor_correlation, given, atol=1e-12)
        np.testing.assert_array_equal(np.diagonal(sim.factor_correlation), 1.0)


def test_a_prior_draws_correlations():
    drawn = []
    for seed in range(400):
        sim = sf.simulate(n_features=2, n_samples=2, prior=PRIOR, seed=seed)
        drawn.append(sim.factor_correlation[np.tril_indices(3, -1)])
    # Two of three factors under an inverse Wishart of 14 degrees of freedom: one of 13, with variance 1 / 13.
    assert np.var(drawn) == pytest.approx(1.0 / 13.0, rel=0.15)
    same = sf.simulate(n_features=2, n_samples=2, prior=PRIOR, seed=5)
    np.testing.assert_array_equal(same.factor_correlation[np.tril_indices(3, -1)], drawn[5])


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ([[1.0, 0.2], [0.3, 1.0]], "got entries that differ by 0.1 from those opposite"),
        (np.eye(3), r"got shape \(3, 3\)"),
        (np.diag([1.0, 2.0]), "got a diagonal that is 1 away from one"),
        (1.0, "positive definite"),
        (-1.5, "positive definite"),
        (np.nan, "got an entry of nan"),
        ([[1.0, np.inf], [np.inf, 1.0]], "got an entry of inf"),
        ("learnt", "got 'learnt'; pass e.g. 0.3"),
        ([0.2, 0.3], r"got shape \(2,\)"),
    ],
)
def test_bad_correlations_are_refused(given, match):
    with pytest.raises(ValueError, match=match):
        sf.simulate(n_features=5, n_samples=6, inclusion=[0.5, 0.5], snr=4, factor_correlation=given)


def test_correlations_beside_given_activations_are_refused():
    with pytest.raises(ValueError, match="leave one of them out"):
        sf.simulate(
            n_features=5, n_samples=6, inclusion=0.5, snr=4, factor_correlation=0.2, activations=np.ones((6, 2))
        )
