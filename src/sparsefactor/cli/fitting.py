"""`fit`, `refine` and `sample`: from a table to a saved posterior."""

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

from ..data import as_data
from ..engine.threads import single_blas_thread
from ..preparation import with_chosen_factors
from ..reading import Choices, Table
from ..words import bound_sentence, warnings_about
from . import console
from .app import command
from .console import INTERRUPTED, NOT_TRUSTED, answer, note, seconds_since, under_way, warn
from .files import check_folder_out, check_out
from .input import read_and_say, remember
from .looking import opened
from .options import (
    Center,
    Correlation,
    CovariateLoadings,
    Covariates,
    Data,
    FactorCorrelation,
    Factors,
    Groups,
    Inclusion,
    LoadingsOf,
    Modules,
    Noise,
    NoiseOf,
    Out,
    Result,
    Scale,
    Seed,
    prior_of,
    read_covariates,
)
from .spelling import as_options, spelt


class Until(StrEnum):
    converged = "converged"


class SearchKind(StrEnum):
    fast = "fast"
    thorough = "thorough"


MaxSeconds = Annotated[float | None, typer.Option(min=0.0, help="End the search after this time, in seconds.")]


@command(
    "sparsefactor fit X.csv --out fit.sf",
    "sparsefactor fit X.csv --factors 4 --scale --out four.sf",
    "sparsefactor fit X.csv --factors 4 --search thorough --max-seconds 60 --out thorough.sf",
    reads=True,
)
def fit(
    table: Data,
    choices: Choices,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for the result (default: TABLE.sf).")] = None,
    factors: Factors = None,
    inclusion: Inclusion = None,
    modules: Modules = 1,
    groups: Groups = None,
    covariates: Covariates = None,
    covariate_loadings: CovariateLoadings = LoadingsOf.flat,
    noise: NoiseOf = Noise.feature,
    factor_correlation: FactorCorrelation = Correlation.learnt,
    search: Annotated[
        SearchKind, typer.Option(help="One restart, or a search for the highest ELBO.")
    ] = SearchKind.fast,
    max_seconds: MaxSeconds = None,
    trials: Annotated[int | None, typer.Option(min=1, help="Number of restarts (default: 1; thorough: 10).")] = None,
    max_iter: Annotated[int, typer.Option(min=1, help="Maximum number of iterations of a restart.")] = 5000,
    race: Annotated[bool, typer.Option("--race/--no-race", help="Drop the worst of several restarts early.")] = True,
    average: Annotated[bool, typer.Option("--average", help="Predict by the mean over several restarts.")] = False,
    center: Center = True,
    scale: Scale = False,
    seed: Seed = 0,
) -> None:
    """Fit by variational inference and save the posterior."""
    if out is None:
        out = Path(table.name.removesuffix(".gz")).with_suffix(".sf")
    check_out(out, table, is_result=True)
    prior = prior_of(factors or 1, inclusion, modules, noise, groups, factor_correlation)
    data = read_and_say(table, choices, center, scale)
    settings = _settings(center, scale, read_covariates(covariates, choices.max_bytes), covariate_loadings)
    if factors is None:
        prior = _with_chosen_factors(prior, data, **settings)
    begin = time.monotonic()
    with under_way("Fitting") as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.ConvergenceWarning)  # said below, in the words of the command line
        p = sf.fit_vi(
            data.frame,
            prior,
            search=search.value,
            max_seconds=max_seconds,
            n_trials="auto" if trials is None else trials,
            max_iter=max_iter,
            race=race,
            average=average,
            seed=seed,
            progress=progress,
            **settings,
        )
    remember(p, choices, data)
    _save_fit(p, out, begin, data.facts())


@command(
    "sparsefactor refine fit.sf X.csv --max-seconds 60 --out refined.sf",
    reads=True,
)
def refine(
    result: Result,
    table: Data,
    out: Out,
    choices: Choices,
    max_seconds: MaxSeconds = None,
    covariates: Covariates = None,
    seed: Seed = 0,
) -> None:
    """Continue from a saved fit with a thorough search for a higher ELBO."""
    check_out(out, table, is_result=True)
    before = opened(result, None)
    if not isinstance(before, sf.VIPosterior):
        raise ValueError(f"refine needs a result of fit; {str(result)!r} holds draws; use sparsefactor sample --path")
    data = read_and_say(table, choices, result=before)
    begin = time.monotonic()
    with under_way("Refining") as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", sf.ConvergenceWarning)
        known = read_covariates(covariates, choices.max_bytes)
        p = before.refine(data.frame, max_seconds=max_seconds, seed=seed, covariates=known, progress=progress)
    p.record["reading"] = before.record.get("reading", {})
    _save_fit(p, out, begin, data.facts(), before)


