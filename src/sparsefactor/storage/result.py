"""The result of a run on disk: all of its posterior in one file, but for the draws, which lie beside it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import xarray as xr

from ..posterior import MCMCPosterior
from .draws import Layout, open_tree
from .files import read_file, write_file
from .lazy import relabelled_tree

NAME = "result.sf"


def save_result(posterior: MCMCPosterior, folder: Path) -> None:
    """Write down that the run in `folder` is done, and what it found."""
    attributes = xr.DataTree(xr.Dataset(attrs=posterior.draws["posterior"].attrs))
    write_file(replace(posterior, draws=attributes), folder / NAME)


def load_run(folder: Path) -> MCMCPosterior:
    """The posterior of a finished run; its draws stay on disk and are read when looked at."""
    if not (folder / "run.json").is_file():
        raise ValueError(f"{str(folder)!r} is not a run of sparsefactor; pass a path that sample() wrote")
    if not (folder / NAME).is_file():
        raise ValueError(
            f"a run must be done before it is loaded; {str(folder)!r} is not; go on with it: sample(..., resume=path)"
        )
    result = read_file(folder / NAME)
    assert isinstance(result, MCMCPosterior)
    draws = relabelled_tree(open_tree(Layout(result.prior, result.labels), folder), result.permutations, result.signs)
    draws["posterior"].attrs.update(result.draws.attrs)
    return replace(result, draws=draws)
