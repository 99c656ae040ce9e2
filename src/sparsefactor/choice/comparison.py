"""The outcome of a comparison: a table, a choice, a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..model import Prior

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST_NATS = 1.0  # over all entries that a mask holds out: a gain below this is worth no further factor
USED = 0.5  # factors that may be empty, on average, of a choice that uses all it was allowed
COLUMNS = """\
n_factors     factors allowed
found         factors that were not empty, on average
error         of the held-out entries, relative to their size
log density   of a held-out entry; larger is better
loss vs best  log density lost against the best, ± one standard error"""


@dataclass(frozen=True, eq=False)
class Comparison:
    """How well each prior predicts entries held out; `compare` and `choose_n_factors` return it.

    Attributes
    ----------
    table : pandas.DataFrame
        A row per prior, in the order given: n_factors (allowed), found (factors that are not empty, on average),
        error (relative to the centred data, see `fill_in_error`) and log_density (per entry held out), each with the
        standard error of its mean over masks; loss and loss_se, the log density lost against the best, mask by mask;
        and chosen.
    runs : pandas.DataFrame
        A row per fit.
    baseline : float
        The error of predicting each feature's mean.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.5], snr=5, seed=0)
    >>> found = sf.choose_n_factors(sim.X, [1, 2, 3], n_masks=2, n_trials=2)
    >>> found.choice, found.n_factors, bool(found.table.error.min() < found.baseline)
    ('2', 2, True)
    """

    table: pd.DataFrame
    runs: pd.DataFrame
    baseline: float

    @property
    def best(self) -> str:
        """The prior with the highest log density."""
        return str(self.table["log_density"].idxmax())

    @property
    def choice(self) -> str:
        """The prior with the fewest factors whose loss against the best is within one standard error.

        Or below one nat in all, over the entries that a mask holds out, should the standard error be smaller still.
        """
        return str(self.table.index[self.table["chosen"]][0])

    @property
    def reason(self) -> str:
        """Why the choice was made, in a sentence."""
        row, best = self.table.loc[self.choice], self.best
        if self.choice == best:
            return f"Chosen: {self.choice}, which predicts best."
        lost = f"{significant(row['loss'], row['loss_se'])} ± {significant(row['loss_se'], row['loss_se'])}"
        within = "within one standard error" if row["loss"] <= row["loss_se"] else "below one nat in all"
        return f"Chosen: {self.choice}, the fewest factors whose loss against the best ({best}) is {within}: {lost}."

    @property
    def advice(self) -> str:
        """A warning where more factors may predict better than the largest number offered; else an empty string."""
        counts, row = self.table["n_factors"], self.table.loc[self.choice]
        if counts.nunique() < 2 or row["n_factors"] < counts.max() or row["found"] < row["n_factors"] - USED:
            return ""
        most = int(counts.max())
        return f"{most} is the largest number of factors offered, and all are used; offer more, e.g. {most + 2}."

    @property
    def n_factors(self) -> int:
        """How many factors the chosen prior has."""
        return int(self.table["n_factors"][self.table["chosen"]].iloc[0])

    def __str__(self) -> str:
        text = pd.DataFrame(self.readable()).to_string(index=False)
        baseline = f"Predicting each feature's mean has an error of {self.baseline:.3g}."
        return f"{text}\n\n{COLUMNS}\n\n{self.reason} {baseline}"

    def readable(self) -> list[dict[str, str]]:
        """The table for a reader: a row per prior, with as many digits as the standard errors leave."""
        smallest = self.table["loss_se"][self.table["loss_se"] > 0].min()
        return [
            {
                "prior": str(name),
                "n_factors": str(row.n_factors),
                "found": f"{row.found:.1f}",
                "error": f"{row.error:.4f}",
                "log density": significant(row.log_density, smallest),
                "loss vs best": f"{significant(row.loss, row.loss_se)} ± {significant(row.loss_se, row.loss_se)}"
                if name != self.best
                else "best",
                "": "chosen" if row.chosen else "",
            }
            for name, row in zip(self.table.index, self.table.itertuples(), strict=True)
        ]

    def plot(self) -> Figure:
        """Error and log density of each prior, with one standard error to both sides; the choice is marked."""
        from .figure import comparison_figure

        return comparison_figure(self.table, self.baseline)


def significant(value: Any, error: Any) -> str:
    """A number with the decimals that leave two digits of its standard error; four where that is not known."""
    known = np.isfinite(error) and error > 0
    return f"{value:.{int(np.clip(1 - np.floor(np.log10(error)), 0, 10)) if known else 4}f}"


def tabulated(runs: pd.DataFrame, priors: Mapping[str, Prior]) -> pd.DataFrame:
    """A row per prior, and the choice among them."""
    measures = ("error", "log_density", "found")
    wide = {name: runs.pivot(index="mask", columns="prior", values=name)[list(priors)] for name in measures}
    n = len(wide["error"])
    density = wide["log_density"]
    best = density.mean().idxmax()
    lost = density[[best]].to_numpy() - density
    table = pd.DataFrame(
        {
            "n_factors": [prior.n_factors for prior in priors.values()],
            "found": wide["found"].mean(),
            "error": wide["error"].mean(),
            "error_se": wide["error"].std() / np.sqrt(n),
            "log_density": density.mean(),
            "log_density_se": density.std() / np.sqrt(n),
            "loss": lost.mean(),
            "loss_se": lost.std() / np.sqrt(n),
        },
        index=pd.Index(list(priors), name="prior"),
    )
    # Fits that differ by an empty factor differ by next to nothing, and so does their standard error.
    near = table["loss"] <= np.maximum(table["loss_se"], LEAST_NATS / runs["held_out"].mean())
    fewest = table["n_factors"].where(near).min()
    chosen = table["log_density"].where(near & (table["n_factors"] == fewest)).idxmax()
    return table.assign(chosen=table.index == chosen)
