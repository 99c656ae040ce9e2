"""JAX itself: imported here alone, so that its absence is one clear error, and always with 64 bits at hand.

Rows, sums and messages are float64 whatever the data are: only the data matrix, and products with it, are large enough
for single precision to matter. JAX has 64 bits where a scope says so; a process's own setting is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from ...arrays import arrays_of
from ...errors import needs

try:
    import jax as _jax
    import jax.numpy as _jnp
    import jax.scipy.special as _special
    from jax.experimental import multihost_utils as _multihost_utils
except ImportError as problem:
    raise needs('backend "jax"', "JAX", "gpu", problem) from problem

# Rows are a device's arrays where NumPy's are meant by name: types would only say so again and again.
jax: Any = _jax
jnp: Any = _jnp
lax: Any = _jax.lax
special: Any = _special

__all__ = ["JAX", "host", "jax", "jnp", "lax", "special", "with_64_bits", "x64"]

JAX = arrays_of(jnp, special)
FULL = "RESOURCE_EXHAUSTED"  # in what XLA says when memory is
Function = TypeVar("Function", bound=Callable[..., Any])


def x64() -> AbstractContextManager[Any]:
    """A scope in which JAX has 64-bit numbers, for this thread."""
    if hasattr(jax, "enable_x64"):
        scope: AbstractContextManager[Any] = jax.enable_x64(True)
        return scope
    before: AbstractContextManager[Any] = jax.experimental.enable_x64()  # JAX 0.7 and older
    return before


def host(values: Any) -> Any:
    """Arrays, or trees of them, as NumPy's; where processes share the devices, whole in each of them."""
    if jax.process_count() == 1:
        return jax.device_get(values)

    def one(value: Any) -> Any:
        if not isinstance(value, jax.Array) or value.is_fully_addressable or value.is_fully_replicated:
            return np.asarray(value)
        return _multihost_utils.process_allgather(value, tiled=True)

    return jax.tree.map(one, values)


def with_64_bits(function: Function) -> Function:
    """The function, inside that scope; memory that the device has not got is a MemoryError, as anywhere else."""

    @wraps(function)
    def scoped(*args: Any, **kw: Any) -> Any:
        try:
            with x64():
                return function(*args, **kw)
        except jax.errors.JaxRuntimeError as problem:
            if FULL not in str(problem):
                raise
            raise MemoryError(
                f"data and states must fit the memory of the device; it is full ({str(problem).splitlines()[0]}); pass "
                'fewer features or factors, dtype=numpy.float32, or backend="cpu"'
            ) from problem

    return scoped  # type: ignore[return-value]
