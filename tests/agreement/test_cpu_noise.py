"""The compiled elementary functions and random numbers against NumPy and the oracle."""

import numpy as np
import pytest
from scipy import stats

from sparsefactor.kernels import noise as noise_py
from sparsefactor.kernels.cpu import philox
from sparsefactor.kernels.cpu.lanes import exp_lane, log_lane


def test_exp_and_log_are_accurate_to_the_last_places() -> None:
    x = np.linspace(-699.0, 699.0, 20_001)
    np.testing.assert_allclose([exp_lane(v) for v in x], np.exp(x), rtol=5e-16)
    assert exp_lane(1e300) == exp_lane(700.0)
    y = np.concatenate([np.exp(x), np.linspace(0.5, 2.0, 1001)])
    np.testing.assert_allclose([log_lane(v) for v in y], np.log(y), rtol=5e-16, atol=1e-300)


def test_uniforms_are_those_of_the_oracle_to_the_bit() -> None:
    key, sweep = noise_py.stream_key(11, 3), 2**31 + 5
    rows = np.array([0, 1, 2**20, 2**32 - 1])
    expected, _ = noise_py.uniform_pair(np.arange(64)[None, :], rows[:, None], sweep, noise_py.STREAM_Z, key)
    words = [np.uint64(word) for word in (sweep, noise_py.STREAM_Z, *key)]
    actual = np.empty((4, 64))
    for i, row in enumerate(rows):
        philox.units(np.uint64(row), *words, actual[i])
    np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("shape", [0.2, 0.9, 1.0, 3.5, 50.0])
def test_gammas_and_normals_are_those_of_the_oracle(shape: float) -> None:
    key, sweep, rows = noise_py.stream_key(11, 3), 7, np.arange(4000)
    words = [np.uint64(word) for word in (sweep, *key)]
    expected = noise_py.standard_gamma(np.full(len(rows), shape), rows, sweep, key)
    actual = np.array([philox.standard_gamma(shape, np.uint64(row), *words) for row in rows])
    np.testing.assert_allclose(actual, expected, rtol=1e-12)
    assert stats.kstest(actual, stats.gamma(shape).cdf).pvalue > 1e-3
    assert stats.kstest(actual, stats.gamma(1.2 * shape).cdf).pvalue < 1e-3  # the control that must fail
    normal = noise_py.normal_from(*noise_py.uniform_pair(5, rows, sweep, noise_py.STREAM_L, key))
    stream = np.uint64(noise_py.STREAM_L)
    drawn = np.array([philox.normal(np.uint64(5), np.uint64(r), words[0], stream, *words[1:]) for r in rows])
    np.testing.assert_allclose(drawn, normal, rtol=1e-12, atol=1e-15)
    assert stats.kstest(drawn, "norm").pvalue > 1e-3
