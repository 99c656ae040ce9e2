"""`fit` and `sample`: from a table to a saved posterior."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
import warnings
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import sparsefactor as sf

from ..reading import Choices, Table
from ..words import warnings_about
from . import console
from .app import command
from .console import INTERRUPTED, NOT_TRUSTED, answer, note, seconds_since, under_way, warn
from .files import check_folder_out, check_out, read_and_say
from .options import (
    Center,
    CovariateLoadings,
    Covariates,
    Data,
    Factors,
    Groups,
    Inclusion,
    LoadingsOf,
    Modules,
    Noise,
    NoiseOf,
    Out,
    Scale,
    Seed,
    prior_of,
    read_covariates,
)
from .spelling import as_options, spelt

MORE_ITERATIONS = 50_000


class Until(StrEnum):
    converged = "converged"


@command(
    "sparsefactor fit X.csv --factors 4 --out fit.sf",
    "sparsefactor fit X.csv --factors 4 --scale --trials 5 --seed 1 --out scaled.sf     # a quick look",
    reads=True,
)
def fit(
    table: Data,
    factors: Factors,
    out: Out,
    choices: Choices,
    inclusion: Inclusion = None,
    modules: Modules = 1,
    groups: Groups = None,
    covariates: Covariates = None,
    covariate_loadings: CovariateLoadings = LoadingsOf.flat,
    noise: NoiseOf = Noise.feature,
    trials: Annotated[
        int | None,
        typer.Option(min=1, help="Race so many starts, and no more; if left out, search on."),
    ] = None,
    max_iter: Annotated[int, typer.Option(min=1, help="Most iterations of a trial.")] = 5000,
    race: Annotated[bool, typer.Option("--race/--no-race", help="Drop trials that fall behind.")] = True,
    average: Annotated[bool, typer.Option("--average", help="Predict by the mean over all trials.")] = False,
    center: Center = True,
    scale: Scale = False,
    seed: Seed = 0,
) -> None:
    """Fit by variational inference and save the posterior."""
    check_out(out, table, is_result=True)
    prior = prior_of(factors, inclusion, modules, noise, groups)
    data = read_and_say(table, choices, center, scale)
    begin = time.monotonic()
    with under_way("Fitting") as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.ConvergenceWarning)  # said below, in the words of the command line
        p = sf.fit_vi(
            data.frame,
            prior,
            n_trials="auto" if trials is None else trials,
            max_iter=max_iter,
            race=race,
            average=average,
            center=center,
            scale=scale,
            covariates=read_covariates(covariates),
            covariate_loadings=covariate_loadings.value,
            seed=seed,
            progress=progress,
        )
    p.save(out)
    sure = as_options(p.certainty)
    facts = {"out": out, "elbo": p.elbo, "status": p.status.name, "converged": p.converged, "certainty": sure}
    facts["read"] = data.facts()
    answer(f"{out}: ELBO {p.elbo:,.3f}; {p.status.name.lower()} after {seconds_since(begin)}", facts)
    _warn_about(p)
    if p.status is sf.Status.INTERRUPTED:
        warn(f"Interrupted: the best state so far is in {out}; the same command fits again from the start.")
        raise typer.Exit(INTERRUPTED)
    if not p.converged:
        warn(f"Not to be trusted yet: VI stopped after {max_iter} iterations; pass --max-iter {MORE_ITERATIONS}.")
        raise typer.Exit(NOT_TRUSTED)
    note(sure)
    _next(out)


@command(
    "sparsefactor sample X.csv --factors 2 --draws 500 --out draws.sf",
    "sparsefactor sample X.csv --factors 2 --draws 500 --path run     # draws go to a folder, and may be more later",
    "sparsefactor sample X.csv --factors 2 --draws 1000 --resume run",
    "sparsefactor sample X.csv --factors 2 --draws 200 --until converged --max-seconds 60 --out more.sf",
    reads=True,
)
def sample(
    table: Data,
    factors: Factors,
    choices: Choices,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where the result goes.")] = None,
    path: Annotated[
        Path | None, typer.Option(help="A folder for the draws as they are made; it can be gone on.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder, which must exist.")] = None,
    inclusion: Inclusion = None,
    modules: Modules = 1,
    groups: Groups = None,
    covariates: Covariates = None,
    covariate_loadings: CovariateLoadings = LoadingsOf.flat,
    noise: NoiseOf = Noise.feature,
    chains: Annotated[int, typer.Option(min=1)] = 4,
    warmup: Annotated[int, typer.Option(min=0, help="Sweeps of each chain that are not kept.")] = 500,
    draws: Annotated[int, typer.Option(min=1, help="Draws of each chain that are kept.")] = 1000,
    thin: Annotated[int, typer.Option(min=1, help="Sweeps for each draw.")] = 1,
    until: Annotated[Until | None, typer.Option(help="Double the draws until the verdict is good.")] = None,
    max_seconds: Annotated[float | None, typer.Option(min=0, help="With --until: no longer than about that.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Go on with a run of another version.")] = False,
    center: Center = True,
    scale: Scale = False,
    seed: Seed = 0,
) -> None:
    """Sample the posterior by Gibbs sampling, save it, and say whether the draws can be trusted."""
    folder = _folder(out, path, resume)
    if out is not None:
        check_out(out, table, is_result=True, goes_on=folder.exists())
    check_folder_out(folder, "--path")
    prior = prior_of(factors, inclusion, modules, noise, groups)
    data = read_and_say(table, choices, center, scale)
    try:
        p = _sampled(
            data,
            prior,
            n_chains=chains,
            n_warmup=warmup,
            n_draws=draws,
            thin=thin,
            seed=seed,
            path=folder,
            until=None if until is None else until.value,
            max_seconds=max_seconds,
            force=force,
            center=center,
            scale=scale,
            covariates=read_covariates(covariates),
            covariate_loadings=covariate_loadings.value,
        )
    except KeyboardInterrupt:
        kept = f"What was drawn is kept in {folder}" if folder.exists() else "Nothing was drawn yet"
        warn(f"Interrupted. {kept}; the same command goes on from there: {_said()}")
        raise typer.Exit(INTERRUPTED) from None
    if out is not None:
        p.save(out)
    found = p.diagnostics()
    own = path is None and resume is None
    draws = p.permutations.shape[1]
    verdict = spelt(found.verdict, draws)
    worst = {"r_hat": found.table["r_hat"].max(), "ess": found.table["ess_bulk"].min()}
    where = folder if out is None else out
    facts = {"out": where, "chains": chains, "draws": draws, "ok": found.ok, "verdict": verdict, **worst}
    answer(f"{where}: {chains} chains of {draws} draws\n{verdict}", {**facts, "read": data.facts()})
    _warn_about(p)
    if found.ok:
        if own:
            shutil.rmtree(folder)
        _next(where)
        return
    warn(
        f"These draws are not to be trusted yet. The run stays in {folder}: with larger --draws it goes on from there."
    )
    raise typer.Exit(NOT_TRUSTED)


def _folder(out: Path | None, path: Path | None, resume: Path | None) -> Path:
    """Where the run lies: beside the result, unless told otherwise; it goes once its draws can be trusted."""
    if out is None and path is None and resume is None:
        raise ValueError("a result must go somewhere; pass --out FILE, or --path FOLDER for draws that can be gone on")
    if resume is not None:
        if path is not None and path.absolute() != resume.absolute():
            raise ValueError(f"--path and --resume must agree; got {path} and {resume}; pass one of them")
        if not resume.is_dir():
            raise FileNotFoundError(
                f"--resume must hold a run; {str(resume)!r} does not; pass --path to begin one there"
            )
        return resume
    if path is not None:
        return path
    assert out is not None
    return out.with_name(out.name + ".run")


def _sampled(data: Table, prior: sf.Prior, **settings: Any) -> sf.MCMCPosterior:
    with under_way("Sampling") as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.SamplingWarning)  # the verdict is printed
        return sf.sample(data.frame, prior, progress=progress, **settings)


def _said() -> str:
    """The command as it was given."""
    return shlex.join(["sparsefactor", *sys.argv[1:]])


def _warn_about(p: sf.VIPosterior | sf.MCMCPosterior) -> None:
    for said in warnings_about(p):
        warn(as_options(said))


def _next(out: Path) -> None:
    if not console.settings.json:
        note(f"Next: sparsefactor summary {shlex.quote(str(out))}, or sparsefactor report {shlex.quote(str(out))}")
