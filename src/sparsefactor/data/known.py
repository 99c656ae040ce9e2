"""What is known of a matrix that is somewhere else, and how a part of it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Done = Callable[[], None]


def nothing() -> None:
    """To be done after a part."""


class Source(Protocol):
    """A matrix (n_samples, n_features) that is somewhere else."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    samples: Any  # names, None where there are none
    features: Any

    def fill(self, values: NDArray[Any], first: int, last: int, done: Done = nothing) -> None:
        """Write features first .. last into values (n_samples, last - first), in any order of the parts.

        done: called after each of them.
        """
        ...


@dataclass
class Known:
    """What is known of a source's matrix before it is read; names are None where there are none."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    samples: Any = None
    features: Any = None


def check_matrix(shape: tuple[Any, ...], dtype: np.dtype[Any]) -> None:
    if len(shape) != 2:
        raise ValueError(f"X must be two-dimensional (samples by features); got shape {tuple(shape)}; reshape it")
    if dtype.kind not in "fiub":
        raise TypeError(f"X must be real and numeric; got dtype {dtype}; convert it to float")
    if min(shape) < 1:
        raise ValueError(f"X must have at least one sample and one feature; got shape {tuple(shape)}; pass some data")
