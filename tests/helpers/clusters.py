"""Dask clusters of threads of this process, for what does not depend on processes."""

from __future__ import annotations

import atexit
from functools import cache


@cache
def client_of(n_workers: int):
    """A client of so many workers, closed when the tests end."""
    import distributed

    cluster = distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=0
    )
    client = distributed.Client(cluster, set_as_default=False)
    atexit.register(cluster.close)
    atexit.register(client.close)
    return client
