"""Who reads X: this process, or the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..data import Data, as_data

# Data of at most so many bytes are sent to every worker, where many jobs on the same data are to be done.
LITTLE = 2**26
RETRIES = 3  # of a job whose worker was lost with the data


def reader_for(client: Any, n_jobs: int = 1) -> Callable[..., Data]:
    """How X is read: into this process, or by the workers of a Dask cluster; n_jobs: on the same data."""
    if client is None:
        return as_data
    from .dask.loading import reader_on

    return reader_on(client, LITTLE if n_jobs > 1 else 0)


def jobs_on(client: Any, data: Data, n_jobs: int) -> Callable[..., Any] | None:
    """A way to call function(data, ...) on a client's workers; None where a job needs all of them, or there is one."""
    if client is None or n_jobs < 2 or data.spool is not None or not isinstance(data.Y, np.ndarray):
        return None
    return None if data.Y.nbytes > LITTLE else fits_on(client, data)[0]


def fits_on(client: Any, values: Any) -> tuple[Callable[..., Any], int]:
    """A way to call function(values, ...) on a client's workers, to which values are sent once; and their threads."""
    from .dask.workers import check_client

    check_client(client)
    threads = sum(worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values())
    shared = [client.scatter(values, broadcast=True)]

    def call(function: Callable[..., Any], *args: Any) -> Any:
        from concurrent.futures import CancelledError

        for _ in range(RETRIES):
            sent = shared[-1]
            try:
                return client.submit(function, sent, *args, pure=False).result()
            except CancelledError:  # every worker that had the values is gone
                if shared[-1] is sent:
                    shared.append(client.scatter(values, broadcast=True))
        return client.submit(function, shared[-1], *args, pure=False).result()

    return call, threads
