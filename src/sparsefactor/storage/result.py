"""The result of a run or a fit in its folder: one file, which carries its token; draws of a run lie beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import xarray as xr

from ..posterior import MCMCPosterior, VIPosterior
from .chunks import StoredDraws
from .draws import Layout
from .files import RESULT, read_file, write_file
from .record import FIT, read_record

TOKEN = "run"


def save_result(posterior: MCMCPosterior, folder: Path, token: str) -> None:
    """Write down that the run in `folder` is done, and what it found. token: the run's own, to tell its result."""
    attributes = xr.DataTree(xr.Dataset(attrs={**posterior.draws["posterior"].attrs, TOKEN: token}))
    write_file(replace(posterior, draws=attributes), folder / RESULT)


def load_run(folder: Path, check: bool = True, max_bytes: int | None = None) -> MCMCPosterior:
    """The posterior of a finished run; its draws stay on disk and are read when looked at."""
    record = read_record(folder)
    if record is None:
        raise ValueError(f"{str(folder)!r} is not a run of sparsefactor; pass a path that sample() wrote")
    if not (folder / RESULT).is_file():
        raise ValueError(
            f"a run must be done before it is loaded; {str(folder)!r} is not; go on with it: sample(..., resume=path)"
        )
    result = read_result(folder, record["token"], max_bytes)
    return with_draws(result, folder, record["token"], record["chunk"], check)


def read_result(folder: Path, token: str, max_bytes: int | None = None) -> MCMCPosterior:
    """What the run found when it was last done, without its draws."""
    result = read_file(folder / RESULT, max_bytes)
    if not isinstance(result, MCMCPosterior) or result.draws.attrs.get(TOKEN) != token:
        raise ValueError(
            f"{RESULT} in a run's folder must be that run's own; the one in {str(folder)!r} is something else; put the "
            "right one back, or make it again from the draws: sample(..., resume=path) with the run's settings"
        )
    return result


def with_draws(result: MCMCPosterior, folder: Path, token: str, chunk: int, check: bool = True) -> MCMCPosterior:
    """The same with its draws, every byte of which is verified where `check`; each is again when it is read."""
    n_chains, n_draws = result.permutations.shape[:2]
    stored = StoredDraws(Layout(result.prior, result.labels), folder, token, chunk, n_chains, n_draws, "double")
    if check:
        stored.check([n_draws] * n_chains)
    draws = stored.labelled(result.permutations, result.signs)
    draws["posterior"].attrs.update({name: value for name, value in result.draws.attrs.items() if name != TOKEN})
    return replace(result, draws=draws)


# ---- fits ---------------------------------------------------------------------------------------------------------


def save_fit(posterior: VIPosterior, folder: Path, token: str) -> None:
    """Write the result of the fit in `folder`. token: the fit's own."""
    write_file(replace(posterior, record={**posterior.record, TOKEN: token}), folder / RESULT)


def read_fit(folder: Path, token: str, max_bytes: int | None = None) -> VIPosterior:
    """The result of the fit in `folder`, if it is that fit's."""
    result = read_file(folder / RESULT, max_bytes)
    if not isinstance(result, VIPosterior) or result.record.get(TOKEN) != token:
        raise ValueError(
            f"{RESULT} in a fit's folder must be that fit's own; {str(folder / RESULT)!r} is something else; remove "
            "it and fit again: fit_vi(..., path=path), or open it as a file: load(file)"
        )
    return replace(result, record={name: value for name, value in result.record.items() if name != TOKEN})


def load_fit(folder: Path, max_bytes: int | None = None) -> VIPosterior:
    """The posterior of a finished fit."""
    record = read_record(folder, FIT)
    if record is None or not (folder / RESULT).is_file():
        raise ValueError(
            f"a fit must be done before it is loaded; {str(folder)!r} is not; go on with it: fit_vi(..., path=path)"
        )
    return read_fit(folder, record["token"], max_bytes)
