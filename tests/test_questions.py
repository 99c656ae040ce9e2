"""Questions to a posterior, against direct formulas, brute-force integration and the fit's own update."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma, multivariate_normal, norm

import sparsefactor as sf
from sparsefactor.model import RELATIVE_NOISE_RATE, Prior
from sparsefactor.questions.noise import over_noise
from sparsefactor.questions.rows import loading_covariance

NOISES = ("feature", "shared", "sample")


def simulated(missing: float = 0.0, n_samples: int = 40, seed: int = 3) -> sf.Simulation:
    return sf.simulate(n_features=30, n_samples=n_samples, inclusion=[0.4, 0.6], snr=3, missing=missing, seed=seed)


@cache
def vi_fit(
    noise: str, activations: str, missing: float = 0.0, n_modules: int = 1, strong: bool = False
) -> sf.VIPosterior:
    inclusion = sf.Beta(1, 1) if n_modules > 1 else 0.4
    X = simulated(missing).X
    given = {"noise_shape": 2.0, "noise_rate": 0.2 * np.nanvar(X, axis=0)} if strong else {}
    prior = Prior(n_factors=2, inclusion=inclusion, noise=noise, n_modules=n_modules, **given)
    # A tolerance of zero: the fit goes on until the ELBO's rounding stops it, so that q is a fixed point.
    return sf.fit_vi(X, prior, n_trials=2, activations=activations, tol=1e-13, rtol=0, center=True)


@cache
def draws(noise: str, missing: float = 0.0) -> sf.MCMCPosterior:
    prior = Prior(n_factors=2, inclusion=0.4, noise=noise)
    return sf.sample(simulated(missing).X, prior, n_chains=2, n_warmup=150, n_draws=400, init="varimax", center=True)


def holes(X: np.ndarray, seed: int = 0) -> np.ndarray:
    out = X.copy()
    out[np.random.default_rng(seed).random(X.shape) < 0.3] = np.nan
    return out


def loading_draws(p: sf.VIPosterior, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(n, G, K) loadings and (n, G) noise precisions drawn from q, where noise belongs to features."""
    q = p.parameters
    L = (rng.random((n, *q["mu"].shape)) < q["eta"]) * rng.normal(q["mu"], np.sqrt(q["s2"]), (n, *q["mu"].shape))
    return L, rng.gamma(q["tau_shape"], q["tau"] / q["tau_shape"], (n, len(q["tau"])))


# ---- transform ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [0.0, 0.15])
@pytest.mark.parametrize("activations", ["independent", "joint"])
@pytest.mark.parametrize("noise", NOISES)
def test_training_samples_get_what_the_fit_gave_them(noise, activations, missing):
    p = vi_fit(noise, activations, missing)
    mean, sd = p.transform(simulated(missing).X, return_sd=True)
    np.testing.assert_allclose(mean, p.activations_mean, atol=1e-5)
    np.testing.assert_allclose(sd, p.activations_sd, rtol=1e-5)


@pytest.mark.parametrize("missing", [0.0, 0.15])
@pytest.mark.parametrize("loadings", ["flat", "slab"])
@pytest.mark.parametrize("noise", NOISES)
def test_training_samples_with_covariates_and_views_get_what_the_fit_gave_them(noise, loadings, missing, tmp_path):
    rng = np.random.default_rng(0)
    known = rng.standard_normal((40, 2))
    X = simulated(missing).X + np.outer(known[:, 0], rng.standard_normal(30))
    prior = Prior(n_factors=2, noise=noise, groups=np.repeat(["a", "b"], [20, 10]))
    settings = {"n_trials": 1, "tol": 1e-13, "rtol": 0, "covariates": known, "covariate_loadings": loadings}
    p = sf.fit_vi(X, prior, **settings)
    p.save(tmp_path / "p.sf")
    for q in (p, sf.load(tmp_path / "p.sf")):
        mean, sd = q.transform(X, return_sd=True, covariates=known)
        np.testing.assert_allclose(mean, p.activations_mean, atol=1e-5)
        np.testing.assert_allclose(sd, p.activations_sd, rtol=1e-5)


def test_training_samples_get_what_a_fit_with_modules_gave_them():
    p = vi_fit("feature", "joint", n_modules=2)
    mean, sd = p.transform(simulated().X, return_sd=True)
    np.testing.assert_allclose(mean, p.activations_mean, atol=2e-4)
    np.testing.assert_allclose(sd, p.activations_sd, rtol=2e-3)


