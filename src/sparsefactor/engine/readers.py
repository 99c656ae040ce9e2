"""Who reads X: this process, or the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..data import Data, as_data


def reader_for(client: Any) -> Callable[..., Data]:
    """How X is read: into this process, or by the workers of a Dask cluster."""
    if client is None:
        return as_data
    from .dask.loading import reader_on

    return reader_on(client)


def fits_on(client: Any, values: Any) -> tuple[Callable[..., Any], int]:
    """A way to call function(values, ...) on a client's workers, to which values are sent once; and their threads."""
    from .dask.cluster import check_client

    check_client(client)
    threads = sum(worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values())
    shared = client.scatter(values)

    def call(function: Callable[..., Any], *args: Any) -> Any:
        return client.submit(function, shared, *args, pure=False).result()

    return call, threads
