"""Options that several commands share."""

from __future__ import annotations

import csv
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import sparsefactor as sf

from ..reading import AmbiguousTableError, Choices, read
from ..reading.csv import extent, text_of
from ..reading.dialect import SEPARATORS
from ..reading.formats import format_of
from ..reading.limits import check_file, check_table
from ..reading.names import shown
from ..reading.numeric import NumberFormat

Data = Annotated[
    Path, typer.Argument(help="A table: CSV, TSV (also .gz), .xlsx, .npy, Parquet, Feather, .rds or .h5ad.")
]
Result = Annotated[Path, typer.Argument(help="A file saved by fit or sample, or a folder of --path.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="File for the result.")]
Factors = Annotated[
    int | None,
    typer.Option(
        "--factors",
        "-k",
        min=1,
        help="Maximum number of factors; unneeded ones are left empty. If left out, parallel analysis chooses it.",
    ),
]
Inclusion = Annotated[
    float | None, typer.Option(help="Probability that a loading is not zero; learnt if left out.", min=0, max=1)
]
Modules = Annotated[int, typer.Option(min=1, help="Modules that features may fall into; needs learnt inclusion.")]
Groups = Annotated[
    Path | None,
    typer.Option(help="A table with a label for each feature: its first column names the feature, the next its group."),
]
Covariates = Annotated[
    Path | None,
    typer.Option(help="A table of known covariates, a row for each sample; matched by name where both have names."),
]
Center = Annotated[bool, typer.Option("--center/--no-center", help="Subtract each feature's mean.")]
Scale = Annotated[bool, typer.Option("--scale/--no-scale", help="Divide each feature by its standard deviation.")]
Seed = Annotated[int, typer.Option(min=0, help="Same seed, same result.")]
Chains = Annotated[str | None, typer.Option("--chains", help="Chains of a sampled result to use, e.g. 0,2.")]


class Noise(StrEnum):
    feature = "feature"
    shared = "shared"
    sample = "sample"


class LoadingsOf(StrEnum):
    flat = "flat"
    slab = "slab"


CovariateLoadings = Annotated[
    LoadingsOf, typer.Option(help="Loadings of covariates unpenalised, or shrunk by a slab each.")
]


class Correlation(StrEnum):
    """What is assumed of the factors' correlations."""

    learnt = "learnt"
    none = "none"


FactorCorrelation = Annotated[Correlation, typer.Option(help="Learn the factors' correlations, or keep them at zero.")]
NoiseOf = Annotated[Noise, typer.Option(help="What has its own noise level.")]


def prior_of(
    factors: int,
    inclusion: float | None,
    modules: int,
    noise: Noise,
    groups: Path | None = None,
    correlation: Correlation = Correlation.learnt,
) -> sf.Prior:
    """As in Python: only what is given differs from the default."""
    given: dict[str, Any] = {} if inclusion is None else {"inclusion": inclusion}
    labels = None if groups is None else read_labels(groups)
    given["factor_correlation"] = correlation.value
    return sf.Prior(n_factors=factors, n_modules=modules, noise=noise.value, groups=labels, **given)


def read_covariates(path: Path | None, max_bytes: int | None = None) -> Any:
    """Known covariates of the samples, a row for each."""
    if path is None:
        return None
    choices = Choices(transpose=False, max_bytes=max_bytes, few=True)
    alone = single_column(path, choices.limit)
    if alone is not None:
        return alone
    try:
        return read(path, choices).frame
    except AmbiguousTableError as problem:
        raise ValueError(
            f"--covariates must be a table that can be read in one way, since options of reading are for the data; "
            f"{problem}. Change the file"
        ) from None


def single_column(path: Path, limit: int) -> Any:
    """A text of one number a line, perhaps below a title, which is no table otherwise; None where it is not that."""
    import pandas as pd

    check_file(path, "--covariates")
    if format_of(path) != "text":
        return None
    check_table(0, 0, path, limit, n_names=extent(path, limit).lines)
    with text_of(path, None) as text:
        cells = [line.strip() for line in text if line.strip()]
    if not cells or any(sign in cell for sign in SEPARATORS for cell in cells[1:]):
        return None
    known = NumberFormat()
    title = None if known.is_number(cells[0]) else cells.pop(0).strip('"')
    odd = next((cell for cell in cells if known.is_text(cell)), None)
    if odd is not None:
        raise ValueError(f"covariates must be numbers; {str(path)!r} holds {shown(odd)!r}; encode it")
    numbers = [np.nan if known.is_missing(cell) else float(cell) for cell in cells]
    return pd.DataFrame({title or "covariate 1": numbers})


def read_labels(path: Path) -> dict[str, str]:
    """Labels by feature name from a table of two columns, with a line of headings; any usual separator."""
    check_file(path, "--groups")
    try:
        text = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as problem:
        raise ValueError(f"--groups must be text in UTF-8; {str(path)!r} is not ({problem}); save it so") from None
    mark = next((sign for sign in ("\t", ";") if text and sign in text[0]), ",")
    lines = [line for line in csv.reader(text[1:], delimiter=mark) if line]
    short = next((number for number, line in enumerate(lines, start=2) if len(line) < 2 or not line[1].strip()), None)
    if not lines or short is not None:
        raise ValueError(
            f"--groups must name a feature and its group in every line; {str(path)!r} "
            + (f"does not in line {short}; complete it" if lines else "has no lines below its first; add them")
        )
    labels: dict[str, str] = {}
    for name, label in ((line[0].strip(), line[1].strip()) for line in lines):
        if labels.setdefault(name, label) != label:
            raise ValueError(
                f"--groups must name one group for a feature; {str(path)!r} has {labels[name]!r} and {label!r} for "
                f"{name!r}; remove one"
            )
    return labels
