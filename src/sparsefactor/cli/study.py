"""`simulate`, `reproduce` and `benchmark`: data with a known truth, the paper's study, speed."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import sparsefactor as sf

from ..reading import Choices
from .app import app, command
from .console import answer, settings, working
from .files import check_folder_out, check_new, check_out
from .input import read_and_say
from .options import Jobs, Out, Seed

reproduce = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Run the paper's study.")
app.add_typer(reproduce, name="reproduce")

Quick = Annotated[bool, typer.Option("--quick", help="The small study.")]
Full = Annotated[bool, typer.Option("--full", help="The paper's counts: hours.")]


def level_of(quick: bool, full: bool) -> str:
    if quick and full:
        raise ValueError("--quick and --full exclude each other; both were given; pass one of them")
    return "quick" if quick else "full" if full else "standard"


@command("sparsefactor reproduce simulated --quick --jobs 2", group=reproduce, name="simulated", goes_on=True)
def reproduce_simulated(
    out: Out = Path("study-simulated"), quick: Quick = False, full: Full = False, jobs: Jobs = 1
) -> None:
    """Section 5.1: the paper's simulation at three noise levels, every method as in the paper and by default."""
    from ..study import reproduce_simulated as run

    level = level_of(quick, full)
    check_folder_out(out)
    with Display() as display:
        page = run(out, level=level, jobs=jobs, report=display.show)
    claims = (out / "claims.txt").read_text()
    answer(f"{claims}\nReport: {page.resolve()}", {"report": page.resolve(), "claims": claims.splitlines()})


@command("sparsefactor reproduce gtex --quick --jobs 2", group=reproduce, name="gtex", reads=True, goes_on=True)
def reproduce_gtex(
    choices: Choices,
    data: Annotated[Path | None, typer.Option(help="A table; without it, a simulated stand-in.")] = None,
    out: Out = Path("study-gtex"),
    quick: Quick = False,
    full: Full = False,
    seed: Seed = 0,
    jobs: Jobs = 1,
) -> None:
    """Section 5.2: fill in a tenth of the entries of a table of samples by features (--transpose for GTEx)."""
    from ..study import matrix_of
    from ..study import reproduce_gtex as run

    level = level_of(quick, full)
    check_folder_out(out)
    matrix = None if data is None else matrix_of(read_and_say(data, choices))
    with Display() as display:
        page = run(out, matrix, level=level, seed=seed, jobs=jobs, report=display.show)
    answer(f"Report: {page.resolve()}", {"report": page.resolve()})


@command(
    "sparsefactor simulate --features 40 --samples 60 --factors 2 --missing 0.05 --out X.csv",
    "sparsefactor simulate --snr 5 --out paper.csv",
)
def simulate(
    out: Out,
    features: Annotated[int | None, typer.Option(min=1, help="Without it, the paper's simulation.")] = None,
    samples: Annotated[int, typer.Option(min=1)] = 100,
    factors: Annotated[int, typer.Option(min=1)] = 6,
    inclusion: Annotated[float, typer.Option(min=0, max=1, help="Share of loadings that are not zero.")] = 0.3,
    missing: Annotated[float, typer.Option(min=0, max=0.99, help="Share of entries left out.")] = 0.0,
    snr: float = 5.0,
    seed: Seed = 0,
) -> None:
    """Write simulated data, samples by features, as CSV; the truth goes beside it as .npz."""
    truth = out.with_suffix(".truth.npz")
    check_out(out)
    check_new(truth)
    if features is None:
        sim = sf.simulate_paper(snr=snr, seed=seed, missing=missing)
    else:
        rates = [inclusion] * factors
        sim = sf.simulate(n_features=features, n_samples=samples, inclusion=rates, snr=snr, missing=missing, seed=seed)
    header = ",".join(["sample", *(f"feature {i + 1}" for i in range(sim.n_features))])
    lines = (
        f"sample {j + 1}," + ",".join("" if np.isnan(v) else f"{v:.10g}" for v in row) for j, row in enumerate(sim.X)
    )
    out.write_text("\n".join([header, *lines]) + "\n")
    np.savez_compressed(truth, loadings=sim.loadings, activations=sim.activations, inclusion=sim.inclusion)
    answer(f"{out} ({sim.n_samples} x {sim.n_features}), truth in {truth}", {"out": out, "truth": truth})


@command("sparsefactor benchmark --features 200 --samples 50 --factors 4 --sweeps 20")
def benchmark(features: int = 800, samples: int = 100, factors: int = 6, sweeps: int = 100) -> None:
    """Time iterations of VI and sweeps of Gibbs sampling on data of a given size."""
    X = sf.simulate(n_features=features, n_samples=samples, inclusion=[0.1] * factors, snr=5, seed=0).X
    prior = sf.Prior(n_factors=factors, inclusion=0.1)

    def vi(n: int) -> None:
        ends: dict[str, Any] = {"max_iter": n, "tol": 0, "rtol": 0}
        sf.fit_vi(X, prior, n_trials=1, init="random", race=False, accelerate=False, progress=False, **ends)

    def gibbs(n: int) -> None:
        sf.sample(X, prior, n_chains=1, n_warmup=0, n_draws=1, thin=n, moves=(), init="random", progress=False)

    taken = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.ConvergenceWarning)
        warnings.simplefilter("ignore", sf.SamplingWarning)
        for name, job in (("VI iteration", vi), ("Gibbs sweep", gibbs)):
            with working(f"Measuring a {name}"):
                job(2)  # compiles
                begin = time.perf_counter()
                job(sweeps)
                taken[name] = 1e3 * (time.perf_counter() - begin) / sweeps
    answer("\n".join(f"{name:<13} {ms:8.3f} ms" for name, ms in taken.items()), taken)


class Display:
    """The study's progress on standard error: a bar on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self.bar: Any = None
        self.task: Any = None
        self.said = -1.0

    def __enter__(self) -> Display:
        if settings.quiet:
            return self
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
        elif not settings.quiet and (progress.share - self.said >= 0.1 or progress.done == progress.total):
            self.said = progress.share
            print(
                f"{progress.share:4.0%}  {progress.done} of {progress.total} units, {progress.seconds:.0f} s  "
                f"{progress.title}",
                file=sys.stderr,
                flush=True,
            )
