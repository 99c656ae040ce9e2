"""What may stand in a prior; anything else is refused here and nowhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SMALLEST = 1e-150  # of hyperparameters, and one over it the largest: squares of them must stay in range


def check_positive(name: str, value: Any) -> None:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    good = number and SMALLEST <= float(value) <= 1 / SMALLEST
    if not good:
        raise ValueError(
            f"{name} must be a positive number; got {value!r}; leave it out, or pass one from 1e-150 to 1e150"
        )


def is_vector(value: Any) -> bool:
    try:
        return np.ndim(value) == 1
    except ValueError:  # lists of unequal lengths
        return False


def checked_rates(rates: Any) -> NDArray[np.float64]:
    try:
        values = np.array(rates, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if not (values.size and np.isfinite(values).all() and (values > 0).all()):
        raise ValueError(f"noise_rate must be positive; got {rates!r}; leave it out or pass numbers above zero")
    values.flags.writeable = False
    return values


def inclusion_numbers(inclusion: Any, kinds: str) -> NDArray[np.float64]:
    """Inclusion as an array of a shape that it may have; kinds: what else it may be, in words."""
    try:
        values = np.array(inclusion, dtype=np.float64)
        if inclusion is None or isinstance(inclusion, str):
            raise TypeError
    except (TypeError, ValueError):
        raise ValueError(f"inclusion must be {kinds}; got {inclusion!r}; pass e.g. inclusion=0.1") from None
    if values.ndim > 2 or values.size == 0:
        raise ValueError(
            f"inclusion must be a scalar, (n_factors,) or (n_features, n_factors); got shape {values.shape}; reshape it"
        )
    return values


def checked_inclusion(inclusion: Any) -> NDArray[np.float64]:
    values = inclusion_numbers(inclusion, "a number, a vector, a matrix or a Beta")
    inside = (values > 0) & (values < 1)
    if not inside.all():
        bad = values[~inside].flat[0]
        pair = values.shape == (2,) and (values > 0).all()  # meant as the two numbers of a Beta, most likely
        raise ValueError(
            f"inclusion must lie strictly between 0 and 1; got {bad:g}; "
            + (f"pass sf.Beta({values[0]:g}, {values[1]:g}) to have it learnt, or " if pair else "")
            + "use e.g. 0.001 or 0.999 for what is nearly sure"
        )
    values.flags.writeable = False
    return values


def checked_factor_names(names: Any, K: int) -> tuple[str, ...]:
    if isinstance(names, str) or np.ndim(names) != 1 or len(names) != K:
        raise ValueError(f"factor_names must be one name per factor, {K}; got {names!r}; make them agree")
    return tuple(str(name) for name in names)


def column_names(inclusion: Any) -> list[str] | None:
    """The column names of a pandas frame that has any."""
    columns = getattr(inclusion, "columns", None)
    if columns is None or np.ndim(inclusion) != 2 or list(columns) == list(range(len(columns))):
        return None
    return [str(name) for name in columns]


def row_names(inclusion: Any) -> list[str] | None:
    """The row names of a pandas frame that has any."""
    index = getattr(inclusion, "index", None)
    if index is None or callable(index) or np.ndim(inclusion) != 2 or list(index) == list(range(len(index))):
        return None
    return [str(name) for name in index]
