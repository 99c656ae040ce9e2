"""The study's tables: CSV and Parquet on disk, and the same rows for the report."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .gauges import MEASURES
from .simulated import METHODS, Results

Rows = list[dict[str, Any]]


def summary_rows(results: Results) -> Rows:
    """Per dataset and method: how many reach the best mode, final measures of the best, seconds."""
    rows: Rows = []
    for snr in results.level.snrs:
        for method, title in METHODS.items():
            runs = results.of(snr, method)
            best = results.best(snr, method)
            rows.append(
                {
                    "snr": snr,
                    "method": title,
                    "runs": len(runs),
                    "in best mode": sum(results.reached(run) for run in runs),
                    **{title: best.last[name] for name, title in MEASURES.items()},
                    "seconds of best": best.facts["seconds"],
                    "seconds of all": results.fit_seconds[snr, method],
                }
            )
        baseline = {title: results.baselines[snr][name] for name, title in MEASURES.items()}
        rows.append({"snr": snr, "method": "prior mean", **baseline})
    return rows


def run_rows(results: Results) -> Rows:
    """One line per trial and chain."""
    rows: Rows = []
    for run in results.runs:
        factors = "".join("x" if k in run.found else "." for k in range(len(run.facts["correlations"])))
        rows.append(
            {
                "snr": run.snr,
                "method": METHODS[run.method],
                "number": run.number + 1,
                "start": run.facts["start"],
                "status": run.facts.get("status", "done"),
                "sweeps": run.facts["sweeps"],
                "seconds": run.facts["seconds"],
                **({"elbo": run.facts["elbo"]} if "elbo" in run.facts else {}),
                "factors found": factors,
                "best mode": "yes" if results.reached(run) else "no",
                **{title: run.last[name] for name, title in MEASURES.items()},
            }
        )
    return rows


def trace_rows(results: Results) -> Rows:
    """Every measurement on the way."""
    return [
        {"snr": run.snr, "method": run.method, "number": run.number + 1, **point}
        for run in results.runs
        for point in run.points
    ]


def write_table(folder: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """As CSV, with six digits, and exactly as Parquet where pyarrow is installed."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with (folder / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        return
    table = pyarrow.table({name: [row.get(name) for row in rows] for name in columns})
    pyarrow.parquet.write_table(table, folder / f"{name}.parquet")


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value
