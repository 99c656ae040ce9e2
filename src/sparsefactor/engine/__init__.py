"""Who runs the row pass: the oracle on one core, compiled kernels over threads, or kernels in JAX on a GPU."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from ..data import Data
from ..kernels.protocol import Engine
from ..kernels.reference import ReferenceEngine
from ..model import Prior
from .devices import gpu, keep_compiled, resolved, rows_at_a_time

logger = logging.getLogger("sparsefactor")

BACKENDS = ("auto", "cpu", "jax", "gpu", "reference")


def build_engine(
    data: Data,
    prior: Prior,
    backend: str = "auto",
    n_threads: int | None = None,
    client: Any = None,
    *,
    any_precision: bool = False,
    half: bool = False,
) -> Engine:
    """The engine called `backend` for this data and prior. n_threads=None: every core.

    "jax" runs where JAX does, "gpu" only on a GPU; "auto" is a GPU where there is one and the job is large, else "cpu".
    client: of a Dask cluster, on whose workers the rows then are. any_precision: on a GPU, data may become float32.
    half: they are to be float16 there.
    """
    if not isinstance(backend, str) or backend not in BACKENDS:
        raise ValueError(f"backend must be one of {BACKENDS}; got {backend!r}; choose one of them")
    whole = isinstance(n_threads, int | np.integer) and not isinstance(n_threads, bool)
    if n_threads is not None and not (whole and n_threads >= 1):
        raise ValueError(f"n_threads must be a whole number of at least 1; got {n_threads!r}; pass None for every core")
    if half and client is not None:
        raise ValueError("dtype=float16 is how data are held on a GPU; got it with a client; pass dtype=float32")
    if client is not None:
        if backend not in ("auto", "cpu"):
            raise ValueError(
                f"the workers of a cluster compute on their CPUs; got backend={backend!r} with a client; leave one out"
            )
        from .cpu import is_small

        if not is_small(data, prior.K):
            from .dask.engine import DaskEngine

            return DaskEngine(data, prior, client)
        logger.info("%d x %d: so little that it is fitted here, not on the cluster", data.n_features, data.n_samples)
        data = data.here()
    backend = resolved(backend, data, prior, any_precision or half)
    if half and backend != "jax":
        raise ValueError(
            f'dtype=float16 is how data are held on a device; got it with backend {backend!r}; pass backend="gpu", or '
            "dtype=float32"
        )
    if backend == "jax" and any_precision and gpu() is not None:
        data = data if data.is_single else data.single()
    if data.design is not None:
        from .pinned import PinnedEngine, extended

        prior = prior.in_units_of(data)
        wide = extended(prior, len(data.design.basis))
        inner = build_engine(data.without_design(), wide, backend, n_threads, half=half)
        if inner.name == "jax":
            from .jax_pinned import PinnedJaxEngine

            return PinnedJaxEngine(inner, data, prior)
        return PinnedEngine(inner, data, prior)
    if backend == "reference":
        return ReferenceEngine(data.dense(), prior)
    if backend == "jax":
        from .jax_engine import JaxEngine
        from .jax_streamed import StreamedJaxEngine

        block = rows_at_a_time(data, prior, half)
        keep_compiled()
        if block:
            return StreamedJaxEngine(data.dense(), prior, block=block, half=half)
        return JaxEngine(data.dense(), prior, half=half)
    try:
        import numba  # noqa: F401
    except ImportError as problem:
        raise ImportError(
            f"backend {backend!r} needs Numba, which cannot be imported ({problem}); "
            'install it with "pip install numba", or pass backend="reference", which is slow'
        ) from problem
    from .cpu import CpuEngine

    return CpuEngine(data, prior, n_threads)
