"""The command line: `sparsefactor simulate | fit | sample | summary | plot | report | reproduce | benchmark`."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import sparsefactor as sf

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Bayesian sparse factor analysis.")
reproduce = typer.Typer(no_args_is_help=True, help="Run the paper's study.")
app.add_typer(reproduce, name="reproduce")

Out = Annotated[Path, typer.Option(help="Where the result goes.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes at a time.")]
Modules = Annotated[int, typer.Option(min=1, help="Modules that features may fall into; needs learnt inclusion.")]
Seed = Annotated[int, typer.Option(min=0)]
Table = Annotated[Path, typer.Argument(help="CSV or Parquet: samples as rows, features as columns, names beside them.")]
Result = Annotated[Path, typer.Argument(help="A posterior saved by fit, sample or p.save().")]
Turned = Annotated[bool | None, typer.Option("--transpose/--no-transpose", help="Lines are features.")]


class Noise(StrEnum):
    feature = "feature"
    shared = "shared"
    sample = "sample"


def level_of(quick: bool, full: bool) -> str:
    if quick and full:
        raise typer.BadParameter("--quick and --full exclude each other; pass one of them")
    return "quick" if quick else "full" if full else "standard"


@reproduce.command("simulated")
def reproduce_simulated(
    out: Out = Path("study-simulated"), quick: bool = False, full: bool = False, jobs: Jobs = 1
) -> None:
    """Section 5.1: the paper's simulation at three noise levels, every method as in the paper and by default."""
    from .study import reproduce_simulated as run

    level = level_of(quick, full)
    with Display() as display:
        page = run(out, level=level, jobs=jobs, report=display.show)
    typer.echo((out / "claims.txt").read_text())
    typer.echo(f"Report: {page.resolve()}")


@reproduce.command("gtex")
def reproduce_gtex(
    data: Annotated[Path | None, typer.Option(help="CSV, Parquet or .rds; without it, a simulated stand-in.")] = None,
    out: Out = Path("study-gtex"),
    quick: bool = False,
    full: bool = False,
    seed: Seed = 0,
    jobs: Jobs = 1,
    transpose: Turned = None,
) -> None:
    """Section 5.2: fill in a tenth of the entries of a matrix of samples by features."""
    from .study import read_matrix
    from .study import reproduce_gtex as run

    matrix = None if data is None else read_matrix(data, transpose=transpose)
    with Display() as display:
        page = run(out, matrix, level=level_of(quick, full), seed=seed, jobs=jobs, report=display.show)
    typer.echo(f"Report: {page.resolve()}")


@app.command()
def simulate(out: Out, snr: float = 5.0, seed: Seed = 0) -> None:
    """Write the paper's simulated data, samples by features, as CSV; the truth goes beside it as .npz."""
    sim = sf.simulate_paper(snr=snr, seed=seed)
    header = ",".join(["sample", *(f"feature {i + 1}" for i in range(sim.n_features))])
    lines = (f"sample {j + 1}," + ",".join(f"{v:.10g}" for v in row) for j, row in enumerate(sim.X))
    out.write_text("\n".join([header, *lines]) + "\n")
    truth = out.with_suffix(".truth.npz")
    np.savez_compressed(truth, loadings=sim.loadings, activations=sim.activations, inclusion=sim.inclusion)
    typer.echo(f"{out} ({sim.n_samples} x {sim.n_features}), truth in {truth}")


@app.command()
def fit(
    table: Table,
    factors: Annotated[int, typer.Option(min=1)],
    out: Out,
    inclusion: Annotated[float | None, typer.Option(help="Fixed; learnt if left out.")] = None,
    modules: Modules = 1,
    noise: Noise = Noise.feature,
    trials: Annotated[int, typer.Option(min=1)] = 10,
    average: Annotated[bool, typer.Option(help="Predict missing entries by the mean over all trials.")] = False,
    center: bool = False,
    seed: Seed = 0,
    transpose: Turned = None,
) -> None:
    """Fit by variational inference and save the posterior."""
    X = sf.read_table(table, transpose=transpose)
    p = sf.fit_vi(
        X, prior_of(factors, inclusion, modules, noise), n_trials=trials, average=average, center=center, seed=seed
    )
    p.save(out)
    typer.echo(f"{out}: ELBO {p.elbo:,.3f}; {p.status.value}")


