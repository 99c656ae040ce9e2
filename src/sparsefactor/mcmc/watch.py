"""Who looks on while chains run: the caller's function, which may end the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..checks import says_stop
from ..kernels.contract import Array
from ..progress import Moment
from ..vi.watch import VIProgress

if TYPE_CHECKING:
    from ..gibbs.sweep import GibbsState
    from .chain import Chain, Plan


@dataclass(frozen=True, kw_only=True)
class MCMCProgress(Moment):
    """Where `sample` stands: what its `callback` is given after each sweep of a chain.

    Attributes
    ----------
    phase : "start", "warmup" or "draws"
        In "start", VI looks for where the chain is to set out, and there is no draw yet.
    chain : int
        The chain that moved, from 0.
    sweep, n_sweeps : int
        Its sweeps so far, and in the end.
    kept : int
        Its draws so far.
    log_joint : float
        Of its state now; NaN in "start".
    best_chain, best_log_joint : int, float
        The chain whose state now has the highest log joint.
    seconds : float
        Since the call began.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> mc = sf.sample(sim.X, n_factors=2, n_chains=1, n_draws=500, callback=lambda now: now.kept == 400)
    >>> mc.draws["posterior"].sizes["draw"]
    400
    """

    phase: str
    chain: int
    sweep: int
    n_sweeps: int
    kept: int
    log_joint: float
    best_chain: int
    best_log_joint: float
    seconds: float

    @property
    def loadings(self) -> Array:
        """(n_features, n_factors) loadings of the draw, under the sampler's own labels."""
        return np.asarray(self._rows().L * self._unit)

    @property
    def inclusion(self) -> NDArray[np.int8]:
        """(n_features, n_factors) which loadings are included in the draw."""
        return np.array(self._rows().Z)

    @property
    def activations(self) -> Array:
        """(n_samples, n_factors) activations of the draw."""
        return np.ascontiguousarray(np.asarray(self._draw().F).T)

    def _rows(self) -> Any:
        draw = self._draw()
        return self._fetch(draw.rows, draw.scale)

    def _draw(self) -> GibbsState:
        if self._state is None:
            raise ValueError('a chain has a draw after its first sweep; phase is "start"; look at phase first')
        return self._state


Callback = Callable[[MCMCProgress], Any]


class Watcher:
    """Told by chains, from their threads; one call of the caller's function at a time."""

    def __init__(self, callback: Callback | None) -> None:
        self.callback = callback
        self.begun, self.lock = time.monotonic(), threading.Lock()
        self.log_joints: dict[int, float] = {}
        self.stopped = False
        self.full: MemoryError | None = None  # which has ended the run

    def out_of_memory(self, problem: MemoryError) -> None:
        """All is to stop with the draws that there are."""
        with self.lock:
            self.stopped, self.full = True, problem

    def tell(self, chain: Chain) -> bool:
        """Whether all is to stop."""
        if self.callback is None:
            return False
        with self.lock:
            if self.stopped:
                return True
            self.log_joints[chain.number] = chain.log_joint
            phase = "draws" if chain.sweep > chain.plan.n_warmup else "warmup"
            return self._asked(phase, chain.number, chain.sweep, chain.plan, chain)

    def of_start(self, chain: int, plan: Plan) -> Callable[[VIProgress], bool] | None:
        """For the fit that looks for a chain's start."""
        if self.callback is None:
            return None
        return lambda _: self._asked("start", chain, 0, plan, None)

    def _asked(self, phase: str, chain: int, sweep: int, plan: Plan, moved: Chain | None) -> bool:
        assert self.callback is not None
        nan = float("nan")
        best = max(self.log_joints, key=lambda one: self.log_joints[one], default=chain)
        now = MCMCProgress(
            phase=phase,
            chain=chain,
            sweep=sweep,
            n_sweeps=plan.n_sweeps,
            kept=plan.kept(sweep),
            log_joint=self.log_joints.get(chain, nan),
            best_chain=best,
            best_log_joint=self.log_joints.get(best, nan),
            seconds=time.monotonic() - self.begun,
        )
        if moved is None:
            now._holding(None, _nothing, 1.0)
        else:
            now._holding(moved.state, moved.gibbs.engine.gibbs_fetch, moved.gibbs.data.unit)
        self.stopped = says_stop(self.callback(now))
        return self.stopped


def _nothing(*_: Any) -> None:
    """There is no draw yet."""
