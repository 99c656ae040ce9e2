"""Compare methods on many tables: `python -m benchmarks.quality`.

Measures, for each method and table: replication in split halves, agreement between seeds, structure (where scales or the
true loadings are known), sparsity, error and log density of held-out entries, and CPU seconds. Columns are standardised
for all methods, and each process uses one core. `--quick` takes 16 tables, four
methods and fewer fits: at most 3 minutes on two cores; everything at most 40.

    python -m benchmarks.quality --quick
    python -m benchmarks.quality --methods default "fit:inclusion=Beta(1, 9)" varimax --tables bfi holzinger
    python -m benchmarks.quality --methods mymodule:myfunction --also before.json
    python -m benchmarks.quality --methods --also before.json        (only print what the file holds)
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import sparsefactor as sf

from . import methods, page, run, tables


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer tables, methods and fits")
    parser.add_argument(
        "--methods", nargs="*", help=f"of {', '.join(methods.METHODS)}, fit:name=value,..., module:function"
    )
    parser.add_argument("--tables", nargs="*", choices=list(tables.TABLES), metavar="TABLE", help="all by default")
    parser.add_argument("--splits", type=int, help="pairs of halves (5; quick: 2)")
    parser.add_argument("--seeds", type=int, help="fits of the whole table (3; quick: 2)")
    parser.add_argument("--masks", type=int, help="masks of held-out entries (2; quick: 1)")
    parser.add_argument("--limit", type=float, help="CPU seconds of a method on a table (30; quick: 10)")
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes; one per core by default"
    )
    parser.add_argument("--also", nargs="*", type=Path, default=[], help="show the results in these JSON files as well")
    parser.add_argument("--json", type=Path, help="write the results here")
    return parser.parse_args()


def main() -> None:
    args = parse()
    few = run.Plan(splits=2, seeds=2, masks=1, limit=10.0) if args.quick else run.Plan()
    given = {name: getattr(args, name) for name in ("splits", "seeds", "masks", "limit")}
    plan = run.Plan(**vars(few) | {name: value for name, value in given.items() if value is not None})
    names = args.methods if args.methods is not None else list(methods.QUICK if args.quick else methods.METHODS)
    begin, cells = time.perf_counter(), []
    results: dict[str, Any] = {
        "date": time.strftime("%Y-%m-%d"),
        "sparsefactor": sf.__version__,
        "plan": vars(plan),
    }
    if names:
        run.DATA.update(tables.load(args.tables or list(tables.QUICK if args.quick else tables.TABLES)))
        names = run.compile_and_check(names)
        for cell in run.run(names, plan, args.jobs):
            cells.append(cell)
            print(
                f"{time.perf_counter() - begin:5.0f} s  {cell['method']:12s} {cell['table']:15s} {cell['status']}",
                flush=True,
            )
            if args.json:  # after each cell, in case the run is interrupted
                args.json.write_text(json.dumps(results | {"cells": cells}, indent=1) + "\n")
    for file in args.also:
        for cell in json.loads(file.read_text())["cells"]:
            cells.append(cell | {"method": f"{cell['method']}@{file.stem}"})
    order = {name: number for number, name in enumerate([*tables.TABLES, *names])}
    cells.sort(key=lambda cell: (order.get(cell["table"], -1), order.get(cell["method"], len(order))))
    print(page.show(cells))
    print(f"{time.perf_counter() - begin:.0f} s in all")


if __name__ == "__main__":
    main()
