"""Every full conditional of the Gibbs sampler against brute force on tiny problems."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from tests.helpers.problems import MILD, prior_for, random_gibbs_state, small_data

from sparsefactor.gibbs.sweep import Gibbs, GibbsState
from sparsefactor.kernels.contract import RowNoise
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.model import Beta, Prior, log_joint

G, N, K = 2, 4, 3
CASES = [(noise, missing) for noise in ("feature", "shared", "sample") for missing in (0.0, 0.35)]


def problem(noise, missing, inclusion=0.4, correlation="none"):
    data = small_data(G, N, K, missing=missing, seed=3)
    prior = prior_for(K, inclusion=inclusion, noise=noise, correlation=correlation)
    engine = ReferenceEngine(data, prior)
    return data, prior, engine, Gibbs(data, prior, engine), random_gibbs_state(data, prior, seed=1)


def log_marginal(data, prior, state: GibbsState, tau_row, Z) -> float:
    """log p(Y | F, Z, tau, alpha) + log p(Z), with L integrated out of a dense Gaussian for each row."""
    total = 0.0
    for i in range(data.n_features):
        seen = np.arange(data.n_samples) if data.observed is None else np.flatnonzero(data.observed[i])
        on = np.flatnonzero(Z[i])
        F = state.F[np.ix_(on, seen)]
        noise = np.full(len(seen), 1 / tau_row[i]) if prior.noise == "feature" else 1 / state.tau[seen]
        cov = F.T @ np.diag(1 / state.alpha[on]) @ F + np.diag(noise)
        total += stats.multivariate_normal.logpdf(data.Y[i, seen], np.zeros(len(seen)), cov)
    pi = state.pi if len(state.pi) else prior.inclusion_matrix()[0]
    return total + float(np.sum(Z * np.log(pi) + (1 - Z) * np.log(1 - pi)))


@pytest.mark.parametrize(("noise", "missing"), CASES)
@pytest.mark.parametrize("inclusion", [[0.2, 0.5, 0.8], Beta(1.0, 2.0)])
def test_every_inclusion_conditional_matches_the_enumeration_of_all_configurations(noise, missing, inclusion):
    data, prior, engine, gibbs, state = problem(noise, missing, inclusion)
    message = gibbs.message(state)
    gamma = np.ones(G)
    # The pass draws tau first; with this gamma it is the same in every run below.
    quiet = RowNoise(uniform=np.full((G, K), 0.5), normal=np.zeros((G, K)), gamma=gamma)
    tau_row = engine.gibbs_row_pass(state.rows, message, quiet)[0].tau
    table = {z: log_marginal(data, prior, state, tau_row, np.reshape(z, (G, K))) for z in product((0, 1), repeat=G * K)}
    assert len(table) == 2 ** (G * K)
    for flat, configuration in enumerate(product((0, 1), repeat=G * K)):
        Z = np.reshape(configuration, (G, K)).astype(np.int8)
        i, k = divmod(flat % (G * K), K)
        one, zero = Z.copy(), Z.copy()
        one[i, k], zero[i, k] = 1, 0
        p = 1 / (1 + np.exp(table[tuple(zero.ravel())] - table[tuple(one.ravel())]))
        for shift, expected in ((-1e-9, 1), (1e-9, 0)):
            # Keep every other entry where it is: a uniform of 0 always includes, one of 1 never does.
            uniform = np.where(Z == 1, 0.0, 1.0)
            uniform[i, k] = p + shift
            noise_in = RowNoise(uniform=uniform, normal=np.zeros((G, K)), gamma=gamma)
            rows = state.rows._replace(Z=Z)
            drawn = engine.gibbs_row_pass(rows, message, noise_in)[0].Z
            assert drawn[i, k] == expected
            assert np.array_equal(np.delete(drawn.ravel(), i * K + k), np.delete(Z.ravel(), i * K + k))


def gaussian_of(draw, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of an affine map of standard normals."""
    mean = draw(np.zeros(size))
    root = np.stack([draw(unit) - mean for unit in np.eye(size)], axis=1)
    return mean, root @ root.T


