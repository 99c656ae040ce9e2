"""The prior of the factors' correlations, and its VI update in compiled code and by arrays."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from tests.helpers.elbo import log_prior_of_correlations
from tests.helpers.problems import random_correlation

from sparsefactor.arrays import NUMPY
from sparsefactor.kernels.correlation import correlation_of, log_prior, update_correlation
from sparsefactor.kernels.cpu import correlation as compiled


def density(r: float, df: float) -> float:
    phi = np.array([[1.0, r], [r, 1.0]])
    return float(np.exp(log_prior(phi, np.linalg.inv(phi), df, NUMPY)))


@pytest.mark.parametrize("df", [3.0, 13.0])
def test_the_prior_integrates_to_one(df):
    assert quad(density, -1, 1, args=(df,))[0] == pytest.approx(1.0, rel=1e-6)
    # Negative control: with other degrees of freedom in one of its terms it does not.
    assert quad(lambda r: density(r, df) * (1 - r * r) ** 0.1, -1, 1)[0] < 0.999


@pytest.mark.statistical
def test_the_prior_is_that_of_an_inverse_wishart_s_correlations():
    S = stats.invwishart.rvs(6, np.eye(3), size=4000, random_state=np.random.default_rng(0))
    r = S[:, 0, 1] / np.sqrt(S[:, 0, 0] * S[:, 1, 1])
    # Two of three components of such a matrix are an inverse Wishart with one degree of freedom less.
    grid = np.linspace(-1, 1, 2001)[1:-1]
    cdf = np.cumsum([density(x, 5.0) for x in grid]) * (grid[1] - grid[0])
    assert stats.kstest(r, lambda x: np.interp(x, grid, cdf)).pvalue > 0.001
    wrong = np.cumsum([density(x, 9.0) for x in grid]) * (grid[1] - grid[0])
    assert stats.kstest(r, lambda x: np.interp(x, grid, wrong)).pvalue < 1e-6


@pytest.mark.parametrize("K", [2, 5])
def test_the_oracle_of_the_tests_has_the_same_prior(K):
    phi = random_correlation(K, np.random.default_rng(1))
    found = log_prior(phi, np.linalg.inv(phi), K + 7.0, NUMPY)
    assert found == pytest.approx(log_prior_of_correlations(phi, K + 7.0), rel=1e-12)


@pytest.mark.parametrize("K", [2, 4, 9])
def test_compiled_and_array_updates_agree(K):
    rng = np.random.default_rng(K)
    for _ in range(20):
        phi, n, power, df = random_correlation(K, rng), 40.0, 2.0, K + 11.0
        X = rng.standard_normal((K, 2 * K))
        moments, penalty = n * X @ X.T / (2 * K), rng.gamma(1.0, 1.0, K)
        expected, scale = update_correlation(phi, moments, penalty, n, power, df, NUMPY)
        new, c = np.empty((K, K)), np.empty(K)
        compiled.update_correlation(phi, moments, penalty, n, power, df, new, c)
        np.testing.assert_allclose(new, expected, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(c, scale, rtol=1e-12)
        assert np.allclose(np.diag(expected), 1.0)
        assert not np.allclose(expected, phi)


def test_the_first_correlations_are_those_of_the_start():
    rng = np.random.default_rng(0)
    phi = random_correlation(3, rng)
    F = np.linalg.cholesky(phi) @ rng.standard_normal((3, 4000))
    np.testing.assert_allclose(correlation_of(F, 10.0), phi, atol=0.05)
    np.testing.assert_allclose(correlation_of(np.zeros((3, 5)), 10.0), np.eye(3), atol=1e-15)
