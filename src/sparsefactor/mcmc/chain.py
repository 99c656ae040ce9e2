"""One chain: its state, how far it has come, and what it keeps."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..gibbs.sweep import Gibbs, GibbsState
from ..kernels.noise import stream_key
from ..storage.checkpoint import Checkpoint, Folder, flatten, unflatten
from ..storage.draws import Sink
from .temper import power

PENDING = "pending/"  # draws that are on disk in the checkpoint alone


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many sweeps each chain makes, and which of them are kept."""

    n_warmup: int
    n_draws: int
    thin: int
    seed: int
    temper: bool

    @property
    def n_sweeps(self) -> int:
        return self.n_warmup + self.n_draws * self.thin

    def kept(self, sweep: int) -> int:
        """Draws kept once `sweep` sweeps are made."""
        return max(0, sweep - self.n_warmup) // self.thin


class Chain:
    """A chain between two sweeps. Its next sweep is a function of (seed, number, sweep) and the state alone."""

    def __init__(self, number: int, gibbs: Gibbs, plan: Plan, sink: Sink) -> None:
        self.number, self.gibbs, self.plan, self.sink = number, gibbs, plan, sink
        self.key = stream_key(plan.seed, number)
        self.sweep = 0
        self.log_joint = float("nan")
        self.active = 0  # loadings of the last draw
        self.tally: Any = gibbs.engine.gibbs_tally()  # sum over kept draws of F'L', in the units of X
        self.state: GibbsState | None = None

    @property
    def kept(self) -> int:
        return self.plan.kept(self.sweep)

    @property
    def signal(self) -> NDArray[np.float64]:
        """(n_samples, n_features) the sum over kept draws of F'L'."""
        return self.gibbs.engine.gibbs_tally_fetch(self.tally)

    @property
    def done(self) -> bool:
        return self.sweep >= self.plan.n_sweeps

    def advance(self) -> None:
        """One sweep; keeps its draw where one is due."""
        assert self.state is not None
        beta = power(self.sweep, self.plan.n_warmup) if self.plan.temper else 1.0
        self.state, info = self.gibbs.sweep(self.state, self.key, self.sweep, beta)
        self.log_joint, self.active = info.log_joint, info.n_active
        if self.plan.kept(self.sweep + 1) > self.kept:
            self.keep(self.kept)
        self.sweep += 1  # at last: a draw that could not be kept is none

    def keep(self, t: int) -> None:
        """Hand draw number t to the sink."""
        assert self.state is not None
        state, unit = self.state, self.gibbs.data.unit
        self.tally = self.gibbs.engine.gibbs_tally_add(self.tally, state.rows, state.scale * unit, state.F)
        self.sink.keep(self.number, t, self.drawn())

    def drawn(self) -> dict[str, Any]:
        """The draw in the public orientation."""
        assert self.state is not None
        state = self.state
        rows = self.gibbs.engine.gibbs_fetch(state.rows, state.scale)
        noise: dict[str, Any] = {"feature": rows.tau, "shared": state.tau[:1].sum(), "sample": state.tau}
        unit = self.gibbs.data.unit
        values = {
            "loadings": rows.L * unit,
            "inclusion": rows.Z,
            "activations": np.asarray(state.F).T,
            "noise_precision": noise[self.gibbs.prior.noise] / unit**2,
            "loading_precision": state.alpha.T / unit**2,
            "inclusion_rate": state.pi.T if self.gibbs.prior.grouped else self.gibbs.inclusion.rate(state),
            "lp": self.log_joint,
        }
        if len(state.phi):
            values["factor_correlation"] = state.phi
        design = self.gibbs.data.design
        if design is not None:
            values["intercept"] = design.intercepts(rows.base) * unit
            values["covariate_loadings"] = design.loadings(rows.base) * unit
        return values

    # ---- checkpoints ------------------------------------------------------------------------------------------

    def save(self, run: Folder) -> None:
        """Write a checkpoint; what it does not hold is on disk before it."""
        assert self.state is not None
        self.sink.settle(self.number)
        pending = self.sink.pending(self.number, self.kept)
        arrays = {
            **flatten(self.state._replace(rows=self.gibbs.engine.gibbs_fetch(self.state.rows)), "state"),
            "signal": self.signal,
            **{f"{PENDING}{name}": values for name, values in pending.items()},
        }
        run.save(f"chain-{self.number}", {"sweep": self.sweep, "log_joint": float(self.log_joint)}, arrays)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Resume from a checkpoint: to the bit what the chain was when it was written."""
        engine, arrays = self.gibbs.engine, checkpoint.arrays
        state: GibbsState = unflatten(GibbsState, arrays, "state")
        self.state = state._replace(rows=engine.gibbs_return(state.rows))
        self.sweep, self.log_joint = checkpoint.facts["sweep"], checkpoint.facts["log_joint"]
        self.tally = engine.gibbs_tally_return(arrays["signal"])
        pending = {name.removeprefix(PENDING): values for name, values in arrays.items() if name.startswith(PENDING)}
        self.sink.restore(self.number, self.kept, pending)


class Timer:
    """True every so many seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.last = time.monotonic()

    def due(self) -> bool:
        if time.monotonic() - self.last < self.seconds:
            return False
        self.last = time.monotonic()
        return True
