"""The JAX engine in whole fits and chains: the same ends as the CPU engine, rows that stay where they are."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import sparsefactor as sf
from sparsefactor.data import as_data
from sparsefactor.engine import build_engine
from sparsefactor.engine.jax_engine import JaxEngine
from sparsefactor.engine.jax_shortcut import column_step, row_step
from sparsefactor.gibbs.sweep import Gibbs
from sparsefactor.kernels.contract import MoveNoise
from sparsefactor.kernels.jax.gibbs_rows import draw_loadings, inclusions
from sparsefactor.kernels.jax.library import jax, jnp, x64
from sparsefactor.kernels.jax.row_kernel import drawn_rows
from sparsefactor.kernels.jax.vi_kernel import settled_rows
from sparsefactor.kernels.jax.vi_rows import side_by_side
from sparsefactor.kernels.noise import STREAM_F, normal_from, uniform_pair
from sparsefactor.vi.cavi import CAVI

G, N, K = 60, 30, 3


def small(seed: int = 0, missing: float = 0.0) -> np.ndarray:
    X = sf.simulate(n_features=G, n_samples=N, inclusion=[0.3, 0.3, 0.8], snr=5, seed=seed).X
    if missing:
        X = np.where(np.random.default_rng(1).random(X.shape) < missing, np.nan, X)
    return X


def compilations() -> int:
    return column_step._cache_size() + row_step._cache_size()


def test_a_fit_ends_where_that_of_the_cpu_ends_and_compiles_once():
    options = {"n_factors": K, "n_trials": 4, "init": "varimax"}
    fits = [sf.fit_vi(small(), backend=backend, **options) for backend in ("cpu", "jax")]
    assert fits[1].converged
    assert fits[1].elbo == pytest.approx(fits[0].elbo, abs=1e-4)
    np.testing.assert_allclose(fits[1].loadings_mean, fits[0].loadings_mean, atol=1e-3)
    np.testing.assert_allclose(fits[1].inclusion_prob, fits[0].inclusion_prob, atol=1e-3)
    assert type(fits[1].loadings_mean) is np.ndarray
    before = compilations()
    again = sf.fit_vi(small(), backend="jax", **options)
    assert again.elbo == fits[1].elbo
    sf.fit_vi(small(1), backend="jax", seed=1, **options)
    assert compilations() == before, "another data set of the same shape, another trial: nothing is compiled again"


def test_covariates_and_holes_stay_on_the_device():
    X, age = small(missing=0.1), np.random.default_rng(2).standard_normal((N, 1))
    options = {"n_factors": K, "covariates": age, "n_trials": 1, "init": "varimax", "tol": 1e-3}
    fits = [sf.fit_vi(X, backend=backend, **options) for backend in ("cpu", "jax")]
    assert fits[1].elbo == pytest.approx(fits[0].elbo, rel=1e-7)
    np.testing.assert_allclose(fits[1].covariate_loadings_mean, fits[0].covariate_loadings_mean, atol=1e-4)
    data = as_data(X, center=True).with_design(age, True)
    prior = sf.Prior(n_factors=K)
    engine = build_engine(data, prior, "jax")
    cavi = CAVI(data, prior, engine, joint=True)
    rng = np.random.default_rng(0)
    state = cavi.sweep(cavi.start(rng.standard_normal((G, K)), rng.standard_normal((K, N))), rescale=True)
    for name in ("mu", "s2", "eta", "tau", "base", "base_var"):
        assert isinstance(getattr(state.rows, name), jax.Array), name


@pytest.mark.parametrize("missing", [0.0, pytest.param(0.1, marks=pytest.mark.slow)])
def test_a_chain_is_the_same_chain(missing):
    prior = sf.Prior(n_factors=K, factor_correlation="none")
    options = {"prior": prior, "n_chains": 1, "n_warmup": 4, "n_draws": 4, "init": "varimax", "seed": 3}
    options["moves"] = ("scale", "shear")
    runs = [sf.sample(small(missing=missing), backend=backend, **options) for backend in ("cpu", "jax")]
    for name in ("loadings", "inclusion", "activations", "noise_precision", "loading_precision"):
        one, other = (np.asarray(run.draws["posterior"][name]) for run in runs)
        np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-8, err_msg=name)


def rows_for_a_draw(K, G, masked, seed=0):
    """Arguments of a draw of z and l, factor-major: some loose factors, some that nearly coincide."""
    rng = np.random.default_rng(seed)
    F = rng.standard_normal((K, N))
    F[1] = F[0] + 0.05 * F[1]
    seen = rng.random((G, N)) < 0.8
    A = np.einsum("kj,gj,lj->klg", F, seen, F) if masked else F @ F.T
    tau = rng.gamma(2.0, 1.0, G)
    linear = tau * 3.0 * rng.standard_normal((K, G))
    old, uniform, normal = rng.random((K, G)) < 0.5, rng.random((K, G)), rng.standard_normal((K, G))
    return A, rng.gamma(2.0, 1.0, (K, 1)), rng.standard_normal((K, G)), linear, tau, old, uniform, normal


@pytest.mark.parametrize("masked", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_kernel_of_a_row_draws_what_rows_side_by_side_draw(masked):
    with x64():
        args = [jnp.asarray(values) for values in rows_for_a_draw(5, 8, masked)]
        A, alpha, odds, linear, tau, old, uniform, normal = args
        Z, L = jax.jit(partial(drawn_rows, interpret=True))(*args)
        expected = inclusions(A, alpha, odds, linear, tau, old, uniform)
        np.testing.assert_array_equal(Z, expected)
        assert 0 < Z.sum() < Z.size
        np.testing.assert_allclose(L, draw_loadings(A, alpha, linear, tau, expected, normal), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("masked", [True, False])
def test_the_kernel_of_rows_settles_what_rows_side_by_side_settle(masked):
    """More rows than a program takes."""
    with x64():
        A, alpha, logit, linear, tau, *_ = (jnp.asarray(a) for a in rows_for_a_draw(5, 150, masked))
        alpha = alpha * (1.0 + tau) if masked else alpha
        args = A, alpha, jnp.log(alpha), logit, linear / tau, tau, 0.1 * linear
        run = partial(settled_rows, interpret=True)
        expected = side_by_side(*args)
        for found, value in zip(jax.jit(run)(*args), expected, strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-10, atol=1e-13)
        assert 0.0 < expected[1].min() < 0.1
        assert 0.9 < expected[1].max() <= 1.0


@pytest.mark.slow
def test_normals_drawn_on_the_device_are_those_of_the_counter():
    data, prior = as_data(small()), sf.Prior(n_factors=K, inclusion=0.3)
    gibbs = Gibbs(data, prior, JaxEngine(data, prior))
    rng = np.random.default_rng(0)
    state = gibbs.start(rng.standard_normal((G, K)), rng.standard_normal((K, N)))
    given = normal_from(*uniform_pair(np.arange(K)[:, None], np.arange(N), 7, STREAM_F, (3, 4)))
    draws = [
        gibbs.shortcut.draw(state.rows, gibbs.columns(state), (3, 4), 7, 1.0, noise, MoveNoise())
        for noise in (None, given)
    ]
    np.testing.assert_allclose(draws[0].F, draws[1].F, rtol=1e-9)
    assert draws[0].largest == np.abs(draws[0].F).max()


@pytest.mark.slow
def test_data_held_as_float16_are_the_rounded_data():
    X = small()
    rounded = (X - X.mean(axis=0)).astype(np.float16).astype(np.float64)
    options = {"n_factors": K, "n_trials": 4, "init": "varimax", "backend": "jax"}
    half = sf.fit_vi(X, dtype=np.float16, **options)
    exact = sf.fit_vi(rounded, center=False, **options)
    assert half.elbo == pytest.approx(exact.elbo, rel=1e-5)
    np.testing.assert_allclose(half.inclusion_prob, exact.inclusion_prob, atol=5e-3)
    with pytest.raises(ValueError, match=r"float16 is how data are held on a device; .* pass backend="):
        sf.fit_vi(X, n_factors=K, dtype=np.float16, backend="cpu")


def test_single_precision_ends_at_the_same_optimum():
    options = {"n_factors": K, "n_trials": 4, "init": "varimax", "backend": "jax"}
    fits = [sf.fit_vi(small(), dtype=dtype, **options) for dtype in (np.float64, np.float32)]
    assert fits[1].elbo == pytest.approx(fits[0].elbo, rel=1e-4)
    same = (fits[0].inclusion_prob > 0.5) == (fits[1].inclusion_prob > 0.5)
    assert same.mean() > 0.999


def test_the_process_keeps_its_own_precision():
    data = as_data(small())
    engine = JaxEngine(data, sf.Prior(n_factors=K, inclusion=0.3))
    rows = engine.vi_place(np.ones((G, K)))
    assert rows.mu.dtype == np.float64
    assert engine.problem.Y.dtype == np.float64
    if not jax.config.jax_enable_x64:
        assert jnp.ones(2).dtype == np.float32


STRUCTURES = {
    "modules": {"inclusion": sf.Beta(1, 1), "n_modules": 3},
    "groups": {"groups": np.arange(G) % 2},
    "noise by sample": {"noise": "sample"},
    "noise shared": {"noise": "shared"},
    "rates by feature": {"inclusion": np.full((G, K), 0.3)},
}


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.1])
@pytest.mark.parametrize("activations", ["joint", "independent"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_fits_of_every_structure_end_where_those_of_the_cpu_end(structure, activations, missing):
    prior = sf.Prior(n_factors=K, **STRUCTURES[structure])
    options = {"n_trials": 2, "init": "varimax", "activations": activations, "tol": 1e-5}
    cpu, fit = (sf.fit_vi(small(missing=missing), prior, backend=backend, **options) for backend in ("cpu", "jax"))
    assert fit.elbo == pytest.approx(cpu.elbo, abs=0.02)
    np.testing.assert_allclose(fit.activations_mean, cpu.activations_mean, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("snr", [1, 5, 25])
def test_the_papers_simulation_ends_where_that_of_the_cpu_ends(snr):
    sim = sf.simulate_paper(snr=snr, seed=0)
    prior = sf.Prior(inclusion=[0.1] * 5 + [0.9])
    cpu, exact, single = (
        sf.fit_vi(sim.X, prior, backend=backend, dtype=dtype)
        for backend, dtype in (("cpu", np.float64), ("jax", np.float64), ("jax", np.float32))
    )
    assert exact.elbo == pytest.approx(cpu.elbo, abs=0.02)
    assert single.elbo == pytest.approx(cpu.elbo, rel=1e-4)
    for fit in (exact, single):
        assert np.mean((fit.inclusion_prob > 0.5) == (cpu.inclusion_prob > 0.5)) > 0.999