def test_transform_follows_the_formula_for_any_missing_pattern():
    p = vi_fit("feature", "joint")
    X = holes(simulated(seed=9).X)
    mean, sd = p.transform(X, return_sd=True)
    for j in (0, 7):
        seen = ~np.isnan(X[j])
        L, tau = p.loadings_mean[seen], p.noise_precision_mean[seen]
        D = (L.T * tau) @ L + np.diag(tau @ p.loadings_sd[seen] ** 2)
        V = np.linalg.inv(np.linalg.inv(p.factor_correlation_mean) + D)
        np.testing.assert_allclose(mean[j], V @ (L.T * tau) @ (X[j] - p.labels.offset)[seen], rtol=1e-10)
        np.testing.assert_allclose(sd[j], np.sqrt(np.diag(V)), rtol=1e-10)


@pytest.mark.parametrize("fit", ["vi", "mcmc"])
@pytest.mark.parametrize("scale", [1.0, 1e100])
def test_a_sample_at_the_means_has_a_noise_of_its_own(fit, scale):
    """It has no variance that the rate of its noise's prior could be in units of."""
    prior = Prior(n_factors=2, inclusion=0.4, noise="sample")
    X = scale * simulated().X
    if fit == "vi":
        p = sf.fit_vi(X, prior, n_trials=1)
    else:
        p = sf.sample(X, prior, n_chains=1, n_warmup=50, n_draws=50, init="varimax")
    means = np.vstack([p.labels.offset, p.labels.offset])
    means[1, 1:] = np.nan
    mean, sd = p.transform(means, return_sd=True)
    np.testing.assert_allclose(mean, 0.0, atol=1e-9)
    assert np.all((sd > 0) & (sd <= 1))
    density = p.log_density(means)
    assert np.all(np.isfinite(density))
    assert density[0] > p.log_density(X).max()
    filled, deviation = p.impute(means, return_sd=True)
    assert np.isfinite(filled).all()
    assert np.all((deviation[1, 1:] > 0) & (deviation[1, 1:] < 10 * X.std()))


def test_a_training_sample_at_the_means_keeps_about_its_noise():
    X = simulated().X
    X[0] = np.delete(X, 0, axis=0).mean(axis=0)
    p = sf.fit_vi(X, Prior(n_factors=2, inclusion=0.4, noise="sample"), n_trials=1, tol=1e-13, rtol=0)
    mean, sd = p.transform(X[:1], return_sd=True)
    np.testing.assert_allclose(mean, p.activations_mean[:1], atol=1e-6)
    np.testing.assert_allclose(sd, p.activations_sd[:1], rtol=0.1)


def test_uncertain_loadings_shrink_activations():
    p = vi_fit("feature", "joint")
    X = simulated(seed=9).X - p.labels.offset
    L, tau = p.loadings_mean, p.noise_precision_mean
    certain = np.linalg.solve(np.eye(2) + (L.T * tau) @ L, (L.T * tau) @ X.T).T
    assert np.linalg.norm(p.transform(X + p.labels.offset)) < np.linalg.norm(certain)


@pytest.mark.parametrize("noise", NOISES)
def test_draws_are_averaged(noise):
    mc = draws(noise)
    mean, sd = mc.transform(simulated().X, return_sd=True)
    # Means given the loadings vary less than the draws themselves, and have the same expectation.
    error = mc.activations_sd / np.sqrt(100)
    assert np.mean(np.abs(mean - mc.activations_mean) < 4 * error) > 0.98
    np.testing.assert_allclose(np.median(sd / mc.activations_sd), 1.0, atol=0.1)


def test_draws_with_weights_count_by_them():
    mc = draws("feature")
    X = holes(simulated(seed=9).X)
    alone = [mc.keep_chains([chain]).transform(X) for chain in (0, 1)]
    np.testing.assert_allclose(mc.combine([0.8, 0.2]).transform(X), 0.8 * alone[0] + 0.2 * alone[1], rtol=1e-10)


