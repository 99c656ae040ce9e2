"""The demonstration (`make demo`): fit a real table and the paper's simulation, and write a report."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

import sparsefactor as sf

from .measures import MEASURES

N_FACTORS = 5
MOST_NAMES = 4


def run(out: Path) -> None:
    """Write the results to a folder; print two short tables and the path of the report."""
    out.mkdir(parents=True, exist_ok=True)
    _say("Fitting 24 ability tests of 301 pupils. The first fit compiles kernels, which takes up to a minute.")
    X = sf.datasets.load_abilities()
    begin = time.monotonic()
    p = sf.fit_vi(X, n_factors=N_FACTORS, scale=True)
    _say(f"Done after {time.monotonic() - begin:.0f} s. Fitting the paper's simulation: 800 features, 100 samples.")
    sim = sf.simulate_paper(snr=5, seed=0)
    prior = sf.Prior(inclusion=[0.1] * 5 + [0.9])
    begin = time.monotonic()
    fit = sf.fit_vi(sim.X, prior)
    _say(f"Done after {time.monotonic() - begin:.1f} s. Writing the report.")
    report = _write(out, X, p)

    print("Ability tests (Holzinger and Swineford, 1939), found by fit_vi:\n")
    print(factor_table(X, p).to_string(index=False))
    print("\nThe paper's simulation (snr 5), errors against the truth:\n")
    scores = pd.DataFrame({"fit_vi": sf.score(fit, sim), "prior mean": sf.baseline(sim, prior)}).loc[list(MEASURES)]
    print(scores.rename(index=MEASURES).T.round(3).to_string())
    print(f"\nReport: {report.resolve()}")


def factor_table(X: pd.DataFrame, p: sf.VIPosterior) -> pd.DataFrame:
    """A row for each factor that is not empty: its share of variance, its strongest tests, and what these measure."""
    rows = []
    for k in range(p.n_factors):
        if p.empty[k]:
            continue
        loadings = p.to_frame("loadings").iloc[:, k]
        strongest = loadings.abs().nlargest(MOST_NAMES).index
        rows.append(
            {
                "factor": k + 1,
                "variance": f"{p.variance_explained(by='factor')[k]:.1%}",
                "strongest tests": ", ".join(("" if loadings[test] > 0 else "-") + test for test in strongest),
                "which measure": ", ".join(dict.fromkeys(X.attrs["scales"][test] for test in strongest)),
            }
        )
    return pd.DataFrame(rows)


def _write(out: Path, X: pd.DataFrame, p: sf.VIPosterior) -> Path:
    """The table, the result, its heatmap and its report."""
    X.to_csv(out / "abilities.csv")
    sf.plot.heatmap(p).figure.savefig(out / "heatmap.png", dpi=140, bbox_inches="tight")
    result, report = out / "abilities.sf", out / "report.html"
    p.save(result)
    command = [sys.executable, "-m", "sparsefactor", "report", str(result), "--out", str(report), "--overwrite", "-q"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return report


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
