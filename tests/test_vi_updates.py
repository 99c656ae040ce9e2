"""Every CAVI update maximises the ELBO in its coordinate; the ELBO is complete and never falls."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import digamma
from tests.helpers.elbo import Q, direct_elbo, monte_carlo_elbo, q_of
from tests.helpers.problems import MILD, prior_for, quick, random_vi_state, small_data

from sparsefactor.kernels.columns import rescaled
from sparsefactor.kernels.reference import ReferenceEngine
from sparsefactor.model import Beta
from sparsefactor.vi.assign import assignment_gain, reordered
from sparsefactor.vi.cavi import CAVI, VIState
from sparsefactor.vi.rounding import all_rounding, most_likelihood

SETTINGS = [
    pytest.param(noise, inclusion, joint, missing, id=f"{noise}-{type(inclusion).__name__}-{joint}-{missing}")
    for noise in ("feature", "shared", "sample")
    for inclusion in ([0.3, 0.7], Beta(1.5, 2.5))
    for joint in (False, True)
    for missing in (0.0, 0.3)
]


def cavi_for(noise, inclusion, joint, missing, correlation="none", **size) -> CAVI:
    data = small_data(missing=missing, **size)
    prior = prior_for(2, inclusion=inclusion, noise=noise, correlation=correlation, **MILD)
    return CAVI(data, prior, ReferenceEngine(data, prior), joint=joint)


CORRELATED = [
    pytest.param("feature", Beta(1.5, 2.5), True, 0.0, id="feature-joint"),
    pytest.param("feature", [0.3, 0.7], True, 0.3, id="feature-joint-missing"),
    pytest.param("feature", Beta(1.5, 2.5), False, 0.3, id="feature-independent-missing"),
    pytest.param("shared", Beta(1.5, 2.5), False, 0.0, id="shared-independent"),
    pytest.param("sample", [0.3, 0.7], True, 0.3, id="sample-joint-missing"),
]


@pytest.mark.parametrize(("noise", "inclusion", "joint", "missing"), CORRELATED)
def test_correlated_factors_have_a_complete_elbo_that_never_falls(noise, inclusion, joint, missing):
    cavi = cavi_for(noise, inclusion, joint, missing, "learnt", G=5, N=8)
    state = random_vi_state(cavi)
    assert state.elbo == pytest.approx(direct_elbo(cavi.data, cavi.prior, q_after(cavi, state)), rel=1e-10)
    f_mean, f_var = cavi.engine.vi_activations(state.columns, state.sums, cavi.weight(state.columns))
    q = q_of(cavi.data, cavi.prior, state.rows, state.columns._replace(f_mean=f_mean, f_var=f_var))
    best = direct_elbo(cavi.data, cavi.prior, q)
    for j in range(cavi.data.n_samples):
        last = ("f_mean", (1, j)), ("f_cov", (j, 1, 1))  # the factor that is updated last
        for field, index in last:
            for other in neighbours(q, field, index, 1e-3):
                assert direct_elbo(cavi.data, cavi.prior, other) < best
    trace = [state.elbo]
    for _ in range(1500):
        state = cavi.sweep(state)
        trace.append(state.elbo)
    assert np.all(np.diff(trace) >= -1e-10)
    q = q_after(cavi, state)
    best = direct_elbo(cavi.data, cavi.prior, q)
    for step in (-0.03, 0.03):
        phi = q.phi + step * (1 - np.eye(2)) * (1 - abs(q.phi[0, 1]))
        assert direct_elbo(cavi.data, cavi.prior, q._replace(phi=phi)) < best


def q_after(cavi: CAVI, state: VIState) -> Q:
    return q_of(cavi.data, cavi.prior, state.rows, state.columns)


@pytest.mark.parametrize(("noise", "inclusion", "joint", "missing"), SETTINGS)
def test_elbo_from_sums_equals_the_elbo_entry_by_entry(noise, inclusion, joint, missing):
    cavi = cavi_for(noise, inclusion, joint, missing)
    state = random_vi_state(cavi)
    assert state.elbo == pytest.approx(direct_elbo(cavi.data, cavi.prior, q_after(cavi, state)), rel=1e-10)
    assert state.elbo == pytest.approx(sum(state.terms), rel=1e-14)


@pytest.mark.statistical
@pytest.mark.parametrize(("noise", "inclusion", "joint", "missing"), quick(SETTINGS[::7], 2))
def test_elbo_equals_its_monte_carlo_estimate(noise, inclusion, joint, missing):
    cavi = cavi_for(noise, inclusion, joint, missing, G=4, N=4)
    state = random_vi_state(cavi)
    q = q_after(cavi, state)
    estimate, error = monte_carlo_elbo(cavi.data, cavi.prior, q, 1500)
    assert abs(state.elbo - estimate) < 4 * error
    # Negative control: the constant that the paper's slip 1 would keep is far outside the error.
    assert abs(state.elbo - 0.5 * np.log(2 * np.pi) * q.eta.sum() - estimate) > 6 * error


def neighbours(q: Q, field: str, index: tuple[int, ...], step: float) -> list[Q]:
    """q with one entry of one field moved up and down, inside its range."""
    moved = []
    for sign in (-1.0, 1.0):
        value = getattr(q, field).copy()
        old = value[index]
        if field in ("mu", "f_mean"):
            new = old + sign * step
        elif field == "eta":
            new = old + sign * step * min(old, 1 - old)
        else:
            new = old * np.exp(sign * step)
        value[index] = new
        if field == "f_cov":
            value = (value + value.transpose(0, 2, 1)) / 2
        moved.append(q._replace(**{field: value}))
    return moved


def assert_maximal(cavi: CAVI, q: Q, fields: tuple[str, ...], step: float = 1e-3) -> None:
    best = direct_elbo(cavi.data, cavi.prior, q)
    for field in fields:
        for index in np.ndindex(getattr(q, field).shape):
            for other in neighbours(q, field, index, step):
                assert direct_elbo(cavi.data, cavi.prior, other) < best, (field, index)


@pytest.mark.parametrize(("noise", "inclusion", "joint", "missing"), SETTINGS)
def test_each_update_from_a_random_state_is_a_maximiser(noise, inclusion, joint, missing):
    cavi = cavi_for(noise, inclusion, joint, missing, G=3, N=3)
    state = random_vi_state(cavi)
    # The last coordinate that the row pass updates is optimal given all others.
    q = q_after(cavi, state)
    last = cavi.prior.K - 1
    best = direct_elbo(cavi.data, cavi.prior, q)
    for field in ("mu", "s2", "eta"):
        for i in range(cavi.data.n_features):
            for other in neighbours(q, field, (i, last), 1e-3):
                assert direct_elbo(cavi.data, cavi.prior, other) < best
    # The column step, one block at a time.
    f_mean, f_var = cavi.engine.vi_activations(state.columns, state.sums, cavi.weight(state.columns))
    columns = state.columns._replace(f_mean=f_mean, f_var=f_var)
    q = q_of(cavi.data, cavi.prior, state.rows, columns)
    best = direct_elbo(cavi.data, cavi.prior, q)
    for j in range(cavi.data.n_samples):
        for field, index in (("f_mean", (last, j)), ("f_cov", (j, last, last))):
            for other in neighbours(q, field, index, 1e-3):
                assert direct_elbo(cavi.data, cavi.prior, other) < best
    if joint:
        assert_maximal(cavi, q, ("f_mean",))
    columns = cavi.column_step(state.columns, state.sums)
    q = q_of(cavi.data, cavi.prior, state.rows, columns)
    fields = ("alpha_shape", "alpha_rate") + (("tau_shape", "tau_rate") if cavi.prior.noise != "feature" else ())
    assert_maximal(cavi, q, fields + (("pi_a", "pi_b") if len(q.pi_a) else ()))


@pytest.mark.parametrize(("noise", "inclusion", "joint", "missing"), quick(SETTINGS, 5))
def test_elbo_never_falls_and_ends_at_a_maximum(noise, inclusion, joint, missing):
    cavi = cavi_for(noise, inclusion, joint, missing, G=4, N=3)
    state = random_vi_state(cavi)
    trace = [state.elbo]
    for t in range(1500):
        state = cavi.sweep(state, rescale=t % 2 == 1)
        trace.append(state.elbo)
    assert np.all(np.diff(trace) >= -1e-10)
    assert trace[-1] > trace[0] + 1.0
    q = q_after(cavi, state)
    fields = ("mu", "s2", "eta", "f_mean", "alpha_rate", "alpha_shape", "tau_rate", "tau_shape")
    assert_maximal(cavi, q, fields + (("pi_a", "pi_b") if len(q.pi_a) else ()), step=0.03)


@pytest.mark.parametrize("joint", [False, True])
def test_rescaling_is_exact_and_optimal(joint):
    cavi = cavi_for("feature", 0.4, joint, 0.0)
    state = random_vi_state(cavi)
    columns, scale = rescaled(state.columns, cavi.fixed)
    rows = state.rows._replace(mu=state.rows.mu * scale, s2=state.rows.s2 * scale**2)
    best = direct_elbo(cavi.data, cavi.prior, q_of(cavi.data, cavi.prior, rows, columns))
    assert best > state.elbo
    for factor in (0.99, 1.01):
        c = np.array([factor, 1.0])
        f_var = columns.f_var * (np.outer(c, c) if joint else c[:, None] ** 2)
        other = columns._replace(f_mean=columns.f_mean * c[:, None], f_var=f_var, alpha_rate=columns.alpha_rate / c**2)
        other_rows = rows._replace(mu=rows.mu / c, s2=rows.s2 / c**2)
        assert direct_elbo(cavi.data, cavi.prior, q_of(cavi.data, cavi.prior, other_rows, other)) < best


def test_assignment_gain_predicts_what_a_swap_brings():
    data = small_data(30, 20, 2, missing=0.1)
    prior = prior_for(2, inclusion=[0.1, 0.9])
    cavi = CAVI(data, prior, ReferenceEngine(data, prior))
    state = random_vi_state(cavi)
    for _ in range(30):
        state = cavi.sweep(state)
    order = np.array([1, 0])
    gain = assignment_gain(cavi, state)
    promised = gain[order, [0, 1]].sum() - np.trace(gain)
    swapped = reordered(cavi, state, order)
    assert abs(promised) > 1.0
    assert swapped.elbo - state.elbo == pytest.approx(promised, rel=0.3)
    q = q_of(data, prior, swapped.rows, swapped.columns)
    assert swapped.elbo == pytest.approx(direct_elbo(data, prior, q), rel=1e-10)
    assert np.array_equal(swapped.columns.f_mean, state.columns.f_mean[order])


@pytest.mark.parametrize(("noise", "inclusion", "joint", "missing"), SETTINGS)
def test_the_likelihood_is_bounded_by_residuals_taken_entry_by_entry(noise, inclusion, joint, missing):
    """As if loadings and activations had no variance."""
    cavi = cavi_for(noise, inclusion, joint, missing)
    state = random_vi_state(cavi)
    q = q_after(cavi, state)
    residual = cavi.data.Y - (q.eta * q.mu) @ q.f_mean
    observed = np.ones_like(residual) if cavi.data.observed is None else cavi.data.observed
    tau, log_tau = q.tau_shape / q.tau_rate, digamma(q.tau_shape) - np.log(q.tau_rate)
    by_row = noise == "feature"
    each = [np.broadcast_to(v[:, None] if by_row else v, residual.shape) for v in (tau, log_tau)]
    expected = 0.5 * np.sum(observed * (each[1] - np.log(2 * np.pi) - each[0] * residual**2))
    assert most_likelihood(cavi, state) == pytest.approx(expected, rel=1e-10)
    assert state.terms.likelihood < expected
    assert not all_rounding(cavi, state)
    inflated = state.terms._replace(likelihood=expected + 0.1)
    assert all_rounding(cavi, state._replace(terms=inflated))