@app.command()
def sample(
    table: Table,
    factors: Annotated[int, typer.Option(min=1)],
    out: Out,
    inclusion: Annotated[float | None, typer.Option(help="Fixed; learnt if left out.")] = None,
    modules: Modules = 1,
    noise: Noise = Noise.feature,
    chains: Annotated[int, typer.Option(min=1)] = 4,
    warmup: Annotated[int, typer.Option(min=0)] = 500,
    draws: Annotated[int, typer.Option(min=1)] = 1000,
    center: bool = False,
    seed: Seed = 0,
    transpose: Turned = None,
) -> None:
    """Sample the posterior by Gibbs sampling and save it."""
    X = sf.read_table(table, transpose=transpose)
    prior = prior_of(factors, inclusion, modules, noise)
    p = sf.sample(X, prior, n_chains=chains, n_warmup=warmup, n_draws=draws, center=center, seed=seed)
    p.save(out)
    typer.echo(f"{out}: {chains} chains of {draws} draws")


@app.command()
def summary(result: Result) -> None:
    """Say what a saved posterior holds, factor by factor."""
    from .report.posterior import factor_rows
    from .report.posterior import summary as facts

    p = sf.load(result)
    for name, value in facts(p).items():
        typer.echo(f"{name:<16} {value}")
    typer.echo("\nfactor  share  features  strongest")
    for row in factor_rows(p):
        typer.echo(f"{row['factor']:>6} {row['share of variance']:6.1%} {row['features in']:>9}  {row['strongest']}")
    if isinstance(p, sf.MCMCPosterior):
        typer.echo(f"\n{p.diagnostics()}")


@app.command()
def plot(result: Result, out: Out) -> None:
    """Draw a saved posterior's inclusion as a heatmap (.png, .svg or .pdf)."""
    from . import plot as drawing

    drawing.inclusion_heatmap({result.stem: sf.load(result).inclusion_prob}).savefig(out, dpi=150)
    typer.echo(str(out))


@app.command()
def report(result: Result, out: Out = Path("report.html")) -> None:
    """Write one self-contained page about a saved posterior."""
    from .report import posterior_page, write_page

    write_page(out, posterior_page(sf.load(result), title=result.name))
    typer.echo(f"Report: {out.resolve()}")


@app.command()
def benchmark(features: int = 800, samples: int = 100, factors: int = 6, sweeps: int = 100) -> None:
    """Time iterations of VI and sweeps of Gibbs sampling on data of a given size."""
    import warnings

    X = sf.simulate(n_features=features, n_samples=samples, inclusion=[0.1] * factors, snr=5, seed=0).X
    prior = sf.Prior(n_factors=factors, inclusion=0.1)

    def vi(n: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sf.ConvergenceWarning)
            sf.fit_vi(X, prior, n_trials=1, init="random", race=False, accelerate=False, max_iter=n, tol=0, rtol=0)

    def gibbs(n: int) -> None:
        sf.sample(X, prior, n_chains=1, n_warmup=0, n_draws=1, thin=n, moves=(), init="random", progress=False)

    for name, job in (("VI iteration", vi), ("Gibbs sweep", gibbs)):
        job(2)  # compiles
        begin = time.perf_counter()
        job(sweeps)
        typer.echo(f"{name:<13} {1e3 * (time.perf_counter() - begin) / sweeps:8.3f} ms")


def prior_of(factors: int, inclusion: float | None, modules: int, noise: Noise) -> sf.Prior:
    given: Any = sf.Beta(1, 1) if inclusion is None else inclusion
    return sf.Prior(n_factors=factors, inclusion=given, n_modules=modules, noise=noise.value)


class Display:
    """The study's progress on standard error: a bar on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.task: Any = None
        self.said = -1.0

    def __enter__(self) -> Display:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            columns = (BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn(), TimeRemainingColumn())
            self.bar = Progress(*columns, TextColumn("{task.description}"), console=Console(stderr=True))
            self.task = self.bar.add_task("begins", total=1.0)
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, progress: Any) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=progress.share, description=progress.title)
        elif progress.share - self.said >= 0.1 or progress.done == progress.total:
            self.said = progress.share
            print(
                f"{progress.share:4.0%}  {progress.done} of {progress.total} units, {progress.seconds:.0f} s  "
                f"{progress.title}",
                file=sys.stderr,
                flush=True,
            )


def main() -> None:
    """The entry point; errors of the user's own making end in one line."""
    try:
        app()
    except KeyboardInterrupt:
        typer.echo("Interrupted; the same command goes on where it stopped.", err=True)
        sys.exit(130)
    except (ValueError, TypeError, FileNotFoundError, ImportError) as problem:
        typer.echo(f"Error: {problem}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
