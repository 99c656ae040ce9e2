"""Compare the costs of this version with the recorded ones, and name what became more than 1.3 times worse.

    python -m benchmarks.guard [--only WORD ...]     # exit status 1 if anything became worse
    python -m benchmarks.guard --record              # write benchmarks/guard.json

Every figure is a ratio of two things measured in turn in one run (see guard_figures.py), so that it means the same on a
busy machine. One that is noisy or looks worse is measured once more, and the second measurement counts.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import platform
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.guard_figures import FIGURES, LIMIT, Figure
from sparsefactor.engine.threads import available_cores, single_blas_thread

FILE = Path(__file__).with_name("guard.json")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write the figures to the file instead of comparing")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="compare figures whose name has one of these words")
    parser.add_argument("--file", type=Path, default=FILE)
    options = parser.parse_args(arguments)
    if options.record and options.only:
        parser.error("--record writes all figures; leave --only out")
    if not options.record and not options.file.exists():
        parser.error(f"there is no file {options.file} to compare with; write it with --record")
    recorded = {} if options.record else json.loads(options.file.read_text())["figures"]
    with single_blas_thread(), warnings.catch_warnings(action="ignore"):
        chosen = [name for name in FIGURES if any(word in name for word in options.only or [""])]
        figures, worse = measure_all(chosen, recorded)
    if options.record:
        machine = f"{platform.machine()}, {available_cores()} cores, Python {platform.python_version()}, NumPy {np.__version__}"
        values = {name: {"value": round(figure.value, 4), "better": figure.better} for name, figure in figures.items()}
        found = {"machine": machine, "date": datetime.date.today().isoformat(), "figures": values}
        options.file.write_text(json.dumps(found, indent=1) + "\n")
    else:
        print(f"More than {LIMIT} times worse than recorded: {'; '.join(worse) or 'nothing'}.")
    return int(bool(worse))


def measure_all(names: Sequence[str], recorded: dict[str, dict[str, Any]]) -> tuple[dict[str, Figure], list[str]]:
    """Print a line for each figure; return the figures, and the names of those that became worse."""
    figures, worse = {}, []
    print(f"{'figure':60s} recorded      now  times worse")
    for name in names:
        before = recorded.get(name, {}).get("value", math.nan)  # nan: not recorded, and never worse
        figure = FIGURES[name]()
        if figure.noisy or figure.times_worse(before) > LIMIT:
            figure = FIGURES[name]()
        figures[name] = figure
        ratio = figure.times_worse(before)
        flag = "noisy" if figure.noisy else "WORSE" if ratio > LIMIT else ""
        worse += [name] if flag == "WORSE" else []
        print(f"{name:60s} {before:8.3f} {figure.value:8.3f} {ratio:8.2f}  {flag}".rstrip(), flush=True)
    return figures, worse


if __name__ == "__main__":
    sys.exit(main())
