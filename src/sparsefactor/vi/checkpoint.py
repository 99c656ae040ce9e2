"""Run a fit in a folder: resume it from its last checkpoint, or return its result if it is done.

lock           held by the process that works on the fit
fit.json       what the fit is: its token, settings, digests of data and prior, which sparsefactor made it
checkpoint     the state of the search when it was last saved
result.sf      the posterior, once the fit is done
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..atomic import TEMPORARY
from ..kernels.contract import NONE, ELBOTerms, GibbsTerms, Sums, VIColumns, VIRows, VITerms
from ..kernels.protocol import Engine
from ..model import Prior
from ..posterior import Status, VIPosterior
from ..start import Start, given
from ..storage.files import RESULT
from ..storage.folder import LOCK, resolve, sole_writer
from ..storage.identity import digest, measures_digest, prior_digest
from ..storage.record import FIT, made_by, read_record, write_record
from ..storage.result import read_fit, save_fit
from ..storage.sealed import Arrays, Sealed, SealedError, read_arrays, seal_arrays, write_atomically
from .cavi import VIState
from .trial import Trial

if TYPE_CHECKING:
    from .search import Search

logger = logging.getLogger("sparsefactor")

CHECKPOINT = "checkpoint"
NAMES = {LOCK, FIT.file, CHECKPOINT, RESULT}  # all that the folder of a fit may hold
KIND = b"SPFSEARC"  # of a checkpoint
VERSION = 1
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


@dataclass(frozen=True)
class FitFolder:
    """The folder of a fit, locked by this process. token: the fit's own, which all of its files carry."""

    path: Path
    token: str

    @classmethod
    @contextmanager
    def open(cls, path: str | PathLike[str], identity: dict[str, Any]) -> Iterator[FitFolder]:
        """Lock the folder at `path`, which is made where there is none, and check that it holds this fit.

        identity: all that decides the result, by name, as JSON holds it.
        """
        folder = resolve(path)
        if not folder.parent.is_dir():
            raise FileNotFoundError(
                f"the directory of a fit must exist; {str(folder.parent)!r} does not; create it first"
            )
        if folder.exists() and not folder.is_dir():
            raise _foreign(folder, "is a file")
        folder.mkdir(exist_ok=True)
        _refuse_others(folder, NAMES)  # before a lock is left in a folder that is not a fit's
        with sole_writer(folder, "fit"):
            record = read_record(folder, FIT)
            if record is None:
                _refuse_others(folder, {LOCK})
                record = {"token": secrets.token_hex(16), "identity": identity}
                write_record(folder, record, FIT)
            _check_identity(folder, record["identity"], json.loads(json.dumps(identity)))
            yield cls(folder, record["token"])

    def result(self) -> VIPosterior | None:
        """The posterior, if the fit is done."""
        return read_fit(self.path, self.token) if (self.path / RESULT).exists() else None

    def save_result(self, posterior: VIPosterior) -> None:
        """Save the posterior of the fit, which is done with it, and remove the checkpoint."""
        save_fit(posterior, self.path, self.token)
        (self.path / CHECKPOINT).unlink(missing_ok=True)

    def checkpoint(self) -> tuple[dict[str, Any], Arrays] | None:
        """The facts and arrays that were saved last; None if there are none, or (with a warning) not this fit's."""
        try:
            with (self.path / CHECKPOINT).open("rb") as file:
                sealed = Sealed(file, KIND, "a checkpoint of a fit")
                version = sealed.facts.get("version")
                if version != VERSION:
                    raise SealedError(f"has version {version!r}, and this sparsefactor reads {VERSION}")
                if sealed.facts.get("fit") != self.token:
                    raise SealedError("belongs to another fit")
                if not isinstance(facts := sealed.facts.get("facts"), dict):
                    raise SealedError("has no facts")
                return facts, read_arrays(sealed)
        except FileNotFoundError:
            return None
        except SealedError as problem:
            logger.warning("%s %s; the fit begins again", self.path / CHECKPOINT, problem)
            return None

    def save_checkpoint(self, facts: dict[str, Any], arrays: Arrays) -> None:
        """Replace the checkpoint. facts: as JSON holds them; arrays: of numbers, by name."""
        own = {"version": VERSION, "fit": self.token, "facts": facts}
        write_atomically(self.path / CHECKPOINT, *seal_arrays(KIND, own, arrays))


def _refuse_others(folder: Path, names: set[str]) -> None:
    """Refuse a folder that holds anything but files of these names, and temporary files."""
    for name in sorted(os.listdir(folder)):
        if name not in names and not TEMPORARY.fullmatch(name):
            raise _foreign(folder, f"holds {name!r}")


def _foreign(folder: Path, found: str) -> ValueError:
    return ValueError(
        f"a path must be new, or hold a fit of sparsefactor and nothing else; {str(folder)!r} {found}; pass another "
        "path, or remove what is there"
    )


