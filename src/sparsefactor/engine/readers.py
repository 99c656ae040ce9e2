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
