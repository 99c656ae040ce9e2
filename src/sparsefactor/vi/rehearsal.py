"""What a search will need compiled later is compiled beside what it does first.

An engine that compiles for every shape takes longer for that than for the search itself, and the parts of a search come
one after the other: the race, climbs with as many factors as there are to be, a hop. Each is tried out once on made-up
values while the race goes on; compilers let go of the interpreter's lock. Nothing of the search depends on it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from ..gibbs.sweep import Gibbs
from ..kernels.contract import Array
from ..kernels.noise import row_stream
from .cavi import CAVI
from .shear import best_shear

logger = logging.getLogger("sparsefactor")


class Rehearsal:
    """Parts of a search, by name, that are being tried out."""

    def __init__(self, parts: Mapping[str, Callable[[], Any]]) -> None:
        self.running: dict[str, Future[Any]] = {}
        if not parts:
            return
        pool = ThreadPoolExecutor(len(parts), "sparsefactor-rehearsal")
        self.running = {name: pool.submit(part) for name, part in parts.items()}
        pool.shutdown(wait=False)

    def wait(self, name: str) -> None:
        """Until a part has been tried out, if it is; what goes wrong there, the search itself will meet."""
        problem = self.running[name].exception() if name in self.running else None
        if problem is not None:
            logger.info("%s could not be compiled beforehand: %s", name, problem)
        self.running.pop(name, None)


def try_climb(cavi: CAVI) -> None:
    """An iteration and a look for shears."""
    with cavi.engine.scope():
        rng = np.random.default_rng(0)
        state = cavi.sweep(cavi.start(*made_up(cavi, rng)), rescale=True)
        best_shear(cavi, state, rng, 0)


def try_run(cavi: CAVI, gibbs: Gibbs, every: int) -> None:
    """The beginning of a run of Gibbs sampling, and a sweep with all of its moves."""
    with cavi.engine.scope():
        rng = np.random.default_rng(0)
        L, F = made_up(cavi, rng)
        draw = gibbs.begin(cavi.engine.vi_draw(cavi.engine.vi_place(L), row_stream(rng)), F)
        gibbs.draw(draw, (0, 0), every)


def made_up(cavi: CAVI, rng: np.random.Generator) -> tuple[Array, Array]:
    """L and F."""
    K = cavi.prior.K
    return rng.standard_normal((cavi.data.n_features, K)), rng.standard_normal((K, cavi.data.n_samples))
