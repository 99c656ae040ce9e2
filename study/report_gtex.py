"""The output folder of the fill-in test: figures, tables, run record and report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import sparsefactor as sf
from sparsefactor.plot import Line, Panel

from . import gtex
from .matrix import factor_shares, held_out
from .page import figure_section, record_section, table_section, write_csv, write_page
from .report_simulated import save
from .units import run_record

Rows = list[dict[str, Any]]


def write(results: gtex.Results, out: Path, command: str, seconds: float) -> Path:
    """Write everything; return the report's path."""
    record = run_record(command, results.settings(), seconds)
    matrix, rows = results.matrix, fill_in_rows(results)
    write_csv(out, "fill_in", rows)
    write_csv(
        out,
        "traces",
        [
            {"method": run.method, "inclusion": run.inclusion, "noise": run.noise, "number": run.number + 1, **point}
            for run in results.runs
            for point in run.points
        ],
    )
    np.save(out / "held_out.npy", held_out(matrix.values.shape, results.level.seed))
    note = f"{matrix.simulated} {results.level.labels()}".strip()
    best = results.best("vi_default", gtex.RECOMMENDED).arrays
    shares = np.maximum(factor_shares(matrix.values, best["loadings"], best["activations"]), 0.0)
    bars_note = f"{matrix.simulated} Factors over samples, with the share of variance explained".strip()
    over_time = sf.plot.over_time(grid_of(results), note=note)
    factors = sf.plot.factor_bars(best["activations"], matrix.sample_names, shares, note=bars_note)
    sections = [
        table_section("Fill-in error by setting and method", rows, "Best-ELBO restart, or mean of restarts or chains."),
        figure_section("Fill-in error over computation time", save(over_time, out, "figure4_fill_in")),
        figure_section("Factors (VI, learnt inclusion, noise by sample)", save(factors, out, "factors")),
        record_section(record),
    ]
    about = f"{matrix.values.shape[0]:,} features, {matrix.values.shape[1]} samples ({matrix.source}). {note}"
    return write_page(out, "The fill-in test", about, sections, record, matrix.simulated)


def fill_in_rows(results: gtex.Results) -> Rows:
    """Error and seconds by inclusion, noise and method, and the baselines."""
    rows: Rows = []
    for inclusion in gtex.INCLUSIONS:
        for noise in gtex.NOISES:
            for method, title in gtex.METHODS.items():
                runs = results.of(method, (inclusion, noise))
                if runs:
                    rows.append(
                        {
                            "method": title,
                            "inclusion": inclusion,
                            "noise": noise,
                            "fill-in RRMSE": results.pooled(method, (inclusion, noise)),
                            "runs": runs[0].facts.get("trials", len(runs)),
                            "seconds of all": results.fit_seconds[method, inclusion, noise],
                        }
                    )
    return rows + [{"method": name, "fill-in RRMSE": value} for name, value in results.levels.items()]


def grid_of(results: gtex.Results) -> list[list[Panel]]:
    """Error over time, a row for each kind of inclusion and a column for each kind of noise."""
    # Zero and the feature means lie far above the rest.
    levels = {name: value for name, value in results.levels.items() if name == "soft-thresholded SVD"}
    grid = []
    for inclusion in gtex.INCLUSIONS:
        panels = []
        for noise, noise_title in gtex.NOISES.items():
            lines = [
                Line(
                    [point["seconds"] for point in run.points],
                    [point["rrmse"] for point in run.points],
                    title,
                    method.startswith("vi") and run is results.best(method, run.setting),
                )
                for method, title in gtex.METHODS.items()
                for run in results.of(method, (inclusion, noise))
            ]
            panels.append(Panel(f"{inclusion} inclusion, {noise_title}", "fill-in RRMSE", lines, levels))
        grid.append(panels)
    # One scale for all panels, on which the ends can be told apart.
    chosen = [run.rrmse for run in results.runs if not run.method.startswith("vi")]
    chosen += [line.y[-1] for row in grid for panel in row for line in panel.lines if line.marked]
    low = min([*levels.values(), *(min(line.y) for row in grid for panel in row for line in panel.lines)])
    high = max([*levels.values(), *chosen])
    ylim = low - 0.1 * (high - low), high + 0.5 * (high - low)
    return [[replace(panel, ylim=ylim) for panel in row] for row in grid]
