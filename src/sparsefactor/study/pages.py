"""Each study's output folder: figures, tables, run record, report page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import sparsefactor as sf

from .. import plot
from ..explained import factor_shares
from ..report import render, sections, write_page
from . import figures, gtex, simulated, tables
from .claims import claims, paragraph
from .gauges import MEASURES
from .matrix import held_out
from .simulated import METHODS
from .units import run_record

Rows = list[dict[str, Any]]


def write_simulated(results: simulated.Results, out: Path, command: str, seconds: float) -> Path:
    """Everything of the study on simulated data; returns the report's path."""
    out.mkdir(parents=True, exist_ok=True)
    record = run_record(command, results.settings(), seconds)
    summary, runs = tables.summary_rows(results), tables.run_rows(results)
    tables.write_table(out, "summary", summary)
    tables.write_table(out, "runs", runs)
    tables.write_table(out, "traces", tables.trace_rows(results))
    tables.write_json(out / "run.json", record)
    found = claims(results)
    tables.write_table(out, "claims", [claim.row() for claim in found])
    (out / "claims.txt").write_text(paragraph(results) + "\n")
    figures.save_all(results, out / "figures")

    snr = figures.HEATMAP_SNR if figures.HEATMAP_SNR in results.level.snrs else results.level.snrs[0]
    panels = [figures.panel(results, s, m, f"snr = {s:g}") for m in MEASURES for s in results.level.snrs]
    labels = [
        [
            f"{METHODS[method]}, {_numbered(method)} {run.number + 1}"
            for method in METHODS
            for run in results.of(s, method)
        ]
        for _ in MEASURES
        for s in results.level.snrs
    ]
    rows = [
        {"claim": c.claim, "plain": (c.plain_holds, c.plain), "default": (c.default_holds, c.default)} for c in found
    ]
    best = results.best(snr, "vi_default").arrays
    truth = sf.simulate_paper(snr=snr, seed=results.level.seed)
    page = render(
        "Sparse factors: MCMC and VI on simulated data",
        f"800 features, 100 samples, 6 factors. {results.level.labels()}",
        [
            sections.claims("What the paper claims, decided here", rows),
            sections.table("Results by noise level and method", summary, "Of the best-ELBO trial and the best chain."),
            sections.lines("Measures over computation time", panels, labels),
            sections.heatmaps(f"True and inferred inclusion, snr = {snr:g}", figures.inclusion_panels(results, snr)),
            sections.factors(
                f"Factors of the default VI fit, snr = {snr:g}",
                loadings=best["loadings"],
                shares=factor_shares(truth.X, best["loadings"], best["activations"]),
                inclusion=best["inclusion"],
                activations=best["activations"],
                feature_names=[f"feature {i + 1}" for i in range(truth.n_features)],
                sample_names=[f"sample {j + 1}" for j in range(truth.n_samples)],
            ),
            sections.table("Every trial and chain", runs, "x: the true factor is found (correlation above 0.9)."),
            sections.record("Run record", record),
        ],
        notice=""
        if results.level.name.startswith("full")
        else f"A smaller study than the paper's ({results.level.name}).",
    )
    write_page(out / "report.html", page)
    return out / "report.html"


def _numbered(method: str) -> str:
    return "trial" if method.startswith("vi") else "chain"


def gtex_rows(results: gtex.Results) -> Rows:
    """Inclusion x noise x method, with seconds, and the baselines."""
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
    rows += [{"method": name, "inclusion": "", "noise": "", "fill-in RRMSE": v} for name, v in results.levels.items()]
    return rows


RACED = {METHODS["vi_plain"], METHODS["vi_default"]}  # of these, only the chosen trial's end counts


def gtex_panels(results: gtex.Results) -> tuple[list[plot.Panel], list[list[str]]]:
    """Figure 4, a panel for each inclusion and noise; the first is the paper's."""
    panels, labels = [], []
    # Zero would squeeze all lines together.
    levels = {name: value for name, value in results.levels.items() if name == "soft-thresholded SVD"}
    for inclusion in gtex.INCLUSIONS:
        for noise in gtex.NOISES:
            lines, names = [], []
            for method, title in gtex.METHODS.items():
                runs = results.of(method, (inclusion, noise))
                for run in runs:
                    marked = method in ("vi_plain", "vi_default") and run is results.best(method, run.setting)
                    x = [p["seconds"] for p in run.points]
                    lines.append(plot.Line(x, [p["rrmse"] for p in run.points], title, marked))
                    names.append(title if method == "vi_mean" else f"{title}, {_numbered(method)} {run.number + 1}")
            panels.append(plot.Panel(f"{inclusion} inclusion, {gtex.NOISES[noise]}", "fill-in RRMSE", lines, levels))
            labels.append(names)
    # One scale for all, on which the ends can be told apart: the first steps lie far above.
    ends = [line.y[-1] for panel in panels for line in panel.lines if line.marked or line.group not in RACED]
    low = min([*levels.values(), *(min(line.y) for panel in panels for line in panel.lines)])
    high = max([*levels.values(), *ends])
    ylim = low - 0.1 * (high - low), high + 0.5 * (high - low)
    return [replace(panel, ylim=ylim) for panel in panels], labels


def write_gtex(results: gtex.Results, out: Path, command: str, seconds: float) -> Path:
    """Everything of the fill-in test; returns the report's path."""
    out.mkdir(parents=True, exist_ok=True)
    record = run_record(command, results.settings(), seconds)
    rows = gtex_rows(results)
    matrix = results.matrix
    tables.write_table(out, "fill_in", rows)
    traces: Rows = [
        {"method": run.method, "inclusion": run.inclusion, "noise": run.noise, "number": run.number + 1, **point}
        for run in results.runs
        for point in run.points
    ]
    tables.write_table(out, "traces", traces)
    tables.write_json(out / "run.json", record)
    np.save(out / "held_out.npy", held_out(matrix.values.shape, results.level.seed))

    panels, labels = gtex_panels(results)
    about = f"{matrix.values.shape[0]:,} features, {matrix.values.shape[1]} samples ({matrix.source})"
    note = f"{matrix.made} {results.level.labels()}".strip()
    best = results.best("vi_default", gtex.RECOMMENDED).arrays
    share = factor_shares(matrix.values.T, best["loadings"], best["activations"])
    grid = [panels[: len(gtex.NOISES)], panels[len(gtex.NOISES) :]]
    figures.save(plot.over_time(grid, note=note), out / "figures", "figure4_fill_in")
    bars_note = f"{matrix.made} Factors over samples, with the share of variance explained".strip()
    figures.save(
        plot.factor_bars(best["activations"], matrix.sample_names, share, note=bars_note), out / "figures", "factors"
    )
    page = render(
        "Sparse factors: the fill-in test",
        f"{about}. {results.level.labels()}",
        [
            sections.table(
                "Fill-in error by setting and method",
                rows,
                "Of the best-ELBO trial, of all trials' mean, of all chains' mean.",
            ),
            sections.lines("Fill-in error over computation time", panels, labels, matrix.made),
            sections.factors(
                "Factors (VI, learnt inclusion, noise by sample)",
                loadings=best["loadings"],
                inclusion=best["inclusion"],
                activations=best["activations"],
                feature_names=matrix.feature_names,
                sample_names=matrix.sample_names,
                shares=share,
                note=matrix.made,
            ),
            sections.heatmaps("Probability of inclusion", {"inclusion": best["inclusion"]}, matrix.made),
            sections.record("Run record", record),
        ],
        notice=matrix.made,
    )
    write_page(out / "report.html", page)
    return out / "report.html"
