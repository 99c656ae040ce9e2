"""The output folder of the study on simulated data: figures, tables, run record and report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import sparsefactor as sf
from sparsefactor.plot import Line, Panel

from .claims import claims
from .measures import MEASURES
from .page import figure_section, record_section, table_section, write_csv, write_page
from .simulated import METHODS, Results, Run
from .units import run_record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Rows = list[dict[str, Any]]
HEATMAP_SNR = 5.0


def write(results: Results, out: Path, command: str, seconds: float) -> Path:
    """Write everything; return the report's path."""
    record = run_record(command, results.settings(), seconds)
    tables = {
        "claims": [claim.row() for claim in claims(results)],
        "summary": summary_rows(results),
        "runs": run_rows(results),
        "traces": trace_rows(results),
    }
    for name, rows in tables.items():
        write_csv(out, name, rows)
    snr = HEATMAP_SNR if HEATMAP_SNR in results.level.snrs else results.level.snrs[0]
    note = results.level.labels()
    inclusion = sf.plot.inclusion_heatmap(inclusion_panels(results, snr))
    over_time = sf.plot.over_time(grid_of(results, snr), note=f"snr = {snr:g}; {note}")
    noise = sf.plot.over_time(
        [[panel(results, s, m, f"snr = {s:g}") for s in results.level.snrs] for m in MEASURES], note=note
    )
    sections = [
        table_section("Claims of the paper", tables["claims"]),
        table_section("Results by noise level and method", tables["summary"], "Best-ELBO restart and best chain."),
        figure_section(f"Measures over computation time, snr = {snr:g}", save(over_time, out, "figure2_over_time")),
        figure_section("Measures by noise level", save(noise, out, "figure3_noise")),
        figure_section(f"True and inferred inclusion, snr = {snr:g}", save(inclusion, out, "figure1_inclusion")),
        table_section("Every restart and chain", tables["runs"], "x: the factor is found (correlation above 0.9)."),
        record_section(record),
    ]
    smaller = "" if results.level.name.startswith("full") else f"Smaller than the paper's study ({results.level.name})."
    about = f"800 features, 100 samples, 6 factors. {note}"
    return write_page(out, "MCMC and VI on simulated data", about, sections, record, smaller)


def panel(results: Results, snr: float, measure: str, title: str) -> Panel:
    """Every restart and chain of one dataset; the best-ELBO restart of each recipe marked."""
    lines = []
    for method, name in METHODS.items():
        best = results.best(snr, method)
        for run in results.of(snr, method):
            marked = method.startswith("vi") and run is best
            x = [point["seconds"] for point in run.points]
            lines.append(Line(x, [point[measure] for point in run.points], name, marked))
    return Panel(title, MEASURES[measure], lines, {"prior mean": results.baselines[snr][measure]})


def grid_of(results: Results, snr: float) -> list[list[Panel]]:
    """The four measures of one dataset, two by two."""
    panels = [panel(results, snr, measure, title) for measure, title in MEASURES.items()]
    return [panels[:2], panels[2:]]


def inclusion_panels(results: Results, snr: float) -> dict[str, Any]:
    """True inclusion, and that of the best chain and the best-ELBO restart of both recipes."""
    panels: dict[str, Any] = {"Truth": sf.simulate_paper(snr=snr, seed=results.level.seed).inclusion}
    for method in ("mcmc_plain", "vi_plain", "mcmc_default", "vi_default"):
        kind, recipe = method.split("_")
        title = f"{kind.upper()}, {'as in paper' if recipe == 'plain' else 'default'}"
        panels[title] = np.clip(results.best(snr, method).arrays["inclusion"], 0.0, 1.0)
    return panels


def save(figure: Figure, out: Path, name: str) -> Path:
    """Save a figure as SVG and PNG; return the path of the PNG."""
    folder = out / "figures"
    folder.mkdir(exist_ok=True)
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None})  # without a date, equal results give equal files
    figure.savefig(folder / f"{name}.png", dpi=140)
    return folder / f"{name}.png"


def summary_rows(results: Results) -> Rows:
    """By dataset and method: how many reach the best mode, final measures of the best, seconds."""
    rows: Rows = []
    for snr in results.level.snrs:
        for method, title in METHODS.items():
            runs, best = results.of(snr, method), results.best(snr, method)
            rows.append(
                {
                    "snr": snr,
                    "method": title,
                    "runs": len(runs),
                    "in best mode": sum(results.reached(run) for run in runs),
                    **_measures(best.last),
                    "seconds of best": best.facts["seconds"],
                    "seconds of all": results.fit_seconds[snr, method],
                }
            )
        rows.append({"snr": snr, "method": "prior mean", **_measures(results.baselines[snr])})
    return rows


def run_rows(results: Results) -> Rows:
    """A row for each restart and chain."""

    def row(run: Run) -> dict[str, Any]:
        return {
            "snr": run.snr,
            "method": METHODS[run.method],
            "number": run.number + 1,
            "start": run.facts["start"],
            "status": run.facts.get("status", "done"),
            "sweeps": run.facts["sweeps"],
            "seconds": run.facts["seconds"],
            "elbo": run.facts.get("elbo"),
            "factors found": "".join("x" if k in run.found else "." for k in range(len(run.facts["correlations"]))),
            "best mode": "yes" if results.reached(run) else "no",
            **_measures(run.last),
        }

    return [row(run) for run in results.runs]


def trace_rows(results: Results) -> Rows:
    """A row for each measurement."""
    return [
        {"snr": run.snr, "method": run.method, "number": run.number + 1, **point}
        for run in results.runs
        for point in run.points
    ]


def _measures(values: dict[str, float]) -> dict[str, float]:
    return {title: values[name] for name, title in MEASURES.items()}
