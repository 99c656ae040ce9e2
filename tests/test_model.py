"""The prior's checks, and the log joint against scipy.stats, term by term."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from sparsefactor.data import as_data
from sparsefactor.densities import gamma_kl, log_gamma_density
from sparsefactor.model import Beta, Prior, log_joint

# ---- the prior ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_factors": 2, "noise_shape": 0}, "noise_shape must be a positive number; got 0"),
        ({"n_factors": 2, "noise_rate": -1.0}, r"noise_rate must be a positive number; got -1\.0"),
        ({"n_factors": 2, "loading_shape": np.nan}, "loading_shape must be a positive number; got nan"),
        ({"n_factors": 2, "loading_rate": "1"}, "loading_rate must be a positive number; got '1'"),
        ({"n_factors": 2, "noise_shape": 1e300}, r"noise_shape must be a positive number; got 1e\+300; .*1e150"),
        ({"n_factors": 2, "loading_rate": 1e-300}, "loading_rate must be a positive number; got 1e-300; .*1e-150"),
        (
            {"inclusion": [[0.1, 0.2], [0.3]]},
            r"inclusion must be a number.*got \[\[0.1, 0.2\], \[0.3\]\]",
        ),
        ({"n_factors": 2, "loading_rate": np.inf}, "loading_rate must be a positive number; got inf"),
        ({"n_factors": 2, "noise": "column"}, "noise must be one of .*; got 'column'"),
        ({"n_factors": 2, "factor_correlation": "yes"}, "factor_correlation must be one of .*; got 'yes'"),
        ({"n_factors": 2, "factor_correlation": np.eye(2)}, "factor_correlation must be one of .*; got array"),
        ({"n_factors": 2, "inclusion": 0.0}, "inclusion must lie strictly between 0 and 1; got 0; use"),
        ({"inclusion": [0.1, 1.0]}, "inclusion must lie strictly between 0 and 1; got 1"),
        ({"inclusion": [0.1, np.nan]}, "inclusion must lie strictly between 0 and 1; got nan"),
        ({"inclusion": "sparse"}, "inclusion must be a number, a vector, a matrix or a Beta; got 'sparse'"),
        ({"inclusion": np.full((2, 2, 2), 0.5)}, r"inclusion must be a scalar.*got shape \(2, 2, 2\)"),
        ({"inclusion": []}, r"inclusion must be a scalar.*got shape \(0,\)"),
        ({}, "n_factors must be given when inclusion is a scalar or a Beta"),
        ({"inclusion": Beta(1, 9)}, "n_factors must be given"),
        ({"n_factors": 0}, "n_factors must be a whole number of at least 1; got 0"),
        ({"n_factors": 2.0}, r"n_factors must be a whole number of at least 1; got 2\.0"),
        ({"n_factors": True}, "n_factors must be a whole number of at least 1; got True"),
        ({"n_factors": 3, "inclusion": [0.1, 0.2]}, "n_factors must equal the length.*got 3 and 2"),
    ],
)
def test_prior_refusals(arguments, message) -> None:
    with pytest.raises(ValueError, match=message):
        Prior(**arguments)


@pytest.mark.parametrize(("a", "b", "name"), [(0, 1, "a"), (1, -2, "b"), (None, 1, "a")])
def test_beta_refusals(a, b, name) -> None:
    with pytest.raises(ValueError, match=f"Beta's {name} must be a positive number"):
        Beta(a, b)


def test_prior_is_frozen_and_keeps_a_copy() -> None:
    mine = np.array([0.1, 0.9])
    prior = Prior(inclusion=mine)
    mine[0] = 0.5
    assert prior.inclusion[0] == 0.1
    with pytest.raises(ValueError, match="read-only"):
        prior.inclusion[0] = 0.3
    with pytest.raises(AttributeError):
        prior.noise = "shared"


@pytest.mark.parametrize(
    ("prior", "expected"),
    [
        (Prior(n_factors=3, inclusion=0.2), [[0.2, 0.2, 0.2]]),
        (Prior(inclusion=[0.1, 0.9]), [[0.1, 0.9]]),
        (Prior(inclusion=[[0.1, 0.9], [0.2, 0.3]]), [[0.1, 0.9], [0.2, 0.3]]),
        (Prior(n_factors=2, inclusion=Beta(1, 3)), [[0.25, 0.25]]),
    ],
)
def test_inclusion_matrix(prior, expected) -> None:
    np.testing.assert_allclose(prior.inclusion_matrix(), expected)


def test_factor_groups() -> None:
    labels = Prior(inclusion=[0.1, 0.9, 0.1, 0.5]).factor_groups()
    assert labels[0] == labels[2]
    assert len(set(labels.tolist())) == 3
    annotated = Prior(inclusion=[[0.1, 0.9, 0.1], [0.2, 0.2, 0.3]]).factor_groups()
    assert len(set(annotated.tolist())) == 3
    assert len(set(Prior(n_factors=4, inclusion=Beta(1, 2)).factor_groups().tolist())) == 1


@pytest.mark.parametrize("inclusion", [0.3, [0.1, 0.2, 0.9], [[0.1, 0.2, 0.9], [0.3, 0.4, 0.5]], Beta(2, 5)], ids=str)
def test_take(inclusion) -> None:
    prior = Prior(n_factors=3, inclusion=inclusion, noise="shared", noise_shape=2, loading_rate=0.5)
    taken = prior.take([2, 0])
    np.testing.assert_array_equal(taken.inclusion_matrix(), prior.inclusion_matrix()[:, [2, 0]])
    assert taken.K == 2
    assert (taken.noise, taken.noise_shape, taken.loading_rate) == ("shared", 2, 0.5)
    assert taken.learns_inclusion == prior.learns_inclusion


def test_inclusion_matrix_must_fit_the_data() -> None:
    data = as_data(np.arange(6.0).reshape(2, 3))
    Prior(inclusion=np.full((3, 2), 0.5)).check_fits(data)
    Prior(inclusion=[0.5, 0.5]).check_fits(data)
    with pytest.raises(ValueError, match="one row per feature; got 2 rows and 3 features"):
        Prior(inclusion=np.full((2, 2), 0.5)).check_fits(data)


# ---- densities ----------------------------------------------------------------------------------------------------


def test_log_gamma_density() -> None:
    x, shape, rate = np.array([0.3, 2.0, 7.0]), 2.5, 0.7
    np.testing.assert_allclose(log_gamma_density(x, shape, rate), stats.gamma.logpdf(x, shape, scale=1 / rate))


def test_gamma_kl_is_the_expected_log_ratio() -> None:
    shape, rate = np.array([3.0, 0.8]), np.array([2.0, 5.0])
    for k in range(2):
        q = stats.gamma(shape[k], scale=1 / rate[k])
        # expect() integrates; the shapes are such that the ratio has no singular corner that matters.
        expected = q.expect(lambda x, q=q: q.logpdf(x) - stats.gamma.logpdf(x, 1.5, scale=1 / 0.5))
        assert gamma_kl(shape, rate, 1.5, 0.5)[k] == pytest.approx(expected, rel=1e-6)
    assert gamma_kl(np.array([2.0]), np.array([3.0]), 2.0, 3.0)[0] == pytest.approx(0.0, abs=1e-14)


def scalar_log_joint(X, prior, L, F, Z, tau, alpha, pi) -> float:
    """One scipy.stats density at a time."""
    (N, G), K = X.shape, L.shape[1]
    total = 0.0
    for i in range(G):
        for j in range(N):
            if not np.isnan(X[j, i]):
                t = {"feature": tau[i % len(tau)], "shared": tau[0], "sample": tau[j % len(tau)]}[prior.noise]
                total += stats.norm.logpdf(X[j, i], sum(L[i, k] * F[k, j] for k in range(K)), t**-0.5)
    probability = np.broadcast_to(prior.inclusion_matrix() if pi is None else pi, (G, K))
    for i in range(G):
        for k in range(K):
            total += stats.bernoulli.logpmf(int(Z[i, k]), probability[i, k])
            if Z[i, k]:
                total += stats.norm.logpdf(L[i, k], 0, alpha[k] ** -0.5)
    total += sum(stats.norm.logpdf(f) for f in F.flat)
    total += sum(stats.gamma.logpdf(t, prior.noise_shape, scale=1 / prior.noise_rate) for t in tau)
    total += sum(stats.gamma.logpdf(a, prior.loading_shape, scale=1 / prior.loading_rate) for a in alpha)
    if pi is not None:
        total += sum(stats.beta.logpdf(p, prior.inclusion.a, prior.inclusion.b) for p in pi)
    return float(total)


@pytest.mark.parametrize("noise", ["feature", "shared", "sample"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("inclusion", [0.3, [0.2, 0.7], "matrix", Beta(2.0, 3.0)], ids=str)
def test_log_joint_is_the_sum_of_its_densities(noise, masked, inclusion) -> None:
    rng = np.random.default_rng(11)
    G, N, K = 4, 3, 2
    if isinstance(inclusion, str):
        inclusion = rng.uniform(0.1, 0.9, size=(G, K))
    prior = Prior(n_factors=K, inclusion=inclusion, noise=noise, noise_shape=1.3, noise_rate=0.4, loading_rate=0.2)
    X = rng.normal(size=(N, G))
    if masked:
        X[0, 1] = X[2, 3] = np.nan
    Z = rng.random((G, K)) < 0.5
    L = np.where(Z, rng.normal(size=(G, K)), 0.0)
    F = rng.normal(size=(K, N))
    tau = rng.gamma(2.0, size={"feature": G, "shared": 1, "sample": N}[noise])
    alpha = rng.gamma(2.0, size=K)
    pi = rng.uniform(0.1, 0.9, size=K) if prior.learns_inclusion else None
    value = log_joint(as_data(X), prior, L=L, F=F, Z=Z, tau=tau, alpha=alpha, pi=pi)
    assert value == pytest.approx(scalar_log_joint(X, prior, L, F, Z, tau, alpha, pi), rel=1e-12)


def test_annotation_must_name_the_features_in_their_order():
    X = pd.DataFrame(np.random.default_rng(0).standard_normal((8, 3)), columns=["a", "b", "c"])
    annotation = pd.DataFrame(np.full((3, 2), 0.2), index=["a", "b", "c"])
    good = Prior(inclusion=annotation)
    good.check_fits(as_data(X))
    good.check_fits(as_data(X.to_numpy()))  # data without names cannot be compared
    Prior(inclusion=annotation.to_numpy()).check_fits(as_data(X))
    with pytest.raises(ValueError, match="row 1 is 'c', the feature 'b'; reorder it"):
        Prior(inclusion=annotation.loc[["a", "c", "b"]]).check_fits(as_data(X))
    Prior(inclusion=annotation.reset_index(drop=True)).check_fits(as_data(X))  # a frame without names of its own


@pytest.mark.parametrize(("a", "b"), [(1.0, 1e-20), (1e140, 1.0)])
def test_a_beta_must_leave_both_possible(a, b):
    with pytest.raises(ValueError, match=r"the mean of a Beta, a / \(a \+ b\), must lie strictly between 0 and 1; got"):
        Beta(a, b)


def test_rates_by_feature_are_shown_by_their_number() -> None:
    assert "noise_rate=<5 numbers>" in repr(Prior(n_factors=2, noise_rate=np.ones(5)))


@pytest.mark.parametrize("pair", [(1, 1), (1, 9)])
def test_the_numbers_of_a_beta_are_recognised(pair) -> None:
    with pytest.raises(ValueError, match=rf"pass sf\.Beta\({pair[0]}, {pair[1]}\) to have it learnt"):
        Prior(n_factors=2, inclusion=pair)
    with pytest.raises(ValueError, match=r"got 1; use e\.g\. 0\.001"):
        Prior(inclusion=[0.5, 1.0, 0.5])
