"""A posterior's tables and figures by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import sparsefactor as sf

if TYPE_CHECKING:
    import pandas

Posterior = sf.VIPosterior | sf.MCMCPosterior


def factors(p: Posterior) -> list[dict[str, Any]]:
    """A line per factor, as values."""
    from ..report.posterior import factor_rows

    return factor_rows(p)


def readable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same for a reader: shares as per cent."""
    return [
        {name: f"{value:.1%}" if isinstance(value, float) else value for name, value in row.items()} for row in rows
    ]


def _matrix(values: Any, index: Any, columns: Any, name: str) -> pandas.DataFrame:
    import pandas as pd

    return pd.DataFrame(values, index=pd.Index(index, name=name), columns=columns)


def _factor_names(p: Posterior) -> list[str]:
    return [f"factor {k + 1}" for k in range(p.n_factors)]


def _by_feature(field: str) -> Callable[[Any], pandas.DataFrame]:
    return lambda p: _matrix(getattr(p, field), p.feature_names, _factor_names(p), "feature")


def _by_sample(field: str) -> Callable[[Any], pandas.DataFrame]:
    return lambda p: _matrix(getattr(p, field), p.sample_names, _factor_names(p), "sample")


def _noise(p: Any) -> pandas.DataFrame:
    index = {"feature": p.feature_names, "sample": p.sample_names, "shared": ["all"]}[p.prior.noise]
    return _matrix(np.atleast_1d(p.noise_precision_mean), index, ["noise_precision"], p.prior.noise)


def _summary(p: Any) -> pandas.DataFrame:
    import pandas as pd

    return pd.DataFrame(factors(p)).set_index("factor")


BOTH: dict[str, Callable[[Any], Any]] = {
    "summary": _summary,
    "loadings": _by_feature("loadings_mean"),
    "loadings_sd": _by_feature("loadings_sd"),
    "inclusion": _by_feature("inclusion_prob"),
    "activations": _by_sample("activations_mean"),
    "activations_sd": _by_sample("activations_sd"),
    "noise": _noise,
    "discoveries": lambda p: p.discoveries().set_index("factor"),
    "reconstruction": lambda p: _matrix(p.reconstruct(), p.sample_names, p.feature_names, "sample"),
}
VI = {"trials": lambda p: p.trials.set_index("trial"), "elbo": lambda p: p.elbo_trace.set_index("iteration")}
MCMC = {"diagnostics": lambda p: p.diagnostics().table.rename_axis("subject")}


def _known(p: Posterior) -> dict[str, Callable[[Any], Any]]:
    return {**BOTH, **(VI if isinstance(p, sf.VIPosterior) else MCMC)}


def names(p: Posterior) -> list[str]:
    return list(_known(p))


def table(p: Posterior, name: str) -> pandas.DataFrame:
    frame: pandas.DataFrame = _known(p)[name](p)
    return frame


def write_workbook(frames: Mapping[str, pandas.DataFrame], out: Path) -> None:
    """A sheet for each table: whole, or not at all."""
    import pandas as pd

    making = out.with_name(f".{out.name}.part.xlsx")
    try:
        with pd.ExcelWriter(making) as book:
            for name, frame in frames.items():
                frame.to_excel(book, sheet_name=name[:31])
        making.replace(out)
    finally:
        making.unlink(missing_ok=True)


def _inclusion(p: Posterior, title: str) -> Any:
    from .. import plot

    return plot.inclusion_heatmap({title: p.inclusion_prob})


def _elbo(p: Posterior, title: str) -> Any:
    from .. import plot

    return plot.elbo(p)


PLOTS: dict[str, Callable[[Posterior, str], Any]] = {"inclusion": _inclusion, "elbo": _elbo}
