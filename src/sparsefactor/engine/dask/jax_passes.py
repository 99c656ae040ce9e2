"""Row passes by JAX on a worker's rows, on its GPU where it has one.

A pass is where a device pays. The data stay on it; rows come and go, since all other verbs (starts, shears, the
sampler's moves) are the CPU engine's. Sums come in one part for each worker:
they agree with those of another number of workers within rounding, not to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...data import Data
from ...data.tiles import Node
from ...jobs import on_each_worker
from ...kernels.contract import GibbsRows, GibbsTerms, Message, RowStream, Sums, VIRows, VITerms
from ...model import Prior
from ..cpu import CpuEngine
from ..devices import WORTH_A_GPU

NAME = "jax on workers"  # a fit that was begun so is gone on with so
ARRAYS = ("LY", "LL", "LL_share", "active", "l2", "members", "active_in")


class JaxPasses(CpuEngine):
    """The CPU engine of a part of the rows but for its passes; device: the JAX engine of these, None of no rows."""

    def __init__(self, data: Data, prior: Prior, *args: Any, device: Any, **more: Any) -> None:
        super().__init__(data, prior, *args, **more)
        self.device = device if device is None else device.with_prior(self.prior)
        self.more = {"device": device}

    def vi_row_pass(self, rows: VIRows, message: Message) -> tuple[VIRows, Sums]:
        """As that of the CPU engine, within rounding."""
        after, own = rows, None
        if self.device is not None:
            on_device, own = self.device.vi_row_pass(rows, message)
            after = filled_in(rows, self.device.vi_fetch(on_device))
        total, terms = self._total(own, "elbo")
        return after, Sums(**total, elbo=VITerms(*terms))

    def gibbs_row_pass(self, rows: GibbsRows, message: Message, noise: RowStream) -> tuple[GibbsRows, Sums]:
        """As that of the CPU engine, within rounding, by the same random numbers."""
        after, own = rows, None
        if self.device is not None:
            on_device, own = self.device.gibbs_row_pass(rows, message, noise)
            after = filled_in(rows, self.device.gibbs_fetch(on_device))
        total, terms = self._total(own, "joint")
        return after, Sums(**total, joint=GibbsTerms(*terms))

    def _total(self, sums: Sums | None, terms: str) -> tuple[dict[str, Any], list[float]]:
        """All workers' sums by name, and their terms of this name; sums: those of our rows, None of no rows."""
        nodes = []
        if sums is not None:
            own = (np.asarray(getattr(sums, name)) for name in ARRAYS)
            nodes = [Node(0, self.data.first_tile, (*own, np.array(getattr(sums, terms))))]
        *arrays, found = self.exchange.total(nodes)
        return dict(zip(ARRAYS, arrays, strict=True)), found.tolist()


def filled_in(rows: Any, fetched: Any) -> Any:
    """Rows with what a device has made of them."""
    return rows._replace(**{name: value for name, value in fetched._asdict().items() if len(value)})


def device_of(data: Data, prior: Prior, single: bool) -> Any:
    """The JAX engine of a worker's rows; single: in single precision."""
    from ..jax_engine import JaxEngine

    own = data.dense()
    return JaxEngine(own.single() if single else own, prior)


def jax_on(client: Any, backend: str, data: Data, prior: Prior, any_precision: bool) -> bool:
    """Whether workers make their passes by JAX: where that is asked for, or each has a GPU and the job is large."""
    if backend == "cpu":
        return False
    large = float(data.n_features) * data.n_samples * prior.K >= WORTH_A_GPU and not data.is_sparse
    if backend == "auto" and not (large and (any_precision or data.is_single)):
        return False
    found = on_each_worker(client, seen_there)
    if backend == "auto":
        return all(seen == "gpu" for seen in found.values())
    for worker, seen in found.items():
        if seen is None or (backend == "gpu" and seen != "gpu"):
            what = "has no JAX" if seen is None else f"sees {seen!r} alone"
            raise ValueError(
                f"backend={backend!r} needs {'a GPU' if backend == 'gpu' else 'JAX'} on every worker; {worker} {what}; "
                'install jax there (jax[cuda13] for a GPU), or pass backend="cpu"'
            )
    return True


def seen_there() -> str | None:
    """Where JAX runs on this worker; None where there is none."""
    try:
        from ...kernels.jax.library import jax
    except ImportError:
        return None
    return str(jax.default_backend())
