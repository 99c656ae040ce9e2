"""What `mc.diagnostics()` returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..posterior import MCMCPosterior
from ..posterior.verdict import Verdict
from .modes import Mode
from .quantities import lines, quantities
from .verdict import judge

if TYPE_CHECKING:
    import pandas
    import xarray


MOST_LINES = 20  # that a notebook shows of the table


@dataclass(frozen=True, eq=False, repr=False)
class Diagnostics:
    """Whether chains can be used, and the measures this rests on; `MCMCPosterior.diagnostics` returns it.

    Attributes
    ----------
    ok : bool
        Whether the draws can be used.
    verdict : Verdict
        The same in words, with remedies where they cannot; also `mc.verdict`.
    modes : tuple of Mode
        Sets of chains that found the same factors; each has `name`, `chains` and `log_joint`.
    table : pandas.DataFrame
        A row per factor and per label-free quantity: the worst R-hat, the smallest effective sample sizes and the
        largest Monte Carlo error (in posterior standard deviations) of what belongs to it, and which that is.
    quantities : pandas.DataFrame
        The same, a row per factor and kind of parameter.
    parameters : xarray.Dataset
        Every parameter by itself, NaN where constant.

    Examples
    --------
    >>> import sparsefactor as sf
    >>> sim = sf.simulate(n_features=40, n_samples=30, inclusion=[0.5, 0.2], snr=4, seed=0)
    >>> d = sf.sample(sim.X, n_factors=2, n_chains=2).diagnostics()
    >>> d.ok, len(d.modes), bool(d.table.r_hat.max() < 1.1)
    (True, 1, True)
    """

    ok: bool
    verdict: Verdict
    modes: tuple[Mode, ...]
    table: pandas.DataFrame = field(repr=False)
    quantities: pandas.DataFrame = field(repr=False)
    parameters: xarray.Dataset = field(repr=False)

    def __str__(self) -> str:
        return str(self.verdict)

    def __repr__(self) -> str:
        return f"Diagnostics: {self.verdict}"

    def _repr_html_(self) -> str:
        from html import escape

        shown = self.table.drop(columns="worst").head(MOST_LINES).map("{:.3g}".format)
        return f"<p>{escape(str(self.verdict))}</p>{shown.to_html()}"


def diagnose(mc: MCMCPosterior) -> Diagnostics:
    """Every measure of every parameter, summarised, and a verdict."""
    import pandas as pd
    import xarray as xr

    measured = dict(quantities(mc))
    listed = [line for name, values in measured.items() for line in lines(name, values)]
    by_quantity = pd.DataFrame(listed).drop(columns="factor").set_index(["subject", "quantity"])
    verdict = judge(mc, listed)
    return Diagnostics(verdict.ok, verdict, verdict.modes, _worst(by_quantity), by_quantity, xr.Dataset(measured))


def _worst(quantities: pandas.DataFrame) -> pandas.DataFrame:
    """A row per subject, with the quantity that mixes worst."""
    import pandas as pd

    lines = {}
    for subject, group in quantities.groupby(level="subject", sort=False):
        inner = group.droplevel("subject")
        by = inner["r_hat"] if inner["r_hat"].notna().any() else -inner["ess_bulk"]
        lines[subject] = {
            "r_hat": inner["r_hat"].max(),
            "ess_bulk": inner["ess_bulk"].min(),
            "ess_tail": inner["ess_tail"].min(),
            "mcse_over_sd": inner["mcse_over_sd"].max(),
            "worst": by.idxmax() if by.notna().any() else "constant",
        }
    return pd.DataFrame.from_dict(lines, orient="index")