def _save_fit(
    p: sf.VIPosterior, out: Path, begin: float, read: dict[str, Any], before: sf.VIPosterior | None = None
) -> None:
    """Save a fit and say what it is; before: the fit that it refines."""
    p.save(out)
    sure = as_options(p.certainty)
    facts = {"out": out, "elbo": p.elbo, "status": p.status.name, "converged": p.converged, "certainty": sure}
    facts |= {"n_factors": p.n_factors, "parallel_analysis": p.prior.parallel_analysis, "read": read}
    gained = "" if before is None else f" ({p.elbo - before.elbo:+,.3f})"
    status = p.status.name.lower().replace("_", " ")
    lines = [f"{out}: ELBO {p.elbo:,.3f}{gained}; {status} after {seconds_since(begin)}", bound_sentence(p)]
    answer("\n".join(filter(None, lines)), facts)
    _warn_about(p)
    if p.status is sf.Status.INTERRUPTED:
        warn(f"Interrupted: the best state so far is in {out}; sparsefactor refine continues from it.")
        raise typer.Exit(INTERRUPTED)
    if not p.converged:
        why = as_options(p.status.value)
        warn(f"Not reliable yet: the fit has not converged. {why[:1].upper()}{why[1:]}")
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
    choices: Choices,
    factors: Factors = None,
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
    factor_correlation: FactorCorrelation = Correlation.learnt,
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
    prior = prior_of(factors or 1, inclusion, modules, noise, groups, factor_correlation)
    data = read_and_say(table, choices, center, scale)
    settings = _settings(center, scale, read_covariates(covariates, choices.max_bytes), covariate_loadings)
    if factors is None:
        prior = _with_chosen_factors(prior, data, **settings)
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
            **settings,
        )
    except KeyboardInterrupt:
        kept = f"What was drawn is kept in {folder}" if folder.exists() else "Nothing was drawn yet"
        warn(f"Interrupted. {kept}; the same command goes on from there: {_said()}")
        raise typer.Exit(INTERRUPTED) from None
    remember(p, choices, data)
    if out is not None:
        p.save(out)
    found = p.diagnostics()
    own = path is None and resume is None
    draws = p.permutations.shape[1]
    verdict = spelt(found.verdict, draws)
    worst = {"r_hat": found.table["r_hat"].max(), "ess": found.table["ess_bulk"].min()}
    where = folder if out is None else out
    facts = {"out": where, "chains": chains, "draws": draws, "ok": found.ok, "verdict": verdict, **worst}
    facts |= {"n_factors": p.n_factors, "parallel_analysis": p.prior.parallel_analysis, "read": data.facts()}
    lines = [f"{where}: {chains} chains of {draws} draws", bound_sentence(p), verdict]
    answer("\n".join(filter(None, lines)), facts)
    _warn_about(p)
    if found.ok:
        if own:
            shutil.rmtree(folder)
        _next(where)
        return
    warn(f"These draws are not reliable yet. The run stays in {folder}: with larger --draws it continues from there.")
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


def _settings(center: bool, scale: bool, covariates: Any, loadings: LoadingsOf) -> dict[str, Any]:
    return {"center": center, "scale": scale, "covariates": covariates, "covariate_loadings": loadings.value}


def _with_chosen_factors(
    prior: sf.Prior, data: Table, *, center: bool, scale: bool, covariates: Any, covariate_loadings: str
) -> sf.Prior:
    matrix = as_data(data.frame, center=center, scale=scale).with_design(covariates, center, covariate_loadings)
    with single_blas_thread():  # as fit_vi and sample do
        return with_chosen_factors(prior, matrix)


def _said() -> str:
    """The command as it was given."""
    return shlex.join(["sparsefactor", *sys.argv[1:]])


def _warn_about(p: sf.VIPosterior | sf.MCMCPosterior) -> None:
    for said in warnings_about(p):
        warn(as_options(said))


def _next(out: Path) -> None:
    if not console.settings.json:
        note(f"Next: sparsefactor summary {shlex.quote(str(out))}, or sparsefactor report {shlex.quote(str(out))}")