@pytest.mark.parametrize(("noise", "missing"), CASES)
def test_loadings_conditional_is_the_gaussian_of_the_log_joint(noise, missing):
    data, prior, engine, gibbs, state = problem(noise, missing)
    Z = np.array([[1, 0, 1], [1, 1, 1]], dtype=np.int8)
    uniform = np.where(Z == 1, 0.0, 1.0)
    message = gibbs.message(state)

    def draw(e):
        noise_in = RowNoise(uniform=uniform, normal=e.reshape(G, K), gamma=np.ones(G))
        return engine.gibbs_row_pass(state.rows._replace(Z=Z), message, noise_in)[0]

    tau = draw(np.zeros(G * K)).tau
    mean, cov = gaussian_of(lambda e: draw(e).L.ravel(), G * K)
    on = Z.ravel() == 1
    assert np.all(mean[~on] == 0)

    def log_p(flat):
        L = np.zeros(G * K)
        L[on] = flat
        own = tau if noise == "feature" else state.tau[: 1 if noise == "shared" else N]
        return log_joint(data, prior, L=L.reshape(G, K), F=state.F, Z=Z, tau=own, alpha=state.alpha)

    check_gaussian(log_p, mean[on], cov[np.ix_(on, on)])


@pytest.mark.parametrize(("noise", "missing"), CASES)
@pytest.mark.parametrize("correlation", ["none", "learnt"])
def test_activations_conditional_is_the_gaussian_of_the_log_joint(noise, missing, correlation):
    data, prior, engine, gibbs, state = problem(noise, missing, correlation=correlation)
    rows, sums = engine.gibbs_row_pass(state.rows, gibbs.message(state), engine.row_noise((1, 2), 0))
    weight = gibbs.weight(state.tau)
    phi = state.phi if prior.correlated else None
    inverse = np.eye(K) if phi is None else np.linalg.inv(phi)
    mean, cov = gaussian_of(lambda e: engine.gibbs_activations(sums, weight, inverse, e.reshape(K, N)).ravel(), K * N)
    own = rows.tau if noise == "feature" else state.tau[: 1 if noise == "shared" else N]

    def log_p(flat):
        F = flat.reshape(K, N)
        return log_joint(data, prior, L=rows.L, F=F, Z=rows.Z, tau=own, alpha=state.alpha, phi=phi)

    check_gaussian(log_p, mean, cov)


def check_gaussian(log_p, mean, cov) -> None:
    """log_p is quadratic: its gradient vanishes at `mean` and its Hessian is -inv(cov)."""
    precision = np.linalg.inv(cov)
    rng = np.random.default_rng(0)
    base = log_p(mean)
    for _ in range(10):
        step = rng.standard_normal(len(mean))
        quadratic = -0.5 * step @ precision @ step
        assert log_p(mean + step) - base == pytest.approx(quadratic, rel=1e-7)


class Recorder:
    """Stands in for a generator: remembers what was asked of it and answers one."""

    def standard_gamma(self, shape, size=None):
        self.gamma_shape = np.array(shape)
        return np.ones(size if size is not None else np.shape(shape))

    def beta(self, a, b):
        self.beta_parameters = np.array(a), np.array(b)
        return np.asarray(a) / (np.asarray(a) + np.asarray(b))


def assert_gamma(log_p, shape, rate) -> None:
    """log_p differs from the gamma's log density by a constant only."""
    points = np.array([0.3, 1.0, 2.7])
    gap = [log_p(x) - stats.gamma.logpdf(x, shape, scale=1 / rate) for x in points]
    assert np.ptp(gap) < 1e-8


@pytest.mark.parametrize(("noise", "missing"), CASES)
def test_precisions_are_the_gammas_of_the_log_joint(noise, missing):
    data, prior, engine, gibbs, state = problem(noise, missing)
    rows, sums = engine.gibbs_row_pass(state.rows, gibbs.message(state), engine.row_noise((1, 2), 0))
    own = rows.tau if noise == "feature" else state.tau[: 1 if noise == "shared" else N]
    at = {"L": rows.L, "F": state.F, "Z": rows.Z, "tau": own, "alpha": state.alpha}

    recorder = Recorder()
    rate = 1.0 / gibbs.sample_alpha(sums, recorder)
    for k in range(K):
        assert_gamma(
            lambda x, k=k: log_joint(data, prior, **{**at, "alpha": replaced(state.alpha, k, x)}),
            recorder.gamma_shape[k],
            rate[k],
        )
    if noise == "feature":
        scaled = state.rows.L * state.scale
        quiet = RowNoise(uniform=np.full((G, K), 0.5), normal=np.zeros((G, K)), gamma=np.ones(G))
        rate = 1.0 / engine.gibbs_row_pass(state.rows, gibbs.message(state), quiet)[0].tau
        at = {**at, "L": scaled, "Z": state.rows.Z}
        shapes = prior.noise_shape + 0.5 * data.row_count
    else:
        rate = 1.0 / gibbs.sample_tau(state.F, sums, recorder)
        shapes = np.atleast_1d(recorder.gamma_shape)
    for n in range(len(own)):
        assert_gamma(lambda x, n=n: log_joint(data, prior, **{**at, "tau": replaced(own, n, x)}), shapes[n], rate[n])


