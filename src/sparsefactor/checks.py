"""What is checked the same way wherever it is passed."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any, ParamSpec, TypeVar

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


def checked_choice(name: str, value: Any, choices: Iterable[str], also: str = "") -> str:
    """One of some words; anything else is refused. also: what else may be passed, as it stands in the message."""
    known = tuple(choices)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {known}{also}; got {value!r}; choose one of them")
    return value


def is_number(value: Any) -> bool:
    """A real number, Python's or NumPy's; True and False are none."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def checked_share(name: str, value: Any, example: str) -> float:
    """A number strictly between 0 and 1; anything else is refused. example: what to pass instead."""
    if not (is_number(value) and 0 < value < 1):
        raise ValueError(f"{name} must lie strictly between 0 and 1; got {value!r}; pass e.g. {example}")
    return float(value)


def checked_number(name: str, value: Any, remedy: str = "the default suits most data") -> float:
    """A finite number that is zero or positive; anything else is refused."""
    if not (is_number(value) and np.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be zero or positive; got {value!r}; {remedy}")
    return float(value)


def check_watching(progress: Any, callback: Any) -> None:
    """What is shown and told while a run goes on."""
    if callable(progress):
        raise TypeError(f"progress must be True, False or None; got the function {progress!r}; pass it as callback=")
    if not (progress is None or isinstance(progress, bool | np.bool_)):
        raise TypeError(f"progress must be True, False or None; got {progress!r}; pass one of them")
    if not (callback is None or callable(callback)):
        raise TypeError(f"callback must be a function of one argument, or None; got {callback!r}; pass one of them")


def says_stop(answer: Any) -> bool:
    """Whether a callback's answer is True itself: what a function happens to return must not end a run."""
    return isinstance(answer, bool | np.bool_) and bool(answer)


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


def out_of_range(dtype: Any) -> ValueError:
    """The error of data that a type of numbers cannot hold."""
    return ValueError(f"entries must lie in the range of {dtype}; some do not; rescale X, or use float64")


# Names of arguments in other packages (scikit-learn, PyMC, Stan, NumPyro, R), and what they are called here.
OTHER_NAMES = {
    "n_components": "n_factors",
    "nfactors": "n_factors",
    "K": "n_factors",
    "k": "n_factors",
    "random_state": "seed",
    "random_seed": "seed",
    "n_init": "n_trials",
    "n_restarts": "n_trials",
    "n_iter": "max_iter",
    "chains": "n_chains",
    "draws": "n_draws",
    "n_samples": "n_draws",
    "tune": "n_warmup",
    "warmup": "n_warmup",
    "burn_in": "n_warmup",
}
OF_THE_PRIOR = (
    "factor_correlation",
    "factor_names",
    "groups",
    "loading_rate",
    "loading_shape",
    "n_modules",
    "noise",
    "noise_rate",
    "noise_shape",
)
P = ParamSpec("P")
R = TypeVar("R")


def with_name_hints(function: Callable[P, R], name: str = "") -> Callable[P, R]:
    """Make the error for an argument of the prior, or as other packages name it, say what to pass here."""
    known = inspect.signature(function).parameters

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for given, value in kwargs.items():
            own = OTHER_NAMES.get(given)
            if given not in known and own in known:
                raise TypeError(
                    f"{name or function.__name__}() has no argument {given}; it is called {own} here: pass "
                    f"{own}={value!r}"
                )
            if given not in known and given in OF_THE_PRIOR and "prior" in known:
                raise TypeError(
                    f"{name or function.__name__}() has no argument {given}; it is a setting of the prior: pass "
                    f"prior=sparsefactor.Prior(n_factors=..., {given}={value!r})"
                )
            if given not in known and (near := get_close_matches(given, known, 1, 0.8)):
                raise TypeError(f"{name or function.__name__}() has no argument {given}; did you mean {near[0]}?")
        return function(*args, **kwargs)

    return call
