"""`compare`: how many factors, by what they predict of entries held out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import sparsefactor as sf

from ..reading import Choices
from .app import command
from .console import answer, table_text, working
from .files import check_folder_out, check_table_out, write_table
from .input import read_and_say
from .options import Center, Data, Inclusion, Modules, Noise, NoiseOf, Scale, Seed, prior_of


@command(
    "sparsefactor compare X.csv --factors 1,2,4 --masks 2 --trials 2",
    "sparsefactor compare X.csv --factors 1,2 --masks 2 --trials 2 --out comparison.csv",
    reads=True,
)
def compare(
    table: Data,
    factors: Annotated[str, typer.Option("--factors", "-k", help="Numbers of factors, separated by commas.")],
    choices: Choices,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where the table goes.")] = None,
    path: Annotated[Path | None, typer.Option(help="A folder that keeps each fit; the same command goes on.")] = None,
    inclusion: Inclusion = None,
    modules: Modules = 1,
    noise: NoiseOf = Noise.feature,
    masks: Annotated[int, typer.Option(min=2, help="Fits of each, with other entries held out.")] = 5,
    share: Annotated[float, typer.Option(min=0.001, max=0.9, help="Share of entries that are held out.")] = 0.1,
    trials: Annotated[int, typer.Option(min=1, help="Restarts of each fit.")] = 10,
    center: Center = True,
    scale: Scale = False,
    seed: Seed = 0,
) -> None:
    """Compare numbers of factors by what they predict of entries held out."""
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
    priors = {str(k): prior_of(k, inclusion, modules, noise) for k in counts}
    data = read_and_say(table, choices, center, scale)
    with working(f"Fitting {len(priors) * masks} times", long=True) as spinner:
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
    rows = [
        {
            "factors": line.n_factors,
            "found": f"{line.found:.1f}",
            "error": f"{line.error:.4f}",
            "log density": f"{line.log_density:.4f}",
            "behind": f"{line.behind:.4f} ± {line.behind_se:.4f}",
            "": "chosen" if line.chosen else "",
        }
        for line in found.table.itertuples()
    ]
    text = (
        f"{table_text(rows)}\n\nChosen: {found.n_factors}, the fewest factors within one standard error of the best. "
        f"Predicting each feature's mean errs by {found.baseline:.4f}."
    )
    facts = {"chosen": found.n_factors, "baseline": found.baseline, "table": found.table.to_dict("records")}
    answer(text, facts)
