"""A run in a folder (see storage.checkpoint): what decides its draws, and where it is resumed from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..data import Data
from ..model import Prior
from ..posterior import MCMCPosterior
from ..start import Start
from ..storage.checkpoint import RUN, Checkpoint, Folder, read_record
from ..storage.draws import Layout, StoredDraws
from ..storage.identity import digest, prior_digest
from .chain import Plan


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


def draws_so_far(path: Path) -> int:
    """How many draws the run at `path` is to have; none where there is no run yet."""
    record = read_record(path, RUN) if path.is_dir() else None
    return 0 if record is None else int(record["sizes"]["n_draws"])


def finished(run: Folder | None, n_draws: int) -> MCMCPosterior | None:
    """What the run found, where it is done with this many draws."""
    result: MCMCPosterior | None = None if run is None else run.result()
    return result if result is not None and result.permutations.shape[1] == n_draws else None


def resume(run: Folder, layout: Layout, plan: Plan) -> tuple[StoredDraws, list[Checkpoint | None]]:
    """Write down that the run now has this many draws; where they go, and where every chain is resumed from.

    Nothing is changed unless all draws so far are whole, and a result stays until the new one takes its place.
    """
    old, size = run.sizes["n_draws"], run.sizes["chunk"]
    if plan.n_draws < old:
        raise ValueError(
            f"a run can be extended, not cut; the one in {str(run.path)!r} has n_draws={old}; got "
            f"n_draws={plan.n_draws}; pass at least {old} and take the draws you want, or another path"
        )
    n_chains, precision = run.settings["n_chains"], run.settings["precision"]
    sink = StoredDraws(layout, run.path, run.token, size, n_chains, plan.n_draws, precision, run.result(check=False))
    checkpoints = [run.latest(f"chain-{number}") for number in range(n_chains)]
    # What waits in a checkpoint is written again; all draws before it must be whole.
    sink.check([0 if one is None else plan.kept(one.facts["sweep"]) // size * size for one in checkpoints])
    run.grow(n_draws=plan.n_draws)
    return sink, checkpoints
