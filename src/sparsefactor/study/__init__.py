"""The paper's study: simulated data and the GTEx fill-in test, each by one call.

`sparsefactor reproduce` is the command for it.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import gtex, simulated
from .matrix import Matrix, made_matrix, matrix_of, read_matrix
from .pages import write_gtex, write_simulated
from .units import Cache, Progress, Report

__all__ = ["Matrix", "Progress", "made_matrix", "matrix_of", "read_matrix", "reproduce_gtex", "reproduce_simulated"]


def reproduce_simulated(
    out: Path, *, level: str = "standard", jobs: int = 1, report: Report | None = None, **changes: Any
) -> Path:
    """Run the study on simulated data into a folder, going on where it stopped; returns the path of its report."""
    begin = time.monotonic()
    chosen = replace(simulated.LEVELS[level], **changes)
    results = simulated.run(chosen, Cache(out / "cache"), jobs, report)
    command = f"sparsefactor reproduce simulated{_flag(level)} --jobs {jobs}"
    return write_simulated(results, out, command, time.monotonic() - begin)


def reproduce_gtex(
    out: Path,
    matrix: Matrix | None = None,
    *,
    level: str = "standard",
    jobs: int = 1,
    report: Report | None = None,
    **changes: Any,
) -> Path:
    """Run the fill-in test into a folder, on a matrix or on one made in its likeness; returns the report's path."""
    begin = time.monotonic()
    chosen = replace(gtex.LEVELS[level], **changes)
    data = made_matrix(n_factors=chosen.n_factors) if matrix is None else matrix
    results = gtex.run(chosen, data, Cache(out / "cache"), jobs, report)
    given = "" if matrix is None else f" --data {matrix.source}"
    command = f"sparsefactor reproduce gtex{given}{_flag(level)} --seed {chosen.seed} --jobs {jobs}"
    return write_gtex(results, out, command, time.monotonic() - begin)


def _flag(level: str) -> str:
    """The command line's spelling of a level; the standard one has none."""
    return "" if level == "standard" else f" --{level}"
