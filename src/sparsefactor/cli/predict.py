"""`impute` and `transform`: what a saved posterior says about a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ..reading import Choices
from .app import command
from .console import answer, working
from .files import check_table_out, write_filled, write_table
from .input import read_and_say
from .looking import opened
from .options import Chains, Covariates, Data, Out, Result, read_covariates

SdOut = Annotated[Path | None, typer.Option("--sd", help="File for standard deviations.")]


@command(
    "sparsefactor impute fit.sf X.csv --out filled.csv",
    "sparsefactor impute fit.sf X.csv --out filled.csv --sd filled_sd.csv --overwrite",
    reads=True,
)
def impute(
    result: Result,
    table: Data,
    out: Out,
    choices: Choices,
    sd: SdOut = None,
    covariates: Covariates = None,
    chains: Chains = None,
) -> None:
    """Write a table with its missing entries filled in, and their standard deviations (0 where observed).

    Titles, other columns and the format of numbers stay as they are in the file.
    """
    import pandas as pd

    for target, option in ((out, "--out"), (sd, "--sd")):
        if target is not None:
            check_table_out(target, result, table, option=option)
    p = opened(result, chains)
    data = read_and_say(table, choices, result=p)
    known = read_covariates(covariates, choices.max_bytes)
    with working("Filling in"):
        values, spread = p.impute(data.frame, return_sd=True, covariates=known)
    missing = data.frame.isna().to_numpy()
    write_filled(data, np.asarray(values), out)
    if sd is not None:
        index = data.frame.index.rename(data.parsed.index or None)
        frame = pd.DataFrame(np.asarray(spread), index=index, columns=data.frame.columns)
        write_table(frame.T if data.transposed else frame, sd)
    typical = float(np.median(np.asarray(spread)[missing])) if missing.any() else None
    said = "" if typical is None else f"; their median standard deviation is {typical:.3g}"
    facts = {"out": out, "sd": sd, "filled": int(missing.sum()), "median_sd": typical}
    answer(f"{out}: {int(missing.sum()):,} missing entries of {missing.size:,} filled in{said}", facts)


@command(
    "sparsefactor transform fit.sf X.csv --out activations.csv",
    reads=True,
)
def transform(
    result: Result,
    table: Data,
    out: Out,
    choices: Choices,
    sd: SdOut = None,
    covariates: Covariates = None,
    chains: Chains = None,
) -> None:
    """Write the scores (activations) of a table's samples, new ones or those of the fit."""
    import pandas as pd

    for target, option in ((out, "--out"), (sd, "--sd")):
        if target is not None:
            check_table_out(target, result, table, option=option)
    p = opened(result, chains)
    data = read_and_say(table, choices, result=p)
    known = read_covariates(covariates, choices.max_bytes)
    with working("Transforming"):
        mean, spread = p.transform(data.frame, return_sd=True, covariates=known)
    for target, numbers in ((out, mean), (sd, spread)):
        if target is not None:
            write_table(pd.DataFrame(np.asarray(numbers), index=data.frame.index, columns=p.factor_names), target)
    answer(
        f"{out}: {len(data.frame):,} samples, {p.n_factors} factors",
        {"out": out, "sd": sd, "n_samples": len(data.frame), "n_factors": p.n_factors},
    )
