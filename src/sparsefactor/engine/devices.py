"""Whether there is a GPU, whether a job gains by it, and whether it has room: asked before the work begins."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from ..data import Data
from ..model import Prior

logger = logging.getLogger("sparsefactor")

# Multiplications of one product with the data matrix from which on a GPU is chosen by itself: 20,000 x 10,000 with 50
# factors took 2.7 ms an iteration on an H200 (python -m benchmarks.gpu) and 127 on the 16 cores beside it.
WORTH_A_GPU = 1e10
STATES = 12  # states of rows that a search holds at once: trials, what they fall back on, and what is being made
SPARE = 0.05  # of the memory, for the compiler's own
BLOCKS = 6  # of rows on the device at a time, where not all have room: two in use, four coming (jax_streamed.py)
LEAST_ROWS = 64  # of a block: fewer would take longer to ask for than to bring


def gpu() -> Any:
    """JAX's first GPU; None where JAX is not installed, or sees none."""
    try:
        from ..kernels.jax.library import jax
    except ImportError:
        return None
    return jax.local_devices()[0] if jax.default_backend() == "gpu" else None


def resolved(backend: str, data: Data, prior: Prior, any_precision: bool) -> str:
    """Which engine "auto" and "gpu" are: "cpu" or "jax".

    Of itself a GPU is chosen for large jobs that single precision will do for; chains, which are of double precision
    and bound by other work than products, are not among them.
    """
    if backend == "gpu":
        if gpu() is None:
            from ..kernels.jax.library import jax  # where JAX is not there at all, this says how to install it

            raise ValueError(
                f'backend="gpu" needs a GPU that JAX can use; it sees {jax.default_backend()!r} alone; install '
                'jax[cuda13] (or the one that fits the driver), or pass backend="cpu"'
            )
        return "jax"
    if backend != "auto":
        return backend
    work = float(data.n_features) * data.n_samples * prior.K
    large = work >= WORTH_A_GPU and not data.is_sparse
    single = any_precision or data.is_single
    if not (large and single) or data.spool is not None or (device := gpu()) is None:
        return "cpu"
    return "jax" if bytes_needed(data, prior, 4) <= room_of(device) else "cpu"


def bytes_needed(data: Data, prior: Prior, itemsize: int) -> float:
    """An estimate of the device's memory that a fit takes."""
    G, N, K, M = data.n_features, data.n_samples, prior.K, prior.n_modules
    matrix = float(G) * N * (itemsize + (not data.is_complete))
    rows = 8.0 * G * (3 * K + 1 + (M * (K + 1) if M > 1 else 0))
    columns = 8.0 * N * K * (4 if data.is_complete else 4 + 3 * K)
    working = 0.25 * matrix if data.is_complete else 4.0 * min(2.0**31, 16.0 * G * max(N, K * K))
    return matrix + STATES * rows + (STATES if data.is_complete else 8) * columns + working


def room_of(device: Any) -> float:
    """Bytes that the device has for us; without limit where it does not say."""
    limit = (device.memory_stats() or {}).get("bytes_limit")
    return float("inf") if limit is None else (1.0 - SPARE) * float(limit)


def rows_at_a_time(data: Data, prior: Prior, half: bool = False) -> int:
    """How many rows of the data have room on the device beside the states of all; 0 where all of them have.

    Refuses, before the work, a job whose states have no room, and says what would fit.
    """
    from ..kernels.jax.library import jax

    device, itemsize = jax.local_devices()[0], 2 if half else data.Y.dtype.itemsize
    needed, room = bytes_needed(data, prior, itemsize), room_of(device)
    if needed <= room:
        return 0
    G, a_row = data.n_features, float(data.n_samples) * itemsize
    rows = int((room - (needed - G * a_row)) / (BLOCKS * a_row))
    if rows >= min(G, LEAST_ROWS) and len(jax.devices()) == 1:
        rows = -(-G // -(-G // rows))  # of as many blocks, none much smaller than the others
        logger.info("%.3g GB of data come to the device by %d features at a time", G * a_row / 1e9, rows)
        return rows
    raise MemoryError(
        f"what belongs to features must fit the memory of the device, and so must the data where there are several "
        f"devices; {G} x {data.n_samples} entries and {prior.K} factors need about {needed / 1e9:.3g} GB, "
        f"{G * a_row / 1e9:.3g} of them for the data, and {device.device_kind} has {room / 1e9:.3g}; about "
        f'{int(G * room / needed)} features would fit; pass fewer features or factors, or backend="cpu"'
    )


def keep_compiled() -> None:
    """Have JAX keep on disk what it compiles, where nobody has said otherwise."""
    from ..kernels.jax.library import jax

    if jax.config.jax_compilation_cache_dir is not None:
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sparsefactor" / "jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        logger.info("compiled code is not kept: %s", problem)
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
