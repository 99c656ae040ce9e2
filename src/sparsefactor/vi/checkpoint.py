"""Checkpoints of a search, from which a fit in a folder is resumed (see storage.checkpoint)."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from ..kernels.protocol import Engine
from ..model import Prior
from ..posterior import Status
from ..start import Start, given
from ..storage.checkpoint import Arrays, Folder, flatten, unflatten
from ..storage.identity import digest, measures_digest, prior_digest
from .cavi import VIState
from .trial import Trial

if TYPE_CHECKING:
    from .search import Search

logger = logging.getLogger("sparsefactor")

NAME = "search"  # of the checkpoint
DECIDING = (
    "search",
    "n_trials",
    "max_iter",
    "tol",
    "rtol",
    "race",
    "accelerate",
    "activations",
    "prune",
    "average",
    "seed",
)
# Of a trial: what a checkpoint holds besides its state and its trace.
KEPT = ("number", "name", "dropped_at", "iterations", "next_assignment", "seconds", "thinned", "finished", "rounds")
COUNTERS = ("proposals", "failures", "agreeing", "improved", "spent", "polishing")  # of a search
SHARE = 20.0  # at most 1 / SHARE of the time goes into writing checkpoints


class Checkpoints:
    """Writes the state of a search into the folder of its fit, and restores it."""

    def __init__(self, folder: Folder, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self.last, self.cost = time.monotonic(), 0.0

    def follow(self, search: Search) -> None:
        """Restore the search from the last checkpoint, if there is one, and write further ones from now on."""
        saved = self.folder.latest(NAME)
        if saved is not None:
            restore(search, saved.facts, saved.arrays)
            logger.info("the fit resumes from its checkpoint")
        search.watcher.save = lambda: self.save_after(search, self.seconds)
        search.save = lambda search: self.save_after(search, 0.0)

    def save_after(self, search: Search, seconds: float) -> None:
        """Write a checkpoint if the last one is as old as that, and the time allows it."""
        if time.monotonic() - self.last < max(seconds, SHARE * self.cost):
            return
        if all(trial.resumable for trial in search.trials) and search.trials:
            begin = time.monotonic()
            self.folder.save(NAME, *capture(search))
            self.last = time.monotonic()
            self.cost = self.last - begin


def capture(search: Search) -> tuple[dict[str, Any], Arrays]:
    """The state of a search, as facts and arrays."""
    arrays: Arrays = {}
    trials = []
    for trial in search.trials:
        state = trial.state._replace(rows=search.cavi.engine.vi_fetch(trial.state.rows))
        arrays |= flatten(state, f"{trial.number}/state")
        arrays[f"{trial.number}/trace"] = np.array(trial.trace, dtype=np.float64).reshape(-1, 3)
        facts = {name: getattr(trial, name) for name in KEPT}
        facts["status"] = None if trial.status is None else trial.status.name
        if trial.momentum is not None:
            facts["t"] = trial.momentum.t
            if trial.momentum.previous is not None:
                arrays[f"{trial.number}/previous"] = np.asarray(trial.momentum.previous)
        trials.append(facts)
    return {"trials": trials, **{name: getattr(search, name) for name in COUNTERS}}, arrays


def restore(search: Search, facts: dict[str, Any], arrays: Arrays) -> None:
    """Bring a search that has not begun to the state that was captured."""
    for own in facts["trials"]:
        number = own["number"]
        tell = None if search.watcher.callback is None else search.watcher.tell
        accelerate = search.options.accelerate
        state = unflatten(VIState, arrays, f"{number}/state")
        trial = Trial(
            number, own["name"], search.cavi, state, accelerate=accelerate, tell=tell, check=search.watcher.check
        )
        for name in KEPT:
            setattr(trial, name, own[name])
        trial.status = None if own["status"] is None else Status[own["status"]]
        trace = arrays[f"{number}/trace"].tolist()
        trial.trace = [(int(iteration), elbo, seconds) for iteration, elbo, seconds in trace]
        if trial.momentum is not None:
            trial.momentum.t, trial.momentum.previous = own["t"], arrays.get(f"{number}/previous")
        search.trials.append(trial)
    for name in COUNTERS:
        setattr(search, name, facts[name])


def identity_of(engine: Engine, prior: Prior, options: Any) -> dict[str, Any]:
    """All that decides the result, as JSON holds it."""
    starts = [digest(start.L, start.F) for start in given(options.init)]
    return {
        **{name: getattr(options, name) for name in DECIDING},
        "init": options.init if isinstance(options.init, str) else starts,
        "alone": isinstance(options.init, Start),
        "engine": engine.name,
        "X": measures_digest(engine.data),
        "prior": prior_digest(prior),
    }
