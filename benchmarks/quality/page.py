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
    """All measures, then the means over the tables, then the cells that are not complete."""
    by = {(cell["table"], cell["method"]): cell for cell in cells}
    names = list(dict.fromkeys(cell["method"] for cell in cells))
    tables = list(dict.fromkeys(cell["table"] for cell in cells))
    heads = [name if len(name) <= LONGEST else f"({number})" for number, name in enumerate(names, 1)]
    lines = [f"{short} {name}" for short, name in zip(heads, names, strict=True) if short != name]
    means: dict[str, list[str]] = {}
    width = LONGEST + 1
    head = " " * 30 + "".join(f"{name:>{width}}" for name in heads)
    for measure, (title, digits) in MEASURES.items():
        grid = np.array([[value(by.get((t, m), {}), measure) for m in names] for t in tables])
        found = np.array([[value(by.get((t, m), {}), "split_found") for m in names] for t in tables])
        some = np.isfinite(grid).any(axis=1)
        if not some.any():
            continue
        measured = np.isfinite(grid).any(axis=0)
        whole = np.isfinite(grid[:, measured]).all(axis=1)

        def text(number: float, of: float, measure: str = measure, digits: int = digits) -> str:
            if not np.isfinite(number):
                return "-"
            return f"{number:.{digits}f}/{of:.1f}" if measure == "split_replicated" else f"{number:.{digits}f}"

        lines += ["", title, head]
        for row in np.flatnonzero(some):
            cell = next(by[tables[row], m] for m in names if (tables[row], m) in by)
            label = f"{tables[row]:15s}{'x'.join(map(str, cell['shape'])):>10s} K {cell['K']}"
            lines.append(
                f"{label:30s}" + "".join(f"{text(*v):>{width}}" for v in zip(grid[row], found[row], strict=True))
            )
        for word, summary in (("mean", np.mean), ("median", np.median)):
            if whole.any():
                numbers = [
                    text(*v) for v in zip(summary(grid[whole], axis=0), summary(found[whole], axis=0), strict=True)
                ]
                lines.append(f"{f'{word} of {whole.sum()} tables':30s}" + "".join(f"{v:>{width}}" for v in numbers))
                means.setdefault(measure, numbers)
    lines += ["", "means over the tables that all methods have", head]
    lines += [f"{measure:30s}" + "".join(f"{v:>{width}}" for v in numbers) for measure, numbers in means.items()]
    lines += ["", *(f"{c['method']} on {c['table']}: {c['status']}" for c in cells if c["status"] != "done")]
    return "\n".join(lines)
