"""Whatever is passed: a finite result, or an error that gives rule, value and remedy; never another library's."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sparsefactor as sf
from sparsefactor.data import as_data

QUICK = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=3000)

odd_numbers = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from([0.0, -1.0, 1e-320, 1e-160, 1e-30, 0.5, 1.0, 1e16, 1e160, 1e308, np.inf, -np.inf, np.nan]),
    st.sampled_from(["", "foo", "0.5", b"0.1", (), [], {}, [[0.1], [0.2, 0.3]], np.zeros((0, 2)), object()]),
    st.lists(st.floats(allow_nan=True), max_size=4),
    hnp.arrays(np.float64, hnp.array_shapes(max_dims=3, max_side=4), elements=st.floats(0.01, 0.99)),
)
entries = st.one_of(
    st.floats(-10, 10),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, np.nan, 1e150, -1e151, 1e-320, 5.0]),
)
matrices = st.one_of(
    hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=3, max_side=6), elements=entries),
    hnp.arrays(
        np.float64, st.tuples(st.integers(2, 7), st.integers(2, 6)), elements=st.floats(-5, 5) | st.just(np.nan)
    ),
    hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=5), elements=st.integers(-9, 9)),
    hnp.arrays(np.complex128, (3, 3)),
    st.lists(st.lists(st.floats(-1, 1), max_size=3), max_size=3),
    odd_numbers,
)
extreme = st.builds(
    lambda X, scale, offset: X * scale + offset,
    hnp.arrays(np.float64, st.tuples(st.integers(2, 7), st.integers(2, 6)), elements=st.floats(-5, 5)),
    st.sampled_from([1e-310, 1e-200, 1e-155, 1e-145, 1e-6, 1e140, 1e149]),
    st.sampled_from([0.0, 1e6, 1e12, 1e140]),
)


def refused(call) -> bool:
    """Whether a call ends in an error of ours: a rule, a value and a remedy, parted by semicolons."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            warnings.simplefilter("ignore", UserWarning)
            call()
    except (ValueError, TypeError, FileNotFoundError) as problem:
        told = str(problem)
    else:
        return False
    assert ";" in told, told
    return True


def check_matrix(X) -> None:
    if not refused(lambda: as_data(X)):
        data = as_data(X)
        assert np.isfinite(data.Y).all()
        assert data.n_observed >= 1


def check_prior(arguments) -> None:
    refused(lambda: sf.Prior(**arguments))


def check_fit(X, arguments, options) -> None:
    """Small data, whatever prior and options: what comes back is finite, its probabilities are ones."""
    found = []

    def call():
        prior = sf.Prior(**arguments)
        found.append(sf.fit_vi(X, prior, n_trials=1, max_iter=5, seed=0, **options))

    if not refused(call):
        (p,) = found
        for values in (p.loadings_mean, p.loadings_sd, p.activations_mean, p.activations_sd, p.noise_precision_mean):
            assert np.isfinite(values).all()
        assert np.all((p.inclusion_prob >= 0) & (p.inclusion_prob <= 1))
        assert np.isfinite(p.elbo)
        varies = p.fit_sums.total > 0
        for by, defined in ((None, varies.any()), ("factor", varies.any()), ("feature", varies)):
            assert np.all(np.isfinite(p.variance_explained(by=by)) | ~defined)


prior_names = ("n_factors", "inclusion", "n_modules", "noise", "noise_shape", "noise_rate", "loading_shape")
odd_priors = st.dictionaries(st.sampled_from([*prior_names, "loading_rate"]), odd_numbers, max_size=3)
likely_priors = st.fixed_dictionaries(
    {"n_factors": st.integers(1, 4)},
    optional={
        "inclusion": st.floats(1e-9, 1 - 1e-9) | st.builds(sf.Beta, st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)),
        "noise": st.sampled_from(["feature", "shared", "sample"]),
        "noise_shape": st.floats(1e-6, 1e6),
        "noise_rate": st.floats(1e-6, 1e6),
        "loading_shape": st.floats(1e-6, 1e6),
        "loading_rate": st.floats(1e-6, 1e6),
    },
)
odd_options = st.dictionaries(
    st.sampled_from(["init", "tol", "activations", "center", "dtype", "prune", "backend", "n_threads", "average"]),
    odd_numbers,
    max_size=1,
)


@QUICK
@given(matrices)
def test_any_matrix(X):
    check_matrix(X)


@QUICK
@given(odd_priors)
def test_any_prior(arguments):
    check_prior(arguments)


@QUICK
@given(matrices, likely_priors, odd_options)
def test_any_fit(X, arguments, options):
    check_fit(X, arguments, options)


@QUICK
@given(extreme, likely_priors)
def test_any_units(X, arguments):
    check_fit(X, arguments, {})


@pytest.mark.slow
@LONG
@given(matrices, odd_priors)
def test_any_matrix_and_prior_at_length(X, arguments):
    check_matrix(X)
    check_prior(arguments)


@pytest.mark.slow
@settings(LONG, max_examples=1500)
@given(st.one_of(matrices, extreme), st.one_of(likely_priors, odd_priors), odd_options)
def test_any_fit_at_length(X, arguments, options):
    check_fit(X, arguments, options)
