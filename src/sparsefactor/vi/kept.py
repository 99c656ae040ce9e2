"""A fit with a folder: begun there, gone on with, and found there once it is done.

fit.json           what the fit is: settings, digests of data and prior, which sparsefactor made it
journal            what the engine said so far (journal.py)
rows.checkpoint    rows, as they were when they were last written down
result.sf          the posterior, once the fit is done
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from ..kernels.protocol import Engine
from ..model import Prior
from ..posterior import Status, VIPosterior
from ..start import Start, given
from ..storage.files import FIT, RESULT, read_file, write_file
from ..storage.identity import digest, measures_digest, prior_digest, sole_writer
from ..storage.record import made_by
from ..storage.sealed import write_atomically
from .journal import JournalEngine, Notes, forget

DECIDING = ("n_trials", "max_iter", "tol", "rtol", "race", "accelerate", "activations", "prune", "average", "seed")


def fit_in(folder: Path, engine: Engine, prior: Prior, options: Any, fit: Callable[[Any], VIPosterior]) -> VIPosterior:
    """What `fit` makes of the engine, or has made of it in that folder before."""
    begin(folder, settings_of(engine, prior, options))
    with sole_writer(folder):
        if (folder / RESULT).exists():
            done = read_file(folder / RESULT)
            assert isinstance(done, VIPosterior)
            return done
        if engine.name == "cpu" and engine.vi_shortcut(options.activations == "joint") is not None:
            result = fit(engine)  # so small that it is done before anything could be written
        else:
            with closing(Notes(folder, options.checkpoint_seconds)) as notes:
                result = fit(JournalEngine(engine, notes))
        if is_done(result):
            write_file(result, folder / RESULT)
            forget(folder)
        return result


def is_done(result: VIPosterior) -> bool:
    return result.status not in (Status.STOPPED, Status.INTERRUPTED)


def settings_of(engine: Engine, prior: Prior, options: Any) -> dict[str, Any]:
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


def begin(folder: Path, settings: dict[str, Any]) -> None:
    """Make the folder of a fit, or see that it is that of this one."""
    if not folder.parent.is_dir():
        raise FileNotFoundError(f"the directory of a fit must exist; {str(folder.parent)!r} does not; create it first")
    file = folder / FIT
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        folder.mkdir(exist_ok=True)
        write_atomically(file, json.dumps(settings, indent=1).encode())
        return
    try:
        before = json.loads(file.read_bytes())
    except (OSError, ValueError):
        before = None
    if not isinstance(before, dict):
        raise ValueError(
            f"a path must be new, or hold a fit of sparsefactor; {str(folder)!r} holds something else; pass another "
            "path, or remove what is there"
        )
    now = json.loads(json.dumps(settings))
    for name in sorted(now.keys() | before.keys()):
        if now.get(name) != before.get(name):
            raise ValueError(
                f"a fit goes on with the data, settings and code that it began with; the one in {str(folder)!r} has "
                f"{name}={before.get(name)!r}; got {now.get(name)!r}; pass the same, or another path"
            )
