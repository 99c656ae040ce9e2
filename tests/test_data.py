"""The border: what becomes Data, and what is refused with which words."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sparsefactor.data import Data, as_data

X = np.array([[1.0, 2.0, 3.0], [4.0, -5.0, 7.0]])


def test_the_transpose() -> None:
    data = as_data(X)
    np.testing.assert_array_equal(data.Y, X.T)
    assert data.Y.flags.c_contiguous
    assert (data.n_features, data.n_samples, data.is_complete) == (3, 2, True)
    assert data.observed is None
    np.testing.assert_array_equal(data.feature_names, [0, 1, 2])
    np.testing.assert_array_equal(data.sample_names, [0, 1])
    np.testing.assert_array_equal(data.offset, np.zeros(3))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("center", [False, True])
def test_the_users_array_is_left_alone(order, center) -> None:
    mine = np.array(X, order=order)
    mine[0, 0] = np.nan
    before = mine.copy()
    data = as_data(mine, center=center)
    np.testing.assert_array_equal(mine, before)
    assert not np.shares_memory(data.Y, mine)


def test_data_passes_through() -> None:
    data = as_data(X)
    assert as_data(data) is data


def test_missing_entries() -> None:
    holed = X.copy()
    holed[0, 1] = np.nan
    data = as_data(holed)
    assert not data.is_complete
    np.testing.assert_array_equal(data.observed, ~np.isnan(holed.T))
    assert data.Y[1, 0] == 0.0
    np.testing.assert_array_equal(data.row_count, [2, 1, 2])
    np.testing.assert_array_equal(data.column_count, [2, 3])
    assert data.n_observed == 5


@settings(deadline=None)
@given(arrays(np.float64, (4, 3), elements=st.floats(-10, 10)), st.integers(0, 2**12 - 1))
def test_counts_and_sums_of_squares(values, bits) -> None:
    holes = np.array([bits >> b & 1 for b in range(12)], dtype=bool).reshape(4, 3)
    holes[np.arange(4), [0, 1, 2, 0]] = False
    values[0, 0], values[1, 1] = 3.0, -2.0
    data = as_data(np.where(holes, np.nan, values))
    kept = np.where(holes, 0.0, values)
    np.testing.assert_allclose(data.row_ss, np.sum(kept**2, axis=0))
    np.testing.assert_allclose(data.column_ss, np.sum(kept**2, axis=1))
    np.testing.assert_array_equal(data.row_count, np.sum(~holes, axis=0))
    np.testing.assert_array_equal(data.column_count, np.sum(~holes, axis=1))
    assert data.unit_scale == pytest.approx(np.sqrt(np.mean(values[~holes] ** 2)))


def test_unit_scale_survives_large_entries_and_zeros() -> None:
    assert as_data(X * 1e149).unit_scale == pytest.approx(1e149 * np.sqrt(np.mean(X**2)))
    empty = Data(Y=np.zeros((2, 2)), observed=None, offset=np.zeros(2), feature_names=X[0], sample_names=X[0])
    assert empty.unit_scale == 1.0


def test_centring_takes_the_observed_mean() -> None:
    holed = np.array([[1.0, 2.0], [np.nan, 4.0], [4.0, 9.0]])
    data = as_data(holed, center=True)
    np.testing.assert_allclose(data.offset, [2.5, 5.0])
    np.testing.assert_allclose(data.Y, [[-1.5, 0.0, 1.5], [-3.0, -1.0, 4.0]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_obeyed(dtype) -> None:
    assert as_data(X.astype(int), dtype=dtype).Y.dtype == dtype
    assert as_data(X, dtype=dtype, center=True).Y.dtype == dtype


def test_bool_and_object_numbers_are_numbers() -> None:
    np.testing.assert_array_equal(as_data(np.array([[True, False]])).Y, [[1.0], [0.0]])
    mixed = as_data(np.array([[1, None], [2.5, 3]], dtype=object))
    np.testing.assert_array_equal(mixed.Y, [[1.0, 2.5], [0.0, 3.0]])
    assert not mixed.observed[1, 0]


def test_masked_array() -> None:
    masked = np.ma.MaskedArray(X.astype(int), mask=[[False, True, False], [False, False, False]])
    data = as_data(masked)
    np.testing.assert_array_equal(data.observed, [[True, True], [False, True], [True, True]])
    np.testing.assert_array_equal(data.Y, [[1, 4], [0, -5], [3, 7]])


# ---- frames -------------------------------------------------------------------------------------------------------


def test_pandas_names() -> None:
    frame = pd.DataFrame(X, index=["s1", "s2"], columns=["a", "b", "c"])
    data = as_data(frame)
    assert list(data.feature_names) == ["a", "b", "c"]
    assert list(data.sample_names) == ["s1", "s2"]
    assert data.feature_names.dtype.kind == "U"
    np.testing.assert_array_equal(data.Y, X.T)


def test_pandas_default_index_gives_integers() -> None:
    data = as_data(pd.DataFrame(X))
    np.testing.assert_array_equal(data.feature_names, [0, 1, 2])
    np.testing.assert_array_equal(data.sample_names, [0, 1])
    assert data.sample_names.dtype.kind == "i"


def test_pandas_shuffled_integers_are_names() -> None:
    assert list(as_data(pd.DataFrame(X, index=[7, 3])).sample_names) == ["7", "3"]


def test_pandas_nullable_column() -> None:
    frame = pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [2.0, 3.0]})
    data = as_data(frame)
    np.testing.assert_array_equal(data.observed, [[True, False], [True, True]])


def test_polars_names_and_nulls() -> None:
    frame = pl.DataFrame({"a": [1, None], "b": [2.5, 3.0], "c": [True, False]})
    data = as_data(frame)
    assert list(data.feature_names) == ["a", "b", "c"]
    np.testing.assert_array_equal(data.sample_names, [0, 1])
    np.testing.assert_array_equal(data.observed, [[True, False], [True, True], [True, True]])
    np.testing.assert_array_equal(data.Y, [[1, 0], [2.5, 3], [1, 0]])


# ---- refusals -----------------------------------------------------------------------------------------------------


def holed(rows, columns) -> np.ndarray:
    values = X.copy()
    values[rows, columns] = np.nan
    return values


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        (np.ones(3), ValueError, r"two-dimensional \(samples by features\); got 1 dimension\(s\), shape \(3,\)"),
        (np.ones((2, 2, 2)), ValueError, r"two-dimensional.*got 3 dimension\(s\)"),
        ([[1.0, 2.0], [3.0]], ValueError, "rectangular matrix"),
        (np.empty((0, 3)), ValueError, r"at least one sample and one feature; got shape \(0, 3\)"),
        (np.empty((3, 0)), ValueError, r"at least one sample and one feature; got shape \(3, 0\)"),
        (np.array([["a", "b"]]), TypeError, "real and numeric; got dtype <U1"),
        (X + 1j, TypeError, "real and numeric; got dtype complex128"),
        (np.array([["a", None]], dtype=object), TypeError, "numeric; got values of type object"),
        (np.array([[1.0, np.inf], [-np.inf, 2.0]]), ValueError, "2 entries are infinite, the first at sample 0, fea"),
        (holed(slice(None), 1), ValueError, r"every feature must have.*feature 1 has none \(1 such in all\)"),
        (holed(1, slice(None)), ValueError, "every sample must have at least one observed entry; sample 1 has none"),
        (np.full((3, 2), 4.0), ValueError, "data must vary; every observed entry equals 4"),
        (X * 1e150, ValueError, r"must not exceed 1e\+150 in magnitude.*got 7e\+150; rescale X"),
        (pd.Series([1.0, 2.0]), ValueError, r"two-dimensional.*got a Series; use X.to_frame\(\)"),
        (pd.DataFrame({"a": [1.0], "b": ["x"]}), TypeError, "column 'b' is not; drop or encode it"),
        (pl.DataFrame({"a": [1.0], "b": ["x"]}), TypeError, "column 'b' is not; drop or encode it"),
        (pd.DataFrame(X, columns=["a", "b", "a"]), ValueError, "feature names must be unique; 'a' occurs more than"),
        (pd.DataFrame(X, index=["s", "s"]), ValueError, "sample names must be unique; 's' occurs more than once"),
        (pl.DataFrame(), ValueError, "at least one sample and one feature"),
    ],
)
def test_refusals(values, error, message) -> None:
    with pytest.raises(error, match=message):
        as_data(values)


@pytest.mark.parametrize("dtype", ["foo", int, "float16", object, 3, "f4,f8"])
def test_refuses_other_dtypes(dtype) -> None:
    with pytest.raises(ValueError, match=r"dtype must be float64 or float32; got .*; leave it out"):
        as_data(np.eye(3), dtype=dtype)


def test_refusal_names_the_users_rows() -> None:
    frame = pd.DataFrame([[1.0, 2.0], [np.nan, np.nan]], index=["first", "second"], columns=["a", "b"])
    with pytest.raises(ValueError, match="sample second has none"):
        as_data(frame)


def test_refuses_constant_features_after_centring() -> None:
    with pytest.raises(ValueError, match="data must vary: after centring"):
        as_data(np.array([[0.1, 0.7], [0.1, 0.7], [0.1, 0.7]]), center=True)
