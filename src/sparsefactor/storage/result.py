"""The result of a run on disk: all of its posterior in one file, but for the draws, which lie beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import xarray as xr

from ..posterior import MCMCPosterior
from .draws import Layout, open_tree
from .files import read_file, write_file
from .lazy import relabelled_tree

NAME = "result.sf"
TOKEN = "run"


def save_result(posterior: MCMCPosterior, folder: Path, token: str) -> None:
    """Write down that the run in `folder` is done, and what it found. token: the run's own, to tell its result."""
    attributes = xr.DataTree(xr.Dataset(attrs={**posterior.draws["posterior"].attrs, TOKEN: token}))
    write_file(replace(posterior, draws=attributes), folder / NAME)


def load_run(folder: Path) -> MCMCPosterior:
    """The posterior of a finished run; its draws stay on disk and are read when looked at."""
    try:
        token = json.loads((folder / "run.json").read_bytes())["token"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ValueError(f"{str(folder)!r} is not a run of sparsefactor; pass a path that sample() wrote") from None
    if not (folder / NAME).is_file():
        raise ValueError(
            f"a run must be done before it is loaded; {str(folder)!r} is not; go on with it: sample(..., resume=path)"
        )
    result = read_file(folder / NAME)
    attrs = dict(result.draws.attrs) if isinstance(result, MCMCPosterior) else {}
    if not isinstance(result, MCMCPosterior) or attrs.pop(TOKEN, None) != token:
        raise ValueError(
            f"{NAME} in a run's folder must be that run's own; the one in {str(folder)!r} is something else; put the "
            "right one back, or make it again from the draws: sample(..., resume=path) with the run's settings"
        )
    own = open_tree(Layout(result.prior, result.labels), folder, *result.permutations.shape[:2])
    draws = relabelled_tree(own, result.permutations, result.signs)
    draws["posterior"].attrs.update(attrs)
    return replace(result, draws=draws)
