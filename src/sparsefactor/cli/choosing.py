"""`compare`: how many factors, by how well they predict entries held out."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

import sparsefactor as sf

from ..reading import Choices
from .app import command
from .console import answer, warn, working
from .files import check_folder_out, check_table_out, write_table
from .input import read_and_say
from .options import (
    Center,
    Correlation,
    Data,
    FactorCorrelation,
    Inclusion,
    Modules,
    Noise,
    NoiseOf,
    Scale,
    Seed,
    prior_of,
)


@command(
    "sparsefactor compare X.csv --factors 1,2,4 --masks 2 --trials 2",
    "sparsefactor compare X.csv --factors 1,2 --masks 2 --trials 2 --out comparison.csv",
    reads=True,
)
def compare(
    table: Data,
    factors: Annotated[str, typer.Option("--factors", "-k", help="Numbers of factors, separated by commas.")],
    choices: Choices,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A file for the table.")] = None,
    path: Annotated[Path | None, typer.Option(help="A folder for finished fits; the same command continues.")] = None,
    inclusion: Inclusion = None,
    modules: Modules = 1,
    noise: NoiseOf = Noise.feature,
    factor_correlation: FactorCorrelation = Correlation.learnt,
    masks: Annotated[int, typer.Option(min=2, help="Fits of each number, with different entries held out.")] = 5,
    share: Annotated[float, typer.Option(min=0.001, max=0.9, help="Share of the entries that is held out.")] = 0.1,
    trials: Annotated[int, typer.Option(min=1, help="Restarts of each fit.")] = 10,
    center: Center = True,
    scale: Scale = False,
    seed: Seed = 0,
) -> None:
    """Compare numbers of factors by how well they predict entries held out."""
    if out is not None:
        check_table_out(out, table)
    if path is not None:
        check_folder_out(path, "--path")
    try:
        counts = [int(number) for number in factors.split(",")]
    except ValueError:
        raise ValueError(
            f"--factors must be whole numbers separated by commas; got {factors!r}; pass e.g. 2,4,6"
        ) from None
    priors = {str(k): prior_of(k, inclusion, modules, noise, correlation=factor_correlation) for k in counts}
    data = read_and_say(table, choices, center, scale)
    with working(f"Fitting {len(priors) * masks} times", long=True) as spinner, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "[0-9]+ is the largest number of factors")  # said below
        found = sf.compare(
            data.frame,
            priors,
            n_masks=masks,
            share=share,
            seed=seed,
            path=path,
            n_trials=trials,
            center=center,
            scale=scale,
            progress=lambda done, total, _: spinner.say(f"Fitted {done} of {total} times"),
        )
    if out is not None:
        write_table(found.table, out)
    facts = {
        "chosen": found.n_factors,
        "reason": found.reason,
        "advice": found.advice,
        "baseline": found.baseline,
        "table": found.table.to_dict("records"),
    }
    answer(str(found), facts)
    if found.advice:
        warn(found.advice)
