"""`summary`, `export` and `report`: what a saved posterior holds."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

import sparsefactor as sf

from ..heywood import nearly_noiseless
from ..outliers import dominating_samples
from ..words import headline
from . import tables
from .app import command
from .console import answer, clean, note, table_text, warn, working
from .files import check_folder_out, check_new, check_out, check_table_out, write_table, writer_of
from .options import Chains, Out, Result
from .spelling import as_options, spelt

Posterior = sf.VIPosterior | sf.MCMCPosterior


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
            raise ValueError(f"--chains must be numbers separated by commas; got {chains!r}; pass e.g. 0,2") from None
        return p.keep_chains(numbers)


@command("sparsefactor summary fit.sf", "sparsefactor summary draws.sf --json")
def summary(result: Result, chains: Chains = None) -> None:
    """Say what a saved posterior holds, factor by factor, and whether it can be trusted."""
    p = opened(result, chains)
    verdict, ok = verdict_of(p)
    rows = tables.factors(p)
    what, how, *warned = headline(p)
    text = [
        verdict,
        "",
        what,
        how.partition(";")[0],
        *map(as_options, warned),
        "",
        table_text(tables.readable(p, rows), widest=100),
    ]
    facts = {
        "n_samples": len(p.sample_names),
        "n_features": len(p.feature_names),
        "n_factors": p.n_factors,
        "parallel_analysis": p.prior.parallel_analysis,
        "variance_explained": p.variance_explained(),
        "hardly_any_noise": [p.feature_names[i] for i in nearly_noiseless(p)],
        "dominating_samples": {k + 1: [p.sample_names[j] for j in own] for k, own in dominating_samples(p).items()},
    }
    answer("\n".join(text), {"ok": ok, "verdict": verdict, **facts, "factors": rows})
    if not ok:
        warn("This result is not to be trusted yet.")


def verdict_of(p: Posterior) -> tuple[str, bool]:
    if isinstance(p, sf.VIPosterior):
        from ..report.sections import LEVELS
        from ..report.words import verdict

        level, said = verdict(p)
        return in_options(p, f"{LEVELS[level]} {said}"), level != "bad"
    found = p.diagnostics()
    return in_options(p, found.verdict), found.ok


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
    table: Annotated[list[str] | None, typer.Option(help="Table to write; repeatable.")] = None,
    format: Annotated[Format, typer.Option(help="Format of the files in a folder.")] = Format.csv,
    chains: Chains = None,
) -> None:
    """Write a posterior's tables: a file for each into a folder, one table into a file, or sheets of an .xlsx file."""
    into_file = out.suffix.lower() in (".csv", ".tsv", ".parquet", ".xlsx") and not out.is_dir()
    if into_file:
        check_table_out(out, result)
    else:
        check_folder_out(out)
        writer_of(f".{format.value}")
    p = opened(result, chains)
    known = tables.names(p)
    chosen = table or [name for name in known if name != "reconstruction"]
    for name in chosen:
        if name not in known:
            raise ValueError(f"--table must be one of {', '.join(known)}; got {name!r}; choose one of them")
    written = [str(out)] if into_file else []
    if into_file and out.suffix.lower() == ".xlsx":
        tables.write_workbook({name: tables.table(p, name) for name in chosen}, out)
    elif into_file:
        if len(chosen) > 1:
            raise ValueError(
                f"one file holds one table; {len(chosen)} were asked for; pass --table NAME, or a folder as --out "
                f"(tables: {', '.join(known)})"
            )
        write_table(tables.table(p, chosen[0]), out)
    else:
        files = {name: out / f"{name}.{format.value}" for name in chosen}
        for file in files.values():
            check_new(file)
        out.mkdir(exist_ok=True)
        for name, file in files.items():
            write_table(tables.table(p, name), file)
            written.append(str(file))
    answer("\n".join(written), {"tables": chosen, "files": written})
    if not table:
        note("Predictions of every entry are written on demand: --table reconstruction")


@command("sparsefactor report fit.sf --out report.html")
def report(result: Result, out: Out = Path("report.html"), chains: Chains = None) -> None:
    """Write one self-contained page about a saved posterior."""
    from ..report import posterior_page, write_page

    check_out(out, result)
    p = opened(result, chains)
    with working("Writing the report"):
        write_page(out, posterior_page(p, title=clean(result.name), spelt=lambda text: in_options(p, text)))
    answer(f"Report: {out.resolve()}", {"out": out.resolve()})
