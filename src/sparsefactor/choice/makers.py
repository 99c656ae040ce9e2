"""Who makes the fits of a comparison: threads of this process, the workers of a cluster, or all of either for one."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..engine.readers import is_little
from ..executors import Shared
from ..model import Prior
from ..start import Start
from .hidden import Laid, Mask
from .masks import judged

Fit = Callable[[Prior, Mask, dict[str, Any]], tuple[dict[str, Any], Start]]


def fits_of(laid: Laid, source: Any, client: Any, inference: str) -> tuple[Fit, int]:
    """How a fit is made, and how many at a time; source: where data were read that were not in memory."""
    if source is not None and client is None:
        return lambda prior, mask, options: judged(laid, prior, mask, inference, options), 1
    if source is not None and not is_little(laid.rows.nbytes):
        there = {"client": client}
        return lambda prior, mask, options: judged(laid, prior, mask, inference, options | there, source), 1
    alone = {"n_threads" if inference == "vi" else "n_jobs": 1}
    if client is None:
        return lambda prior, mask, options: judged(laid, prior, mask, inference, options | alone), os.cpu_count() or 1
    jobs = Shared(client, laid.in_memory())

    def on_worker(prior: Prior, mask: Mask, options: dict[str, Any]) -> tuple[dict[str, Any], Start]:
        found: tuple[dict[str, Any], Start] = jobs(judged, prior, mask, inference, options | alone, name="fit")
        return found

    return on_worker, jobs.n_threads
