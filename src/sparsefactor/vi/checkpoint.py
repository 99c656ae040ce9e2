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
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ..atomic import TEMPORARY
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
from .journal import JOURNAL, ROWS, JournalEngine, Notes, forget

logger = logging.getLogger("sparsefactor")

CHECKPOINT = "checkpoint"
NAMES = {LOCK, FIT.file, CHECKPOINT, RESULT, JOURNAL, ROWS}  # all that the folder of a fit may hold
KIND = b"SPFSEARC"  # of a checkpoint
VERSION = 1
DECIDING = ("n_trials", "max_iter", "tol", "rtol", "race", "accelerate", "activations", "prune", "average", "seed")


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


# ---- a fit in its folder --------------------------------------------------------------------------------------------


def fit_in(path: Path, engine: Engine, prior: Prior, options: Any, fit: Callable[[Any], VIPosterior]) -> VIPosterior:
    """The result of `fit` on this engine, or the one that is in the folder already."""
    with FitFolder.open(path, identity_of(engine, prior, options)) as folder:
        done = folder.result()
        if done is not None:
            return done
        if engine.name == "cpu" and engine.vi_shortcut(options.activations == "joint") is not None:
            result = fit(engine)  # so small that it is done before anything could be written
        else:
            with closing(Notes(folder.path, options.checkpoint_seconds)) as notes:
                result = fit(JournalEngine(engine, notes))
        if is_done(result):
            folder.save_result(result)
            forget(folder.path)
        return result


def is_done(result: VIPosterior) -> bool:
    return result.status not in (Status.STOPPED, Status.INTERRUPTED)


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