def test_a_samples_own_noise_is_integrated_out():
    rng = np.random.default_rng(0)
    L, y = rng.standard_normal((7, 2)), rng.standard_normal(7)
    prior = Prior(n_factors=2, noise="sample", noise_shape=1.5, noise_rate=0.7)
    found = over_noise((L.T @ L)[None], (L.T @ y)[None], np.array([y @ y]), np.array([7.0]), prior, np.array([0.7]))

    def integrand(u: float, what: str) -> float:
        tau = np.exp(u)
        density = multivariate_normal(np.zeros(7), L @ L.T + np.eye(7) / tau).pdf(y)
        density *= gamma(1.5, scale=1 / 0.7).pdf(tau) * tau
        V = np.linalg.inv(np.eye(2) + tau * L.T @ L)
        values = {"one": 1.0, "f": (tau * V @ L.T @ y)[0], "v": 1 / tau, "s": V[0, 0] + (tau * V @ L.T @ y)[0] ** 2}
        return float(density * values[what])

    total, f, v, s = (
        quad(integrand, -12, 8, args=(what,), limit=400, epsabs=1e-14)[0] for what in ("one", "f", "v", "s")
    )
    np.testing.assert_allclose(found.log_density[0], np.log(total), rtol=1e-7)
    np.testing.assert_allclose(found.mean[0, 0], f / total, rtol=1e-6)
    np.testing.assert_allclose(found.noise_variance[0], v / total, rtol=1e-6)
    np.testing.assert_allclose(found.covariance[0, 0, 0], s / total - (f / total) ** 2, rtol=1e-6)


# ---- densities ------------------------------------------------------------------------------------------------------


def test_covariance_is_that_of_draws_from_q():
    p = vi_fit("feature", "joint")
    L, tau = loading_draws(p, 20_000, np.random.default_rng(0))
    expected = np.einsum("sik,km,slm->il", L, p.factor_correlation_mean, L, optimize=True) / len(L)
    expected += np.diag((1 / tau).mean(axis=0))
    np.testing.assert_allclose(p.covariance(), expected, atol=0.02 * np.abs(expected).max())


