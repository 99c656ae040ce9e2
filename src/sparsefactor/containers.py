"""What X came as, and matrices given back the same way: arrays for arrays, frames for frames."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import needs

# Names of an xarray's dims that say which way it lies.
SAMPLE_DIMS = frozenset({"sample", "samples", "obs", "observation", "observations", "cell", "cells", "subject", "time"})
FEATURE_DIMS = frozenset({"feature", "features", "var", "variable", "variables", "gene", "genes", "item", "items"})

ARRAY = ("array",)


def container_of(X: Any) -> tuple[str, ...]:
    """The kind of X, and what else is needed to make another like it; plain words, which a file can hold."""
    module = type(X).__module__.split(".")[0]
    if module == "pandas":
        return ("pandas", str(X.index.dtype), str(X.columns.dtype))
    if module == "polars":
        return ("polars",)
    if module == "xarray":
        return ("xarray", *(str(dim) for dim in X.dims))
    return ARRAY


def from_xarray(X: Any) -> tuple[Any, Any, Any]:
    """Values (samples, features), sample names and feature names of a DataArray, either way round by its dims."""
    if type(X).__name__ != "DataArray" or X.ndim != 2:
        raise ValueError(
            f"X must be two-dimensional (samples by features); got an xarray {type(X).__name__} with dims "
            f"{tuple(X.dims)}; choose one variable, and select or stack down to two dims"
        )
    samples, features = _oriented(X.dims)
    turned = X.transpose(samples, features)
    names = [list(turned.indexes[dim].astype(str)) if dim in turned.indexes else None for dim in (samples, features)]
    return turned.values, *names


def _oriented(dims: Any) -> tuple[Any, Any]:
    """The dims of samples and of features; where neither name tells, the first is the samples'."""
    first, second = dims
    kinds = [_kind(str(dim).lower()) for dim in dims]
    if kinds[0] and kinds[0] == kinds[1]:
        raise ValueError(
            f"one dim of X must be the samples and one the features; got {first!r} and {second!r}; rename them, e.g. "
            f"X.rename({{{first!r}: 'sample', {second!r}: 'feature'}})"
        )
    turned = kinds[0] == "feature" or kinds[1] == "sample"
    return (second, first) if turned else (first, second)


def _kind(dim: str) -> str:
    return "sample" if dim in SAMPLE_DIMS else "feature" if dim in FEATURE_DIMS else ""


def like_input(values: NDArray[Any], container: tuple[str, ...], samples: NDArray[Any], features: NDArray[Any]) -> Any:
    """A matrix (n_samples, n_features) as the kind of thing that X was, with its names."""
    kind, *more = container
    if kind == "pandas":
        import pandas as pd

        return pd.DataFrame(values, index=_index(samples, more[0]), columns=_index(features, more[1]))
    if kind == "polars":
        try:
            import polars as pl
        except ImportError as problem:
            raise needs("a result for polars frames", "polars", "polars", problem) from problem
        return pl.DataFrame(values, schema=[str(name) for name in features])
    if kind == "xarray":
        import xarray as xr

        rows, columns = _oriented(more)
        named = {d: names for d, names in ((rows, samples), (columns, features)) if names.dtype.kind not in "iu"}
        return xr.DataArray(values, dims=(rows, columns), coords=named).transpose(*more)
    return values


def scores_like_input(values: NDArray[Any], X: Any, samples: NDArray[Any], factors: list[str]) -> Any:
    """Scores (n, n_factors) as the kind of thing that X is, with the names of its samples and of the factors."""
    kind, *more = container_of(X)
    if kind == "pandas":
        more = [more[0], "object"]
    elif kind == "xarray":
        more = [_oriented(more)[0], "factor"]
    return like_input(values, (kind, *more), samples, np.array(factors))


def index_like_input(container: tuple[str, ...], names: NDArray[Any], axis: int, title: str) -> Any:
    """A pandas index of the samples (axis 0) or features (1), of the type that X had where it was a pandas frame."""
    dtype = container[1 + axis] if container[0] == "pandas" else "object"
    return _index(names, dtype).rename(title)


def _index(names: NDArray[Any], dtype: str) -> Any:
    """Names as an index of the type that X had, so that X and what comes back align (dates, years)."""
    import pandas as pd

    index = pd.Index(names)
    if index.dtype.kind in "iu" or dtype in ("object", "str", "string"):
        return index
    try:
        return index.astype(dtype)
    except (TypeError, ValueError):
        return index
