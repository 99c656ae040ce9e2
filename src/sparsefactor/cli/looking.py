"""`summary`, `export` and `report`: look at a saved result."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import sparsefactor as sf

from ..export import chosen_tables, is_one_file
from ..export import export as write_tables
from ..frames import strongest
from ..heywood import nearly_noiseless
from ..names import shown
from ..outliers import dominating_samples
from ..table_files import writer_of
from ..words import EXPLAINED, headline, percent, stability_text
from .app import command
from .console import answer, clean, note, table_text, warn, working
from .files import check_folder_out, check_new, check_out, check_table_out
from .options import Chains, Out, Result
from .spelling import as_options, spelt

Posterior = sf.VIPosterior | sf.MCMCPosterior
LONGEST_NAME = 30  # characters, of a feature among others in a line


class Format(StrEnum):
    csv = "csv"
    parquet = "parquet"
    xlsx = "xlsx"


def opened(result: Path, chains: str | None = None) -> Posterior:
    """A saved posterior; of a sampled one, some of its chains."""
    if not result.exists():
        raise FileNotFoundError(f"a result must be a file or a run; {str(result)!r} does not exist; check the path")
    with working(f"Opening {result.name}"):
        p = sf.load(result)
        if chains is None:
            return p
        if not isinstance(p, sf.MCMCPosterior):
            raise ValueError(f"--chains is for sampled results; {str(result)!r} was fitted by VI; leave it out")
        try:
            numbers = [int(number) for number in chains.split(",")]
        except ValueError:
            raise ValueError(f"--chains must be numbers with commas between; got {chains!r}; pass e.g. 0,2") from None
        return p.keep_chains(numbers)


@command("sparsefactor summary fit.sf", "sparsefactor summary draws.sf --json")
def summary(result: Result, chains: Chains = None) -> None:
    """Print the verdict on a saved result and a table of its factors."""
    p = opened(result, chains)
    said = in_options(p, str(p.verdict))
    rows: list[dict[str, Any]] = p.summary().reset_index().to_dict("records")  # type: ignore[assignment]
    what, how, *warned = headline(p)
    text = [
        said,
        "",
        what.partition(": ")[2],
        how.partition(";")[0],
        *map(as_options, warned),
        "",
        table_text(readable(p, rows), widest=100),
        "",
        EXPLAINED,
    ]
    facts = {
        "level": p.verdict.level,
        "n_samples": len(p.sample_names),
        "n_features": len(p.feature_names),
        "n_factors": p.n_factors,
        "parallel_analysis": p.prior.parallel_analysis,
        "variance_explained": p.variance_explained(),
        "hardly_any_noise": [p.feature_names[i] for i in nearly_noiseless(p)],
        "dominating_samples": {k + 1: [p.sample_names[j] for j in own] for k, own in dominating_samples(p).items()},
    }
    answer("\n".join(text), {"ok": p.verdict.ok, "verdict": said, **facts, "factors": rows})
    if not p.verdict.ok:
        warn("This result is not reliable yet.")


def readable(p: Posterior, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The factors for a reader: shares as per cent, the strongest features last, cut where long."""
    lines = []
    for k, row in enumerate(rows):
        names = ", ".join(shown(name, LONGEST_NAME) for name in strongest(p, k))
        known = row.get("r_hat", np.nan)
        lines.append(
            {
                "factor": row["factor"],
                "share": percent(row["share_of_variance"]),
                "features included (p > 0.5)": row["features"],
                "stability": stability_text(row.get("stability", np.nan)),
                "R-hat": f"{known:.3f}" if np.isfinite(known) else "",
                "strongest features": "empty" if p.empty[k] else names,
            }
        )
    nothing = [name for name in lines[0] if all(line[name] == "" for line in lines)]
    return [{name: value for name, value in line.items() if name not in nothing} for line in lines]


def in_options(p: Posterior, text: str) -> str:
    """What is said of a result, with its remedies as options."""
    return as_options(text) if isinstance(p, sf.VIPosterior) else spelt(text, p.permutations.shape[1])


@command(
    "sparsefactor export fit.sf --out tables",
    "sparsefactor export fit.sf --table loadings --out loadings.csv",
    "sparsefactor export fit.sf --out fit.xlsx",
)
def export(
    result: Result,
    out: Out,
    table: Annotated[list[str] | None, typer.Option(help="Only this table; repeatable.")] = None,
    format: Annotated[Format, typer.Option(help="Format of the files in a folder.")] = Format.csv,
    chains: Chains = None,
) -> None:
    """Write the tables of a result: a folder of files, one table in one file, or a formatted .xlsx workbook."""
    if is_one_file(out):
        check_table_out(out, result)
    else:
        check_folder_out(out)
        writer_of(f".{format.value}")
    p = opened(result, chains)
    chosen = chosen_tables(p, table, "--table")
    if not is_one_file(out):
        for name in chosen:
            check_new(out / f"{name}.{format.value}")
    written = [str(file) for file in write_tables(p, out, chosen, format.value)]
    answer("\n".join(written), {"tables": chosen, "files": written})
    if not table:
        note("Predictions of every entry are written on demand: --table reconstruction")


@command("sparsefactor report fit.sf --out report.html")
def report(result: Result, out: Out = Path("report.html"), chains: Chains = None) -> None:
    """Write a report on a saved result: one HTML page that needs no network."""
    from ..report import posterior_page, write_page

    check_out(out, result)
    p = opened(result, chains)
    with working("Writing the report"):
        write_page(out, posterior_page(p, title=clean(result.name), spelt=lambda text: in_options(p, text)))
    answer(f"Report: {out.resolve()}", {"out": out.resolve()})
