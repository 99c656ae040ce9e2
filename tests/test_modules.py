"""Features in modules: the ELBO is complete, every update raises it, and what is found is what was planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.helpers.elbo import q_of
from tests.helpers.modules import direct_module_elbo, monte_carlo_module_elbo, started
from tests.helpers.problems import MILD, quick, small_data

import sparsefactor as sf
from sparsefactor import plot
from sparsefactor.engine.cpu import CpuEngine
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.vi.cavi import CAVI, VIState
from sparsefactor.vi.modules import one_module, under_modules

SETTINGS = [
    pytest.param(noise, joint, missing, id=f"{noise}-{joint}-{missing}")
    for noise in ("feature", "shared", "sample")
    for joint in (False, True)
    for missing in (0.0, 0.3)
]


def cavis(noise="feature", joint=False, missing=0.0, M=3, engine=ReferenceEngine, **size) -> tuple[CAVI, CAVI]:
    data = small_data(missing=missing, **size)
    data = replace(data, Y=4.0 * data.Y)  # loadings that matter
    prior = sf.Prior(
        n_factors=2, inclusion=sf.Beta(1.5, 2.5), n_modules=M, noise=noise, factor_correlation="none", **MILD
    )
    one = one_module(prior)
    plain = CAVI(data, one, engine(data, one), joint=joint)
    return under_modules(plain, M), plain


def elbo_of(cavi: CAVI, state: VIState) -> float:
    q = q_of(cavi.data, cavi.prior, state.rows, state.columns)
    return direct_module_elbo(cavi.data, cavi.prior, q, state.rows, state.columns)


@pytest.mark.parametrize(("noise", "joint", "missing"), SETTINGS)
def test_elbo_from_sums_equals_the_elbo_entry_by_entry(noise, joint, missing):
    cavi, plain = cavis(noise, joint, missing)
    state = started(cavi, plain)
    assert state.elbo == pytest.approx(elbo_of(cavi, state), rel=1e-10)


@pytest.mark.statistical
@pytest.mark.parametrize(("noise", "joint", "missing"), quick(SETTINGS, 7))
def test_elbo_equals_its_monte_carlo_estimate(noise, joint, missing):
    cavi, plain = cavis(noise, joint, missing, G=4, N=4)
    state = started(cavi, plain)
    q = q_of(cavi.data, cavi.prior, state.rows, state.columns)
    estimate, error = monte_carlo_module_elbo(cavi.data, cavi.prior, q, state.rows, state.columns, 4000)
    assert abs(state.elbo - estimate) < 4 * error
    # Negative control: the entropy of the memberships is far outside the error.
    entropy = -np.sum(state.rows.member * np.log(state.rows.member))
    assert abs(state.elbo - entropy - estimate) > 6 * error


def neighbours(state: VIState, field: str, index: tuple[int, ...], step: float) -> list[VIState]:
    """The state with one entry of one field moved up and down, inside its range."""
    moved = []
    part = "rows" if field in state.rows._fields else "columns"
    for sign in (-step, step):
        value = getattr(getattr(state, part), field).copy()
        old = value[index]
        if field in ("mu", "f_mean"):
            value[index] = old + sign
        elif field in ("within", "own"):
            value[index] = old + sign * min(old, 1 - old)
        else:
            value[index] = old * np.exp(sign)
        if field == "member":
            value[index[0]] /= value[index[0]].sum()
        moved.append(state._replace(**{part: getattr(state, part)._replace(**{field: value})}))
    return moved


def assert_maximal(cavi: CAVI, state: VIState, fields: tuple[str, ...], step: float, only=lambda index: True):
    best = elbo_of(cavi, state)
    for field in fields:
        part = state.rows if field in state.rows._fields else state.columns
        for index in np.ndindex(getattr(part, field).shape):
            for other in neighbours(state, field, index, step) if only(index) else ():
                assert elbo_of(cavi, other) < best, (field, index)


@pytest.mark.parametrize(("noise", "joint", "missing"), quick(SETTINGS, 7))
def test_each_update_from_a_random_state_is_a_maximiser(noise, joint, missing):
    cavi, plain = cavis(noise, joint, missing, G=4, N=5)
    state = started(cavi, plain)
    l = state.rows.mu[:, :, None] * state.rows.within
    cross = np.einsum("im,im,im->i", state.rows.member, l[:, 0], l[:, 1])
    means = np.einsum("im,ikm->ki", state.rows.member, l)
    assert np.abs(cross - means[0] * means[1]).max() > 3e-5  # the modules are in doubt, and it matters
    # The row pass ends with the memberships.
    assert_maximal(cavi, state, ("member",), 1e-3)
    # The column step, one block at a time, each from the state before it.
    f_mean, f_var = cavi.engine.vi_activations(state.columns, state.sums, cavi.weight(state.columns))
    columns = state.columns._replace(f_mean=f_mean, f_var=f_var)
    last = cavi.prior.K - 1 if not joint else None
    stepped = state._replace(columns=columns)
    assert_maximal(cavi, stepped, ("f_mean",), 1e-5, only=lambda index: last is None or index[0] == last)
    stepped = state._replace(columns=cavi.column_step(state.columns, state.sums))
    fields = ("alpha_shape", "alpha_rate", "own", "pi_a", "pi_b", "w_shape")
    assert_maximal(cavi, stepped, fields, 1e-3)
    if noise == "sample":
        assert_maximal(cavi, stepped, ("tau_shape", "tau_rate"), 1e-3)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_each_update_within_a_row_is_a_maximiser(missing):
    """A row pass begins with tau, mu and s2 of the first factor, and its z given each module: checked where made."""
    cavi, plain = cavis(missing=missing, G=4, N=5)
    before = started(cavi, plain)
    after = cavi.finish(before.rows, before.columns, np.ones(2)).rows

    def first(name):
        mixed = getattr(before.rows, name).copy()
        mixed[:, 0] = getattr(after, name)[:, 0]
        return mixed

    state = before._replace(rows=before.rows._replace(tau=after.tau, mu=first("mu"), s2=first("s2")))
    assert_maximal(cavi, state, ("mu", "s2"), 1e-5, only=lambda index: index[1] == 0)
    state = state._replace(rows=state.rows._replace(within=first("within")))
    assert_maximal(cavi, state, ("within",), 1e-5, only=lambda index: index[1] == 0)


@pytest.mark.parametrize(("noise", "joint", "missing"), SETTINGS)
def test_elbo_never_falls(noise, joint, missing):
    cavi, plain = cavis(noise, joint, missing, G=5, N=4)
    state = started(cavi, plain)
    trace = [state.elbo]
    for t in range(300):
        state = cavi.sweep(state, rescale=t % 2 == 1)
        trace.append(state.elbo)
    assert np.all(np.diff(trace) >= -1e-10)
    assert trace[-1] > trace[0] + 1.0


@pytest.mark.slow
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_climb_ends_at_a_maximum(missing):
    cavi, plain = cavis(missing=missing, engine=CpuEngine, G=5, N=4)
    assert cavi.data.is_complete == (missing == 0.0)
    state = started(cavi, plain)
    for _ in range(3000):
        state = cavi.sweep(state, rescale=True)
    fields = ("mu", "s2", "within", "member", "f_mean", "alpha_rate", "own", "pi_a", "pi_b", "w_shape")
    assert_maximal(cavi, state, fields, 0.03)


# ---- the fit ------------------------------------------------------------------------------------------------------


LEARNT = sf.Prior(n_factors=6, inclusion=sf.Beta(1, 1))
MODULES = sf.Prior(n_factors=6, inclusion=sf.Beta(1, 1), n_modules=8)


@pytest.fixture(scope="module")
def fitted():
    sim = sf.simulate_paper(snr=5, seed=0)
    return sim, sf.fit_vi(sim.X, LEARNT), sf.fit_vi(sim.X, MODULES)


def test_modules_find_more_of_the_truth(fitted):
    sim, plain, modules = fitted
    assert modules.converged
    assert modules.elbo > plain.elbo + 50
    assert sf.score(modules, sim)["z_accuracy"] > sf.score(plain, sim)["z_accuracy"] + 0.001
    assert sf.score(modules, sim)["rrmse_signal"] < sf.score(plain, sim)["rrmse_signal"]


def test_what_the_result_tells_of_modules(fitted):
    sim, plain, p = fitted
    assert p.module_prob.shape == (800, 8)
    np.testing.assert_allclose(p.module_prob.sum(axis=1), 1.0)
    assert p.module_rate_mean.shape == (8, 6)
    assert np.all(np.diff(p.module_weight_mean) <= 0)
    assert p.module_weight_mean.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(p.module_prob.mean(axis=0), p.module_weight_mean, atol=0.01)
    # Most features that have only the last two factors are alike, and so are those of the last and the third: the
    # modules of these have the factors that they share, and the last factor is in all features of every module.
    order = sf.match(p, sim).permutation
    Z = sim.inclusion
    for alike, has, lacks in (
        (~Z[:, :4].any(axis=1) & Z[:, 4], 4, (0, 2)),
        (~Z[:, [0, 1, 3, 4]].any(axis=1) & Z[:, 2], 2, (3, 4)),
    ):
        label = p.module_prob[alike].argmax(axis=1)
        own = np.bincount(label).argmax()
        assert np.mean(label == own) > 0.8
        assert p.module_rate_mean[own, order[has]] > 0.8
        assert np.all(p.module_rate_mean[own, order[list(lacks)]] < 0.2)
    assert np.all(p.module_rate_mean[:4, order[5]] > 0.9)
    # The rates over all features are those of the truth.
    np.testing.assert_allclose(p.inclusion_rate_mean[order], Z.mean(axis=0), atol=0.05)
    assert plain.module_prob is None
    assert plain.module_rate_mean is None
    elbo = p.elbo_trace["elbo"].to_numpy()
    assert np.all(np.diff(elbo) >= 0)
    assert elbo[-1] == p.elbo
    won = p.trials[p.trials["won"]]
    assert won["elbo"].item() == p.elbo
    assert won["iterations"].item() == p.elbo_trace["iteration"].iloc[-1]


def test_spare_factors_do_not_hide_the_modules(fitted):
    sim, _, p = fitted
    spare = sf.fit_vi(sim.X, sf.Prior(n_factors=15, inclusion=sf.Beta(1, 1), n_modules=8), n_trials=4)
    assert np.sum(spare.module_weight_mean > 0.01) == np.sum(p.module_weight_mean > 0.01) == 4
    assert sf.score(spare, sim)["z_accuracy"] == pytest.approx(sf.score(p, sim)["z_accuracy"], abs=5e-4)


def test_saved_and_shown(fitted, tmp_path):
    _, _, p = fitted
    p.save(tmp_path / "p.sf")
    back = sf.load(tmp_path / "p.sf")
    assert back.prior.n_modules == 8
    for name in ("module_prob", "module_rate_mean", "module_weight_mean"):
        np.testing.assert_array_equal(getattr(back, name), getattr(p, name))
    tree = p.to_datatree()["variational"]
    assert tree["module_prob"].dims == ("feature", "module")
    assert tree["module_rate_mean"].dims == ("module", "factor")


def test_where_the_data_have_one_module_one_is_left():
    """Features that differ by chance alone: the second module and those after it stay empty."""
    sim = sf.simulate(n_features=300, n_samples=60, inclusion=[0.15, 0.3, 0.5], snr=5, seed=3)
    p = sf.fit_vi(sim.X, sf.Prior(n_factors=3, inclusion=sf.Beta(1, 1), n_modules=6))
    assert p.converged
    assert p.module_weight_mean[0] > 0.99
    plain = sf.fit_vi(sim.X, sf.Prior(n_factors=3, inclusion=sf.Beta(1, 1)), tol=1e-6)
    np.testing.assert_allclose(p.inclusion_prob, plain.inclusion_prob, atol=0.02)


def test_modules_drawn_from_the_prior_are_found_again():
    prior = sf.Prior(n_factors=4, inclusion=sf.Beta(0.2, 0.3), n_modules=3, loading_shape=50, loading_rate=50)
    prior = replace(prior, factor_correlation="none")
    sim = sf.simulate(n_features=400, n_samples=80, prior=prior, snr=10, seed=0)
    assert sim.module_rate.shape == (3, 4)
    assert sim.inclusion.shape == (400, 4)
    present = np.unique(sim.module)
    assert len(present) >= 2
    np.testing.assert_allclose(sim.inclusion_rate, sim.module_rate[sim.module].mean(axis=0))
    for m in present:
        rows = sim.module == m
        expected = sim.module_rate[m]
        error = 5 * np.sqrt(expected * (1 - expected) / rows.sum()) + 0.02
        assert np.all(np.abs(sim.inclusion[rows].mean(axis=0) - expected) < error)
    found = {"n_factors": 4, "inclusion": sf.Beta(1, 1), "factor_correlation": "none"}
    p = sf.fit_vi(sim.X, sf.Prior(n_modules=3, **found))
    second, first = np.argsort(np.bincount(sim.module))[-2:]  # 77 and 313 features
    label = p.module_prob.argmax(axis=1)
    assert np.mean(label[sim.module == first] == 0) > 0.95
    assert np.mean(label[sim.module == second] == 1) > 0.8
    plain = sf.fit_vi(sim.X, sf.Prior(**found))
    assert sf.score(p, sim)["z_accuracy"] > sf.score(plain, sim)["z_accuracy"] + 0.005


@pytest.mark.parametrize("options", [{"activations": "joint"}, {"prune": True}, {"average": True, "n_trials": 3}])
def test_modules_with_the_other_options(options):
    sim = sf.simulate_paper(snr=5, seed=1, missing=0.1)
    X = sim.X[:, ::4]
    prior = sf.Prior(n_factors=7, inclusion=sf.Beta(1, 1), n_modules=4)
    p = sf.fit_vi(X, prior, tol=1e-3, **options)
    assert p.converged
    assert p.module_prob.shape == (200, 4)
    assert p.module_rate_mean.shape == (4, p.n_factors)
    held = sim.missing[:, ::4]
    assert sf.fill_in_error(p, sim.X_complete[:, ::4], held) < 0.6


def test_more_modules_than_features_and_a_single_feature():
    sim = sf.simulate_paper(snr=5, seed=1)
    for columns in (slice(0, 1), slice(0, 3)):
        p = sf.fit_vi(sim.X[:, columns], sf.Prior(n_factors=1, inclusion=sf.Beta(1, 1), n_modules=5), n_trials=2)
        assert np.isfinite(p.elbo)
        assert p.module_prob.shape[1] == 5


def test_same_seed_same_fit_on_any_threads():
    X = sf.simulate_paper(snr=1, seed=2).X
    one, two = (sf.fit_vi(X, MODULES, n_threads=n, n_trials=4) for n in (1, 2))
    assert one.elbo == two.elbo
    np.testing.assert_array_equal(one.module_prob, two.module_prob)


def interrupt_at(monkeypatch, call: int) -> list[float]:
    """Let this pass under modules be interrupted; returns the ELBOs seen before."""
    finish, seen = CAVI.finish, []

    def interrupting(self, *args):
        if self.prior.n_modules == 1:
            return finish(self, *args)
        if len(seen) == call:
            raise KeyboardInterrupt
        state = finish(self, *args)
        seen.append(state.elbo)
        return state

    monkeypatch.setattr(CAVI, "finish", interrupting)
    return seen


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("call", [1, 30, 75, 100])
def test_an_interrupted_fit_keeps_what_it_has(monkeypatch, call, average):
    X = sf.simulate_paper(snr=5, seed=0).X[:, ::2]
    seen = interrupt_at(monkeypatch, call)
    with pytest.warns(sf.ConvergenceWarning):
        p = sf.fit_vi(X, MODULES, n_trials=3, average=average, tol=1e-12, rtol=0.0)
    assert len(seen) == call
    assert p.status.name == "INTERRUPTED"
    # A proposal of the momentum may have been the highest, on its way to be thrown away: none is higher than kept.
    assert p.elbo == max(seen)
    won = p.trials[p.trials["won"]]
    assert won["elbo"].item() == p.elbo
    assert won["status"].item() == "interrupted"
    assert p.elbo_trace["elbo"].iloc[-1] == p.elbo
    plot.elbo(p)


def test_interrupted_before_modules(monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("sparsefactor.vi.fit.moduled", interrupt)
    with pytest.warns(sf.ConvergenceWarning):
        p = sf.fit_vi(sf.simulate_paper(snr=5, seed=0).X, MODULES, n_trials=2)
    assert p.status.name == "INTERRUPTED"
    assert p.module_weight_mean[0] > 0.9
    assert p.trials["won"].sum() == 1
    assert p.elbo_trace["elbo"].iloc[-1] == p.elbo


@pytest.mark.parametrize("max_iter", [1, 30, 90, 120])
def test_the_limit_on_iterations_holds(max_iter):
    with pytest.warns(sf.ConvergenceWarning):
        p = sf.fit_vi(sf.simulate_paper(snr=1, seed=0).X, MODULES, n_trials=2, max_iter=max_iter, tol=0.0, rtol=0.0)
    # A step may end one pass late, and so may the first one with modules.
    assert p.trials["iterations"][p.trials["won"]].item() <= max_iter + 2
    assert not p.converged


def test_a_fit_that_had_no_time_for_modules_has_not_converged():
    X = sf.simulate_paper(snr=5, seed=0).X
    options = {"n_trials": 2, "race": False, "tol": 1e-2}
    plain = sf.fit_vi(X, LEARNT, **options)
    assert plain.converged
    search = int(plain.trials["iterations"].max())
    with pytest.warns(sf.ConvergenceWarning):
        p = sf.fit_vi(X, MODULES, max_iter=search + 3, **options)
    assert p.status.name == "MAX_ITER"
    assert sf.fit_vi(X, MODULES, max_iter=search + 300, **options).converged


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "many"])
def test_the_number_of_modules_is_checked(bad):
    with pytest.raises(ValueError, match="n_modules must be a whole number"):
        sf.Prior(n_factors=2, inclusion=sf.Beta(1, 1), n_modules=bad)


def test_the_number_of_modules_is_an_int():
    prior = sf.Prior(n_factors=2, inclusion=sf.Beta(1, 1), n_modules=np.int64(4))
    assert type(prior.n_modules) is int
    assert prior.take([0]).n_modules == 4


def test_modules_need_a_beta():
    with pytest.raises(ValueError, match=r"pass inclusion=Beta\(1, 1\)"):
        sf.Prior(n_factors=2, inclusion=0.1, n_modules=4)
