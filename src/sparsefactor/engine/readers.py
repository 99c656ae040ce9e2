"""Who reads X: this process, or the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..data import Data, as_data
from ..executors import Shared

# Data of at most so many bytes are sent to every worker, where many jobs on the same data are to be done.
LITTLE = 2**26


def reader_for(client: Any, n_jobs: int = 1) -> Callable[..., Data]:
    """How X is read: into this process, or by the workers of a Dask cluster; n_jobs: on the same data."""
    if client is None:
        return as_data
    from .dask.data import reader_on

    return reader_on(client, LITTLE if n_jobs > 1 else 0)


def jobs_on(client: Any, data: Data, n_jobs: int, state_bytes: int = 0) -> Shared | None:
    """Calls of function(data, ...) by a client's workers; None where a job needs all of them, or there is one.

    state_bytes: of what a job is sent and returns besides.
    """
    if client is None or n_jobs < 2 or data.spool is not None or not isinstance(data.Y, np.ndarray):
        return None
    return Shared(client, data) if is_little(data.Y.nbytes + state_bytes) else None


def is_little(n_bytes: int) -> bool:
    """Whether every worker may have all of the data."""
    return n_bytes <= LITTLE