def replaced(values, index, x):
    out = values.copy()
    out[index] = x
    return out


def test_inclusion_rate_is_the_beta_of_the_log_joint():
    data, prior, engine, gibbs, state = problem("feature", 0.35, Beta(1.3, 2.1))
    rows, sums = engine.gibbs_row_pass(state.rows, gibbs.message(state), engine.row_noise((1, 2), 0))
    recorder = Recorder()
    gibbs.inclusion.sample(state, state.rows, sums, recorder)
    a, b = recorder.beta_parameters
    for k in range(K):

        def log_p(x, k=k):
            pi = replaced(state.pi, k, x)
            return log_joint(data, prior, L=rows.L, F=state.F, Z=rows.Z, tau=rows.tau, alpha=state.alpha, pi=pi)

        gap = [log_p(x) - stats.beta.logpdf(x, a[k], b[k]) for x in (0.2, 0.5, 0.9)]
        assert np.ptp(gap) < 1e-8


@pytest.mark.parametrize(("noise", "missing"), CASES)
@pytest.mark.parametrize("inclusion", [[0.2, 0.5, 0.8], Beta(1.0, 2.0)])
@pytest.mark.parametrize("correlation", ["none", "learnt"])
def test_log_joint_from_sums_has_slab_precisions_and_rates_integrated_out(noise, missing, inclusion, correlation):
    """log p(all) - log p(alpha, pi | all else), which holds at any precisions and rates."""
    data, prior, _, gibbs, state = problem(noise, missing, inclusion, correlation)
    state, info = gibbs.sweep(state, (5, 6), 0)
    own = {"feature": state.rows.tau, "shared": state.tau[:1], "sample": state.tau}[noise]
    direct = log_joint(
        data,
        prior,
        L=state.rows.L * state.scale,
        F=state.F,
        Z=state.rows.Z,
        tau=own,
        alpha=state.alpha,
        pi=state.pi if len(state.pi) else None,
        phi=state.phi if prior.correlated else None,
    )
    active, l2 = state.rows.Z.sum(axis=0), np.sum((state.rows.L * state.scale) ** 2, axis=0)
    shape, rate = prior.loading_shape + 0.5 * active, prior.loading_rate + 0.5 * l2
    conditional = np.sum(stats.gamma.logpdf(state.alpha, shape, scale=1 / rate))
    if len(state.pi):
        conditional += np.sum(stats.beta.logpdf(state.pi, 1.0 + active, 2.0 + G - active))
    assert info.log_joint == pytest.approx(direct - conditional, rel=1e-10)


def test_annotation_matrix_reaches_every_conditional():
    pi = np.linspace(0.1, 0.9, G * K).reshape(G, K)
    data = small_data(G, N, K, seed=3)
    prior = Prior(inclusion=pi, noise_shape=3.0, noise_rate=2.0)
    gibbs = Gibbs(data, prior, ReferenceEngine(data, prior))
    logit = gibbs.message(random_gibbs_state(data, prior)).logit
    assert np.allclose(1 / (1 + np.exp(-logit)), pi)


def with_modules(missing: float = 0.35) -> tuple[Gibbs, GibbsState]:
    data = small_data(G, N, K, missing=missing)
    prior = Prior(n_factors=K, inclusion=Beta(1.3, 2.1), n_modules=3, factor_correlation="none", **MILD)
    gibbs = Gibbs(data, prior, ReferenceEngine(data, prior))
    return gibbs, gibbs.sweep(gibbs.start(np.ones((G, K)), np.ones((K, N))), (5, 6), 0)[0]


def module_density(gibbs: Gibbs, state: GibbsState, own: np.ndarray | None = None) -> float:
    """log p of a state whose factors have rates of their own in every module, or as `own` says."""
    own = np.ones(K, dtype=bool) if own is None else own
    return log_joint(
        gibbs.data, gibbs.prior, L=state.rows.L, F=state.F, Z=state.rows.Z, tau=state.rows.tau, alpha=state.alpha,
        pi=np.column_stack([state.pi, state.pi[:, 0]]), own=own, member=state.rows.member, w=state.w,
    )  # fmt: skip


class Certain(Recorder):
    """Draws rates of their own, or common ones."""

    def __init__(self, own: bool) -> None:
        self.own, self.betas = own, []

    def random(self, n):
        return np.full(n, -1.0 if self.own else 2.0)

    def beta(self, a, b):
        self.betas.append((np.array(a), np.array(b)))
        return super().beta(a, b)


