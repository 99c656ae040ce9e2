"""The outcome of a comparison: a table, a choice, a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..model import Prior

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEAST_NATS = 1.0  # over all entries that a mask holds out: a gain below this is worth no further factor


@dataclass(frozen=True, eq=False)
class Comparison:
    """What each prior predicts of the entries held out; `compare` and `choose_n_factors` return it.

    Attributes
    ----------
    table : pandas.DataFrame
        One line a prior, in the order given: n_factors (allowed), found (factors that are not empty, on average),
        error (relative to the centred data, see `fill_in_error`) and log_density (per entry held out), each with the
        standard error of its mean over masks; behind and behind_se, how much density is lost against the best, mask
        by mask; and chosen.
    runs : pandas.DataFrame
        One line a fit.
    baseline : float
        The error of predicting each feature's mean.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.5], snr=5, seed=0)
    >>> found = sf.choose_n_factors(sim.X, [1, 2], n_masks=2, n_trials=2)
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
        """The prior with the fewest factors whose log density is within one standard error of the best.

        Or within one nat in all over the entries that a mask holds out, should the standard error be smaller still.
        """
        return str(self.table.index[self.table["chosen"]][0])

    @property
    def n_factors(self) -> int:
        """How many factors the chosen prior has."""
        return int(self.table["n_factors"][self.table["chosen"]].iloc[0])

    def __str__(self) -> str:
        text = self.table.to_string(float_format=lambda x: f"{x:.4g}")
        return f"{text}\n{self.choice!r} is chosen; the best is {self.best!r}; feature means err by {self.baseline:.3g}"

    def plot(self) -> Figure:
        """Error and log density of each prior, with one standard error to either side; the choice is marked."""
        from .figure import comparison_figure

        return comparison_figure(self.table, self.baseline)


def tabulated(runs: pd.DataFrame, priors: Mapping[str, Prior]) -> pd.DataFrame:
    """One line a prior, and the choice among them."""
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
            "behind": lost.mean(),
            "behind_se": lost.std() / np.sqrt(n),
        },
        index=pd.Index(list(priors), name="prior"),
    )
    # Fits that differ by an empty factor differ by next to nothing, and so does their standard error.
    near = table["behind"] <= np.maximum(table["behind_se"], LEAST_NATS / runs["held_out"].mean())
    fewest = table["n_factors"].where(near).min()
    chosen = table["log_density"].where(near & (table["n_factors"] == fewest)).idxmax()
    return table.assign(chosen=table.index == chosen)
