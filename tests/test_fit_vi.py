"""fit_vi as its user sees it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine import build_engine

pytestmark = pytest.mark.filterwarnings("ignore::sparsefactor.ConvergenceWarning")


@pytest.fixture(scope="module")
def easy() -> sf.Simulation:
    return sf.simulate(n_features=60, n_samples=40, inclusion=[0.3, 0.3, 0.3], snr=20, seed=1)


PRIOR = sf.Prior(n_factors=3, inclusion=0.3)


def fields(p: sf.VIPosterior) -> dict[str, np.ndarray]:
    names = ("loadings_mean", "loadings_sd", "inclusion_prob", "activations_mean", "activations_sd")
    return {name: getattr(p, name) for name in (*names, "noise_precision_mean", "loading_precision_mean")}


def same(p: sf.VIPosterior, q: sf.VIPosterior) -> bool:
    return p.elbo == q.elbo and all(np.array_equal(a, fields(q)[name]) for name, a in fields(p).items())


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_recovers_an_easy_truth(easy, backend):
    vi = sf.fit_vi(easy.X, PRIOR, n_trials=4, tol=1e-4, backend=backend)
    score = sf.score(vi, easy)
    assert score["z_accuracy"] > 0.95
    assert score["rrmse_signal"] < 0.1
    assert score["rrmse_loadings"] < 0.15
    assert (
        sf.score(vi, sf.simulate(n_features=60, n_samples=40, inclusion=[0.3] * 3, snr=20, seed=2))["rrmse_signal"]
        > 0.9
    )  # negative control: another truth


def test_posterior_answers_and_reports(easy):
    vi = sf.fit_vi(easy.X, PRIOR, n_trials=3, race=False)
    assert vi.converged
    assert vi.status is sf.Status.CONVERGED
    assert vi.loadings_mean.shape == (60, 3)
    assert vi.activations_mean.shape == (40, 3)
    assert vi.noise_precision_mean.shape == (60,)
    assert vi.n_factors == 3
    assert vi.elbo == pytest.approx(sum(vi.elbo_terms.values()))
    trace = vi.elbo_trace
    assert list(trace.columns) == ["iteration", "elbo", "seconds"]
    assert np.all(np.diff(trace["elbo"]) >= -1e-9 * abs(vi.elbo))
    assert np.all(np.diff(trace["seconds"]) >= 0)
    assert len(vi.trials) == 3
    assert vi.trials["won"].sum() == 1
    assert vi.elbo == vi.trials["elbo"].max()
    assert vi.reconstruct().shape == easy.X.shape
    assert vi.to_datatree()["variational"]["loadings_mean"].dims == ("feature", "factor")


@pytest.mark.parametrize("accelerate", [True, False])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_elbo_never_falls_on_the_way(easy, accelerate, missing):
    X = with_holes(easy.X, missing)
    vi = sf.fit_vi(X, PRIOR, n_trials=1, init="random", accelerate=accelerate, max_iter=300, race=False)
    assert np.all(np.diff(vi.elbo_trace["elbo"]) >= -1e-9)


def with_holes(X: np.ndarray, share: float, seed: int = 0) -> np.ndarray:
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < share] = np.nan
    return X


def test_same_seed_same_bits_and_different_seeds_differ(easy):
    first, second, other = (sf.fit_vi(easy.X, PRIOR, n_trials=2, init="random", seed=s) for s in (3, 3, 4))
    assert same(first, second)
    assert not same(first, other)


def test_missing_entries_have_no_influence(easy):
    X = with_holes(easy.X, 0.2)
    masked = np.ma.masked_array(np.where(np.isnan(X), 1e6, X), mask=np.isnan(X))
    assert same(sf.fit_vi(X, PRIOR, n_trials=2), sf.fit_vi(masked, PRIOR, n_trials=2))
    changed = X.copy()
    changed[np.where(~np.isnan(X))[0][0], np.where(~np.isnan(X))[1][0]] += 1.0
    assert not same(sf.fit_vi(X, PRIOR, n_trials=2), sf.fit_vi(changed, PRIOR, n_trials=2))


def test_missing_entries_are_filled_in(easy):
    X = with_holes(easy.X, 0.2)
    vi = sf.fit_vi(X, PRIOR, n_trials=4)
    hole = np.isnan(X)
    assert sf.fill_in_error(vi, easy.X, hole) < 0.4


def test_names_survive(easy):
    frame = pd.DataFrame(easy.X, index=[f"s{j}" for j in range(40)], columns=[f"g{i}" for i in range(60)])
    vi = sf.fit_vi(frame, PRIOR, n_trials=1, max_iter=5)
    assert vi.feature_names[3] == "g3"
    assert vi.sample_names[2] == "s2"


def test_centring_is_undone(easy):
    shifted = easy.X + 100.0 * np.arange(60)
    vi = sf.fit_vi(shifted, PRIOR, n_trials=3, center=True)
    plain = sf.fit_vi(easy.X, PRIOR, n_trials=3, center=True)
    assert np.allclose(vi.reconstruct() - 100.0 * np.arange(60), plain.reconstruct(), atol=1e-5)


@pytest.mark.parametrize("K", [40, 45, 61])
def test_factors_may_reach_or_exceed_samples_and_features(K):
    sim = sf.simulate(n_features=45, n_samples=40, inclusion=[0.3, 0.3], snr=20, seed=1)
    vi = sf.fit_vi(sim.X, sf.Prior(n_factors=K, inclusion=0.1), n_trials=2, max_iter=30)
    assert np.all(np.isfinite(vi.loadings_mean))
    assert np.isfinite(vi.elbo)


def test_a_fit_that_stops_early_says_so(easy):
    with pytest.warns(sf.ConvergenceWarning, match="raise max_iter"):
        vi = sf.fit_vi(easy.X, PRIOR, n_trials=1, max_iter=3)
    assert not vi.converged
    assert vi.status is sf.Status.MAX_ITER


def test_single_precision_agrees_with_double(easy):
    options = {"n_trials": 2, "tol": 1e-6}
    double, single = (sf.fit_vi(easy.X, PRIOR, dtype=d, **options) for d in (np.float64, np.float32))
    assert single.elbo == pytest.approx(double.elbo, rel=1e-4)
    # Within what an ELBO known to 1e-6 of its size leaves open (machines differ in it): far less than the noise.
    noise = 1.0 / np.sqrt(double.noise_precision_mean)
    assert np.all(np.abs(single.reconstruct() - double.reconstruct()) < 0.01 * noise.mean())
    assert not np.array_equal(single.reconstruct(), double.reconstruct())


def test_joint_activations_never_lower_the_elbo(easy):
    X = with_holes(easy.X, 0.2)
    for data in (easy.X, X):
        apart = sf.fit_vi(data, PRIOR, n_trials=2, activations="independent")
        together = sf.fit_vi(data, PRIOR, n_trials=2)
        assert together.elbo >= apart.elbo
        assert together.elbo > apart.elbo + 1e-3  # and here they gain
        assert together.converged


def test_superfluous_factors_are_pruned():
    sim = sf.simulate(n_features=120, n_samples=60, inclusion=[0.3, 0.3, 0.3], snr=10, seed=0)
    prior = sf.Prior(n_factors=8, inclusion=sf.Beta(1, 1))
    kept = sf.fit_vi(sim.X, prior, n_trials=4)
    pruned = sf.fit_vi(sim.X, prior, n_trials=4, prune=True)
    assert kept.n_factors == 8
    assert pruned.n_factors == 3
    assert pruned.elbo > kept.elbo
    assert pruned.trials.loc[pruned.trials["won"], "elbo"].item() == pruned.elbo
    assert pruned.prior.n_factors == 3
    assert sf.score(pruned, sim)["z_accuracy"] > 0.9


def test_stability_tells_recurring_factors_from_accidents(easy):
    vi = sf.fit_vi(easy.X, PRIOR, n_trials=5, race=False)
    assert np.all(vi.stability == 1.0)
    hard = sf.simulate(n_features=60, n_samples=40, inclusion=[0.8] * 5, snr=3, seed=1).X
    prior = sf.Prior(n_factors=6, inclusion=0.5, factor_correlation="none")
    accident = sf.fit_vi(hard, prior, n_trials=5, race=False, init="random")
    assert accident.stability[~accident.empty].min() < 1.0
    assert np.isnan(accident.stability[accident.empty]).all()
    assert np.all(np.isnan(sf.fit_vi(easy.X, PRIOR, n_trials=1).stability))


def test_thread_count_does_not_change_a_bit(easy):
    large = sf.simulate(n_features=2500, n_samples=60, inclusion=[0.3] * 8, snr=5, seed=0).X
    prior = sf.Prior(n_factors=8, inclusion=0.3)
    options = {"n_trials": 2, "max_iter": 30}
    engine = build_engine(as_data(large), prior, n_threads=2)
    assert len(engine.vi_rounds[0].parts) == 2  # so that there is something to test
    assert same(*(sf.fit_vi(large, prior, n_threads=n, **options) for n in (1, 2)))
    assert same(sf.fit_vi(easy.X, PRIOR, n_trials=3, n_threads=1), sf.fit_vi(easy.X, PRIOR, n_trials=3, n_threads=2))


def test_acceleration_has_the_plain_fixed_point(easy):
    prior = replace(PRIOR, factor_correlation="none")  # without acceleration correlations creep
    fast = sf.fit_vi(easy.X, prior, n_trials=1, tol=1e-9)
    start = sf.Start("optimum", fast.loadings_mean, np.ascontiguousarray(fast.activations_mean.T))
    plain = sf.fit_vi(easy.X, prior, init=start, race=False, accelerate=False, tol=1e-10, rtol=0.0, max_iter=20_000)
    assert plain.elbo == pytest.approx(fast.elbo, abs=1e-4)
    assert np.allclose(plain.inclusion_prob, fast.inclusion_prob, atol=1e-3)


def test_the_papers_tolerance_is_reachable(easy):
    vi = sf.fit_vi(easy.X, PRIOR, n_trials=1, tol=1e-10, rtol=1e-14, max_iter=20_000)
    assert vi.converged


def test_racing_drops_and_keeps_the_winner(easy):
    vi = sf.fit_vi(easy.X, PRIOR, n_trials=6, race=True)
    assert (vi.trials["status"] == "dropped").sum() >= 1
    assert vi.trials.loc[vi.trials["won"], "status"].item() == "converged"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_trials": 0}, "n_trials must be a whole number of at least 1; got 0"),
        ({"max_iter": -1}, "max_iter must be"),
        ({"tol": -1.0}, "tol must be zero or positive"),
        ({"init": "magic"}, "init must be one of"),
        ({"seed": -1}, "seed must be"),
        ({"backend": "abacus"}, "backend must be one of"),
        ({"activations": "both"}, "activations must be one of"),
        ({"tol": None}, "tol must be zero or positive; got None"),
        ({"n_threads": 1.5}, "n_threads must be a whole number"),
    ],
)
def test_bad_settings_are_refused(easy, options, message):
    with pytest.raises(ValueError, match=message):
        sf.fit_vi(easy.X, PRIOR, **options)


def test_what_is_not_a_prior_or_a_flag_is_refused(easy):
    with pytest.raises(TypeError, match="prior must be a Prior; got 4; pass n_factors=4, or"):
        sf.fit_vi(easy.X, 4)
    with pytest.raises(TypeError, match=r"fit_vi\(\) has no argument factor_correlation; it is a setting of the prior"):
        sf.fit_vi(easy.X, n_factors=2, factor_correlation="none")
    with pytest.raises(TypeError, match=r"fit_vi\(\) has no argument n_factor; did you mean n_factors\?"):
        sf.fit_vi(easy.X, n_factor=2)
    with pytest.raises(TypeError, match="race must be True or False; got 'no'"):
        sf.fit_vi(easy.X, PRIOR, race="no")


def test_a_warning_points_at_the_callers_line(easy):
    with pytest.warns(sf.ConvergenceWarning) as caught:
        sf.fit_vi(easy.X, PRIOR, n_trials=1, max_iter=2)
    assert caught[0].filename == __file__


def test_inclusion_matrix_must_fit_the_features(easy):
    with pytest.raises(ValueError, match="one row per feature; got 59 rows and 60 features"):
        sf.fit_vi(easy.X, sf.Prior(inclusion=np.full((59, 3), 0.2)))


def test_the_mean_over_trials_predicts_and_the_best_trial_answers(easy, monkeypatch, tmp_path):
    from sparsefactor.vi import fit

    caught: list = []
    whole = fit.mean_signal
    monkeypatch.setattr(fit, "mean_signal", lambda trials: caught.extend(trials) or whole(trials))
    X = with_holes(easy.X, 0.2) + 3.0
    prior = sf.Prior(n_factors=3, inclusion=0.3, noise="sample")
    averaged = sf.fit_vi(X, prior, n_trials=4, average=True, center=True)
    alone = sf.fit_vi(X, prior, n_trials=4, race=False, center=True)
    assert (averaged.trials["status"] == "converged").all()  # no race
    assert same(averaged, alone)
    signals = [t.state.columns.f_mean.T @ (t.state.rows.eta * t.state.rows.mu).T for t in caught]
    assert len(signals) == 4
    assert np.allclose(averaged.reconstruct(), np.mean(signals, axis=0) + averaged.labels.offset)
    assert not np.allclose(averaged.reconstruct(), alone.reconstruct(), atol=1e-6)
    averaged.save(tmp_path / "fit.sf")
    assert np.array_equal(sf.load(tmp_path / "fit.sf").reconstruct(), averaged.reconstruct())


def test_the_mean_over_one_trial_is_that_trial(easy):
    one = sf.fit_vi(easy.X, PRIOR, n_trials=1, average=True)
    assert np.allclose(one.reconstruct(), sf.fit_vi(easy.X, PRIOR, n_trials=1, race=False).reconstruct())
    with pytest.raises(TypeError, match="average must be True or False; got 1"):
        sf.fit_vi(easy.X, PRIOR, average=1)


@pytest.mark.parametrize(
    "options", [{"prune": True}, {"activations": "joint"}, {"prune": True, "activations": "joint"}]
)
def test_the_mean_goes_with_other_options(easy, options):
    X = with_holes(easy.X, 0.2)
    prior = sf.Prior(n_factors=5, inclusion=sf.Beta(1, 1))
    vi = sf.fit_vi(X, prior, n_trials=3, average=True, tol=1e-3, **options)
    alone = sf.fit_vi(X, prior, n_trials=3, race=False, tol=1e-3, **options)
    assert vi.elbo == pytest.approx(alone.elbo, rel=1e-6)
    holes = np.isnan(X)
    assert sf.fill_in_error(vi, easy.X, holes) < 0.5


def test_a_mean_over_unfinished_trials_warns(easy):
    with pytest.warns(sf.ConvergenceWarning, match="not converged"):
        sf.fit_vi(easy.X, PRIOR, n_trials=4, average=True, max_iter=20)


def test_empty_factors_have_no_stability(easy):
    vi = sf.fit_vi(easy.X, sf.Prior(n_factors=6, inclusion=sf.Beta(1, 1)), n_trials=4, race=False)
    parts = np.sum(vi.loadings_mean**2, axis=0)
    assert np.array_equal(np.isnan(vi.stability), parts < 1e-9 * parts.max())
    assert np.isnan(vi.stability).any()
    assert (vi.stability[~np.isnan(vi.stability)] > 0).all()


def test_single_precision_that_does_not_suffice_is_named():
    """Noise far below what float32 resolves: its products say nothing of it."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2)) @ rng.standard_normal((2, 30)) + 1e-6 * rng.standard_normal((40, 30))
    prior = sf.Prior(n_factors=2, inclusion=0.5, noise_rate=1e-12)
    with pytest.raises(ValueError, match="explain these data to within rounding; pass dtype=float64"):
        sf.fit_vi(X, prior, dtype=np.float32, n_trials=3)
    assert np.isfinite(sf.fit_vi(X, prior, n_trials=3).elbo)


def test_noise_by_sample_predicts_where_samples_differ_in_quality():
    rng = np.random.default_rng(0)
    sim = sf.simulate(n_features=150, n_samples=40, inclusion=[0.3] * 3, snr=2, seed=0)
    signal = sim.activations @ sim.loadings.T
    quality = 0.8 * signal.std() * np.exp(rng.normal(0.0, 0.7, 40))
    hidden = rng.random(signal.shape) < 0.1
    X = np.where(hidden, np.nan, signal + quality[:, None] * rng.standard_normal(signal.shape))
    error = {}
    for noise in ("feature", "sample"):
        p = sf.fit_vi(X, sf.Prior(n_factors=5, noise=noise), center=False, n_trials=3)
        error[noise] = np.sqrt(np.mean((p.reconstruct() - signal)[hidden] ** 2) / np.mean(signal[hidden] ** 2))
    assert error["sample"] < 0.25 < 0.4 < error["feature"]
