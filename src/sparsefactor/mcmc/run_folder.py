"""A run on disk: its settings, its draws, its checkpoints, its result; and whether a call may go on with it.

run.json        what the run is: settings, hashes of data and prior, its token, which sparsefactor made it
sampler/        chunks of draws, under the sampler's own labels
checkpoints/    two generations for each chain
result.sf       moments and labelling, once the run is done
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..atomic import make_folder
from ..data import Data
from ..model import Prior
from ..start import Start
from ..storage.chunks import StoredDraws
from ..storage.draws import Layout
from ..storage.files import RESULT
from ..storage.folder import sole_writer as sole_writer
from ..storage.identity import digest, prior_digest
from ..storage.record import made_by, read_record, write_record
from .checkpoint import Checkpoint, read_latest


@dataclass(frozen=True)
class RunFolder:
    """An existing run that this process may write to."""

    path: Path
    token: str
    chunk: int
    settings: dict[str, Any]
    makers: dict[str, Any]

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def result(self) -> Path:
        return self.path / RESULT

    def write(self, n_draws: int, makers: dict[str, Any]) -> None:
        parts = {"token": self.token, "chunk": self.chunk, "n_draws": n_draws, "settings": self.settings}
        write_record(self.path, {**parts, "made_by": makers})

    def latest(self, chain: int) -> Checkpoint:
        return read_latest(self.checkpoints, self.token, chain)

    def draws(self, layout: Layout, n_chains: int, n_draws: int) -> StoredDraws:
        return StoredDraws(layout, self.path, self.token, self.chunk, n_chains, n_draws, self.settings["precision"])


def settings_of(data: Data, prior: Prior, engine: str, precision: str, **settings: Any) -> dict[str, Any]:
    """Everything that decides the draws, apart from how many there are, as JSON holds it."""
    init = settings.pop("init")
    names = [data.feature_names.astype(str), data.sample_names.astype(str)]
    arrays = [*(data.Y.digest_arrays if data.is_sparse else [data.Y]), data.offset, data.scale, data.unit, *names]
    hidden: list[Any] = [] if data.observed is None else [data.observed]
    if data.design is not None and data.design.covariates is not None:
        hidden.append(data.design.basis)
        hidden += ["slab"] if data.design.slab else []
    return {
        **{name: list(value) if isinstance(value, tuple) else value for name, value in settings.items()},
        "init": f"Start {digest(init.L, init.F)}" if isinstance(init, Start) else init,
        "engine": engine,
        "precision": precision,
        "X": digest(*arrays, *hidden),
        "prior": prior_digest(prior),
    }


def create(
    path: Path, chunk: int, n_draws: int, settings: dict[str, Any], save_starts: Callable[[RunFolder], None]
) -> None:
    """A new run with every chain's start as its first checkpoint: there as a whole, or not at all."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the directory of a run must exist; {str(path.parent)!r} does not; create it first")
    try:
        with make_folder(path) as making:
            run = RunFolder(making, secrets.token_hex(16), chunk, settings, made_by())
            run.checkpoints.mkdir()
            save_starts(run)
            run.write(n_draws, run.makers)
    except OSError as problem:
        if problem.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        raise RuntimeError(
            f"one process at a time may begin a run; another wrote {str(path)!r} while this one made its starts; "
            "call again to go on with what is there once it is done, or pass another path"
        ) from problem


def reopen(path: Path, settings: dict[str, Any]) -> RunFolder:
    """The run at `path`, if it is one and was made with these settings."""
    record = _record(path)
    for name in sorted(settings.keys() | record["settings"].keys()):
        old, new = record["settings"].get(name), settings.get(name)
        if old != new:
            if name in ("X", "prior"):
                raise ValueError(
                    f"a run goes on with the same {name}; the one in {str(path)!r} was made with another; "
                    f"pass that {name}, or another path"
                )
            if name == "engine":
                raise ValueError(
                    f"a run goes on with the backend it began with; the one in {str(path)!r} was made by {old}; got "
                    f"{new}; pass backend={old!r}, or "
                    "another path"
                )
            raise ValueError(
                f"a run goes on with the settings it began with; the one in {str(path)!r} has {name}={old!r}; "
                f"got {name}={new!r}; pass {name}={old!r}, or another path"
            )
    return RunFolder(path, record["token"], record["chunk"], settings, record["made_by"])


def draws_so_far(path: Path) -> int:
    """How many draws the run at `path` is to have; none where there is no run yet."""
    record = read_record(path) if path.is_dir() else None
    return 0 if record is None else int(record["n_draws"])


def extend(run: RunFolder, n_draws: int, force: bool, check: Callable[[list[Checkpoint]], None]) -> list[Checkpoint]:
    """Write down that the run now has this many draws; where every chain goes on from.

    Nothing is changed unless every chain can go on, and a result stays until the new one takes its place.
    force: go on although other code began the run, and write that down. check: refuses draws that are not whole.
    """
    makers = _makers(run, force)
    old = int(_record(run.path)["n_draws"])
    if n_draws < old:
        raise ValueError(
            f"a run can be extended, not cut; the one in {str(run.path)!r} has n_draws={old}; got "
            f"n_draws={n_draws}; pass at least {old} and take the draws you want, or another path"
        )
    checkpoints = [run.latest(chain) for chain in range(run.settings["n_chains"])]
    check(checkpoints)
    run.write(n_draws, makers)
    return checkpoints


def _makers(run: RunFolder, force: bool) -> dict[str, Any]:
    """Which sparsefactor makes the run from here on; another than before only by force."""
    now, before = made_by(), run.makers
    if all(before.get(name) == value for name, value in now.items()):
        return before
    if not force:
        raise ValueError(
            f"a run goes on under the code that began it; the one in {str(run.path)!r} was made by sparsefactor "
            f"{before.get('sparsefactor')} (code {before.get('code')}), and this is {now['sparsefactor']} (code "
            f"{now['code']}); go on under that version, sample again with another path, or pass force=True to mix both"
        )
    earlier = [{name: before.get(name) for name in now}]
    return {**now, "earlier": [*before.get("earlier", []), *earlier]}


def _record(path: Path) -> dict[str, Any]:
    record = read_record(path)
    if record is None:
        raise ValueError(
            f"a path must be new, or hold a run of sparsefactor; {str(path)!r} holds something else; "
            "pass another path, or remove what is there"
        )
    return record
