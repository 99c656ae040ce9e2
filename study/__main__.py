"""`python -m study demo`, and the paper's study: `python -m study simulated` and `python -m study gtex`."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from . import demo, gtex, report_gtex, report_simulated, simulated
from .matrix import read_matrix, simulate_matrix
from .units import Cache, Progress


def main(arguments: list[str] | None = None) -> None:
    given = parser().parse_args(arguments)
    if given.study == "demo":
        demo.run(given.out)
        return
    begin = time.monotonic()
    given.out.mkdir(parents=True, exist_ok=True)
    cache = Cache(given.out / "cache")
    command = f"python -m study {given.study}" + ("" if given.level == "standard" else f" --{given.level}")
    command += f" --jobs {given.jobs}"
    try:
        if given.study == "simulated":
            level = simulated.LEVELS[given.level]
            results = simulated.run(level, cache, given.jobs, show)
            page = report_simulated.write(results, given.out, command, time.monotonic() - begin)
            print(table(report_simulated.summary_rows(results)))
        else:
            filled = gtex.level_of(given.level, given.seed)
            data = given.data and read_matrix(given.data, transpose=given.transpose)
            matrix = data or simulate_matrix(n_factors=filled.n_factors)
            found = gtex.run(filled, matrix, cache, given.jobs, show)
            source = f" --data {matrix.source}" if data else ""
            command = f"{command}{source} --seed {given.seed}"
            page = report_gtex.write(found, given.out, command, time.monotonic() - begin)
            print(table(report_gtex.fill_in_rows(found)))
    except KeyboardInterrupt:
        sys.exit("Interrupted; the same command resumes.")
    print(f"\nReport: {page.resolve()}")


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="python -m study", description="The paper's comparison of MCMC and VI.")
    studies = whole.add_subparsers(dest="study", required=True)
    help_text = "Fit a real table and the paper's simulation, and write a report: a minute."
    show_case = studies.add_parser("demo", help=help_text, description=help_text)
    show_case.add_argument("--out", type=Path, default=Path("demo-output"), help="output folder")
    for name, help_text in (
        ("simulated", "Section 5.1: simulated data at three noise levels."),
        ("gtex", "Section 5.2: predict held-out entries of a table of samples by features."),
    ):
        study = studies.add_parser(name, help=help_text, description=help_text)
        study.add_argument("--out", type=Path, default=Path(f"study-{name}"), help="output folder")
        study.add_argument("--jobs", type=int, default=1, help="processes")
        size = study.add_mutually_exclusive_group()
        size.add_argument("--quick", dest="level", action="store_const", const="quick", help="the small study")
        size.add_argument("--full", dest="level", action="store_const", const="full", help="the paper's counts: hours")
        study.set_defaults(level="standard")
    study.add_argument("--data", type=Path, help="a table; without it, a matrix is simulated")
    study.add_argument("--transpose", action="store_true", help="rows of the table are features")
    study.add_argument("--seed", type=int, default=0, help="of the held-out entries")
    return whole


def show(progress: Progress) -> None:
    """A line for each unit that is done, on standard error."""
    print(
        f"{progress.done:>3} of {progress.total} fits, {progress.seconds:.0f} s: {progress.title}",
        file=sys.stderr,
        flush=True,
    )


def table(rows: list[dict]) -> str:
    import pandas as pd

    return pd.DataFrame(rows).to_string(index=False, na_rep="", float_format=lambda value: f"{value:.4g}")


if __name__ == "__main__":
    main()