def test_covariance_of_draws_is_their_mean():
    mc = draws("shared")
    posterior = mc.draws["posterior"].to_dataset().stack(s=("chain", "draw"))
    L = posterior["loadings"].transpose("s", "feature", "factor").values
    tau = posterior["noise_precision"].values
    phi = posterior["factor_correlation"].transpose("s", "other_factor", "factor").values
    assert np.ptp(phi[:, 0, 1]) > 0.1
    expected = np.einsum("sik,skm,slm->il", L, phi, L, optimize=True) / len(L) + np.eye(30) * np.mean(1 / tau)
    np.testing.assert_allclose(mc.covariance(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("noise", ["feature", "shared"])
def test_sample_density_under_q_is_gaussian_with_the_covariance(noise):
    p = vi_fit(noise, "joint")
    X = holes(simulated(seed=9).X)
    C, found = p.covariance(), p.log_density(X)
    for j in (0, 5):
        seen = ~np.isnan(X[j])
        expected = multivariate_normal(p.labels.offset[seen], C[np.ix_(seen, seen)]).logpdf(X[j, seen])
        np.testing.assert_allclose(found[j], expected, rtol=1e-9)


def test_sample_density_with_noise_by_sample_averages_over_its_prior():
    p = vi_fit("sample", "joint")
    X = holes(simulated(seed=9).X)[:1]
    seen = ~np.isnan(X[0])
    base = p.loadings_mean @ p.factor_correlation_mean @ p.loadings_mean.T + np.diag(np.sum(p.loadings_sd**2, axis=1))
    # The rate is left out, and so is in units of the sample.
    a, b = p.prior.noise_shape, RELATIVE_NOISE_RATE * np.mean((X[0] - p.labels.offset)[seen] ** 2)

    def integrand(u: float) -> float:
        C = (base + np.eye(30) * np.exp(-u))[np.ix_(seen, seen)]
        density = multivariate_normal(p.labels.offset[seen], C).logpdf(X[0, seen]) + 40.0
        return float(np.exp(density + gamma(a, scale=1 / b).logpdf(np.exp(u)) + u))

    expected = np.log(quad(integrand, -8, 8, limit=400)[0]) - 40.0
    np.testing.assert_allclose(p.log_density(X), [expected], rtol=1e-5)


def test_sample_density_of_draws_is_the_mean_of_densities():
    mc = draws("feature").keep_chains([0])
    X = holes(simulated(seed=9).X)[:1]
    seen = ~np.isnan(X[0])
    posterior = mc.draws["posterior"].to_dataset()
    terms = []
    for t in range(400):
        L, tau = posterior["loadings"].values[0, t], posterior["noise_precision"].values[0, t]
        phi = posterior["factor_correlation"].values[0, t]
        C = (L @ phi @ L.T + np.diag(1 / tau))[np.ix_(seen, seen)]
        terms.append(multivariate_normal(mc.labels.offset[seen], C).logpdf(X[0, seen]))
    np.testing.assert_allclose(mc.log_density(X), [np.logaddexp.reduce(terms) - np.log(400)], rtol=1e-8)


def test_new_samples_of_the_same_model_are_likelier_than_others():
    train, new = simulated(n_samples=60).X[:40], simulated(n_samples=60).X[40:]
    p = sf.fit_vi(train, Prior(n_factors=2, inclusion=0.4), n_trials=2)
    assert p.log_density(new).mean() > p.log_density(new[:, ::-1].copy()).mean() + 5


def test_entry_density_under_q_matches_draws_from_q():
    p = vi_fit("feature", "joint", 0.15, strong=True)
    rng = np.random.default_rng(1)
    L, tau = loading_draws(p, 40_000, rng)
    covariance = p.parameters["f_var"]
    X = np.full((40, 30), np.nan)
    X[3, 4], X[20, 11] = p.impute()[3, 4] + 0.5, p.impute()[20, 11] - 1.0
    found = p.log_density(X, of="entries")
    assert np.isnan(found).sum() == 40 * 30 - 2
    for j, i in ((3, 4), (20, 11)):
        f = rng.multivariate_normal(p.activations_mean[j], covariance[j], len(L))
        signal = np.einsum("sk,sk->s", L[:, i], f) + p.labels.offset[i]
        expected = np.log(np.mean(norm(signal, 1 / np.sqrt(tau[:, i])).pdf(X[j, i])))
        # Under q a signal is no Gaussian, as it is taken to be: in the tail that is 0.024 of the log density.
        np.testing.assert_allclose(found[j, i], expected, atol=0.03)


@pytest.mark.parametrize("noise", NOISES)
def test_entry_density_of_draws_is_the_mean_of_densities(noise):
    mc = draws(noise, 0.15)
    X = np.full((40, 30), np.nan)
    X[3, 4] = 0.7
    posterior = mc.draws["posterior"].to_dataset().stack(s=("chain", "draw")).transpose("s", ...)
    signal = np.einsum("sk,sk->s", posterior["loadings"].values[:, 4], posterior["activations"].values[:, 3])
    tau = posterior["noise_precision"].values
    tau = {"feature": lambda: tau[:, 4], "sample": lambda: tau[:, 3], "shared": lambda: tau}[noise]()
    expected = np.log(np.mean(norm(signal + mc.labels.offset[4], 1 / np.sqrt(tau)).pdf(0.7)))
    np.testing.assert_allclose(mc.log_density(X, of="entries")[3, 4], expected, rtol=1e-9)


# ---- missing entries ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("fit", [lambda noise: vi_fit(noise, "joint", 0.15), lambda noise: draws(noise, 0.15)])
def test_intervals_cover_what_was_missing(fit, noise):
    sim = simulated(0.15)
    p, hole = fit(noise), np.isnan(sim.X)
    truth = simulated(0.0).X
    values, sd, lower, upper = p.impute(sim.X, return_sd=True, interval=0.8)
    np.testing.assert_array_equal(values[~hole], sim.X[~hole])
    assert (sd[~hole] == 0).all()
    assert (lower[hole] < values[hole]).all()
    assert (values[hole] < upper[hole]).all()
    covered = np.mean((lower < truth)[hole] & (truth < upper)[hole])
    assert 0.7 < covered < 0.9  # some 180 entries: a standard error of 0.03


def test_the_simulation_hides_entries_without_changing_them():
    sim = simulated(0.15)
    np.testing.assert_array_equal(sim.X[~np.isnan(sim.X)], simulated(0.0).X[~np.isnan(sim.X)])


@pytest.mark.parametrize("activations", ["independent", "joint"])
def test_imputing_training_samples_agrees_with_the_fit(activations):
    p, sim = vi_fit("feature", activations, 0.15), simulated(0.15)
    hole = np.isnan(sim.X)
    for own, new in zip(
        p.impute(return_sd=True, interval=0.9), p.impute(sim.X, return_sd=True, interval=0.9), strict=True
    ):
        np.testing.assert_allclose(new[hole], own[hole], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(p.impute(), p.reconstruct())


def test_sd_under_q_is_that_of_draws_from_q():
    p = vi_fit("feature", "joint", 0.15)
    rng = np.random.default_rng(2)
    L, tau = loading_draws(p, 40_000, rng)
    _, sd = p.impute(return_sd=True)
    for j, i in ((3, 4), (20, 11)):
        f = rng.multivariate_normal(p.activations_mean[j], p.parameters["f_var"][j], len(L))
        x = np.einsum("sk,sk->s", L[:, i], f) + rng.standard_normal(len(L)) / np.sqrt(tau[:, i])
        np.testing.assert_allclose(sd[j, i], x.std(), rtol=0.03)


def test_sd_of_new_samples_has_signal_and_noise_draw_by_draw():
    mc = draws("feature", 0.15)
    X = holes(simulated(seed=9).X)
    values, sd = mc.impute(X, return_sd=True)
    j, i = np.argwhere(np.isnan(X))[3]
    seen = ~np.isnan(X[j])
    posterior = mc.draws["posterior"].to_dataset().stack(s=("chain", "draw")).transpose("s", ...)
    means, variances = [], []
    drawn = [posterior[name].values for name in ("loadings", "noise_precision", "factor_correlation")]
    for L, tau, phi in zip(*drawn, strict=True):
        V = np.linalg.inv(np.linalg.inv(phi) + (L[seen].T * tau[seen]) @ L[seen])
        means.append(L[i] @ V @ (L[seen].T * tau[seen]) @ (X[j] - mc.labels.offset)[seen])
        variances.append(L[i] @ V @ L[i] + 1 / tau[i])
    np.testing.assert_allclose(values[j, i], np.mean(means) + mc.labels.offset[i], rtol=1e-9)
    np.testing.assert_allclose(sd[j, i], np.sqrt(np.mean(variances) + np.var(means)), rtol=1e-9)


def test_modules_tie_the_loadings_of_a_feature():
    rng = np.random.default_rng(4)
    p = vi_fit("feature", "joint", n_modules=2)
    G, K, M = 30, 2, 2
    within, member = rng.uniform(0.1, 0.9, (G, K, M)), rng.dirichlet([1.0, 1.0], G)
    mu, s2 = rng.standard_normal((G, K)), rng.uniform(0.1, 0.5, (G, K))
    within[7], member[7], mu[7] = [[0.9, 0.2], [0.8, 0.1]], [0.6, 0.4], [1.5, -1.2]
    eta = np.einsum("ikm,im->ik", within, member)
    sd = np.sqrt(eta * (mu**2 + s2) - (eta * mu) ** 2)
    q = p.parameters | {"mu": mu, "s2": s2, "eta": eta, "within": within, "member": member}
    changed = replace(p, parameters=q, loadings_mean=eta * mu, loadings_sd=sd, inclusion_prob=eta)
    module = (rng.random(200_000) < member[7, 1]).astype(int)
    included = rng.random((200_000, K)) < within[7].T[module]
    L = included * rng.normal(mu[7], np.sqrt(s2[7]), (200_000, K))
    np.testing.assert_allclose(loading_covariance(changed, slice(7, 8))[0], np.cov(L.T), atol=0.01)
    assert abs(np.cov(L.T)[0, 1]) > 0.1  # or the test would prove nothing


def test_intervals_of_draws_are_quantiles_of_their_mixture():
    mc = draws("feature", 0.15)
    rng = np.random.default_rng(3)
    posterior = mc.draws["posterior"].to_dataset().stack(s=("chain", "draw")).transpose("s", ...)
    signal = np.einsum("sk,sk->s", posterior["loadings"].values[:, 4], posterior["activations"].values[:, 3])
    sd = 1 / np.sqrt(posterior["noise_precision"].values[:, 4])
    x = (signal + rng.standard_normal((200, len(sd))) * sd).ravel() + mc.labels.offset[4]
    _, lower, upper = mc.impute(interval=0.9)
    np.testing.assert_allclose([lower[3, 4], upper[3, 4]], np.quantile(x, [0.05, 0.95]), atol=0.1 * x.std())


# ---- signs and discoveries ------------------------------------------------------------------------------------------


def test_lfsr_counts_draws_from_q():
    p = vi_fit("feature", "joint")
    L, _ = loading_draws(p, 20_000, np.random.default_rng(0))
    above, below = (L > 0).mean(axis=0), (L < 0).mean(axis=0)
    np.testing.assert_allclose(p.lfsr, 1 - np.maximum(above, below), atol=0.02)


def test_lfsr_of_draws_counts_them():
    mc = draws("feature")
    L = mc.draws["posterior"]["loadings"].values.reshape(-1, 30, 2)
    np.testing.assert_allclose(mc.lfsr, 1 - np.maximum((L > 0).mean(axis=0), (L < 0).mean(axis=0)), atol=1e-12)
    assert (mc.lfsr >= 1 - mc.inclusion_prob - 1e-12).all()


@pytest.mark.parametrize("by", ["inclusion", "sign"])
def test_discoveries_are_the_longest_list_at_the_rate(by):
    p = vi_fit("feature", "joint")
    frame = p.discoveries(0.1, by=by)
    wrong = 1 - p.inclusion_prob if by == "inclusion" else p.lfsr
    for k in range(2):
        own = frame[frame.factor == k + 1]
        ascending = np.sort(wrong[:, k])
        rates = np.cumsum(ascending) / np.arange(1, 31)
        assert len(own) == np.sum(rates <= 0.1)
        np.testing.assert_allclose(wrong[own.feature, k], ascending[: len(own)], atol=1e-12)
        np.testing.assert_allclose(own.fdr, rates[: len(own)], atol=1e-12)
        certain = own[wrong[own.feature, k] < 1e-13]
        assert (np.diff(np.abs(certain.loading)) <= 0).all()


def test_discoveries_are_mostly_true():
    sim = sf.simulate_paper(snr=5, seed=0)
    p = sf.fit_vi(sim.X, Prior(n_factors=6, inclusion=sf.Beta(1, 1)), n_trials=5)
    matching = sf.match(p, sim)
    frame = p.discoveries(0.05)
    chosen = np.zeros(p.inclusion_prob.shape)
    chosen[frame.feature, frame.factor - 1] = 1
    aligned = matching.apply(chosen, signed=False) > 0
    assert np.sum(aligned & ~sim.inclusion) / aligned.sum() < 0.08
    assert np.sum(aligned & sim.inclusion) / sim.inclusion.sum() > 0.85


# ---- scaling, names, bad input --------------------------------------------------------------------------------------


def named(X: np.ndarray):
    import pandas as pd

    return pd.DataFrame(X, columns=[f"gene {i}" for i in range(X.shape[1])])


@cache
def named_fit() -> sf.VIPosterior:
    return sf.fit_vi(named(simulated().X), Prior(n_factors=2, inclusion=0.4), n_trials=2, center=True)


def test_features_are_matched_by_name():
    p, X = named_fit(), named(holes(simulated(seed=9).X))
    shuffled = X.iloc[:, np.random.default_rng(0).permutation(30)]
    np.testing.assert_array_equal(p.transform(shuffled), p.transform(X))
    np.testing.assert_array_equal(p.transform(X.to_numpy()), p.transform(X))
    filled = p.impute(shuffled)
    assert list(filled.columns) == list(shuffled.columns)
    np.testing.assert_array_equal(filled, p.impute(X)[shuffled.columns])


@cache
def wholly_named() -> tuple[sf.VIPosterior, sf.MCMCPosterior, object]:
    X = named(simulated().X).set_axis([f"person {j}" for j in range(40)])
    prior = Prior(n_factors=2, inclusion=0.4)
    return sf.fit_vi(X, prior, n_trials=2), sf.sample(X, prior, n_chains=2, n_warmup=5, n_draws=20, init="varimax"), X


def test_entries_of_the_training_data_are_matched_by_name():
    """In another order they would be judged by the predictions of other entries."""
    vi, mc, X = wholly_named()
    held = X.where(np.random.default_rng(1).random(X.shape) < 0.2)
    turned, mask = held.iloc[::-1, ::-1], held.notna()
    for p in (vi, mc):
        np.testing.assert_array_equal(p.log_density(turned, of="entries"), p.log_density(held, of="entries"))
        error = sf.fill_in_error(p, X, mask)
        assert sf.fill_in_error(p, X.iloc[::-1, ::-1], mask.iloc[::-1, ::-1]) == error
        assert sf.fill_in_error(p, X.to_numpy(), mask.to_numpy()) == error
    np.testing.assert_array_equal(
        mc.combine("stacking", X.iloc[::-1, ::-1]).weights, mc.combine("stacking", X.to_numpy()).weights
    )
    dots = [sf.plot.observed_fitted(vi, given).axes[0].lines[0].get_xydata() for given in (X, X.iloc[::-1, ::-1])]
    np.testing.assert_array_equal(*dots)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X.rename(index={"person 3": "other"}), "every sample of the fit; 'person 3' is lacking"),
        (lambda X: X.rename(columns={"gene 3": "other"}), "every feature of the fit; 'gene 3' is lacking"),
        (lambda X: X * np.inf, "held-out entries must be finite"),
    ],
)
def test_entries_of_other_data_are_refused(change, message):
    p, _, X = wholly_named()
    with pytest.raises(ValueError, match=message):
        p.log_density(change(X), of="entries")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X: X.iloc[:, :-1], "every feature of the fit; 'gene 29' is lacking"),
        (lambda X: X.assign(other=1.0), "features of the fit only; 'other' is unknown"),
        (lambda X: X.to_numpy()[:, :-1], "30 features of the fit; got 29"),
        (lambda X: X.where((X.index != 2)[:, None] | np.zeros(30, bool)), "sample 2 has none"),
        (lambda X: X.replace(X.iloc[0, 0], np.inf), "infinite at feature gene 0"),
        (lambda X: X.rename(columns={"gene 1": "gene 0"}), "'gene 0' occurs more than once"),
    ],
)
def test_new_samples_that_do_not_fit_are_refused(change, message):
    X = change(named(simulated(seed=9).X))
    with pytest.raises(ValueError, match=message):
        named_fit().transform(X)