def _check_identity(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    for name in sorted(now.keys() | before.keys()):
        if now.get(name) != before.get(name):
            raise ValueError(
                f"a fit goes on with the data, settings and code that it began with; the one in {str(folder)!r} has "
                f"{name}={before.get(name)!r}; got {now.get(name)!r}; pass the same, or another path"
            )


# ---- the state of a search --------------------------------------------------------------------------------

# Of a trial: what a checkpoint holds besides its state and its trace.
KEPT = ("number", "name", "dropped_at", "iterations", "next_assignment", "seconds", "thinned", "finished", "rounds")
COUNTERS = ("proposals", "failures", "agreeing", "improved", "spent", "polishing")  # of a search
TUPLES: dict[str, Any] = {
    "rows": VIRows,
    "columns": VIColumns,
    "sums": Sums,
    "terms": ELBOTerms,
    "sums.elbo": VITerms,
    "sums.joint": GibbsTerms,
}
SHARE = 20.0  # at most 1 / SHARE of the time goes into writing checkpoints


class Checkpoints:
    """Writes the state of a search into the folder of its fit, and restores it."""

    def __init__(self, folder: FitFolder, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self.last, self.cost = time.monotonic(), 0.0

    def follow(self, search: Search) -> None:
        """Restore the search from the last checkpoint, if there is one, and write further ones from now on."""
        saved = self.folder.checkpoint()
        if saved is not None:
            restore(search, *saved)
            logger.info("the fit resumes from its checkpoint")
        search.watcher.save = lambda: self.save_after(search, self.seconds)
        search.save = lambda search: self.save_after(search, 0.0)

    def save_after(self, search: Search, seconds: float) -> None:
        """Write a checkpoint if the last one is as old as that, and the time allows it."""
        if time.monotonic() - self.last < max(seconds, SHARE * self.cost):
            return
        if all(trial.resumable for trial in search.trials) and search.trials:
            begin = time.monotonic()
            self.folder.save_checkpoint(*capture(search))
            self.last = time.monotonic()
            self.cost = self.last - begin


def capture(search: Search) -> tuple[dict[str, Any], Arrays]:
    """The state of a search, as facts and arrays."""
    arrays: Arrays = {}
    trials = []
    for trial in search.trials:
        state = trial.state._replace(rows=search.cavi.engine.vi_fetch(trial.state.rows))
        flatten(f"{trial.number}", state, arrays)
        arrays[f"{trial.number}.trace"] = np.array(trial.trace, dtype=np.float64).reshape(-1, 3)
        facts = {name: getattr(trial, name) for name in KEPT}
        facts["status"] = None if trial.status is None else trial.status.name
        if trial.momentum is not None:
            facts["t"] = trial.momentum.t
            if trial.momentum.previous is not None:
                arrays[f"{trial.number}.previous"] = np.asarray(trial.momentum.previous)
        trials.append(facts)
    return {"trials": trials, **{name: getattr(search, name) for name in COUNTERS}}, arrays


def restore(search: Search, facts: dict[str, Any], arrays: Arrays) -> None:
    """Bring a search that has not begun to the state that was captured."""
    for own in facts["trials"]:
        number = own["number"]
        tell = None if search.watcher.callback is None else search.watcher.tell
        accelerate = search.options.accelerate
        state = unflatten(f"{number}", arrays)
        trial = Trial(
            number, own["name"], search.cavi, state, accelerate=accelerate, tell=tell, check=search.watcher.check
        )
        for name in KEPT:
            setattr(trial, name, own[name])
        trial.status = None if own["status"] is None else Status[own["status"]]
        trace = arrays[f"{number}.trace"].tolist()
        trial.trace = [(int(iteration), elbo, seconds) for iteration, elbo, seconds in trace]
        if trial.momentum is not None:
            trial.momentum.t, trial.momentum.previous = own["t"], arrays.get(f"{number}.previous")
        search.trials.append(trial)
    for name in COUNTERS:
        setattr(search, name, facts[name])


def flatten(name: str, value: Any, arrays: Arrays) -> None:
    """The arrays and numbers of nested named tuples, by their names joined with dots; empty fields are left out."""
    if hasattr(value, "_fields"):
        for field, part in zip(value._fields, value, strict=True):
            flatten(f"{name}.{field}", part, arrays)
    elif value is not NONE:
        arrays[name] = np.asarray(value)


def unflatten(number: str, arrays: Arrays) -> VIState:
    """The state that `flatten` took apart."""

    def build(kind: Any, place: str) -> Any:
        parts = {}
        for field in kind._fields:
            own = f"{place}.{field}" if place else field
            if own in TUPLES:
                parts[field] = build(TUPLES[own], own)
            elif f"{number}.{own}" in arrays:
                array = arrays[f"{number}.{own}"]
                parts[field] = array if array.ndim else float(array)
        return kind(**parts)

    state: VIState = build(VIState, "")
    return state


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
        **made_by(),
    }
