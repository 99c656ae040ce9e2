"""A table as a stranger might send it: semicolons, decimal commas, full stops for what is missing."""

from pathlib import Path

import sparsefactor as sf


def write_foreign_table(path: Path) -> None:
    """80 persons, 12 items, of which two factors make most."""
    sim = sf.simulate(n_features=12, n_samples=80, inclusion=[0.5, 0.5], snr=5, missing=0.05, seed=3)
    lines = ["person;" + ";".join(f"item {i + 1}" for i in range(12))]
    for j, row in enumerate(sim.X):
        cells = ("." if value != value else f"{value + 3:.2f}".replace(".", ",") for value in row)
        lines.append(f"person {j + 1};" + ";".join(cells))
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode("utf-8-sig"))