def test_questions_refuse_what_they_cannot_answer():
    p = named_fit()
    with pytest.raises(ValueError, match="fdr must lie strictly between 0 and 1"):
        p.discoveries(1.5)
    with pytest.raises(ValueError, match="interval must lie strictly"):
        p.impute(interval=90)
    with pytest.raises(ValueError, match="of must be one of"):
        p.log_density(simulated().X, of="rows")
    with pytest.raises(ValueError, match="shape of the training data"):
        p.log_density(simulated().X[:5], of="entries")
    with pytest.raises(ValueError, match="by must be"):
        p.discoveries(by="size")


def test_scaling_is_applied_and_undone():
    X, new = simulated(0.1).X * np.arange(1, 31), holes(simulated(seed=9).X) * np.arange(1, 31)
    prior = Prior(n_factors=2, inclusion=0.4)
    p = sf.fit_vi(X, prior, n_trials=2, scale=True)
    offset, scale = p.labels.offset, p.labels.scale
    np.testing.assert_allclose(scale, np.nanstd(X, axis=0))
    plain = sf.fit_vi((X - offset) / scale, prior, n_trials=2)  # with holes the mean is part of either model
    scaled_new = (new - offset) / scale
    np.testing.assert_allclose(p.transform(new), plain.transform(scaled_new), atol=1e-4)
    np.testing.assert_allclose(p.covariance(), plain.covariance() * np.outer(scale, scale), atol=1e-3)
    for ours, theirs in zip(p.impute(new, interval=0.9), plain.impute(scaled_new, interval=0.9), strict=True):
        np.testing.assert_allclose(ours, theirs * scale + offset, rtol=1e-4, atol=1e-3)
    jacobian = (~np.isnan(new)) @ np.log(scale)
    np.testing.assert_allclose(p.log_density(new), plain.log_density(scaled_new) - jacobian, atol=1e-2)
    held = np.full(X.shape, np.nan)
    held[3, 4] = 1.5
    entry = plain.log_density((held - offset) / scale, of="entries")[3, 4] - np.log(scale[4])
    assert p.log_density(held, of="entries")[3, 4] == pytest.approx(entry, abs=1e-3)


@pytest.mark.parametrize("noise", NOISES)
def test_answers_do_not_depend_on_the_units(noise):
    prior, unit = Prior(n_factors=2, noise=noise), 1e-7
    X, new = simulated(0.1).X, holes(simulated(seed=9).X)
    usual, tiny = (sf.fit_vi(X * c, prior, n_trials=2) for c in (1.0, unit))
    np.testing.assert_allclose(tiny.transform(new * unit), usual.transform(new), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(tiny.impute(new * unit) / unit, usual.impute(new), rtol=1e-6, atol=1e-9)
    shift = np.sum(~np.isnan(new), axis=1) * np.log(unit)
    np.testing.assert_allclose(tiny.log_density(new * unit) + shift, usual.log_density(new), rtol=1e-6)
