"""Options that several commands share."""

from __future__ import annotations

import csv
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import sparsefactor as sf

from ..reading import Choices, read

Data = Annotated[
    Path, typer.Argument(help="A table: CSV, TSV (also .gz), Parquet, Feather, .npy, .rds, .h5ad or .xlsx.")
]
Result = Annotated[Path, typer.Argument(help="What fit or sample saved, or a folder of --path.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Where the result goes.")]
Factors = Annotated[
    int, typer.Option("--factors", "-k", min=1, help="At most so many; what is not needed stays empty.")
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
    typer.Option(help="A table of known covariates, a line for each sample; matched by name where both have names."),
]
Center = Annotated[bool, typer.Option("--center/--no-center", help="Subtract each feature's mean.")]
Scale = Annotated[bool, typer.Option("--scale/--no-scale", help="Divide each feature by its standard deviation.")]
Seed = Annotated[int, typer.Option(min=0, help="Same seed, same result.")]
Jobs = Annotated[int, typer.Option(min=1, help="Processes at a time.")]
Chains = Annotated[str | None, typer.Option("--chains", help="Of a sampled result only these chains, e.g. 0,2.")]


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
NoiseOf = Annotated[Noise, typer.Option(help="What has a noise level of its own.")]


def prior_of(factors: int, inclusion: float | None, modules: int, noise: Noise, groups: Path | None = None) -> sf.Prior:
    """As in Python: only what is given differs from the default."""
    given: dict[str, Any] = {} if inclusion is None else {"inclusion": inclusion}
    labels = None if groups is None else read_labels(groups)
    return sf.Prior(n_factors=factors, n_modules=modules, noise=noise.value, groups=labels, **given)


def read_covariates(path: Path | None) -> Any:
    """Known covariates of the samples, a line for each."""
    return None if path is None else read(path, Choices(transpose=False)).frame


def read_labels(path: Path) -> dict[str, str]:
    """Labels by feature name from a table of two columns, comma- or tab-separated, with a line of headings."""
    if not path.is_file():
        raise FileNotFoundError(f"--groups must be a table; {str(path)!r} does not exist; check its name")
    text = path.read_text(encoding="utf-8-sig").splitlines()
    mark = "\t" if text and "\t" in text[0] else ","
    lines = [line for line in csv.reader(text[1:], delimiter=mark) if line]
    short = next((number for number, line in enumerate(lines, start=2) if len(line) < 2 or not line[1].strip()), None)
    if not lines or short is not None:
        raise ValueError(
            f"--groups must name a feature and its group in every line; {str(path)!r} "
            + (f"does not in line {short}; complete it" if lines else "has no lines below its first; add them")
        )
    return {line[0].strip(): line[1].strip() for line in lines}
