"""What is checked the same way wherever it is passed."""

from __future__ import annotations

from typing import Any

import numpy as np

SEED_LIMIT = 2**63  # seeds are kept as whole numbers that every file format holds


def checked_count(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least `least`; anything else is refused."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}; pass {name} >= {least}")
    return int(value)


def checked_flag(name: str, value: Any) -> bool:
    """True or False; anything else is refused."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False; got {value!r}; pass one of them")
    return bool(value)


def seed_number(seed: Any) -> int:
    """The seed as a whole number: as it is, drawn from a Generator, or fresh for None."""
    if seed is None:
        return int(np.random.default_rng().integers(SEED_LIMIT))
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(SEED_LIMIT))
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(
            f"seed must be a whole number of at least 0, None or a numpy Generator; got {seed!r}; pass e.g. seed=0"
        )
    return int(seed)
