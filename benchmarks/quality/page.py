"""Cells as tables of text: for each measure a row per table and a column per method."""

from __future__ import annotations

from typing import Any

import numpy as np

LONGEST = 12  # characters of a column's head; a longer name of a method is replaced by a number and listed above
# measure: (title, decimals); larger is better unless the title says otherwise
MEASURES = {
    "split_congruence": ("replication in split halves: mean Tucker congruence", 3),
    "split_replicated": ("replication in split halves: factors with a congruence above .9 / factors found", 1),
    "seeds_congruence": ("agreement between seeds: mean Tucker congruence", 3),
    "seeds_replicated": ("agreement between seeds: factors with a congruence above .9 / factors found", 1),
    "rand": ("structure: adjusted Rand index of each feature's strongest factor against its scale", 2),
    "recovery": ("structure: mean congruence of the true factors with those found", 3),
    "complexity": ("sparsity: row complexity, the number of factors a feature needs (smaller is sparser)", 2),
    "features": ("sparsity: features per factor, with a standardised loading of at least .3 (smaller is sparser)", 1),
    "error": ("held-out entries: root mean square error in SD of the feature (smaller is better)", 3),
    "log_density": ("held-out entries: mean log density", 3),
    "cpu_seconds": ("CPU seconds of a fit (mean of all fits)", 2),
}


def value(cell: dict[str, Any], measure: str) -> float:
    """The mean over the fits of a cell; NaN where there are none."""
    numbers = [v for v in cell.get(measure, []) if v is not None and np.isfinite(v)]
    return float(np.mean(numbers)) if numbers else np.nan


def show(cells: list[dict[str, Any]]) -> str:
    """All measures, then their means over the tables, then the cells that are not complete."""
    by = {(cell["table"], cell["method"]): cell for cell in cells}
    names = list(dict.fromkeys(cell["method"] for cell in cells))
    shapes = {cell["table"]: f"{'x'.join(map(str, cell['shape'])):>10s} K {cell['K']}" for cell in cells}
    heads = [name if len(name) <= LONGEST else f"({number})" for number, name in enumerate(names, 1)]

    def numbers(measure: str) -> np.ndarray:
        return np.array([[value(by.get((table, name), {}), measure) for name in names] for table in shapes])

    def line(label: str, texts: list[str]) -> str:
        return f"{label:30s}" + "".join(f"{text:>{LONGEST + 1}}" for text in texts)

    lines = [f"{head} {name}" for head, name in zip(heads, names, strict=True) if head != name]
    means = ["", line("means over the tables", heads)]
    for measure, (title, digits) in MEASURES.items():
        grid, found = numbers(measure), numbers(measure.replace("replicated", "found"))
        if not np.isfinite(grid).any():
            continue

        def texts(
            values: np.ndarray, found: np.ndarray, ratio: bool = "replicated" in measure, digits: int = digits
        ) -> Any:
            each = [f"{v:.{digits}f}" + (f"/{f:.1f}" if ratio else "") for v, f in zip(values, found, strict=True)]
            return [text if np.isfinite(v) else "-" for v, text in zip(values, each, strict=True)]

        lines += ["", title, line("", heads)]
        for (table, shape), row, of in zip(shapes.items(), grid, found, strict=True):
            if np.isfinite(row).any():
                lines.append(line(f"{table:15s}{shape}", texts(row, of)))
        # Only tables that all methods have, of those that give this measure at all: means that can be compared.
        common = np.isfinite(grid[:, np.isfinite(grid).any(axis=0)]).all(axis=1)
        if common.any():
            grid, found = grid[common], found[common]
            lines.append(line(f"mean of {len(grid)} tables", texts(grid.mean(axis=0), found.mean(axis=0))))
            lines.append(
                line(f"median of {len(grid)} tables", texts(np.median(grid, axis=0), np.median(found, axis=0)))
            )
            means.append(line(f"{measure} ({len(grid)})", texts(grid.mean(axis=0), found.mean(axis=0))))
    incomplete = [
        f"{cell['method']} on {cell['table']}: {cell['status']}" for cell in cells if cell["status"] != "done"
    ]
    return "\n".join([*lines, *means, "", *incomplete])
