"""The paper's figures 1 to 3, as plots to save and as data for the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import sparsefactor as sf

from .. import plot
from .gauges import MEASURES
from .simulated import METHODS, Results

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")
HEATMAP_SNR = 5.0


def panel(results: Results, snr: float, measure: str, title: str) -> plot.Panel:
    """Every trial and chain of one dataset; the best-ELBO trial of each recipe marked."""
    lines = []
    for method, name in METHODS.items():
        best = results.best(snr, method)
        for run in results.of(snr, method):
            marked = method.startswith("vi") and run is best
            x = [point["seconds"] for point in run.points]
            lines.append(plot.Line(x, [point[measure] for point in run.points], name, marked))
    return plot.Panel(title, MEASURES[measure], lines, {"prior mean": results.baselines[snr][measure]})


def one_dataset(results: Results, snr: float) -> list[list[plot.Panel]]:
    """Figure 2: the four measures of one dataset."""
    panels = [panel(results, snr, measure, title) for measure, title in MEASURES.items()]
    return [panels[:2], panels[2:]]


def all_datasets(results: Results) -> list[list[plot.Panel]]:
    """Figure 3: measures down, noise levels across."""
    return [[panel(results, snr, m, f"snr = {snr:g}") for snr in results.level.snrs] for m in MEASURES]


def inclusion_panels(results: Results, snr: float) -> dict[str, NDArray[Any]]:
    """Figure 1: true inclusion, and that of the best chain and of the best-ELBO trial of both recipes."""
    panels: dict[str, NDArray[Any]] = {"Truth": sf.simulate_paper(snr=snr, seed=results.level.seed).inclusion}
    for method in ("mcmc_plain", "vi_plain", "mcmc_default", "vi_default"):
        kind, recipe = method.split("_")
        title = f"{kind.upper()}, {'as in paper' if recipe == 'plain' else 'default'}"
        panels[title] = np.clip(results.best(snr, method).arrays["inclusion"], 0.0, 1.0)
    return panels


def save(figure: Figure, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for suffix in FORMATS:
        # Without a date, the same results give the same file.
        metadata = {"Date": None} if suffix == "svg" else None
        figure.savefig(folder / f"{name}.{suffix}", dpi=140, metadata=metadata)


def save_all(results: Results, folder: Path) -> None:
    note = results.level.labels()
    middle = HEATMAP_SNR if HEATMAP_SNR in results.level.snrs else results.level.snrs[0]
    save(plot.inclusion_heatmap(inclusion_panels(results, middle)), folder, "figure1_inclusion")
    save(plot.over_time(one_dataset(results, middle), note=f"snr = {middle:g}; {note}"), folder, "figure2_over_time")
    save(plot.over_time(all_datasets(results), note=note), folder, "figure3_noise")
