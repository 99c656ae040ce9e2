"""The settings of sample."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checks import check_watching, checked_choice, checked_count, checked_number
from ..data import Data
from ..gibbs.moves import MOVES
from ..model import Prior
from ..start import MADE, Start
from ..storage.draws import PRECISIONS
from . import run_folder
from .chain import Plan
from .watch import Callback

CHAIN_INITS = ("auto", "optima", *MADE)
# Noise precisions are of the order of the scale's inverse square, and single precision ends near 1e38.
SINGLE_SCALES = (1e-15, 1e15)


@dataclass(frozen=True, kw_only=True)
class Options:
    """The settings of sample, checked once."""

    n_chains: int
    n_warmup: int
    n_draws: int
    thin: int
    init: str | Start
    moves: tuple[str, ...] | None  # None: all that the engine has
    temper: bool
    seed: int
    backend: str
    n_jobs: int | None
    progress: bool | None
    callback: Callback | None
    path: Path | None
    checkpoint_seconds: float
    precision: str
    force: bool
    until: str | None
    max_seconds: float | None
    client: Any = None

    def __post_init__(self) -> None:
        for name, least in (("n_chains", 1), ("n_warmup", 0), ("n_draws", 1), ("thin", 1), ("seed", 0), ("n_jobs", 1)):
            value = getattr(self, name)
            if name != "n_jobs" or value is not None:
                object.__setattr__(self, name, checked_count(name, value, least))
        if not isinstance(self.init, Start):
            checked_choice("init", self.init, CHAIN_INITS, " or a Start")
        unknown = [name for name in self.moves or () if not isinstance(name, str) or name not in MOVES]
        if unknown:
            raise ValueError(f"moves must be among {tuple(MOVES)}; got {unknown[0]!r}; leave it out")
        checked_choice("precision", self.precision, PRECISIONS)
        object.__setattr__(self, "checkpoint_seconds", checked_number("checkpoint_seconds", self.checkpoint_seconds))
        if self.until not in (None, "converged"):
            raise ValueError(f'until must be None or "converged"; got {self.until!r}; pass one of them')
        if self.max_seconds is not None:
            if self.until is None:
                raise ValueError(
                    f"max_seconds is for a run that goes on by itself; got {self.max_seconds!r} with until=None; "
                    'pass until="converged" too'
                )
            object.__setattr__(self, "max_seconds", checked_number("max_seconds", self.max_seconds, "pass one that is"))
        check_watching(self.progress, self.callback)

    @property
    def plan(self) -> Plan:
        return Plan(n_warmup=self.n_warmup, n_draws=self.n_draws, thin=self.thin, seed=self.seed, temper=self.temper)

    def settings(self, data: Data, prior: Prior, engine: str) -> dict[str, Any]:
        """What decides the draws, apart from their number."""
        names = ("n_chains", "n_warmup", "thin", "moves", "temper", "seed", "init")
        chosen = {name: getattr(self, name) for name in names}
        return run_folder.settings_of(data, prior, engine, self.stored_precision(data), **chosen)

    def stored_precision(self, data: Data) -> str:
        """Double where draws of data at this scale might leave the range of single precision."""
        least, most = SINGLE_SCALES
        return self.precision if least < data.unit_scale * data.unit < most else "double"