def test_module_rates_are_the_betas_of_the_log_joint():
    gibbs, state = with_modules()
    for own in (True, False):
        recorder = Certain(own)
        pi, _ = gibbs.inclusion.sample_rates(*gibbs.inclusion.counts(state.rows), recorder)
        a, b = recorder.betas[0 if own else 1]
        for k, m in np.ndindex(K, 3 if own else 1):
            gap = []
            for x in (0.2, 0.5, 0.9):
                at = replaced(state.pi, (k, m) if own else k, x)
                density = module_density(gibbs, state._replace(pi=at), np.full(K, own))
                gap.append(density - stats.beta.logpdf(x, a[k, m], b[k, m]))
            assert np.ptp(gap) < 1e-8
            assert pi[k, m] == pytest.approx(a[k, m] / (a[k, m] + b[k, m]))
        assert np.all((np.ptp(pi, axis=1) > 0) == own)
        np.testing.assert_allclose(recorder.gamma_shape, 1 / 3 + np.bincount(state.rows.member, minlength=3))
    shares = [np.array([0.2, 0.3, 0.5]), np.array([0.7, 0.2, 0.1])]
    gap = [module_density(gibbs, state._replace(w=w)) - stats.dirichlet.logpdf(w, recorder.gamma_shape) for w in shares]
    assert np.ptp(gap) < 1e-8


def test_evidence_of_rates_is_their_integral():
    """By quadrature, where the Gibbs sampler has the beta function."""
    gibbs, state = with_modules()
    size, active = gibbs.inclusion.counts(state.rows)
    own, common = gibbs.inclusion.evidence(size, active)

    def integral(ones, zeros):
        return quad(lambda x: x**ones * (1 - x) ** zeros * stats.beta.pdf(x, 1.3, 2.1), 0, 1)[0]

    for k in range(K):
        each = [integral(active[k, m], size[m] - active[k, m]) for m in range(3)]
        assert own[k] == pytest.approx(np.log(np.prod(each)), rel=1e-6)
        assert common[k] == pytest.approx(np.log(integral(active[k].sum(), G - active[k].sum())), rel=1e-6)
    flips = np.array(
        [
            np.ptp(gibbs.inclusion.sample_rates(size, active, np.random.default_rng(t))[0], axis=1) > 0
            for t in range(3000)
        ]
    )
    p = np.exp(own) / (np.exp(own) + np.exp(common))
    assert np.all(np.abs(flips.mean(axis=0) - p) < 5 * np.sqrt(p * (1 - p) / 3000))


def test_members_are_drawn_as_the_log_joint_has_them():
    gibbs, state = with_modules()
    rng = np.random.default_rng(0)
    draws = np.array([gibbs.inclusion.sample_member(state.rows, state.pi, state.w, rng).member for _ in range(4000)])
    for i in range(G):
        others = [state.rows._replace(member=replaced(state.rows.member, i, m)) for m in range(3)]
        densities = [module_density(gibbs, state._replace(rows=rows)) for rows in others]
        p = np.exp(densities - np.logaddexp.reduce(densities))
        error = np.sqrt(p * (1 - p) / 4000)
        assert np.all(np.abs(np.bincount(draws[:, i], minlength=3) / 4000 - p) < 5 * error + 1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.35])
def test_log_joint_with_modules_has_rates_and_weights_integrated_out(missing):
    """log p(all) - log p(rates, weights | all else), which holds at any rates and weights."""
    gibbs, state = with_modules(missing)
    state, info = gibbs.sweep(state, (5, 6), 1)
    np.testing.assert_allclose(gibbs.inclusion.rate(state), state.pi.T[state.rows.member].mean(axis=0))
    size, active = gibbs.inclusion.counts(state.rows)
    own, common = gibbs.inclusion.evidence(size, active)
    pi, w = np.random.default_rng(0).uniform(0.1, 0.9, (K, 3)), np.array([0.5, 0.2, 0.3])
    conditional = np.sum(own - np.logaddexp(own, common))
    conditional += np.sum(stats.beta.logpdf(pi, 1.3 + active, 2.1 + size - active))
    conditional += stats.dirichlet.logpdf(w, 1 / 3 + size)
    shape = gibbs.prior.loading_shape + 0.5 * state.rows.Z.sum(axis=0)
    rate = gibbs.prior.loading_rate + 0.5 * np.sum((state.rows.L * state.scale) ** 2, axis=0)
    conditional += np.sum(stats.gamma.logpdf(state.alpha, shape, scale=1 / rate))
    density = module_density(gibbs, state._replace(pi=pi, w=w)) - conditional
    assert info.log_joint == pytest.approx(density, rel=1e-10)
