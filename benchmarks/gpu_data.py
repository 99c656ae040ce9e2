"""Data made on the device, and how long a call takes, for `python -m benchmarks.gpu`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from sparsefactor.engine.jax_data import device_data
from sparsefactor.kernels.jax.library import jax, jnp, x64


def simulated(G: int, N: int, K: int, missing: float = 0.0, seed: int = 0, dtype: Any = jnp.float32) -> Any:
    """(data, L, F) of the model, made on the device: a tenth of the loadings, noise as strong as the signal."""
    with x64():
        keys = jax.random.split(jax.random.key(seed), 5)
        L = jax.random.normal(keys[0], (G, K), dtype) * (jax.random.uniform(keys[1], (G, K), dtype) < 0.1)
        F = jax.random.normal(keys[2], (K, N), dtype)

        @partial(jax.jit, donate_argnums=0)  # in place: the largest use of memory is to be the fit's
        def with_part(Y: Any, L: Any, F: Any, key: Any, first: Any) -> Any:
            own = L @ F + jax.random.normal(key, (L.shape[0], N), dtype)
            return jax.lax.dynamic_update_slice_in_dim(Y, own - own.mean(axis=1, keepdims=True), first, axis=0)

        step = max(1, G // 40)
        Y = jnp.zeros((G, N), dtype)
        for first in range(0, G, step):
            Y = with_part(Y, L[first : first + step], F, jax.random.fold_in(keys[3], first), first)
        observed = None
        if missing:
            seen = jax.random.uniform(keys[4], (G, N), jnp.float32) >= missing
            Y, observed = jnp.where(seen, Y, 0.0), np.asarray(seen)
        return device_data(Y, observed), L, F


def timed(run: Callable[[], Any], repeats: int = 10, seconds: float = 3.0) -> tuple[float, float]:
    """Median milliseconds of a call, and seconds of the first."""
    begin = time.perf_counter()
    jax.block_until_ready(run())
    first = time.perf_counter() - begin
    found: list[float] = []
    while len(found) < repeats and (len(found) < 3 or sum(found) < seconds * 1e3):
        begin = time.perf_counter()
        jax.block_until_ready(run())
        found.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(found), first
