"""Which array library the equations of the columns run on: one text for NumPy, JAX and any other of the standard.

A namespace of the array API standard has all that these equations need but for special functions and `einsum`, which
every library has under the same names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.special


class Arrays(NamedTuple):
    """An array library."""

    xp: Any  # a namespace of the array API standard
    einsum: Callable[..., Any]
    log: Callable[[Any], Any]  # minus infinity at zero, without a warning
    digamma: Callable[[Any], Any]
    gammaln: Callable[[Any], Any]
    betaln: Callable[[Any, Any], Any]
    expit: Callable[[Any], Any]
    xlogy: Callable[[Any, Any], Any]


def arrays_of(xp: Any, special: Any) -> Arrays:
    """Of a library and its special functions, as numpy and scipy.special, or jax.numpy and jax.scipy.special."""
    gammaln = special.gammaln

    def betaln(a: Any, b: Any) -> Any:
        """By way of gammas: the one of jax.scipy.special (0.10) is off by 1e-6."""
        return gammaln(a) + gammaln(b) - gammaln(a + b)

    def log(x: Any) -> Any:
        with np.errstate(divide="ignore"):  # of which NumPy alone takes notice
            return xp.log(x)

    return Arrays(xp, xp.einsum, log, special.digamma, gammaln, betaln, special.expit, special.xlogy)


NUMPY = arrays_of(np, scipy.special)._replace(betaln=scipy.special.betaln)
