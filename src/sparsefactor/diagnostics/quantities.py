"""What is measured: every parameter under the common labelling, and quantities that need no labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..posterior import MCMCPosterior
from ..storage.lazy import draws_per_block
from ..storage.moments import blocks
from .measures import FEWEST_DRAWS, MEASURES, measure
from .modes import found_factors

if TYPE_CHECKING:
    import xarray

Array = NDArray[np.float64]

PASS_BYTES = 256e6  # of draws that are looked at in one pass over the store
BY_FACTOR = ("activations_norm", "loadings_norm", "n_active")


class Fault(NamedTuple):
    """A variable of one chain that no sampler would leave so. what: completes "chain 2: VARIABLE ..."."""

    variable: str
    chain: int
    what: str


def quantities(mc: MCMCPosterior, quick: bool = False) -> Iterator[tuple[str, xarray.DataArray]]:
    """Each quantity with its measures (measure, ...), a part of it at a time where there are many draws."""
    import xarray as xr

    posterior = mc.draws["posterior"].to_dataset()
    names = "loadings", "activations", "loading_precision", "inclusion_rate", "noise_precision", "factor_correlation"
    for name in names:
        if name not in posterior:
            continue
        array = posterior[name] if name != "factor_correlation" else of_found_factors(mc, posterior[name])
        own = [str(dim) for dim in array.dims if dim not in ("chain", "draw")]
        if not own:
            yield name, measure(array, quick)
            continue
        axis = own[0]
        step = max(1, int(PASS_BYTES // (array.size * 8 / array.sizes[axis])))
        parts = [measure(array.isel({axis: part}), quick) for part in blocks(array.sizes[axis], step)]
        yield name, xr.concat(parts, axis)
    for name, array in summaries(mc).items():
        yield name, measure(array, quick)
    yield "log_joint", measure(mc.draws["sample_stats"].to_dataset()["lp"], quick)


def of_found_factors(mc: MCMCPosterior, correlations: xarray.DataArray) -> xarray.DataArray:
    """Correlations (chain, draw, other_factor, factor); NaN for factors that no chain finds."""
    found = found_factors(mc)[1].any(axis=0)
    ordered = correlations.transpose("chain", "draw", "other_factor", "factor")
    return ordered.copy(data=np.where(np.outer(found, found), ordered.values, np.nan))


def summaries(mc: MCMCPosterior) -> dict[str, xarray.DataArray]:
    """Per draw: |f_k|^2, |l_k|^2, the number of active loadings, (chain, draw, factor); without labels, (chain, draw):
    |LF|^2, the number of active loadings in all, and that of the factors that have any.
    """
    import xarray as xr

    posterior = mc.draws["posterior"].to_dataset()
    L, F, Z = (posterior[name].variable for name in ("loadings", "activations", "inclusion"))
    n_chains, n_draws, G, K = L.shape
    out = {name: np.empty((n_chains, n_draws, K)) for name in BY_FACTOR}
    signal = np.empty((n_chains, n_draws))
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is reported as such
        for chain in range(n_chains):
            for part in blocks(n_draws, draws_per_block((G, K), np.float64)):
                l, f = L[chain, part].values, F[chain, part].values
                out["activations_norm"][chain, part] = np.einsum("tjk,tjk->tk", f, f)
                out["loadings_norm"][chain, part] = np.einsum("tik,tik->tk", l, l)
                out["n_active"][chain, part] = Z[chain, part].values.sum(axis=1)
                signal[chain, part] = np.sum((np.swapaxes(l, 1, 2) @ l) * (np.swapaxes(f, 1, 2) @ f), axis=(1, 2))
    named = {name: xr.DataArray(values, dims=("chain", "draw", "factor")) for name, values in out.items()}
    free = {
        "signal_norm": signal,
        "active_loadings": out["n_active"].sum(axis=2),
        "factors_in_use": (out["n_active"] > 0).sum(axis=2),
    }
    return {**named, **{name: xr.DataArray(values, dims=("chain", "draw")) for name, values in free.items()}}


def faults(mc: MCMCPosterior) -> list[Fault]:
    """What is not finite, and what never moves though it is drawn anew in every sweep."""
    posterior, stats = mc.draws["posterior"].to_dataset(), mc.draws["sample_stats"].to_dataset()
    found: list[Fault] = []
    names = ["activations", "loadings", "noise_precision", "loading_precision", "inclusion_rate"]
    names += ["factor_correlation", "lp"]
    for name in names:
        if name != "lp" and name not in posterior:
            continue
        source = (stats if name == "lp" else posterior)[name].variable.transpose("chain", "draw", ...)
        used = None
        if name in ("loading_precision", "inclusion_rate"):
            used = posterior["inclusion"].variable  # those of an empty factor may stand at the ends of their range
        for c, number in enumerate(mc.chain_numbers):
            what = _fault(source, c, may_rest=name in ("loadings", "factor_correlation"), inclusion=used)
            if what:
                found.append(Fault("log joint" if name == "lp" else name.replace("_", " "), number, what))
    return found


def _fault(source: xarray.Variable, chain: int, may_rest: bool, inclusion: xarray.Variable | None) -> str:
    n_draws, own = source.shape[1], source.shape[2:]
    least, most = np.full(own, np.inf), np.full(own, -np.inf)
    for part in blocks(n_draws, draws_per_block(own, np.float64)):
        values = source[chain, part].values
        finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if not finite.all():
            return f"not finite at draw {part.start + int(np.argmin(finite))}"
        if may_rest:
            continue
        least, most = np.minimum(least, values.min(axis=0)), np.maximum(most, values.max(axis=0))
    rests: Any = least == most
    if inclusion is not None and np.any(rests):
        n_active = np.zeros(own)
        for part in blocks(n_draws, draws_per_block(inclusion.shape[2:], np.int8)):
            n_active += inclusion[chain, part].values.sum(axis=(0, 1))
        rests = rests & (n_active > 0)
    if may_rest or n_draws < FEWEST_DRAWS or not np.any(rests):
        return ""
    return "never changes" if np.all(rests) or np.ndim(rests) == 0 else f"never changes at {_places(rests)}"


def _places(rests: NDArray[np.bool_]) -> str:
    n = int(rests.sum())
    return f"{n} of {rests.size} places"


def lines(name: str, values: xarray.DataArray) -> Iterator[dict[str, Any]]:
    """A quantity's worst measures: a line per factor, or one line where it has no labels."""
    if "factor" in values.dims:
        for k in range(values.sizes["factor"]):
            yield _line(f"factor {k + 1}", name, values.isel(factor=k).values, k)
    else:
        yield _line(name.replace("_", " "), name, values.values, None)


def _line(subject: str, quantity: str, values: Array, factor: int | None) -> dict[str, Any]:
    flat = values.reshape(len(MEASURES), -1)
    r_hat, bulk, tail, mcse, sd = flat
    known = sd > 0  # NaN where it was not asked for
    return {
        "subject": subject,
        "quantity": quantity,
        "factor": factor,
        "n_parameters": int(np.sum(~np.isnan(bulk))),
        "r_hat": _extreme(np.max, r_hat),
        "ess_bulk": _extreme(np.min, bulk),
        "ess_tail": _extreme(np.min, tail),
        "mcse_over_sd": _extreme(np.max, mcse[known] / sd[known]),
    }


def _extreme(reduce: Any, values: Array) -> float:
    known = values[~np.isnan(values)]
    return float(reduce(known)) if len(known) else float("nan")
